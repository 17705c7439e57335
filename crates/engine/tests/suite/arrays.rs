//! Arrays of devices, as media of the suites: with and without protection information. Their members fail and are rebuilt
//! while a database uses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::raid::{Array, ArrayError, ArrayOpening, ArrayParameters, Dix, MemberState, RaidLevel, StripeJournal};
use varve_env::Env;
use varve_media::emulated::RamBacking;
use varve_media::{
    BlockDevice, Capabilities, Counters, Device, Emulated, Geometry, GuardKind, IoContext, MediaError, ProtectionType,
    Request, Transfer,
};
use varve_store::conformance::{Fixture, Ground};
use varve_store::{ExtentFormatOptions, ExtentStore, FileStore, StoreError};

const CHUNK_BYTES: u64 = 32 << 10;
/// Space for files, in bytes: as much as trees of two levels need, so little that a rebuild ends while a history runs.
const SPACE_BYTES: u64 = 8 << 20;
/// Space of a member for everything except data, in bytes.
const MEMBER_OVERHEAD_BYTES: u64 = 2 << 20;

/// Writes of an opened array between two failures.
const FAILURE_PERIOD: u64 = 96;
/// The write of a period before which members fail.
const FAILURE_AT: u64 = 24;
/// The write of a period before which they are replaced.
const REPLACEMENT_AT: u64 = 40;

/// Members that were taken out of use while a database used their array.
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Members of these that were rebuilt meanwhile.
static REBUILT: AtomicU64 = AtomicU64::new(0);

/// Numbers of members that failed, and that were rebuilt, while databases used their arrays.
pub(crate) fn failed_and_rebuilt() -> (u64, u64) {
    (FAILED.load(Ordering::SeqCst), REBUILT.load(Ordering::SeqCst))
}

/// An extent store on each array. The arrays have a journal of stripes: histories lose a member and then the power, and an array
/// without a journal refuses to open after that.
pub(crate) static ARRAYS: &[Fixture] = &[
    Fixture {
        space_bytes: Some(SPACE_BYTES),
        ..Fixture::new(
            "Raid5",
            Ground::Members {
                make: |env, name, _, space_bytes| made(env, name, (RaidLevel::Raid5, 3), space_bytes, None),
                open: |env, members| open(env, RaidLevel::Raid5, members),
            },
        )
    },
    Fixture {
        space_bytes: Some(SPACE_BYTES),
        ..Fixture::new(
            "Raid6",
            Ground::Members {
                make: |env, name, _, space_bytes| {
                    made(env, name, (RaidLevel::Raid6, 4), space_bytes, Some(GuardKind::Crc))
                },
                open: |env, members| open(env, RaidLevel::Raid6, members),
            },
        )
    },
];

/// Members of an array with space for `space_bytes`; with protection information of type 1 if `guard` is given.
fn made(
    env: &Env,
    name: &str,
    (level, count): (RaidLevel, usize),
    space_bytes: u64,
    guard: Option<GuardKind>,
) -> Vec<Device> {
    let data_columns = count as u64 - level.tolerated(count) as u64;
    let member_bytes = (space_bytes.div_ceil(data_columns) + MEMBER_OVERHEAD_BYTES).next_multiple_of(CHUNK_BYTES);
    // Of the real world, where it takes no time: images read it from other simulations.
    let member = |number: usize| {
        let emulated = Emulated::immediate(&Env::real(), &format!("{name} {number}"), member_bytes);
        Device::of_blocks(Arc::new(match guard {
            Some(guard) => emulated.with_protection(ProtectionType::Type1, guard, Box::new(RamBacking::new())),
            None => emulated,
        }))
    };
    let members: Vec<Device> = (0..count).map(member).collect();
    let (device, _array) = opened(env, level, &members).expect("an array of blank members");
    ExtentStore::format(env, &device, &ExtentFormatOptions::default()).expect("format");
    members
}

