//! What the store, its writers and its readers share: the steps that change something durably.

use super::allocation::{Purpose, TableGrowth};
use super::bands::{AfterFailure, after_failure, is_refused_by_limit};
use super::change::Retirement;
use super::device_files::ZoneUse;
use super::frame::FrameFormat;
use super::geometry::StoreGeometry;
use super::logs::LogAppender;
use super::node::Node;
use super::shared::SharedZones;
use super::state::BandState;
use super::statistics::{Counts, add};
use crate::error::StoreError;
use crate::file_store::{FileKind, StoreProperties};
use crate::journal::{Journal, METADATA};
use crate::kernel::{Kernel, Latch, RawStore, SingleCommits};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Mutex, MutexGuard};
use varve_media::{
    BlockDeviceExt, Device, IoContext, JobId, MediaError, Operation, SyncOrder, ZoneControl, ZoneId, ZoneRefusal,
    ZoneSpace,
};

/// Bands that may refuse to be emptied, one after the other, before that is an error.
const REFUSALS_MAX: usize = 4;

pub(super) struct OpenStore {
    pub(super) kernel: Kernel<BandState>,
    pub(super) device: Device,
    pub(super) zones: Arc<dyn ZoneControl>,
    pub(super) properties: StoreProperties,
    pub(super) geometry: StoreGeometry,
    pub(super) frame: FrameFormat,
    /// Zones that may be active at once, one of them the log band's; 0 is no limit.
    pub(super) active_max: u32,
    /// Where tables share zones.
    pub(super) shared: Option<SharedZones>,
    /// Held across the writing of frames. Taken before the committer.
    pub(super) appender: Mutex<LogAppender>,
    /// Held while bands are taken and while zones that were left are finished, where the device limits how many are
    /// active: none is finished that somebody has begun to write.
    taking: Mutex<()>,
    /// Frames before this number are on the device.
    pub(super) written_sequence: AtomicU64,
    /// Frames before this number are durable.
    pub(super) durable_sequence: AtomicU64,
    /// Bytes that the present log band still takes, for those who only look.
    pub(super) log_space_bytes: AtomicU64,
    /// What the open found damaged of log bands, also of those that were given up since.
    pub(super) found_damaged: Vec<StoreError>,
    pub(super) counts: Counts,
}

impl Deref for OpenStore {
    type Target = Kernel<BandState>;

    fn deref(&self) -> &Kernel<BandState> {
        &self.kernel
    }
}

/// What an open has put together.
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) zones: Arc<dyn ZoneControl>,
    pub(super) label: String,
    pub(super) properties: StoreProperties,
    pub(super) geometry: StoreGeometry,
    pub(super) frame: FrameFormat,
    pub(super) active_max: u32,
    pub(super) shared: Option<SharedZones>,
    pub(super) state: BandState,
    pub(super) journal: Journal,
    pub(super) appender: LogAppender,
    pub(super) found_damaged: Vec<StoreError>,
}

impl OpenStore {
    pub(super) fn new(env: &Env, mut opened: Opened) -> OpenStore {
        let order = SyncOrder::shared(env, opened.device.block.clone());
        opened.journal.set_sync_order(&order);
        let latch = Latch::new(&opened.label, order, Vec::new());
        let sequence = opened.appender.sequence();
        OpenStore {
            kernel: Kernel::new(env, &opened.label, opened.state, opened.journal, Box::new(SingleCommits), latch),
            device: opened.device,
            zones: opened.zones,
            properties: opened.properties,
            geometry: opened.geometry,
            frame: opened.frame,
            active_max: opened.active_max,
            shared: opened.shared,
            appender: Mutex::new(env, "log bands", opened.appender),
            taking: Mutex::new(env, "bands taken", ()),
            written_sequence: AtomicU64::new(sequence),
            durable_sequence: AtomicU64::new(sequence),
            log_space_bytes: AtomicU64::new(0),
            found_damaged: opened.found_damaged,
            counts: Counts::default(),
        }
    }

    pub(super) fn no_space(&self, name: &str, requested_bytes: u64, purpose: Purpose) -> StoreError {
        add(&self.counts.refusals, 1);
        let state = self.state.lock();
        let available_bytes = state.bands.view().available_bands(purpose) as u64 * self.geometry.band_bytes;
        let zones = Some(self.zone_space(&state, purpose));
        StoreError::NoSpace {
            store: self.label.clone(),
            name: name.to_owned(),
            requested_bytes,
            available_bytes,
            zones,
        }
    }

