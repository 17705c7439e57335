//! Writing frames of small files to log bands.
//!
//! One *appender* writes the frames of all small files, one band after the other. Beginning a band makes the band
//! before it durable and seals it, with one commit for both; only the last one is open, and only in it a crash can have
//! left frames torn. Then bands in which little lives are emptied (see [`cleaning`](super::cleaning)).
//!
//! # Writes that fail
//!
//! A write that failed twice, or of which something arrived, is done again in another band. The band before it takes
//! nothing more, and the numbers of the frames that failed are not used again: what arrived of them lies behind what is
//! sealed, or, when a power cut comes before that is committed, at the end of the last band, where it is a part of an
//! append that nobody acknowledged.
//!
//! An append that fails for good when it had filled other bands leaves frames in them that are no part of the file. The
//! first that is appended after it takes their place, as in any file that is shortened. But bands are given up one by
//! one, when nothing lives in them: then frames would remain behind a hole, and copies of the frames that took their
//! place do not shorten a file. So a *cut* goes to the band table at once: frames of the file before a number do not count
//! behind an offset. Whatever gives up a band is committed with it or after it. Before that commit every band is there,
//! and frames are played back in the order in which they were written, which needs no cut. The last cut of a file is
//! enough: what lies between an earlier one and the last was appended anew since, and its frames, or copies of them,
//! replace all that was there.

use super::allocation::Purpose;
use super::bands::AfterFailure;
use super::cleaning::{self, Need, SealedBand, Sizes};
use super::frame::{FRAME_BYTES_MAX, FrameHeader, HEADER_BYTES};
use super::node::Node;
use super::open_store::OpenStore;
use super::pieces::Piece;
use super::scan::LogExtent;
use super::state::BandState;
use super::statistics::add;
use crate::error::StoreError;
use crate::journal::{self, METADATA};
use crate::kernel::RawStore;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::MutexGuard;
use varve_media::{IoCause, IoClass, IoContext};

/// Largest request for frames. The log buffers of trees are smaller, so that a sync is one request.
const TRANSFER_BYTES: u64 = 4 << 20;
/// Bands that may refuse one write, one after the other.
const MOVES_MAX: u32 = 4;

/// Bands are scarce while at most this fraction of them is available to tables (1/8).
const SCARCE_PART: usize = 8;

const COPYING: IoContext = IoContext { cause: IoCause::Cleaning, ..IoContext::of(IoClass::Maintenance) };

/// The log band that is written.
#[derive(Clone, Copy, Debug)]
struct CurrentBand {
    band: u32,
    /// Bytes of frames in it.
    written_bytes: u64,
    /// A write to it failed, and something of it may be behind those: it is not written any more.
    is_broken: bool,
    /// It is one of the last, which were kept: for manifests, pointers and copies only, while bands are scarce.
    is_last_kept: bool,
}

/// Where the next frame goes.
#[derive(Debug)]
pub(super) struct LogAppender {
    current: Option<CurrentBand>,
    next_order: u64,
    sequence: u64,
}

/// What frames are made of.
struct Content<'a> {
    node: &'a Node,
    offset_bytes: u64,
    data: &'a [u8],
    is_copy: bool,
}

/// Copies that were written and are not durable yet: until they are, what they replace stays in use.
type Copies = Vec<(Arc<Node>, Vec<Piece>)>;

impl LogAppender {
    /// An appender that has not begun a band.
    pub(super) fn new(next_order: u64, sequence: u64) -> LogAppender {
        LogAppender { current: None, next_order, sequence }
    }

    /// Number of the next frame.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The frames of the band that is written.
    pub(super) fn written_extent(&self, state: &BandState) -> Option<LogExtent> {
        let CurrentBand { band, written_bytes, .. } = self.current?;
        let first_sequence = state.log_bands.get(&band)?.first_sequence;
        Some(LogExtent { band, first_sequence, end_bytes: written_bytes, is_sealed: true })
    }
}

impl OpenStore {
    /// Writes bytes of a small file behind what it has. All of them, or the file stays as it was: of an append that
    /// fails when some of its frames are written the band table hears that they do not count, before it hears of
    /// anything that could bring them back.
    pub(super) fn append_frames(
        &self,
        node: &Node,
        name: &str,
        purpose: Purpose,
        offset_bytes: u64,
        data: &[u8],
        context: &IoContext,
    ) -> Result<(), StoreError> {
        let mut appender = self.appender.lock();
        let content = Content { node, offset_bytes, data, is_copy: false };
        let first_sequence = appender.sequence;
        let outcome = self.write_frames(&mut appender, &content, name, purpose, context);
        match outcome {
            // Before anybody else seals the band.
            Ok(_) => node.set_written_bytes(offset_bytes + data.len() as u64),
            Err(_) if appender.sequence == first_sequence => {}
            Err(_) => self.state.lock().cut(node, offset_bytes, appender.sequence),
        }
        outcome.map(|_| ())
    }

