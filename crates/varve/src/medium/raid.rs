//! `raid0:`, `raid1:`, `raid4:`, `raid5:`, `raid6:` arrays of other media.

use crate::description::DeviceDescription;
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, array_journal_of, members_of,
    small_number,
};
use crate::spec::{ByteSize, Part, Spec, SpecErrorKind, Value};
use crate::stack::{ArrayMembers, Base, BuiltDevice, Construction, build_base};
use varve_block::raid::{
    Array, ArrayError, ArrayOpening, ArrayParameters, Dix, MEMBERS_MAX, ProtectionPlace, RaidLevel, StripeJournal,
};
use varve_media::Device;

const CHUNK: &str = "chunk";
const MEMBERS: &str = "members";
const MISSING: &str = "missing";
const REPLACE: &str = "replace";
const UNSYNCED: &str = "unsynced";
const DIX: &str = "dix";
const JOURNAL: &str = "journal";
const PI: &str = "pi";

/// Devices below all arrays of a spec, arrays of arrays included, at most.
const DEVICES_MAX: usize = 256;

const OPTIONS: &[OptionDescription] = &[
    OptionDescription {
        name: CHUNK,
        value: ValueForm::Size,
        default: "64KiB, or what the array was made with",
        meaning: "bytes that lie together on one member; a multiple of 4 KiB",
    },
    OptionDescription {
        name: MEMBERS,
        value: ValueForm::Number(1),
        default: "the devices that are named",
        meaning: "number of members, where one emulated device is named that stands for all",
    },
    OptionDescription {
        name: MISSING,
        value: ValueForm::Number(0),
        default: "0",
        meaning: "number of members that are not named because they are gone",
    },
    OptionDescription {
        name: REPLACE,
        value: ValueForm::Number(1),
        default: "none",
        meaning: "which of the devices, counted from 1, is new or stale and is rebuilt as the member that is gone",
    },
    OptionDescription {
        name: UNSYNCED,
        value: ValueForm::Choice(&["refused", "accepted"]),
        default: "refused",
        meaning: "what to do where the array was not closed and a member is gone: data of that member in stripes that were \
                  being written may be wrong",
    },
    OptionDescription {
        name: JOURNAL,
        value: ValueForm::ChoiceOrSpec(&["none", "members"]),
        default: "none (members with pi=beside), or what the array was made with",
        meaning: "where an array with parity keeps what it is writing, so that no power cut with members lost damages data: nowhere, on \
                  its members, or on a device of its own, as in journal=(dev:/dev/nvme0n1)",
    },
    OptionDescription {
        name: PI,
        value: ValueForm::Choice(&["members", "beside"]),
        default: "members, or what the array was made with",
        meaning: "who keeps protection information: the members, if they can, or the array, beside the data of plain members; with a \
                  journal on the members",
    },
    OptionDescription {
        name: DIX,
        value: ValueForm::Choice(&["on", "paper", "off"]),
        default: "on",
        meaning: "what to do with the protection information of members that keep some: verify each member's part and repair what does not \
                  fit, verify whole requests as in the paper, or leave it to the members",
    },
];

macro_rules! kind {
    ($name:ident, $build:ident, $level:ident, $word:literal, $summary:literal, $examples:expr) => {
        pub(crate) const $name: MediumKind = MediumKind {
            description: KindDescription {
                name: $word,
                summary: $summary,
                argument: ArgumentDescription {
                    value: ValueForm::Spec,
                    default: None,
                    meaning: "its members in parentheses, with '+' between them",
                },
                options: OPTIONS,
                examples: $examples,
            },
            is_emulated: true,
            build: $build,
        };

        fn $build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
            build(construction, part, RaidLevel::$level)
        }
    };
}