    /// Use of the zones, and what is kept of the free ones from files of this purpose.
    pub(super) fn zone_space(&self, state: &BandState, purpose: Purpose) -> ZoneSpace {
        let ZoneUse { total, free, tables, .. } = self.zone_use(state);
        let zone_bytes = self.geometry.band_bytes;
        ZoneSpace {
            zone_bytes,
            total,
            free,
            kept: state.bands.view().kept_bands(purpose) as u32,
            table_zones_bytes: u64::from(tables) * zone_bytes,
            is_shared: self.shared.is_some(),
        }
    }

    /// Number of zones by what they are used for.
    pub(super) fn zone_use(&self, state: &BandState) -> ZoneUse {
        let (logs, retired) = (state.log_bands.len() as u32, state.bands.retired().len() as u32);
        let total = self.geometry.band_count - retired;
        let free = state.free_soon() as u32;
        ZoneUse { total, free, logs, tables: total.saturating_sub(free + logs) }
    }

    /// What a band for a file of this kind is wanted for.
    pub(super) fn purpose(&self, kind: FileKind, job: Option<JobId>) -> Purpose {
        let is_compaction = || job.is_some_and(|job| self.state.lock().bands.is_compaction(job));
        match kind {
            FileKind::Table if is_compaction() => Purpose::CompactionOutput,
            FileKind::Table => Purpose::Table,
            FileKind::Manifest | FileKind::Pointer => Purpose::Metadata,
            _ => Purpose::Log,
        }
    }

    /// Makes every write that has completed durable.
    pub(super) fn sync_device(&self, context: &IoContext) -> Result<(), StoreError> {
        let sequence = self.written_sequence.load(Ordering::Acquire);
        self.latch.sync(context)?;
        self.durable_sequence.fetch_max(sequence, Ordering::AcqRel);
        Ok(())
    }

    /// Commits and frees whatever can be freed without copying.
    pub(super) fn commit_and_reclaim(&self) -> Result<(), StoreError> {
        self.commit_all()?;
        // Files that are gone may have left log bands in which nothing lives.
        self.commit_all()
    }

    /// A band for this, empty; `None` when there is none. `table` is the one it is for, if it is for one. Zones that refuse
    /// to be reset are passed over, some of them.
    ///
    /// Where the device limits how many zones are active, tables leave one to the log: who takes a log band finishes
    /// the one before it first. A table that goes on in another band keeps its place: nobody begins a table in between.
    pub(super) fn take_band(
        &self,
        name: &str,
        purpose: Purpose,
        table: Option<TableGrowth>,
    ) -> Result<Option<u32>, StoreError> {
        let mut refused = Vec::new();
        let outcome = self.take_empty_band(name, purpose, table, &mut refused);
        let mut state = self.state.lock();
        refused.into_iter().for_each(|band| state.bands.give_back(band));
        outcome
    }

    /// A band for this, empty. Those that could not be emptied are in `refused`, taken.
    fn take_empty_band(
        &self,
        name: &str,
        purpose: Purpose,
        table: Option<TableGrowth>,
        refused: &mut Vec<u32>,
    ) -> Result<Option<u32>, StoreError> {
        let mut tried_to_finish = false;
        loop {
            self.check()?;
            let taking = (self.active_max > 0).then(|| self.taking.lock());
            let taken = {
                let mut state = self.state.lock();
                // A full band is left once its table has the next, and the device does not count it.
                let full = table.and_then(|table| table.full_band).filter(|band| state.bands.is_active(*band));
                let active = state.bands.active_beside_log() as u64 - u64::from(full.is_some());
                if table.is_some() && self.active_max > 0 && active + 1 >= u64::from(self.active_max) {
                    None
                } else {
                    Some(match table {
                        Some(table) => state.bands.take_for_table(purpose, table),
                        None => state.bands.take_for_log(purpose),
                    })
                }
            };
            let Some(taken) = taken else {
                drop(taking);
                if !tried_to_finish && self.finish_left() {
                    tried_to_finish = true;
                    continue;
                }
                // A zone that tables share and that nobody writes makes place for one that somebody does.
                if table.is_some_and(|table| !table.shares) && self.close_open_zone() {
                    continue;
                }
                let (store, name) = (self.label.clone(), name.to_owned());
                return Err(StoreError::TooManyWriters { store, name, limit: self.active_max - 1 });
            };
            // The caller may free space.
            let Some((band, is_dirty)) = taken else { return Ok(None) };
            if !is_dirty {
                if table.is_some() {
                    self.empty_one_more();
                }
                return Ok(Some(band));
            }
            add(&self.counts.resets, 1);
            let Err(error) = self.zones.reset(ZoneId(band), &METADATA) else {
                self.state.lock().bands.set_finished(band);
                return Ok(Some(band));
            };
            if self.retire_if_given_up(band) {
                self.state.lock().bands.give_back(band);
                continue;
            }
            self.state.lock().bands.set_aside(band);
            refused.push(band);
            if refused.len() > REFUSALS_MAX {
                return Err(self.media_error(name, error));
            }
        }
    }