    /// Bytes that the present log band still takes, for this.
    fn space_bytes(&self, appender: &LogAppender, purpose: Purpose) -> u64 {
        let Some(current) = appender.current.filter(|current| !current.is_broken) else { return 0 };
        if current.is_last_kept && purpose == Purpose::Log {
            let state = self.state.lock();
            if state.bands.free_count() < state.bands.kept_in_all() {
                return 0;
            }
        }
        self.geometry.band_bytes - current.written_bytes
    }

    /// Writes frames. They end the file at once; those of a copy are returned.
    fn write_frames(
        &self,
        appender: &mut MutexGuard<'_, LogAppender>,
        content: &Content<'_>,
        name: &str,
        purpose: Purpose,
        context: &IoContext,
    ) -> Result<Vec<Piece>, StoreError> {
        let (mut done, mut moves) = (0, 0);
        let mut copied = Vec::new();
        while done < content.data.len() {
            self.check()?;
            let space = self.space_bytes(appender, purpose);
            if self.frame.payload_bytes_max(space) == 0 {
                let missing = (content.data.len() - done) as u64;
                // A copy is to free space, not to take a band of its own.
                if content.is_copy {
                    return Err(self.no_space(name, missing, purpose));
                }
                self.begin_band(appender, name, purpose, missing)?;
                continue;
            }
            let Some(mut current) = appender.current else { continue };
            let rest = &content.data[done..];
            let (bytes, pieces) = self.build_frames(appender.sequence, current, content, done, rest, space);
            match self.write_band(current.band, current.written_bytes, &bytes, context) {
                Ok(()) => {
                    current.written_bytes += bytes.len() as u64;
                    let left_bytes = self.geometry.band_bytes - current.written_bytes;
                    self.log_space_bytes.store(left_bytes, Ordering::Relaxed);
                    appender.current = Some(current);
                    appender.sequence += pieces.len() as u64;
                    self.written_sequence.fetch_max(appender.sequence, Ordering::AcqRel);
                    let mut state = self.state.lock();
                    for piece in pieces {
                        done += piece.length_bytes as usize;
                        match content.is_copy {
                            true => copied.push(piece),
                            false => state.append_piece(content.node, piece),
                        }
                    }
                }
                Err((error, after)) => {
                    if after != AfterFailure::Retry {
                        current.is_broken = true;
                        self.log_space_bytes.store(0, Ordering::Relaxed);
                        appender.current = Some(current);
                        // Frames of it may be there. Their numbers are not used again.
                        appender.sequence += pieces.len() as u64;
                    }
                    if after == AfterFailure::Retry || moves == MOVES_MAX || content.is_copy {
                        return Err(self.media_error(name, error));
                    }
                    moves += 1;
                    self.begin_band(appender, name, purpose, rest.len() as u64)?;
                }
            }
        }
        Ok(copied)
    }

    /// The frames of as much of the rest as fits, and what they hold.
    fn build_frames(
        &self,
        first_sequence: u64,
        current: CurrentBand,
        content: &Content<'_>,
        done: usize,
        rest: &[u8],
        space: u64,
    ) -> (varve_media::AlignedBuffer, Vec<Piece>) {
        let durable_sequence = self.durable_sequence.load(Ordering::Acquire);
        let mut space = space.min(TRANSFER_BYTES);
        let mut lengths = Vec::new();
        let (mut left, mut total) = (rest.len(), 0);
        while left > 0 && self.frame.payload_bytes_max(space) > 0 {
            let payload = left.min(self.frame.payload_bytes_max(space));
            let frame = self.frame.frame_bytes(payload);
            lengths.push((payload, frame));
            (left, total, space) = (left - payload, total + frame, space - frame as u64);
        }
        let mut bytes = journal::buffer(&self.device, total);
        let (mut at, mut taken) = (0, 0);
        let mut pieces = Vec::with_capacity(lengths.len());
        for ((payload, length), sequence) in lengths.into_iter().zip(first_sequence..) {
            let frame = &mut bytes[at..at + length];
            frame[HEADER_BYTES..HEADER_BYTES + payload].copy_from_slice(&rest[taken..taken + payload]);
            let offset_bytes = content.offset_bytes + (done + taken) as u64;
            let (is_copy, file) = (content.is_copy, content.node.file);
            let header = FrameHeader { is_copy, file, offset_bytes, sequence, durable_sequence };
            self.frame.seal(frame, &header, payload);
            let frame_at = current.written_bytes + at as u64;
            pieces.push(Piece::whole(current.band, frame_at, offset_bytes, payload as u32));
            (at, taken) = (at + length, taken + payload);
        }
        (bytes, pieces)
    }

