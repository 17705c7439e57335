//! Power cuts of block devices.

use super::content::{Content, ContentChange, Pending, Units, surviving_content};
use super::group::{CrashGroupState, LockedLayer};
use super::image::{ImageContent, ImageDevice, Original};
use super::lines::{FlushAudit, LineLedger};
use super::tracks::{TrackContent, TrackRules, arrival_order};
use super::zones::ZoneContent;
use super::{CrashVariant, FateChooser, History, PersistencePoint};
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Device, Geometry};
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::layer::Layer;
use crate::ranges::RangeSet;
use crate::request::{Request, Transfer, check_request};
use crate::sectors::{Sectors, format_in_pages};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use crate::zones::ZoneId;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};

/// Bytes read at once when the old content of a range is saved.
const SAVE_BYTES_MAX: u64 = 1 << 20;

/// A layer that knows, at every moment, what a power cut could leave of the device below it.
///
/// Requests pass through unchanged. Of everything not yet synced the layer keeps the bytes, in
/// every version since the last sync, and from that makes crash images. Before the first write to a
/// page it reads the page's old content, once, also before a discard, and before a write to a bottom
/// track that of the pages it destroys; nothing else is added to the device's work. Writes that overlap
/// in flight, or destroy the same, are done one after the other.
///
/// Of a device with protection information the layer keeps the tuples too. Data and tuple of an interval arrive in an image
/// or are lost together.
///
/// A clone is another handle of the same layer. Hand [`CrashDevice::device`] to what is tested.
#[derive(Clone)]
pub struct CrashDevice {
    pub(super) shared: Arc<CrashLayer>,
}

pub(super) struct CrashLayer {
    /// The device below.
    pub(super) inner: Device,
    tracks: Option<Arc<TrackRules>>,
    /// Pages as they were before this layer first changed them; never change once there.
    original: Arc<parking_lot::Mutex<Original>>,
    /// State of all devices that lose power together with this one.
    pub(super) group: Arc<Mutex<CrashGroupState>>,
    /// Index of this device in the group.
    member: usize,
    /// Some request in flight ended.
    pub(super) landed: Condvar,
}

pub(super) struct CrashLayerState {
    /// Parts of a crash state of this device besides `crash`.
    base: CrashBase,
    pub(super) crash: Arc<CrashContent>,
    pub(super) next_sequence: u64,
    /// Requests in flight: sequence number to the ranges (in whole pages) nobody else may change.
    pub(super) in_flight: BTreeMap<u64, Vec<Range<u64>>>,
    pub(super) points: u64,
    /// Lines of memory that are not durable.
    pub(super) lines: LineLedger,
}

impl CrashLayerState {
    pub(super) fn capture(&self) -> DeviceCrashState {
        DeviceCrashState { base: self.base.clone(), crash: self.crash.clone() }
    }

    /// The next sequence number.
    pub(super) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }
}

/// The parts of a crash state that do not change.
#[derive(Clone)]
struct CrashBase {
    device: Device,
    tracks: Option<Arc<TrackRules>>,
    original: Arc<parking_lot::Mutex<Original>>,
}

/// What is on the medium for certain, and what is perhaps.
#[derive(Clone, Default)]
pub(super) struct CrashContent {
    pub(super) durable: Content,
    pub(super) pending: History<Pending>,
}

impl CrashContent {
    /// Keeps only the pending changes that `keep` says.
    pub(super) fn retain(&mut self, keep: impl Fn(&Pending) -> bool) {
        let mut kept = History::default();
        for pending in std::mem::take(&mut self.pending).values() {
            if keep(pending) {
                kept.push(pending.clone());
            }
        }
        self.pending = kept;
    }
}

/// A [`CrashDevice`] at one moment. Cheap to clone and to keep.
#[derive(Clone)]
pub struct DeviceCrashState {
    base: CrashBase,
    crash: Arc<CrashContent>,
}

