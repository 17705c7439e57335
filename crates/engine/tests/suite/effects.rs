//! What can go wrong with a call, and plans of faults drawn from seeds.

use std::time::Duration;
use varve_env::Random;
use varve_media::{Fault, FaultEffect, FaultError, FaultPlan, FaultTrigger, IoClass, Operation};

/// How long after it dropped unsynced writes a sync returns its error.
const LATE: Duration = Duration::from_millis(2);

/// What can go wrong with a call of this operation, and is said.
pub(crate) fn effects(operation: Operation) -> Vec<FaultEffect> {
    use FaultEffect::{
        Fail, FailAfter, FailDroppingUnsynced, FailLateDroppingUnsynced, FailPartly, FlipBits, ShortRead,
    };
    let mut effects = vec![Fail(FaultError::Io)];
    match operation {
        Operation::Read => effects.extend([Fail(FaultError::Unreadable), ShortRead, FlipBits(3)]),
        Operation::Write => effects.extend([
            Fail(FaultError::NoSpace),
            FailAfter(FaultError::Io),
            FailPartly(FaultError::Io),
            FailPartly(FaultError::NoSpace),
            Fail(FaultError::ReadOnly),
        ]),
        Operation::Sync => effects.extend([
            FailAfter(FaultError::Io),
            FailDroppingUnsynced(FaultError::Io),
            FailLateDroppingUnsynced(LATE, FaultError::Io),
        ]),
        Operation::Lock => {}
        Operation::List => {}
        _ => effects.extend([Fail(FaultError::NoSpace), FailAfter(FaultError::Io)]),
    }
    effects
}

/// The same without those that damage: a top that was read wrong without an error is restored so.
pub(crate) fn harmless_effects(operation: Operation) -> Vec<FaultEffect> {
    let mut effects = effects(operation);
    effects.retain(|effect| !matches!(effect, FaultEffect::FlipBits(_)));
    effects
}

/// Operations, those more often that there are more of.
const OPERATIONS: &[Operation] = &[
    Operation::Read,
    Operation::Read,
    Operation::Read,
    Operation::Write,
    Operation::Write,
    Operation::Write,
    Operation::Write,
    Operation::Sync,
    Operation::Sync,
    Operation::Sync,
    Operation::Discard,
    Operation::Open,
    Operation::Rename,
    Operation::Remove,
    Operation::List,
    Operation::SyncDirectory,
    Operation::Truncate,
    Operation::Lock,
    Operation::Zone,
];

/// Several faults: once, for good, now and then, or only slow.
pub(crate) fn draw_plan(random: &mut Random) -> FaultPlan {
    let fault = |random: &mut Random| {
        let operation = OPERATIONS[random.index(OPERATIONS.len())];
        let index = |random: &mut Random| {
            let bound = 1 << random.below(10);
            random.below(bound)
        };
        let trigger = match random.below(20) {
            0..11 => FaultTrigger::Once(index(random)),
            11..16 => FaultTrigger::From(index(random)),
            _ => FaultTrigger::Random { numerator: 1, denominator: 10 + random.below(200) },
        };
        let effects = harmless_effects(operation);
        let effect = match random.below(6) {
            0 => FaultEffect::Stall(Duration::from_micros(random.below(20_000))),
            _ => effects[random.index(effects.len())].clone(),
        };
        let fault = Fault::new(operation, trigger, effect);
        match random.chance(1, 3) {
            true => fault.on_class(IoClass::ALL[random.index(IoClass::ALL.len())]),
            false => fault,
        }
    };
    let faults = (0..1 + random.below(4)).map(|_| fault(random)).collect();
    FaultPlan { seed: random.next_u64(), faults }
}

/// Whether what was not synced may go when this plan strikes.
pub(crate) fn drops_unsynced(plan: &FaultPlan) -> bool {
    plan.faults.iter().any(|fault| fault.effect.drops_unsynced())
}