/// Opens the array. A member that the array went on without is rebuilt.
fn opened(env: &Env, level: RaidLevel, members: &[Device]) -> Result<(Device, Array), StoreError> {
    let given: Vec<Option<Device>> = members.iter().cloned().map(Some).collect();
    let parameters = ArrayParameters {
        name: "array".to_owned(),
        level,
        chunk_bytes: Some(CHUNK_BYTES),
        dix: Dix::On,
        journal: Some(StripeJournal::Members),
        protection: None,
    };
    let mut opening = ArrayOpening::default();
    loop {
        match Array::open(env, &given, &parameters, &opening) {
            Ok(opened) => return Ok(opened),
            Err(ArrayError::Stale { slot, .. }) if !opening.replace.contains(&slot) => opening.replace.push(slot),
            Err(error) => return Err(of_array(error)),
        }
    }
}

/// The store's error for an array that cannot be opened. Only damage and failures of members are expected.
fn of_array(error: ArrayError) -> StoreError {
    let store = "array".to_owned();
    let advice = "open the array without this member".to_owned();
    match error {
        ArrayError::Media(error) => StoreError::Media { store, name: "members".to_owned(), error },
        ArrayError::Damaged { device, what, expected, found } => {
            let structure = format!("{what} of {device}");
            StoreError::Corruption { store, structure, offset_bytes: 0, expected, found, advice }
        }
        other => StoreError::Foreign {
            store,
            structure: "array".to_owned(),
            offset_bytes: 0,
            expected: "members of one array".to_owned(),
            found: other.to_string(),
            advice,
        },
    }
}

fn open(env: &Env, level: RaidLevel, members: Vec<Device>) -> Result<Arc<dyn FileStore>, StoreError> {
    let (device, array) = opened(env, level, &members)?;
    let failing = FailingMembers {
        inner: device.block.clone(),
        // Those that failed before are rebuilt now.
        replaced: AtomicU64::new(array.degraded_members() as u64),
        array,
        tolerated: level.tolerated(members.len()),
        members,
        writes: AtomicU64::new(0),
    };
    Ok(Arc::new(ExtentStore::open(env, Device { block: Arc::new(failing), ..device })?))
}

/// An array whose members are taken out of use after some writes, and replaced and rebuilt after some more: one of them, and
/// then as many as the level tolerates, in turn.
struct FailingMembers {
    inner: Arc<dyn BlockDevice>,
    array: Array,
    members: Vec<Device>,
    tolerated: usize,
    writes: AtomicU64,
    /// Members that are being rebuilt.
    replaced: AtomicU64,
}

impl FailingMembers {
    /// Members that fail in this period.
    fn slots(&self, period: u64) -> impl Iterator<Item = usize> + '_ {
        let count = if period.is_multiple_of(2) { 1 } else { self.tolerated };
        (0..count).map(move |place| (period as usize + place) % self.members.len())
    }

    /// Called before each write. An injected fault may strike in here too; the next request finds what came of it.
    fn count_write(&self) {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        if self.replaced.load(Ordering::SeqCst) > 0 && self.array.degraded_members() == 0 {
            REBUILT.fetch_add(self.replaced.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        }
        let period = number / FAILURE_PERIOD;
        match number % FAILURE_PERIOD {
            FAILURE_AT if self.array.degraded_members() == 0 => {
                for slot in self.slots(period) {
                    let has_failed = self.array.fail(slot).is_ok();
                    FAILED.fetch_add(u64::from(has_failed), Ordering::SeqCst);
                }
            }
            REPLACEMENT_AT => {
                for (slot, (_, state)) in self.array.members().into_iter().enumerate() {
                    if state == MemberState::Lost {
                        let is_replaced = self.array.replace(slot, &self.members[slot]).is_ok();
                        self.replaced.fetch_add(u64::from(is_replaced), Ordering::SeqCst);
                    }
                }
            }
            _ => {}
        }
    }
}

impl BlockDevice for FailingMembers {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        if requests.iter().any(|request| matches!(request.transfer, Transfer::Write { .. })) {
            self.count_write();
        }
        self.inner.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