impl DeviceCrashState {
    /// A fresh device with what a power cut at this moment could have left, everything in it
    /// durable. It writes to memory; content never touched is read from the device below the layer.
    /// A write that failed counts like one not synced. The same variant and seed give the same
    /// bytes.
    ///
    /// The image of a device with zones has the same zones, none of them open. The image of a device with tracks has the same tracks and is as strict; everything on them
    /// that can be read counts as live until it is marked free.
    ///
    /// Cost: proportional to the changes not yet durable; with tracks, for variants that change the
    /// order, to the square of their number (a comparison each).
    pub fn image(&self, variant: CrashVariant, seed: u64) -> Device {
        let CrashBase { device: base, tracks, .. } = &self.base;
        let sector_bytes = u64::from(base.block.geometry().physical_sector_bytes.max(1));
        // An interval has one tuple, so it is never torn.
        let interval_bytes = base.block.capabilities().protection.map_or(1, |format| format.interval_bytes.max(1));
        let sector_bytes = sector_bytes.next_multiple_of(interval_bytes.into());
        let mut pending = self.crash.pending.values();
        let mut chooser = FateChooser::new(variant, seed, [], pending.iter().copied());
        if tracks.is_some() {
            pending = arrival_order(&pending, variant, seed, sector_bytes);
        }
        // Memory is kept or lost by line where it was stored to, and by sector where blocks were written.
        let line_bytes = self.line_bytes().filter(|line| sector_bytes.is_multiple_of(*line)).unwrap_or(sector_bytes);
        let units = Units { sector_bytes, line_bytes };
        self.image_of(surviving_content(&self.crash.durable, &pending, units, &mut chooser))
    }

    /// Content that is durable, and changes that are not.
    pub(super) fn crash(&self) -> &CrashContent {
        &self.crash
    }

    /// Bytes of a line of its memory, if it has some.
    pub(super) fn line_bytes(&self) -> Option<u64> {
        self.base.device.bytes.as_ref().map(|bytes| u64::from(bytes.line_bytes()))
    }

    /// A fresh device with this content.
    pub(super) fn image_of(&self, content: Content) -> Device {
        let CrashBase { device: base, tracks, original } = &self.base;
        let unreadable = content.tracks.as_ref().map(|tracks| tracks.unreadable().clone()).unwrap_or_default();
        let rules = tracks.as_ref().map(|tracks| tracks.of_image(&unreadable));
        let image: Arc<dyn BlockDevice> = Arc::new(ImageDevice {
            base: base.block.clone(),
            original: original.clone(),
            content: RwLock::new(ImageContent { bytes: content.bytes, unreadable }),
            counters: parking_lot::Mutex::default(),
        });
        let ruled = match (content.zones, rules) {
            (Some(zones), _) => zones.rules().over(&image),
            (None, Some(rules)) => rules.over(&image),
            (None, None) => Device::of_blocks(image),
        };
        Device {
            zones: ruled.zones,
            tracks: ruled.tracks,
            ..base.below(&Layer::CrashImage(&ruled.block), ruled.block.clone())
        }
    }
}

impl CrashDevice {
    /// A layer over `inner`, whose content now counts as durable and which nobody else may change.
    ///
    /// # Errors
    /// [`MediaError::Rule`] for zones whose tracks overlap, which an image would lack, and for protection information of
    /// byte-addressable memory or of intervals that do not divide 4 KiB. What a device with zones says when it is asked for a
    /// report.
    pub fn new(env: &Env, inner: &Device) -> Result<Self, MediaError> {
        CrashDevice::in_group(env, inner, &Arc::new(Mutex::new(env, "crash layer", CrashGroupState::default())))
    }

    /// A layer whose device is the next member of `group`.
    pub(super) fn in_group(env: &Env, inner: &Device, group: &Arc<Mutex<CrashGroupState>>) -> Result<Self, MediaError> {
        let capabilities = inner.block.capabilities();
        let format = format_in_pages(inner)?;
        if capabilities.zones.as_ref().is_some_and(|zones| zones.track_overlap.is_some()) {
            return Err(MediaError::Rule {
                device: inner.block.name().to_owned(),
                operation: Operation::Open,
                offset_bytes: 0,
                rule: "there are no crash images of zones with overlapping tracks".to_owned(),
            });
        }
        let is_strict = inner.tracks.as_ref().is_some_and(|control| control.is_strict());
        let tracks = TrackRules::of(&*inner.block, is_strict);
        let mut durable = Content {
            bytes: SparseBytes::with_tuples(format),
            tracks: tracks.clone().map(TrackContent::new),
            ..Content::default()
        };
        if let (Some(control), Some(geometry)) = (&inner.zones, &capabilities.zones) {
            let reported = control.report(ZoneId(0), geometry.zone_count, &IoContext::default())?;
            durable.zones = Some(ZoneContent::of(geometry, &reported));
        }
        let crash = Arc::new(CrashContent { durable, pending: History::default() });
        let original = Original { bytes: SparseBytes::with_tuples(format), ..Original::default() };
        let original = Arc::new(parking_lot::Mutex::new(original));
        let base = CrashBase { device: inner.clone(), tracks: tracks.clone(), original: original.clone() };
        let member = {
            let lines = LineLedger::new(inner.bytes.as_ref().map_or(1, |bytes| u64::from(bytes.line_bytes())));
            let state = CrashLayerState { base, crash, next_sequence: 0, in_flight: BTreeMap::new(), points: 0, lines };
            group.lock().join(state)
        };
        Ok(CrashDevice {
            shared: Arc::new(CrashLayer {
                inner: inner.clone(),
                tracks,
                original,
                group: group.clone(),
                member,
                landed: Condvar::new(env, "crash layer landed"),
            }),
        })
    }