    /// Seals the present log band and begins another.
    fn begin_band(
        &self,
        appender: &mut MutexGuard<'_, LogAppender>,
        name: &str,
        purpose: Purpose,
        requested_bytes: u64,
    ) -> Result<(), StoreError> {
        let is_replaced = appender.current.is_some_and(|current| current.is_broken);
        let mut taken = self.take_band(name, purpose, None)?;
        if taken.is_none() {
            self.commit_and_reclaim()?;
            taken = self.take_band(name, purpose, None)?;
        }
        let Some(band) = taken else { return Err(self.no_space(name, requested_bytes, purpose)) };
        // What is sealed is durable.
        if let Err(error) = self.sync_device(&METADATA) {
            self.state.lock().bands.give_back(band);
            return Err(error);
        }
        if let Some(sealed) = appender.current {
            self.leave_band(sealed.band, sealed.written_bytes);
        }
        let is_last_kept;
        let change = {
            let mut state = self.state.lock();
            is_last_kept = purpose == Purpose::Metadata && state.bands.free_count() < state.bands.kept_in_all();
            state.small_files_are_durable();
            if let Some(current) = appender.current {
                state.seal_log(current.band, current.written_bytes);
            }
            state.note_sizes();
            state.begin_log(band, appender.next_order, appender.sequence);
            state.release_logs();
            state.names.change()
        };
        self.log_space_bytes.store(self.geometry.band_bytes, Ordering::Relaxed);
        let begun = CurrentBand { band, written_bytes: 0, is_broken: false, is_last_kept };
        appender.current = Some(begun);
        appender.next_order += 1;
        add(&self.counts.log_bands, 1);
        self.commit(change)?;
        // While writes fail nothing is copied: a copy that fails would take the next band too, and so on.
        if is_replaced {
            return Ok(());
        }
        let lacks_log_reserve = self.state.lock().bands.lacks_log_reserve();
        let need = match lacks_log_reserve {
            true => Need::NextBand,
            false if self.is_scarce() => Need::Scarce,
            false => Need::Routine,
        };
        self.clean(appender, need)
    }

    /// True if free bands are so few that log bands must not waste any.
    fn is_scarce(&self) -> bool {
        let available = self.state.lock().bands.view().available_bands(Purpose::Table);
        available <= self.geometry.band_count as usize / SCARCE_PART
    }

    /// Makes space by commits and, if that is not enough, by copying live data out of log bands.
    pub(super) fn free_space(&self, purpose: Purpose) -> Result<(), StoreError> {
        self.commit_and_reclaim()?;
        if self.state.lock().bands.view().available_bands(purpose) > 0 {
            return Ok(());
        }
        self.empty_log_bands()
    }

    /// Makes space by commits, and empties log bands if there are more than their live data justifies. Whether bands are free
    /// now that were not counted as such before.
    pub(super) fn reclaim_space(&self) -> Result<bool, StoreError> {
        let before = self.state.lock().free_soon();
        self.commit_and_reclaim()?;
        let has_waste = {
            let state = self.state.lock();
            let live = state.log_bands.values().filter(|log| log.sealed_bytes.is_some() && log.live_bytes > 0);
            let (bands, live_bytes) = live.fold((0, 0), |(bands, bytes), log| (bands + 1, bytes + log.live_bytes));
            // While writes are refused, sealed bands are packed as tightly as their live data allows.
            bands > live_bytes.div_ceil(self.geometry.band_bytes.max(1))
        };
        if has_waste {
            self.empty_log_bands()?;
        }
        Ok(self.state.lock().free_soon() > before)
    }

    /// Empties log bands into what is left of the present one. If that gives nothing back, it begins a band that was kept for this,
    /// as long as more than that one can be emptied.
    fn empty_log_bands(&self) -> Result<(), StoreError> {
        let mut appender = self.appender.lock();
        let before = self.state.lock().free_soon();
        self.clean(&mut appender, Need::Space)?;
        self.commit_and_reclaim()?;
        let can_gain = {
            let state = self.state.lock();
            let (band_bytes, table_bytes) = (self.geometry.band_bytes, self.geometry.table_bytes());
            let sealed = self.sealed_bands(&state);
            let plan = cleaning::plan(&sealed, band_bytes, Sizes { band_bytes, table_bytes }, Need::Scarce);
            state.free_soon() <= before && plan.len() > 1
        };
        if can_gain {
            // It is cleaned into.
            self.begin_band(&mut appender, "log bands", Purpose::Metadata, 0)?;
        }
        self.commit_and_reclaim()
    }

