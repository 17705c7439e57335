//! Power cuts of block devices.

use super::content::{Content, ContentChange, Pending, surviving_content};
use super::image::ImageDevice;
use super::{CrashVariant, FateChooser, History, PersistenceObserver, PersistencePoint};
use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry};
use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer, check_request};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};

/// Bytes read at once when the old content of a range is saved.
const SAVE_BYTES_MAX: u64 = 1 << 20;

/// A layer that knows, at every moment, what a power cut could leave of the device below it.
///
/// Requests pass through unchanged. Of everything not yet synced the layer keeps the bytes, in
/// every version since the last sync, and from that makes crash images. Before the first write to a
/// page it reads the page's old content, once, also before a discard; nothing else is added to the
/// device's work. Writes that overlap in flight are done one after the other.
///
/// A clone is another handle of the same layer. Hand [`CrashDevice::device`] to what is tested.
#[derive(Clone)]
pub struct CrashDevice {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn BlockDevice>,
    /// Pages as they were before this layer's first write to them; never change once there.
    original: Arc<parking_lot::Mutex<SparseBytes>>,
    state: Mutex<State>,
    /// Some request in flight ended.
    landed: Condvar,
}

struct State {
    crash: Arc<CrashContent>,
    next_sequence: u64,
    /// Requests in flight: sequence number to the range (in whole pages) nobody else may write.
    in_flight: BTreeMap<u64, Range<u64>>,
    points: u64,
    observer: Option<PersistenceObserver<DeviceCrashState>>,
}

/// What is on the medium for certain, and what is perhaps.
#[derive(Clone, Default)]
struct CrashContent {
    durable: Content,
    pending: History<Pending>,
}

/// A [`CrashDevice`] at one moment. Cheap to clone and to keep.
#[derive(Clone)]
pub struct DeviceCrashState {
    base: Arc<dyn BlockDevice>,
    original: Arc<parking_lot::Mutex<SparseBytes>>,
    crash: Arc<CrashContent>,
}

impl DeviceCrashState {
    /// A fresh device with what a power cut at this moment could have left, everything in it
    /// durable. It writes to memory; content never touched is read from the device below the layer.
    /// A write that failed counts like one not synced. The same variant and seed give the same
    /// bytes.
    ///
    /// Cost: proportional to the changes not yet durable.
    pub fn image(&self, variant: CrashVariant, seed: u64) -> Device {
        let sector_bytes = u64::from(self.base.geometry().physical_sector_bytes.max(1));
        let pending = self.crash.pending.values();
        let mut chooser = FateChooser::new(variant, seed, [], pending.iter().copied());
        let content = surviving_content(&self.crash.durable, &pending, sector_bytes, &mut chooser);
        Device::of_blocks(Arc::new(ImageDevice {
            base: self.base.clone(),
            original: self.original.clone(),
            content: RwLock::new(content.bytes),
            counters: parking_lot::Mutex::default(),
        }))
    }
}

impl CrashDevice {
    /// A layer over `inner`, whose content now counts as durable and which nobody else may change.
    ///
    /// # Errors
    /// [`MediaError::Rule`] for a device with zones, tracks, byte addressing or protection
    /// information: an image would lack them.
    pub fn new(env: &Env, inner: &Device) -> Result<Self, MediaError> {
        let capabilities = inner.block.capabilities();
        if inner.zones.is_some()
            || inner.tracks.is_some()
            || inner.bytes.is_some()
            || capabilities.zones.is_some()
            || capabilities.tracks.is_some()
            || capabilities.protection.is_some()
        {
            return Err(MediaError::Rule {
                device: inner.block.name().to_owned(),
                operation: Operation::Open,
                offset_bytes: 0,
                rule: "crash images are made of plain blocks only, without zones, tracks, bytes or protection"
                    .to_owned(),
            });
        }
        let state =
            State { crash: Arc::default(), next_sequence: 0, in_flight: BTreeMap::new(), points: 0, observer: None };
        Ok(CrashDevice {
            shared: Arc::new(Shared {
                inner: inner.block.clone(),
                original: Arc::default(),
                state: Mutex::new(env, "crash layer", state),
                landed: Condvar::new(env, "crash layer landed"),
            }),
        })
    }

    /// This layer as a device.
    pub fn device(&self) -> Device {
        Device::of_blocks(Arc::new(self.clone()))
    }

    /// The crash state now. Requests in flight may have arrived in part.
    pub fn capture(&self) -> DeviceCrashState {
        self.shared.crash_state(&self.shared.state.lock().crash)
    }