kind!(
    RAID0,
    build_raid0,
    Raid0,
    "raid0",
    "an array that stripes data over its members, without redundancy",
    &["raid0:(disk:1TB+disk:1TB)", "raid0:(raid1:(ssd:1TB+ssd:1TB)+raid1:(ssd:1TB+ssd:1TB))"]
);
kind!(
    RAID1,
    build_raid1,
    Raid1,
    "raid1",
    "an array that keeps a copy of everything on each member",
    &["raid1:(dev:/dev/sdb+dev:/dev/sdc)", "raid1:(ssd:1TB)?members=2"]
);
kind!(
    RAID4,
    build_raid4,
    Raid4,
    "raid4",
    "an array that survives the loss of one member, with parity on the last one",
    &["raid4:(disk:1TB)?members=4"]
);
kind!(
    RAID5,
    build_raid5,
    Raid5,
    "raid5",
    "an array that survives the loss of one member, with parity on all",
    &["raid5:(dev:/dev/sdb+dev:/dev/sdc+dev:/dev/sdd)", "raid5:(disk:1GiB)?members=4,chunk=64KiB"]
);
kind!(
    RAID6,
    build_raid6,
    Raid6,
    "raid6",
    "an array that survives the loss of two members",
    &["raid6:(disk:1TB)?members=10,chunk=512KiB"]
);

/// Devices that a spec builds, those below arrays counted one by one.
fn devices_below(spec: &Spec) -> Result<usize, Error> {
    let mut count = 0_usize;
    for part in spec.parts() {
        count = count.saturating_add(match members_of(part) {
            Some(members) => devices_below(members)?.saturating_mul(copies(part)?),
            None => 1,
        });
    }
    Ok(count)
}

/// How often the devices that are named stand for members.
fn copies(part: &Part) -> Result<usize, Error> {
    let named = members_of(part).map_or(0, |spec| spec.parts().len());
    match small_number(part, MEMBERS)?.map(|members| members as usize) {
        Some(members) if members != named && (named != 1 || members > MEMBERS_MAX) => {
            let expected =
                format!("{named}, the number of devices that are named, or one device and at most {MEMBERS_MAX}");
            Err(part.value_error(MEMBERS, expected).into())
        }
        Some(members) if named == 1 => Ok(members),
        _ => Ok(1),
    }
}

fn build(construction: &Construction<'_>, part: &Part, level: RaidLevel) -> Result<Base, Error> {
    let Some(spec) = members_of(part) else {
        let expected = "devices in parentheses, not a directory";
        return Err(part.argument_error(SpecErrorKind::Combination, expected).into());
    };
    let below = devices_below(spec)?.saturating_mul(copies(part)?);
    if below > DEVICES_MAX {
        let expected = format!("at most {DEVICES_MAX} devices below an array, not {below}");
        return Err(part.argument_error(SpecErrorKind::Combination, expected).into());
    }
    let copies = copies(part)?;
    if copies > 1 && (!spec.is_emulated() || !spec.paths().is_empty()) {
        let expected = "each device by name: only what lies in memory can stand for several members";
        return Err(part.value_error(MEMBERS, expected).into());
    }
    let mut built = Vec::new();
    for _ in 0..copies {
        match build_base(construction, spec)? {
            Base::Devices(devices) => built.extend(devices),
            Base::Directory(_) => {
                let expected = "devices as members, not a directory";
                return Err(part.argument_error(SpecErrorKind::Combination, expected).into());
            }
        }
    }
    let missing = small_number(part, MISSING)?.unwrap_or(0) as usize;
    if built.len().saturating_add(missing) > MEMBERS_MAX {
        let expected = format!("at most {MEMBERS_MAX} members, those that are missing included");
        return Err(part.argument_error(SpecErrorKind::Combination, expected).into());
    }
    let replace = small_number(part, REPLACE)?.map(|place| place as usize - 1);
    if replace.is_some_and(|place| place >= built.len()) {
        return Err(part.value_error(REPLACE, format!("1 to {}, one of the devices", built.len())).into());
    }
    let mut given: Vec<Option<Device>> = built.iter().map(|built| Some(built.device.clone())).collect();
    // What is only described is taken for whole.
    let absent = built.first().filter(|_| construction.describe).map(|built| built.device.clone());
    given.extend(std::iter::repeat_n(absent, missing));
    let dix = match part.text(DIX)? {
        Some("off") => Dix::Off,
        Some("paper") => Dix::Paper,
        _ => Dix::On,
    };
    let (journal, journal_device) = build_journal(construction, part)?;
    let protection = part.text(PI)?.map(|text| match text {
        "beside" => ProtectionPlace::Beside,
        _ => ProtectionPlace::Members,
    });
    let chunk_bytes = part.size_bytes(CHUNK)?;
    let parameters = ArrayParameters { name: part.to_string(), level, chunk_bytes, dix, journal, protection };
    let opening = ArrayOpening {
        create: construction.create,
        format: construction.format || construction.describe,
        replace: replace.into_iter().collect(),
        accepts_unsynced: part.text(UNSYNCED)? == Some("accepted"),
        is_read_only: construction.describe || construction.read_only,
    };
    let of_journal = journal_device.as_ref().map(|built| &built.device);
    let opened = Array::open_with_journal(construction.env, &given, of_journal, &parameters, &opening);
    let (device, array) = opened.map_err(|error| refusal(part, error))?;
    let description = describe(part, level, &device, &built);
    built.extend(journal_device);
    let members = Some(ArrayMembers { array, built });
    Ok(Base::Devices(vec![BuiltDevice { device, description, members }]))
}