    /// Sealed log bands with live data.
    fn sealed_bands(&self, state: &BandState) -> Vec<SealedBand> {
        let sealed = state.log_bands.iter().filter(|(_, log)| log.sealed_bytes.is_some() && log.live_bytes > 0);
        sealed
            .map(|(band, log)| SealedBand { band: *band, order: log.order, copy_bytes: self.copy_bytes(state, *band) })
            .collect()
    }

    /// Empties log bands into the present one.
    fn clean(&self, appender: &mut MutexGuard<'_, LogAppender>, need: Need) -> Result<(), StoreError> {
        let space = self.space_bytes(appender, Purpose::Metadata);
        if space == 0 {
            return Ok(());
        }
        let plan = {
            let state = self.state.lock();
            let sealed = self.sealed_bands(&state);
            let (band_bytes, table_bytes) = (self.geometry.band_bytes, self.geometry.table_bytes());
            cleaning::plan(&sealed, space, Sizes { band_bytes, table_bytes }, need)
        };
        if plan.is_empty() {
            return Ok(());
        }
        let mut copies = Copies::new();
        for band in &plan {
            // What cannot be read stays where it is.
            if self.empty_band(appender, *band, &mut copies).is_ok() {
                add(&self.counts.cleaned_bands, 1);
            }
            self.check()?;
        }
        // Copies are durable before they replace anything: whoever commits next gives up bands in which nothing lives.
        self.sync_device(&COPYING)?;
        let change = {
            let mut state = self.state.lock();
            for (node, pieces) in copies {
                pieces.into_iter().for_each(|piece| state.replace_piece(&node, piece));
            }
            state.release_logs();
            state.names.change()
        };
        self.commit(change)
    }

    /// Bytes of frames that copies of what lives in a band take.
    fn copy_bytes(&self, state: &BandState, band: u32) -> u64 {
        let nodes = state.names.values().chain(state.names.unnamed()).filter(|node| node.is_packed);
        let extents = nodes.flat_map(|node| extents(node, band));
        let frame_payload = (FRAME_BYTES_MAX - HEADER_BYTES) as u64;
        extents
            .map(|(_, length)| {
                let full = length / frame_payload;
                full * FRAME_BYTES_MAX as u64 + self.frame.frame_bytes((length % frame_payload) as usize) as u64
            })
            .sum()
    }

    /// Copies what lives in a band to the present one, which stays the present one meanwhile.
    fn empty_band(
        &self,
        appender: &mut MutexGuard<'_, LogAppender>,
        band: u32,
        copies: &mut Copies,
    ) -> Result<(), StoreError> {
        let nodes: Vec<(String, Arc<Node>)> = {
            let state = self.state.lock();
            let removed = state.names.unnamed().map(|node| (String::new(), node.clone()));
            let named = state.names.iter().map(|(name, node)| (name.clone(), node.clone()));
            named.chain(removed).filter(|(_, node)| node.is_packed).collect()
        };
        for (name, node) in nodes {
            for (offset_bytes, length_bytes) in extents(&node, band) {
                let mut data = vec![0; length_bytes as usize];
                self.read_pieces(&node, &name, offset_bytes, &mut data, &COPYING)?;
                let content = Content { node: &node, offset_bytes, data: &data, is_copy: true };
                let pieces = self.write_frames(appender, &content, &name, Purpose::Metadata, &COPYING)?;
                copies.push((node.clone(), pieces));
                add(&self.counts.copied_bytes, length_bytes);
            }
        }
        Ok(())
    }

    /// Ends the present log band; what is in it is not durable yet.
    pub(super) fn end_current(&self, appender: &mut LogAppender) -> Option<(u32, u64)> {
        let current = appender.current.take()?;
        self.leave_band(current.band, current.written_bytes);
        Some((current.band, current.written_bytes))
    }
}

/// The parts of a small file that lie in a band: offset and length of each, those that follow each other as one.
fn extents(node: &Node, band: u32) -> Vec<(u64, u64)> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    for piece in node.pieces.read().iter().filter(|piece| piece.band == band) {
        match extents.last_mut() {
            Some((offset, length)) if *offset + *length == piece.offset_bytes => *length += piece.length_bytes,
            _ => extents.push((piece.offset_bytes, piece.length_bytes)),
        }
    }
    extents
}