    /// Calls `observer` before every write, discard and sync from now on, in place of an earlier one.
    ///
    /// It runs under the layer's lock: it must not call this device, and must not wait.
    pub fn on_persistence_point(&self, observer: impl FnMut(&PersistencePoint<'_, DeviceCrashState>) + Send + 'static) {
        self.shared.state.lock().observer = Some(Box::new(observer));
    }

    /// Persistence points so far.
    pub fn persistence_points(&self) -> u64 {
        self.shared.state.lock().points
    }
}

impl Shared {
    fn crash_state(&self, crash: &Arc<CrashContent>) -> DeviceCrashState {
        DeviceCrashState { base: self.inner.clone(), original: self.original.clone(), crash: crash.clone() }
    }

    /// The change a request makes, if it makes one and is no nonsense.
    fn change_of(&self, request: &Request<'_>) -> Option<ContentChange> {
        if request.length_bytes() == 0 || check_request(&*self.inner, request).is_err() {
            return None;
        }
        let offset_bytes = request.offset_bytes;
        match &request.transfer {
            Transfer::Read { .. } => None,
            Transfer::Write { data, .. } => Some(ContentChange::Write { offset_bytes, data: joined(data).into() }),
            Transfer::Discard { length_bytes } => {
                Some(ContentChange::Clear { offset_bytes, length_bytes: *length_bytes })
            }
        }
    }

    /// Waits until nothing in flight touches the pages of `ranges`, and reserves them.
    fn reserve(&self, ranges: &[Range<u64>]) -> Vec<u64> {
        let mut state = self.state.lock();
        while state.in_flight.values().any(|held| ranges.iter().any(|range| overlap(held, range))) {
            self.landed.wait(&mut state);
        }
        let reserve_one = |range: &Range<u64>| {
            let sequence = state.next_sequence;
            state.next_sequence += 1;
            state.in_flight.insert(sequence, range.clone());
            sequence
        };
        ranges.iter().map(reserve_one).collect()
    }

    /// Reads what is in the pages of `range`, if this is the first time they are about to change.
    fn save_original(&self, range: &Range<u64>, context: &IoContext) {
        let capacity_bytes = self.inner.geometry().capacity_bytes;
        let mut at = range.start;
        while at < range.end {
            let missing = |page: u64| !self.original.lock().contains_page(page);
            if !missing(at / PAGE_BYTES) {
                at += PAGE_BYTES;
                continue;
            }
            let mut end = at + PAGE_BYTES;
            while end < range.end && end - at < SAVE_BYTES_MAX && missing(end / PAGE_BYTES) {
                end += PAGE_BYTES;
            }
            let mut bytes = vec![0; (end.min(capacity_bytes) - at) as usize];
            self.read_whatever(at, &mut bytes, context);
            let mut original = self.original.lock();
            for (page, bytes) in (at / PAGE_BYTES..).zip(bytes.chunks(PAGE_BYTES as usize)) {
                if bytes.iter().all(|&byte| byte == 0) {
                    original.clear(page * PAGE_BYTES, bytes.len() as u64);
                } else {
                    original.write(page * PAGE_BYTES, bytes);
                }
            }
            at = end;
        }
    }

    /// Reads what can be read; a sector that cannot is taken as zeros.
    fn read_whatever(&self, offset_bytes: u64, bytes: &mut [u8], context: &IoContext) {
        if self.inner.read_at(offset_bytes, bytes, context).is_ok() {
            return;
        }
        let sector = self.inner.geometry().sector_bytes as usize;
        for (index, bytes) in bytes.chunks_mut(sector).enumerate() {
            if self.inner.read_at(offset_bytes + (index * sector) as u64, bytes, context).is_err() {
                bytes.fill(0);
            }
        }
    }