    /// Empties the band that has been free for longest, so that what nobody needs does not stay on the device for long; called by
    /// whoever takes a band that is empty already. One that cannot be emptied now will be when it is taken.
    fn empty_one_more(&self) {
        let freed = self.state.lock().bands.begin_emptying();
        if let Some(band) = freed {
            add(&self.counts.resets, 1);
            let is_empty = self.zones.reset(ZoneId(band), &METADATA).is_ok();
            self.state.lock().bands.end_emptying(band, is_empty);
        }
    }

    /// Retires a band whose zone the device gave up. False when it did not, or cannot say.
    fn retire_if_given_up(&self, band: u32) -> bool {
        let zone = self.zones.report(ZoneId(band), 1, &METADATA).ok().and_then(|zones| zones.into_iter().next());
        let retirement = zone.as_ref().and_then(super::bands::retirement_of);
        if let Some(retirement) = retirement {
            self.retire(band, retirement);
        }
        retirement.is_some()
    }

    pub(super) fn retire(&self, band: u32, retirement: Retirement) {
        let is_news = self.state.lock().retire(band, retirement);
        add(&self.counts.retired_bands, u64::from(is_news));
    }

    /// Nothing more is written to a band of which `written_bytes` were. Where the device limits how many zones are
    /// active, the zone is finished before it counts no more.
    pub(super) fn leave_band(&self, band: u32, written_bytes: u64) {
        if self.active_max == 0 || written_bytes == self.geometry.band_bytes {
            self.state.lock().bands.set_inactive(band);
            return;
        }
        add(&self.counts.finishes, 1);
        let is_finished = self.zones.finish(ZoneId(band), &METADATA).is_ok();
        if !is_finished && self.retire_if_given_up(band) {
            return;
        }
        let mut state = self.state.lock();
        match is_finished {
            true => state.bands.set_inactive(band),
            // Tried again when its place is needed.
            false => state.bands.set_unfinished(band),
        }
    }

    /// Gives back a band of which nothing is needed. Something may have arrived in it: where the device limits how many
    /// zones are active, its zone is emptied first.
    pub(super) fn give_back_band(&self, band: u32) {
        let still_counts =
            self.active_max > 0 && self.zones.reset(ZoneId(band), &METADATA).is_err() && !self.retire_if_given_up(band);
        let mut state = self.state.lock();
        if still_counts {
            state.bands.set_unfinished(band);
        }
        state.bands.give_back(band);
    }

    /// Finishes zones that refused it before. Whether one did not refuse it now.
    fn finish_left(&self) -> bool {
        let _taking = self.taking.lock();
        let left = self.state.lock().bands.unfinished();
        let mut is_any_finished = false;
        for band in left {
            add(&self.counts.finishes, 1);
            if self.zones.finish(ZoneId(band), &METADATA).is_ok() {
                self.state.lock().bands.set_finished(band);
                is_any_finished = true;
            } else {
                is_any_finished |= self.retire_if_given_up(band);
            }
        }
        is_any_finished
    }

