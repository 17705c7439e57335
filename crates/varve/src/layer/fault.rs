//! `faults=` lets go wrong what it says.
//!
//! ```text
//! faults  = fault { ";" fault }
//! fault   = operation [ "." class ] "/" effect "@" trigger
//! trigger = N | N ".." | N "in" M
//! effect  = [ "after-" | "partly-" | "dropping-" | late | late "dropping-" ] error
//!         | "short-read" | "flip-bits" | "misdirect" | "lose" | "stall-" time
//!         | "zone-read-only" | "zone-offline"
//! late    = "late-" time "-"
//! time    = N "ms" | N "us"
//! ```
//!
//! `sync/late-2ms-dropping-io@3` drops unsynced writes at the fourth sync and returns the error 2 ms later; other calls
//! go on meanwhile. Without `dropping-` the sync does nothing and fails late.

use crate::error::Error;
use crate::registry::{LayerKind, OptionDescription, ValueForm, whole_number};
use crate::spec::{Part, SpecError};
use crate::stack::{Base, BuiltDevice, Construction};
use std::sync::Arc;
use std::time::Duration;
use varve_media::{
    Fault, FaultDevice, FaultDirectory, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass,
    Operation,
};

pub(crate) const FAULT: LayerKind = LayerKind {
    options: &[
        OptionDescription {
            name: "faults",
            value: ValueForm::Text,
            default: "none",
            meaning: "what goes wrong: OPERATION[.CLASS]/EFFECT@N, @N.. or @NinM, separated by ';'",
        },
        OptionDescription {
            name: "fault-seed",
            value: ValueForm::Number(0),
            default: "0",
            meaning: "seed of what is random about the faults",
        },
    ],
    changes_shape: false,
    wrap,
};

const OPERATIONS: &[(&str, Operation)] = &[
    ("read", Operation::Read),
    ("write", Operation::Write),
    ("discard", Operation::Discard),
    ("sync", Operation::Sync),
    ("open", Operation::Open),
    ("rename", Operation::Rename),
    ("remove", Operation::Remove),
    ("list", Operation::List),
    ("sync-directory", Operation::SyncDirectory),
    ("truncate", Operation::Truncate),
    ("lock", Operation::Lock),
    ("zone", Operation::Zone),
];

const ERRORS: &[(&str, FaultError)] = &[
    ("io", FaultError::Io),
    ("no-space", FaultError::NoSpace),
    ("unreadable", FaultError::Unreadable),
    ("read-only", FaultError::ReadOnly),
    ("interrupted", FaultError::Interrupted),
];

/// How a call fails, before the name of the error.
const MANNERS: [&str; 6] = ["", "after-", "partly-", "dropping-", "late-2ms-", "late-2ms-dropping-"];

fn wrap(construction: &Construction<'_>, base: Base, part: &Part) -> Result<Base, Error> {
    let Some(text) = part.text("faults")? else { return Ok(base) };
    let seed = part.text("fault-seed")?.and_then(whole_number).unwrap_or(0);
    let faults = text.split(';').map(|fault| parse(part, fault)).collect::<Result<Vec<_>, _>>()?;
    let injector = FaultInjector::new(construction.env, FaultPlan { seed, faults });
    construction.handles.borrow_mut().faults.push(injector.clone());
    Ok(match base {
        Base::Directory(directory) => Base::Directory(Arc::new(FaultDirectory::new(&injector, directory))),
        Base::Devices(devices) => Base::Devices(
            devices
                .into_iter()
                .map(|built| BuiltDevice { device: FaultDevice::device(&injector, &built.device), ..built })
                .collect(),
        ),
    })
}

fn parse(part: &Part, text: &str) -> Result<Fault, SpecError> {
    let refuse = |what: &str| part.value_error("faults", format!("{what} in '{text}'"));
    let whole = text.split_once('/').and_then(|(call, rest)| Some((call, rest.rsplit_once('@')?)));
    let Some((call, (effect, trigger))) = whole else {
        return Err(refuse("a fault such as write/io@3, sync/dropping-io@0.. or read.user_read/flip-bits@1in100"));
    };
    let (operation, class) = match call.split_once('.') {
        Some((operation, class)) => (operation, Some(class)),
        None => (call, None),
    };
    let Some(&(_, operation)) = OPERATIONS.iter().find(|(name, _)| *name == operation) else {
        return Err(refuse("an operation").with_known(OPERATIONS.iter().map(|(name, _)| *name)));
    };
    let class = match class {
        None => None,
        Some(name) => match IoClass::ALL.into_iter().find(|class| class.name() == name) {
            Some(class) => Some(class),
            None => return Err(refuse("a class of I/O").with_known(IoClass::ALL.map(IoClass::name))),
        },
    };
    let effect = parse_effect(effect).ok_or_else(|| {
        let errors = ERRORS.iter().flat_map(|(name, _)| MANNERS.map(|manner| format!("{manner}{name}")));
        let others = ["short-read", "flip-bits", "misdirect", "lose", "stall-10ms", "zone-read-only", "zone-offline"]
            .map(str::to_owned);
        refuse("an effect").with_known(errors.chain(others))
    })?;
    let trigger = parse_trigger(trigger)
        .ok_or_else(|| refuse("'@3' (the fourth call), '@3..' (and all later ones) or '@1in100' (at random)"))?;
    Ok(Fault { class, ..Fault::new(operation, trigger, effect) })
}