    /// Does the requests `changing` (index and change of each), which do not overlap, and all that only read.
    fn execute_tracked(
        &self,
        requests: &mut [Request<'_>],
        changing: Vec<(usize, ContentChange)>,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let ranges: Vec<Range<u64>> = changing.iter().map(|(index, _)| page_range(&requests[*index])).collect();
        let sequences = self.reserve(&ranges);
        for range in &ranges {
            self.save_original(range, context);
        }
        {
            let state = &mut *self.state.lock();
            for ((index, change), sequence) in changing.iter().zip(&sequences) {
                let request = &requests[*index];
                let operation = match change {
                    ContentChange::Write { .. } => Operation::Write,
                    _ => Operation::Discard,
                };
                let crash = Arc::make_mut(&mut state.crash);
                let range = page_range(request);
                let pages = range.start / PAGE_BYTES..range.end / PAGE_BYTES;
                crash.durable.bytes.copy_absent(&self.original.lock(), pages);
                crash.pending.push(Pending { sequence: *sequence, certain: false, change: change.clone() });
                self.pass_point(state, operation, request.offset_bytes, request.length_bytes());
            }
        }
        let result = self.inner.execute(requests, context);
        // What a failed request left is known only by looking.
        let mut found = Vec::new();
        for ((index, change), sequence) in changing.into_iter().zip(sequences) {
            let request = &requests[index];
            let durable = !self.inner.capabilities().volatile_cache
                || matches!(request.transfer, Transfer::Write { durable: true, .. });
            match request.outcome {
                Ok(()) => found.push((sequence, durable.then_some((change, true)))),
                Err(_) => {
                    let mut bytes = vec![0; request.length_bytes() as usize];
                    self.read_whatever(request.offset_bytes, &mut bytes, context);
                    let change = ContentChange::Write { offset_bytes: request.offset_bytes, data: bytes.into() };
                    found.push((sequence, Some((change, false))));
                }
            }
        }
        let state = &mut *self.state.lock();
        for (in_flight, later) in found {
            state.in_flight.remove(&in_flight);
            if let Some((change, certain)) = later {
                let sequence = state.next_sequence;
                state.next_sequence += 1;
                Arc::make_mut(&mut state.crash).pending.push(Pending { sequence, certain, change });
            }
        }
        self.landed.notify_all();
        result
    }

    fn pass_point(&self, state: &mut State, operation: Operation, offset_bytes: u64, length_bytes: u64) {
        let index = state.points;
        state.points += 1;
        if let Some(observer) = &mut state.observer {
            let capture = || self.crash_state(&state.crash);
            let point = PersistencePoint { index, operation, name: "", offset_bytes, length_bytes, state: &capture };
            observer(&point);
        }
    }
}

fn joined(slices: &[IoSlice<'_>]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
    for slice in slices {
        joined.extend_from_slice(slice);
    }
    joined
}

/// The range of a request, in whole pages.
fn page_range(request: &Request<'_>) -> Range<u64> {
    let end = request.offset_bytes + request.length_bytes();
    request.offset_bytes / PAGE_BYTES * PAGE_BYTES..end.next_multiple_of(PAGE_BYTES)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl BlockDevice for CrashDevice {
    fn name(&self) -> &str {
        self.shared.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.shared.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.shared.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let changing: Vec<(usize, ContentChange)> = requests
            .iter()
            .enumerate()
            .filter_map(|(index, request)| Some((index, self.shared.change_of(request)?)))
            .collect();
        if changing.is_empty() {
            return self.shared.inner.execute(requests, context);
        }
        let mut ranges: Vec<Range<u64>> = changing.iter().map(|(index, _)| page_range(&requests[*index])).collect();
        ranges.sort_by_key(|range| range.start);
        if ranges.windows(2).all(|pair| !overlap(&pair[0], &pair[1])) {
            return self.shared.execute_tracked(requests, changing, context);
        }
        // Which of two overlapping requests wins must be known here: one after the other.
        let mut result = Ok(());
        let mut changing = changing.into_iter().peekable();
        for (index, request) in requests.iter_mut().enumerate() {
            let change = changing.next_if(|(at, _)| *at == index).map(|(_, change)| (0, change));
            let outcome =
                self.shared.execute_tracked(std::slice::from_mut(request), change.into_iter().collect(), context);
            result = result.and(outcome);
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.shared;
        let (before, in_flight) = {
            let state = &mut *shared.state.lock();
            shared.pass_point(state, Operation::Sync, 0, 0);
            let in_flight: Vec<u64> = state.in_flight.keys().copied().collect();
            (state.next_sequence, in_flight)
        };
        shared.inner.sync(context)?;
        let state = &mut *shared.state.lock();
        let crash = Arc::make_mut(&mut state.crash);
        let mut still_pending = History::default();
        for pending in std::mem::take(&mut crash.pending).values() {
            if pending.sequence < before && !in_flight.contains(&pending.sequence) {
                crash.durable.apply(&pending.change);
            } else {
                still_pending.push(pending.clone());
            }
        }
        crash.pending = still_pending;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.shared.inner.counters()
    }
}