    /// This layer as a device.
    pub fn device(&self) -> Device {
        self.shared.inner.below(&Layer::Crash(self), Arc::new(self.clone()))
    }

    /// The crash state now. Requests in flight may have arrived in part.
    pub fn capture(&self) -> DeviceCrashState {
        self.shared.state().capture()
    }

    /// Calls `observer` before every write, discard and sync from now on, in place of an earlier one.
    ///
    /// It runs under the layer's lock: it must not call this device, and must not wait.
    pub fn on_persistence_point(
        &self,
        mut observer: impl FnMut(&PersistencePoint<'_, DeviceCrashState>) + Send + 'static,
    ) {
        self.shared.group.lock().observe(Box::new(move |_, point, _| observer(point)));
    }

    /// Flushes and fences that the users of memory left out so far, or could have left out. All zero of a device without memory.
    pub fn flush_audit(&self) -> FlushAudit {
        self.shared.state().lines.audit()
    }

    /// Persistence points so far.
    pub fn persistence_points(&self) -> u64 {
        self.shared.state().points
    }
}

impl CrashLayer {
    /// Locks the group.
    pub(super) fn state(&self) -> LockedLayer<'_> {
        LockedLayer::new(self.group.lock(), self.member)
    }

    /// The change a request makes, if it makes one and is no nonsense.
    fn change_of(&self, request: &Request<'_>) -> Option<ContentChange> {
        let block = &*self.inner.block;
        let format = block.capabilities().protection;
        // The device below refuses wrong tuples before anything changes, so no image has them.
        let has_wrong_tuples = || format.is_some_and(|format| format.verify_write(block.name(), request).is_err());
        if request.length_bytes() == 0 || check_request(block, request).is_err() || has_wrong_tuples() {
            return None;
        }
        let offset_bytes = request.offset_bytes;
        match &request.transfer {
            Transfer::Read { .. } => None,
            Transfer::Write { data, protection, .. } => {
                let sectors = Sectors::of_write(format, offset_bytes, data, *protection);
                Some(ContentChange::Write { offset_bytes, data: Arc::new(sectors) })
            }
            Transfer::Discard { length_bytes } => {
                Some(ContentChange::Clear { offset_bytes, length_bytes: *length_bytes })
            }
        }
    }