/// Place of the journal as a part says, with its device if it has one of its own.
fn build_journal(
    construction: &Construction<'_>,
    part: &Part,
) -> Result<(Option<StripeJournal>, Option<BuiltDevice>), Error> {
    if let Some(spec) = array_journal_of(part) {
        return match build_base(construction, spec)? {
            Base::Devices(mut devices) if devices.len() == 1 => Ok((Some(StripeJournal::Device), devices.pop())),
            Base::Devices(_) | Base::Directory(_) => Err(part.value_error(JOURNAL, "one device as the journal").into()),
        };
    }
    match part.option(JOURNAL).map(|option| option.value()) {
        None => Ok((None, None)),
        Some(Some(Value::Text(word))) if word == b"members" => Ok((Some(StripeJournal::Members), None)),
        Some(Some(Value::Text(word))) if word == b"none" => Ok((Some(StripeJournal::None), None)),
        Some(_) => Err(part.value_error(JOURNAL, "none, members, or a device in parentheses").into()),
    }
}

fn describe(part: &Part, level: RaidLevel, device: &Device, built: &[BuiltDevice]) -> DeviceDescription {
    let chunk = part.option(CHUNK).map_or(String::new(), |_| match part.size_bytes(CHUNK) {
        Ok(Some(bytes)) => format!(", chunks of {}", ByteSize(bytes)),
        _ => String::new(),
    });
    let members: Vec<DeviceDescription> = built.iter().map(|built| built.description.clone()).collect();
    // What all members say; else it is mixed.
    let common = |of: fn(&DeviceDescription) -> &String| match members.as_slice() {
        [first, rest @ ..] if rest.iter().all(|other| of(other) == of(first)) => of(first).clone(),
        _ => "mixed".to_owned(),
    };
    DeviceDescription {
        name: part.to_string(),
        model: level.to_string(),
        summary: format!("{level} of {} devices{chunk}", members.len()),
        backing: common(|of| &of.backing),
        time: common(|of| &of.time),
        scale_divisor: members.first().map_or(1, |first| first.scale_divisor),
        members,
        ..DeviceDescription::of(device)
    }
}

fn refusal(part: &Part, error: ArrayError) -> Error {
    match error {
        ArrayError::Media(error) => Error::Media(error),
        ArrayError::NotThere { .. } => Error::missing(part.to_string()),
        ArrayError::Chunk { .. } => part.value_error(CHUNK, error.to_string()).into(),
        ArrayError::NeedsJournal { .. } | ArrayError::NeedsJournalDevice { .. } => {
            part.value_error(JOURNAL, error.to_string()).into()
        }
        ArrayError::MemberCount { .. } | ArrayError::Unsuitable { .. } => {
            part.argument_error(SpecErrorKind::Combination, error.to_string()).into()
        }
        error => Error::Array(error),
    }
}