    /// Writes whole units to a band behind its first `written_bytes`. What fails and did not arrive is written once
    /// more. The error is what the device said, and whether the band can still be written at the same place: only when
    /// it was refused for what other zones are in.
    pub(super) fn write_band(
        &self,
        band: u32,
        written_bytes: u64,
        data: &[u8],
        context: &IoContext,
    ) -> Result<(), (MediaError, AfterFailure)> {
        let at = self.geometry.start_bytes(band) + written_bytes;
        let mut failed = false;
        loop {
            let Err(error) = self.device.block.write_at(at, data, context) else { return Ok(()) };
            if is_refused_by_limit(&error) {
                if failed || !self.finish_left() {
                    return Err((error, AfterFailure::Retry));
                }
                failed = true;
                continue;
            }
            let zone = self.zones.report(ZoneId(band), 1, &METADATA).ok().and_then(|zones| zones.into_iter().next());
            // Of a zone of which the device says nothing nothing can be known.
            let after = zone.map_or(AfterFailure::Move(None), |zone| after_failure(&zone, written_bytes));
            if after != AfterFailure::Retry || failed {
                add(&self.counts.moved_writes, 1);
                let retirement = match after {
                    AfterFailure::Move(retirement) => retirement,
                    AfterFailure::Retry => None,
                };
                retirement.into_iter().for_each(|retirement| self.retire(band, retirement));
                return Err((error, AfterFailure::Move(retirement)));
            }
            add(&self.counts.repeated_writes, 1);
            failed = true;
        }
    }

    /// Says that a table has more on the device than the band table knows.
    pub(super) fn note_unsynced(&self, node: &Arc<Node>) {
        if !node.is_packed {
            self.state.lock().names.note_unsynced(node);
        }
    }

    /// Makes what is on the device of a file durable: contents, length and name.
    pub(super) fn sync_node(&self, node: &Node, name: &str, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        let written = node.written_bytes();
        if node.is_packed {
            // A frame of a file without name is nobody's, so the order of the two does not matter.
            self.commit(node.needed_change())?;
            if written > node.durable_bytes() {
                self.sync_device(context)?;
                self.check_not_lost(&self.state.lock(), node, name)?;
            }
        } else {
            if written > node.durable_bytes() {
                self.sync_device(context)?;
                let mut state = self.state.lock();
                self.check_not_lost(&state, node, name)?;
                state.record_fragments(node, written).map_err(|_| self.no_metadata_space(name))?;
                state.names.note_synced(node);
            }
            self.commit(node.needed_change())?;
        }
        node.set_durable_bytes(written);
        Ok(())
    }

    /// Refuses a file of which a part was lost with its zone before it was synced: no sync of the device brings it back.
    fn check_not_lost(&self, state: &BandState, node: &Node, name: &str) -> Result<(), StoreError> {
        let Some(band) = state.lost_unsynced(node) else { return Ok(()) };
        Err(self.media_error(
            name,
            MediaError::Zone {
                device: self.device.block.name().to_owned(),
                operation: Operation::Sync,
                zone: ZoneId(band),
                offset_bytes: self.geometry.start_bytes(band),
                refusal: ZoneRefusal::Offline,
            },
        ))
    }

    /// What a clean end makes durable: everything that reached the device.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        self.check()?;
        let written: Vec<(Arc<Node>, u64)> = {
            let state = self.state.lock();
            state.names.unsynced().map(|node| (node.clone(), node.written_bytes())).collect()
        };
        let mut appender = self.appender.lock();
        let sealed = self.end_current(&mut appender);
        if !written.is_empty() || sealed.is_some() {
            self.sync_device(&METADATA)?;
        }
        let change = {
            let mut state = self.state.lock();
            for (node, written) in &written {
                if state.lost_unsynced(node).is_some() {
                    continue;
                }
                // A table that was never synced and does not fit the band table was never promised.
                let _ = state.record_fragments(node, *written);
            }
            if let Some((band, valid_bytes)) = sealed {
                state.small_files_are_durable();
                state.seal_log(band, valid_bytes);
                state.note_sizes();
                state.release_logs();
            }
            state.names.change()
        };
        drop(appender);
        self.commit(change)
    }
}

impl RawStore for OpenStore {
    type State = BandState;

    fn reclaim(&self, mut state: MutexGuard<'_, BandState>, free: Vec<Arc<Node>>, durable_change: u64) {
        state.reclaim(&free, durable_change);
    }

    fn sync_file(&self, node: &Arc<Node>, name: &str, context: &IoContext) -> Result<(), StoreError> {
        if node.is_unsynced() { self.sync_node(node, name, context) } else { Ok(()) }
    }
}