    /// Parts of other tracks that a change destroys.
    fn destroyed_by(&self, change: &ContentChange) -> Vec<Range<u64>> {
        match (&self.tracks, change) {
            (Some(tracks), ContentChange::Write { offset_bytes, data }) => {
                tracks.destroyed_by(*offset_bytes..offset_bytes + data.len() as u64).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Pages that a request changes, those it destroys included, as ranges that do not overlap.
    fn touched_by(&self, request: &Request<'_>, change: &ContentChange) -> Vec<Range<u64>> {
        let own = pages_of(request.offset_bytes..request.offset_bytes + request.length_bytes());
        let mut touched = RangeSet::default();
        touched.insert(own);
        self.destroyed_by(change).into_iter().for_each(|span| touched.insert(pages_of(span)));
        touched.within(0..u64::MAX).collect()
    }

    /// Waits until nothing in flight touches the pages of any request (its ranges), and reserves them.
    pub(super) fn reserve(&self, touched: &[Vec<Range<u64>>]) -> Vec<u64> {
        let mut state = self.state();
        let taken =
            |held: &Vec<Range<u64>>| held.iter().any(|held| touched.iter().flatten().any(|range| overlap(held, range)));
        while state.in_flight.values().any(taken) {
            state.wait(&self.landed);
        }
        let reserve_one = |ranges: &Vec<Range<u64>>| {
            let sequence = state.take_sequence();
            state.in_flight.insert(sequence, ranges.clone());
            sequence
        };
        touched.iter().map(reserve_one).collect()
    }

    /// Reads what is in the pages of `range`, if this is the first time they are about to change.
    pub(super) fn save_original(&self, range: &Range<u64>, context: &IoContext) {
        let capacity_bytes = self.inner.block.geometry().capacity_bytes;
        let mut at = range.start;
        while at < range.end {
            let missing = |page: u64| !self.original.lock().bytes.contains_page(page);
            if !missing(at / PAGE_BYTES) {
                at += PAGE_BYTES;
                continue;
            }
            let mut end = at + PAGE_BYTES;
            while end < range.end && end - at < SAVE_BYTES_MAX && missing(end / PAGE_BYTES) {
                end += PAGE_BYTES;
            }
            let (found, unreadable) = self.read_whatever(&(at..end.min(capacity_bytes)), context);
            let mut original = self.original.lock();
            unreadable.into_iter().for_each(|part| original.unreadable.insert(part));
            for page in (at..end.min(capacity_bytes)).step_by(PAGE_BYTES as usize) {
                let from = (page - at) as usize;
                let sectors = found.as_slice().part(from..found.len().min(from + PAGE_BYTES as usize));
                if sectors.is_unwritten() {
                    original.bytes.clear(page, sectors.data.len() as u64);
                } else {
                    original.bytes.write(page, sectors);
                }
            }
            at = end;
        }
    }

    /// Reads what can be read of a range; a sector that cannot is taken as never written, and named.
    pub(super) fn read_whatever(&self, range: &Range<u64>, context: &IoContext) -> (Sectors, Vec<Range<u64>>) {
        let block = &*self.inner.block;
        let salvaged = Sectors::salvage(block, range, |_| true, |part| Sectors::read(block, part, context));
        salvaged.unwrap_or_else(|_| {
            let length = (range.end - range.start) as usize;
            (Sectors::unwritten(block.capabilities().protection, length), vec![range.clone()])
        })
    }

    /// Takes over into the durable content what pages were before they change for the first time.
    pub(super) fn keep_original(&self, durable: &mut Content, range: Range<u64>) {
        let original = self.original.lock();
        if let Some(tracks) = &mut durable.tracks {
            for part in original.unreadable.within(range.clone()) {
                for page in part.start / PAGE_BYTES..part.end.div_ceil(PAGE_BYTES) {
                    if !durable.bytes.contains_page(page) {
                        let of_page = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                        let part = part.start.max(of_page.start)..part.end.min(of_page.end);
                        tracks.found(part.clone(), &[part]);
                    }
                }
            }
        }
        durable.bytes.copy_absent(&original.bytes, range.start / PAGE_BYTES..range.end / PAGE_BYTES);
    }

    /// Does the requests `changing` (index and change of each), which do not overlap, and all that only read.
    fn execute_tracked(
        &self,
        requests: &mut [Request<'_>],
        changing: Vec<(usize, ContentChange)>,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let touched: Vec<Vec<Range<u64>>> =
            changing.iter().map(|(index, change)| self.touched_by(&requests[*index], change)).collect();
        let sequences = self.reserve(&touched);
        for range in touched.iter().flatten() {
            self.save_original(range, context);
        }
        {
            let mut state = self.state();
            for ((index, change), sequence) in changing.iter().zip(&sequences) {
                let request = &requests[*index];
                let operation = match change {
                    ContentChange::Write { .. } => Operation::Write,
                    _ => Operation::Discard,
                };
                let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes());
                let crash = Arc::make_mut(&mut state.crash);
                self.keep_original(&mut crash.durable, pages_of(offset_bytes..offset_bytes + length_bytes));
                crash.pending.push(Pending { sequence: *sequence, certain: false, change: change.clone() });
                state.pass_point(operation, offset_bytes, length_bytes);
            }
        }
        let result = self.inner.block.execute(requests, context);
        // What a failed request left is known only by looking.
        let mut landed = Vec::new();
        for ((index, change), sequence) in changing.into_iter().zip(sequences) {
            let request = &requests[index];
            let durable = !self.inner.block.capabilities().volatile_cache
                || matches!(request.transfer, Transfer::Write { durable: true, .. });
            let own = request.offset_bytes..request.offset_bytes + request.length_bytes();
            landed.push(match &request.outcome {
                Ok(()) if durable => Landed { sequence, stays: true, later: vec![(change, true)] },
                Ok(()) => Landed { sequence, stays: true, later: Vec::new() },
                // Refused: nothing changed.
                Err(error) if error.kind() == MediaErrorKind::InvalidRequest => {
                    Landed { sequence, stays: false, later: Vec::new() }
                }
                Err(_) if self.zone_of(&change).is_some() => {
                    let later = self.look_at_zone(&change, context).into_iter().map(|change| (change, false)).collect();
                    Landed { sequence, stays: false, later }
                }
                Err(MediaError::Zone { .. }) => Landed { sequence, stays: false, later: Vec::new() },
                Err(_) if self.tracks.is_some() => {
                    let ranges = std::iter::once(own).chain(self.destroyed_by(&change));
                    let later = ranges.map(|range| (self.look(range, context), false)).collect();
                    Landed { sequence, stays: false, later }
                }
                Err(_) => {
                    let (found, _) = self.read_whatever(&own, context);
                    let change = ContentChange::Write { offset_bytes: own.start, data: Arc::new(found) };
                    Landed { sequence, stays: true, later: vec![(change, false)] }
                }
            });
        }
        let state = &mut *self.state();
        for (change, certain) in landed.iter().flat_map(|landed| &landed.later) {
            if *certain {
                state.lines.overwritten(&change.block_range());
            }
        }
        for Landed { sequence, stays, later } in landed {
            state.in_flight.remove(&sequence);
            if !stays {
                Arc::make_mut(&mut state.crash).retain(|pending| pending.sequence != sequence);
            }
            for (change, certain) in later {
                let sequence = state.take_sequence();
                let crash = Arc::make_mut(&mut state.crash);
                if let ContentChange::Found { offset_bytes, data, .. } = &change {
                    // The request did not write there, so its pages need not be known yet.
                    let range = *offset_bytes..offset_bytes + data.len() as u64;
                    self.keep_original(&mut crash.durable, pages_of(range));
                }
                crash.pending.push(Pending { sequence, certain, change });
            }
        }
        self.landed.notify_all();
        result
    }

    /// What is in a range now.
    fn look(&self, range: Range<u64>, context: &IoContext) -> ContentChange {
        let (found, unreadable) = self.read_whatever(&range, context);
        ContentChange::Found { offset_bytes: range.start, data: Arc::new(found), unreadable: unreadable.into() }
    }
}

/// What became of a change when its request ended.
struct Landed {
    sequence: u64,
    /// It may have reached the medium.
    stays: bool,
    /// Further changes, and whether they are certain.
    later: Vec<(ContentChange, bool)>,
}

/// A range in whole pages.
pub(super) fn pages_of(range: Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES * PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl BlockDevice for CrashDevice {
    fn name(&self) -> &str {
        self.shared.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.shared.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.shared.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let changing: Vec<(usize, ContentChange)> = requests
            .iter()
            .enumerate()
            .filter_map(|(index, request)| Some((index, self.shared.change_of(request)?)))
            .collect();
        if changing.is_empty() {
            return self.shared.inner.block.execute(requests, context);
        }
        let mut ranges: Vec<Range<u64>> =
            changing.iter().flat_map(|(index, change)| self.shared.touched_by(&requests[*index], change)).collect();
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
            let mut state = shared.state();
            state.pass_point(Operation::Sync, 0, 0);
            let in_flight: Vec<u64> = state.in_flight.keys().copied().collect();
            (state.next_sequence, in_flight)
        };
        shared.inner.block.sync(context)?;
        let state = &mut *shared.state();
        let crash = Arc::make_mut(&mut state.crash);
        // A sync of blocks says nothing about lines that were stored to.
        crash.make_durable(|pending| {
            let is_store = matches!(pending.change, ContentChange::Store { .. });
            pending.sequence < before && !is_store && !in_flight.contains(&pending.sequence)
        });
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.shared.inner.block.counters()
    }
}