fn parse_effect(text: &str) -> Option<FaultEffect> {
    let error = |name: &str| ERRORS.iter().find(|(known, _)| *known == name).map(|&(_, error)| error);
    if let Some(error) = error(text) {
        return Some(FaultEffect::Fail(error));
    }
    if let Some(name) = text.strip_prefix("after-") {
        return error(name).map(FaultEffect::FailAfter);
    }
    if let Some(name) = text.strip_prefix("partly-") {
        return error(name).map(FaultEffect::FailPartly);
    }
    if let Some(name) = text.strip_prefix("dropping-") {
        return error(name).map(FaultEffect::FailDroppingUnsynced);
    }
    if let Some(time) = text.strip_prefix("stall-") {
        return parse_time(time).map(FaultEffect::Stall);
    }
    if let Some((time, name)) = text.strip_prefix("late-").and_then(|rest| rest.split_once('-')) {
        let time = parse_time(time)?;
        return match name.strip_prefix("dropping-") {
            Some(name) => error(name).map(|error| FaultEffect::FailLateDroppingUnsynced(time, error)),
            None => error(name).map(|error| FaultEffect::FailLate(time, error)),
        };
    }
    match text {
        "short-read" => Some(FaultEffect::ShortRead),
        "flip-bits" => Some(FaultEffect::FlipBits(1)),
        "misdirect" => Some(FaultEffect::Misdirect),
        "lose" => Some(FaultEffect::Lose),
        "zone-read-only" => Some(FaultEffect::ZoneReadOnly),
        "zone-offline" => Some(FaultEffect::ZoneOffline),
        _ => None,
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(number) => whole_number(number).map(Duration::from_millis),
        None => whole_number(text.strip_suffix("us")?).map(Duration::from_micros),
    }
}

fn parse_trigger(text: &str) -> Option<FaultTrigger> {
    if let Some((numerator, denominator)) = text.split_once("in") {
        let (numerator, denominator) = (whole_number(numerator)?, whole_number(denominator)?);
        return (numerator <= denominator && denominator > 0)
            .then_some(FaultTrigger::Random { numerator, denominator });
    }
    match text.strip_suffix("..") {
        Some(first) => whole_number(first).map(FaultTrigger::From),
        None => whole_number(text).map(FaultTrigger::Once),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_triggers_and_effects() {
        assert_eq!(parse_trigger("3"), Some(FaultTrigger::Once(3)));
        assert_eq!(parse_trigger("3.."), Some(FaultTrigger::From(3)));
        assert_eq!(parse_trigger("1in100"), Some(FaultTrigger::Random { numerator: 1, denominator: 100 }));
        for bad in ["", "..", "in", "2in1", "1in0", "-1", "3..4"] {
            assert_eq!(parse_trigger(bad), None, "{bad}");
        }
        assert_eq!(parse_effect("dropping-io"), Some(FaultEffect::FailDroppingUnsynced(FaultError::Io)));
        assert_eq!(parse_effect("stall-10ms"), Some(FaultEffect::Stall(Duration::from_millis(10))));
        assert_eq!(parse_effect("zone-offline"), Some(FaultEffect::ZoneOffline));
        assert_eq!(parse_effect("stall-10us"), Some(FaultEffect::Stall(Duration::from_micros(10))));
        let late = Duration::from_micros(200);
        assert_eq!(parse_effect("late-200us-io"), Some(FaultEffect::FailLate(late, FaultError::Io)));
        let dropping = FaultEffect::FailLateDroppingUnsynced(late, FaultError::NoSpace);
        assert_eq!(parse_effect("late-200us-dropping-no-space"), Some(dropping));
        for manner in MANNERS {
            assert!(parse_effect(&format!("{manner}io")).is_some(), "{manner}");
        }
        for bad in
            ["after-", "late-", "late-io", "late-2ms", "late-2ms-", "late-2ms-dropping-", "late-2s-io", "stall-ms"]
        {
            assert_eq!(parse_effect(bad), None, "{bad}");
        }
        assert_eq!(parse_effect("stall-10"), None);
    }
}
