//! Bringing a table from the write buffer to tracks: the sync handler.
//!
//! Tracks are chosen and locked under the state's lock; a persist whose plan touches what another one has
//! locked waits for it to end. Then the steps of the plan are done, and a commit of the S2TMap says where
//! the table is and that the intents do not count any more. Only when that is durable are the tracks
//! unlocked: until then nobody else can get a top that was saved, so an intent that counts never speaks
//! of another file's data.
//!
//! A failure before the first bottom is written costs the file its sync and nothing else. A failure
//! after that poisons the store: the tops that are away are read from their copies, and the next open
//! restores them.

use super::allocation::{TrackRequest, TrackView};
use super::intent::{Intent, SavedTop};
use super::map::TrackMap;
use super::node::Node;
use super::open_store::OpenStore;
use super::rewrite::{PersistCost, PersistStep};
use super::state::ImrState;
use crate::error::StoreError;
use crate::kernel::RawStore;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{
    AlignedBuffer, BlockDeviceExt, IoCause, IoContext, MediaError, MediaErrorKind, Request, TrackId, TrackTier,
};

/// Bytes in flight, and in memory, of one step; ...
const BATCH_BYTES: u64 = 8 << 20;

/// and at most so many where each request is durable by itself: a queue of 32 tracks of 2 MiB.
const FORCED_BATCH_BYTES_MAX: u64 = 64 << 20;

/// What a persist has for itself until it ends.
struct Reservation {
    tracks: Vec<TrackId>,
    /// Offset in the data at which each track begins, and the end of the last.
    starts: Vec<u64>,
    steps: Vec<PersistStep>,
    exclusive: Vec<TrackId>,
    endangered: Vec<TrackId>,
    /// In the backup region, if tops must be saved.
    place: Option<usize>,
}

/// Why a persist ended early.
enum Failure {
    /// This top cannot be read, so it cannot be saved. Nothing was destroyed.
    Unreadable(TrackId),
    Error(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Error(error)
    }
}

impl OpenStore {
    /// Makes what was flushed of a table durable: contents, length, place and name.
    pub(super) fn persist(&self, node: &Arc<Node>, name: &str, context: &IoContext) -> Result<(), StoreError> {
        self.check_node(node)?;
        let turn = node.persisting.lock();
        let size_bytes = node.flushed_bytes();
        let old = node.map();
        if size_bytes > old.size_bytes() && !node.is_removed() {
            let (kept, start) = old.full();
            let buffer = node.buffer.read();
            let data = buffer.get(start, (size_bytes - start) as usize).ok_or_else(|| StoreError::InvalidRequest {
                store: self.label.clone(),
                reason: format!("the write buffer of '{name}' does not hold what was flushed"),
            })?;
            self.persist_data(node, name, data, kept, size_bytes, context)?;
            drop(buffer);
            let (_, start) = node.map().full();
            let mut buffer = node.buffer.write();
            let whole = (start.saturating_sub(buffer.offset_bytes)).min(buffer.bytes.len() as u64);
            let rest = buffer.bytes.split_off(whole as usize);
            let used = std::mem::replace(&mut buffer.bytes, rest);
            buffer.offset_bytes += whole;
            self.spare_buffers.give(used);
        }
        drop(turn);
        self.commit(node.needed_change())
    }

    /// Puts `data` on tracks behind the first `kept` a file has.
    fn persist_data(
        &self,
        node: &Arc<Node>,
        name: &str,
        data: &[u8],
        kept: usize,
        size_bytes: u64,
        context: &IoContext,
    ) -> Result<(), StoreError> {
        loop {
            let asked = self.env.now().as_nanos();
            let reservation = self.reserve(node, name, data.len() as u64)?;
            self.statistics.lock().wait_nanos += self.env.now().as_nanos() - asked;
            let mut persist = Persist::new(self, node, data, &reservation, context);
            let begun = self.env.now().as_nanos();
            let outcome = persist.execute();
            let (sequence, is_armed, rewrite_nanos) = (persist.sequence, persist.is_armed, persist.rewrite_nanos);
            let is_unsynced = persist.is_unsynced;
            match outcome {
                Ok(()) => {
                    let cost = PersistCost::of(&reservation.steps);
                    let ended = self.env.now().as_nanos();
                    let bottom_bytes = self.bottom_bytes(&reservation, data.len() as u64);
                    node.set_written_nanos(ended);
                    let mut statistics = self.statistics.lock();
                    statistics.note_table(node.level(), data.len() as u64, bottom_bytes, cost);
                    statistics.persist_nanos += ended - begun;
                    statistics.rewrite_nanos += rewrite_nanos;
                    drop(statistics);
                    self.note_restores(&reservation.steps);
                }
                // Tops are away, or may be damaged: nothing here may be used until they are restored.
                Err(Failure::Error(error)) if is_armed => return Err(self.poison(error)),
                Err(failure) => {
                    // A bottom written in vain must not reach the medium after a top that is written next.
                    if is_unsynced {
                        self.sync_disk(context).map_err(|error| self.poison(error))?;
                    }
                    let mut state = self.state.lock();
                    if let (Some(place), Some(sequence)) = (reservation.place, sequence) {
                        state.note_done(place, sequence);
                    }
                    if let Failure::Unreadable(top) = failure {
                        state.avoid(top, self.geometry.tracks.neighbours(top).collect());
                    }
                    self.release(&mut state, reservation);
                    drop(state);
                    self.released.notify_all();
                    match failure {
                        Failure::Unreadable(_) => continue,
                        Failure::Error(error) => {
                            node.fail(&error);
                            return Err(error);
                        }
                    }
                }
            }
            let old = node.map();
            let tracks: Vec<TrackId> = old.tracks().iter().take(kept).chain(&reservation.tracks).copied().collect();
            let map = TrackMap::new(&self.geometry.tracks, tracks, size_bytes).ok_or_else(|| {
                let reason = format!("the tracks given to '{name}' do not hold {size_bytes} bytes");
                self.poison(StoreError::InvalidRequest { store: self.label.clone(), reason })
            })?;
            let change = {
                let mut state = self.state.lock();
                state.extend(node, map, kept);
                if let (Some(place), Some(sequence)) = (reservation.place, sequence) {
                    state.note_done(place, sequence);
                }
                state.names.change()
            };
            self.commit(change)?;
            let mut state = self.state.lock();
            self.release(&mut state, reservation);
            drop(state);
            self.released.notify_all();
            return Ok(());
        }
    }

    fn note_restores(&self, steps: &[PersistStep]) {
        let restored = steps.iter().flat_map(|step| match step {
            PersistStep::Restore(tops) => tops.as_slice(),
            _ => &[],
        });
        for top in restored {
            if let Some(restores) = self.restores.get(top.0 as usize) {
                restores.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Bytes of a table that lie on bottoms.
    fn bottom_bytes(&self, reservation: &Reservation, size_bytes: u64) -> u64 {
        let tier = |track: TrackId| self.geometry.tracks.tier(track);
        let pieces = reservation.tracks.iter().zip(reservation.starts.windows(2));
        let bottoms = pieces.filter(|(track, _)| tier(**track) == TrackTier::Bottom);
        bottoms.map(|(_, bounds)| bounds[1].min(size_bytes) - bounds[0].min(size_bytes)).sum()
    }

    /// Chooses tracks for a table, and locks them and whatever writing them touches.
    fn reserve(&self, node: &Node, name: &str, size_bytes: u64) -> Result<Reservation, StoreError> {
        let mut made_space = false;
        let mut state = self.state.lock();
        loop {
            self.check()?;
            let (locked, usable) = (state.locked(), self.geometry.usable());
            let level = node.level();
            let request = TrackRequest { size_bytes, level, largest_level: state.largest_level(level) };
            let view = TrackView {
                geometry: &self.geometry.tracks,
                usable: &usable,
                valid: &state.valid,
                locked: &locked,
                cursor: state.cursor,
            };
            match self.policy.place(&view, &request) {
                Some(placement) => {
                    let reservation = self.plan(&state, placement.tracks);
                    if !state.has_space(None, reservation.tracks.len() + state.promised_tracks) {
                        let (store, name) = (self.label.clone(), name.to_owned());
                        return Err(StoreError::NoSpace {
                            store,
                            name,
                            requested_bytes: size_bytes,
                            available_bytes: 0,
                            zones: None,
                        });
                    }
                    if let Some(reservation) = self.lock(&mut state, reservation) {
                        state.cursor = placement.cursor;
                        state.running += 1;
                        state.promised_tracks += reservation.tracks.len();
                        return Ok(reservation);
                    }
                    self.released.wait(&mut state);
                }
                None if !made_space => {
                    drop(state);
                    self.commit_all()?;
                    made_space = true;
                    state = self.state.lock();
                }
                None if state.running > 0 => {
                    self.released.wait(&mut state);
                    made_space = false;
                }
                None => {
                    let free = |track: &TrackId| !state.valid.contains(*track) && !locked.contains(*track);
                    let available_bytes =
                        usable.map(TrackId).filter(free).map(|track| self.geometry.tracks.length_bytes(track)).sum();
                    let (store, name) = (self.label.clone(), name.to_owned());
                    return Err(StoreError::NoSpace {
                        store,
                        name,
                        requested_bytes: size_bytes,
                        available_bytes,
                        zones: None,
                    });
                }
            }
        }
    }

    fn plan(&self, state: &ImrState, tracks: Vec<TrackId>) -> Reservation {
        let geometry = &self.geometry.tracks;
        let steps = self.rewrite.plan(geometry, &state.valid, &tracks, self.geometry.copies_max());
        let mut exclusive = tracks.clone();
        let mut needs_place = false;
        for step in &steps {
            if let PersistStep::BackUp(tops) = step {
                needs_place = true;
                exclusive.extend_from_slice(tops);
            }
        }
        exclusive.sort_unstable();
        exclusive.dedup();
        let mut endangered: Vec<TrackId> = tracks
            .iter()
            .filter(|&&track| geometry.tier(track) == TrackTier::Bottom)
            .flat_map(|&bottom| geometry.neighbours(bottom))
            .filter(|top| exclusive.binary_search(top).is_err())
            .collect();
        endangered.sort_unstable();
        endangered.dedup();
        let mut starts = vec![0];
        for &track in &tracks {
            starts.push(starts.last().copied().unwrap_or(0) + geometry.length_bytes(track));
        }
        let place = needs_place.then_some(usize::MAX);
        Reservation { tracks, starts, steps, exclusive, endangered, place }
    }

    /// Locks what a plan touches and gives it a place for its backups, or does nothing.
    fn lock(&self, state: &mut ImrState, mut reservation: Reservation) -> Option<Reservation> {
        if reservation.place.is_some() && state.free_places.is_empty() {
            return None;
        }
        if !state.locks.try_lock(&reservation.exclusive, &reservation.endangered) {
            return None;
        }
        if reservation.place.is_some() {
            reservation.place = state.free_places.pop();
        }
        Some(reservation)
    }

    fn release(&self, state: &mut ImrState, reservation: Reservation) {
        state.locks.unlock(&reservation.exclusive, &reservation.endangered);
        for &track in &reservation.exclusive {
            // Written in vain, or its file was removed meanwhile.
            if !state.valid.contains(track) {
                self.mark_free(track);
            }
        }
        state.free_places.extend(reservation.place);
        state.running -= 1;
        state.promised_tracks -= reservation.tracks.len();
    }

    /// Whether these pieces, ascending or not, are to be durable when they are written: most have a gap behind them.
    fn is_forced(&self, pieces: &[(u64, [&[u8]; 2])]) -> bool {
        let end = |(at, parts): &(u64, [&[u8]; 2])| at + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let bordering = pieces.windows(2).filter(|pair| end(&pair[0]) == pair[1].0).count();
        self.forced_at_once.is_some() && pieces.len() > 1 && 2 * bordering < pieces.len()
    }

    /// Bytes in flight, and in memory, of one step.
    fn batch_bytes(&self) -> u64 {
        let tracks = self.forced_at_once.map_or(0, u64::from) * self.geometry.tracks.top_track_bytes;
        BATCH_BYTES.max(tracks.min(FORCED_BATCH_BYTES_MAX))
    }

    /// Writes pieces, all in flight at once; those that fail once more.
    fn write_all(&self, pieces: &[(u64, [&[u8]; 2])], context: &IoContext) -> Result<(), MediaError> {
        let alignment = self.disk.block.capabilities().buffer_alignment_bytes as usize;
        // Memory that the device can take.
        let copies: Vec<AlignedBuffer> = match alignment {
            0 | 1 => Vec::new(),
            _ => pieces.iter().map(|(_, parts)| AlignedBuffer::copy_of(&parts.concat(), alignment)).collect(),
        };
        let is_forced = self.is_forced(pieces);
        let attempt = || {
            let slices: Vec<[IoSlice<'_>; 2]> = match copies.is_empty() {
                true => pieces.iter().map(|(_, parts)| parts.map(IoSlice::new)).collect(),
                false => copies.iter().map(|copy| [IoSlice::new(copy), IoSlice::new(&[])]).collect(),
            };
            let mut requests: Vec<Request<'_>> = Vec::with_capacity(pieces.len());
            for ((at, _), slices) in pieces.iter().zip(&slices) {
                requests.push(match is_forced {
                    true => Request::write_durable(*at, slices),
                    false => Request::write(*at, slices),
                });
            }
            self.disk.block.execute(&mut requests, context)
        };
        attempt().or_else(|error| match error.kind() {
            MediaErrorKind::NoSpace | MediaErrorKind::InvalidRequest => Err(error),
            _ => attempt(),
        })
    }
}

/// One persist that runs.
struct Persist<'a> {
    core: &'a OpenStore,
    file: u64,
    data: &'a [u8],
    reservation: &'a Reservation,
    context: &'a IoContext,
    /// Bytes of each track of the table.
    own: BTreeMap<TrackId, u64>,
    /// What is in the backup region, in the order of the copies.
    saved: Vec<SavedTop>,
    /// The last one used.
    sequence: Option<u64>,
    /// Tops are in the backup region only, or may be soon.
    is_armed: bool,
    /// Tracks may have been written since the last sync.
    is_unsynced: bool,
    rewrite_nanos: u64,
    sector_bytes: u64,
}

impl<'a> Persist<'a> {
    fn new(
        core: &'a OpenStore,
        node: &Node,
        data: &'a [u8],
        reservation: &'a Reservation,
        context: &'a IoContext,
    ) -> Self {
        let end = data.len() as u64;
        let own = reservation
            .tracks
            .iter()
            .zip(reservation.starts.windows(2))
            .map(|(&track, bounds)| (track, bounds[1].min(end) - bounds[0].min(end)))
            .collect();
        let sector_bytes = u64::from(core.geometry.journal.unit_bytes);
        Persist {
            core,
            file: node.file,
            data,
            reservation,
            context,
            own,
            saved: Vec::new(),
            sequence: None,
            is_armed: false,
            is_unsynced: false,
            rewrite_nanos: 0,
            sector_bytes,
        }
    }

    fn failed(&self, what: &str, error: MediaError) -> Failure {
        Failure::Error(self.core.media_error(what, error))
    }

    fn execute(&mut self) -> Result<(), Failure> {
        let mut last: Option<&PersistStep> = None;
        let reservation = self.reservation;
        for step in &reservation.steps {
            let begun = self.core.env.now().as_nanos();
            match step {
                PersistStep::BackUp(tops) => self.back_up(tops)?,
                PersistStep::Write(positions) => self.write(positions)?,
                PersistStep::Restore(tops) => self.restore(tops)?,
                PersistStep::Sync => {
                    self.core.sync_disk(self.context)?;
                    self.is_unsynced = false;
                    match last {
                        Some(PersistStep::BackUp(tops)) => self.arm(tops),
                        Some(PersistStep::Restore(tops)) => self.disarm(tops),
                        _ => {}
                    }
                }
            }
            let of = if *step == PersistStep::Sync { last } else { Some(step) };
            if matches!(of, Some(PersistStep::BackUp(_) | PersistStep::Restore(_))) {
                self.rewrite_nanos += self.core.env.now().as_nanos() - begun;
            }
            last = Some(step);
        }
        Ok(())
    }

    /// Length of a transfer of so many bytes.
    fn whole_sectors(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.sector_bytes)
    }

    /// Items in groups of about `batch_bytes`.
    fn batches<'b, T>(
        batch_bytes: u64,
        items: &'b [T],
        bytes: impl Fn(&T) -> u64 + 'b,
    ) -> impl Iterator<Item = &'b [T]> {
        let mut rest = items;
        std::iter::from_fn(move || {
            let mut sum = 0;
            let count = rest.iter().take_while(|item| {
                let fits = sum < batch_bytes;
                sum += bytes(item);
                fits
            });
            let (batch, later) = rest.split_at(count.count());
            rest = later;
            (!batch.is_empty()).then_some(batch)
        })
    }

    /// Reads ranges of the disk, all in flight at once; the error names the one that failed.
    fn read_all(&self, ranges: &[(u64, u64)], context: &IoContext) -> Result<Vec<AlignedBuffer>, (usize, MediaError)> {
        let mut buffers: Vec<AlignedBuffer> =
            ranges.iter().map(|&(_, length)| self.core.disk.buffer(length as usize)).collect();
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let mut requests: Vec<Request<'_>> =
            ranges.iter().zip(&mut slices).map(|(&(at, _), slices)| Request::read(at, slices)).collect();
        if self.core.disk.block.execute(&mut requests, context).is_err() {
            let error = |(index, request): (usize, &Request<'_>)| {
                request.outcome.as_ref().err().map(|error| (index, error.clone()))
            };
            if let Some(failed) = requests.iter().enumerate().find_map(error) {
                return Err(failed);
            }
        }
        Ok(buffers)
    }

    /// Copies tops into the backup region and says there which they are.
    fn back_up(&mut self, tops: &[TrackId]) -> Result<(), Failure> {
        let context = IoContext { cause: IoCause::RewriteBackup, ..*self.context };
        let place = self.reservation.place.unwrap_or(0);
        let (owners, sequence) = {
            let mut state = self.core.state.lock();
            let owner = |top: &TrackId| match (state.owners.get(top), self.own.get(top)) {
                (Some(owner), _) => (owner.file, owner.used_bytes),
                (None, own) => (self.file, own.copied().unwrap_or(0)),
            };
            let owners: Vec<(u64, u64)> = tops.iter().map(owner).collect();
            (owners, state.sequence())
        };
        self.sequence = Some(sequence);
        self.saved = tops
            .iter()
            .zip(owners)
            .map(|(&track, (file, length_bytes))| SavedTop { track, file, length_bytes, checksum: 0 })
            .collect();
        let mut index = 0;
        let saved = std::mem::take(&mut self.saved);
        let mut finished = Vec::with_capacity(saved.len());
        for batch in Self::batches(self.core.batch_bytes(), &saved, |top| top.length_bytes.max(1)) {
            let start = |top: &SavedTop| self.core.geometry.tracks.start_bytes(top.track);
            let ranges: Vec<(u64, u64)> =
                batch.iter().map(|top| (start(top), self.whole_sectors(top.length_bytes))).collect();
            let buffers = self.read_all(&ranges, &context).map_err(|(index, error)| match error.kind() {
                MediaErrorKind::Unreadable => Failure::Unreadable(batch[index].track),
                _ => self.failed("a track beside a table", error),
            })?;
            let mut pieces: Vec<(u64, [&[u8]; 2])> = Vec::with_capacity(batch.len());
            for (top, buffer) in batch.iter().zip(&buffers) {
                let checksum = crc32c::crc32c(&buffer[..top.length_bytes as usize]);
                finished.push(SavedTop { checksum, ..*top });
                pieces.push((self.core.geometry.copy_offset(place, index), [&buffer[..], &[]]));
                index += 1;
            }
            self.core.write_all(&pieces, &context).map_err(|error| self.failed("backup region", error))?;
        }
        self.saved = finished;
        let (store_id, tops) = (self.core.store_id, self.saved.clone());
        let intent = Intent { store_id, sequence, place: place as u32, tops }.encode();
        let mut bytes = self.core.disk.buffer(self.whole_sectors(intent.len() as u64) as usize);
        bytes[..intent.len()].copy_from_slice(&intent);
        let at = self.core.geometry.intent_region(place).offset_bytes;
        let write = || self.core.own.block.write_at(at, &bytes, &context);
        write().or_else(|_| write()).map_err(|error| self.failed("backup region", error))
    }

    /// From here on the copies are what counts.
    fn arm(&mut self, tops: &[TrackId]) {
        let place = self.reservation.place.unwrap_or(0);
        let geometry = &self.core.geometry;
        self.is_armed = true;
        let copies = self.saved.iter().enumerate().map(|(index, top)| (top.track, geometry.copy_offset(place, index)));
        self.core.relocations.lock().leave(copies);
        tops.iter().for_each(|&top| self.core.mark_free(top));
    }

    fn disarm(&mut self, tops: &[TrackId]) {
        self.core.relocations.lock().come_back(tops);
        self.is_armed = false;
    }

    fn write(&mut self, positions: &[usize]) -> Result<(), Failure> {
        self.is_unsynced = true;
        let zeros = vec![0; self.sector_bytes as usize];
        let (tracks, starts, end) = (&self.reservation.tracks, &self.reservation.starts, self.data.len() as u64);
        let length = |position: &usize| starts[position + 1].min(end) - starts[*position];
        for batch in Self::batches(self.core.batch_bytes(), positions, length) {
            let pieces: Vec<(u64, [&[u8]; 2])> = batch
                .iter()
                .map(|position| {
                    let start = starts[*position];
                    let data = &self.data[start as usize..(start + length(position)) as usize];
                    let padding = self.whole_sectors(data.len() as u64) as usize - data.len();
                    (self.core.geometry.tracks.start_bytes(tracks[*position]), [data, &zeros[..padding]])
                })
                .collect();
            self.core.write_all(&pieces, self.context).map_err(|error| self.failed("a table", error))?;
        }
        Ok(())
    }

    /// Copies what was saved back.
    fn restore(&mut self, tops: &[TrackId]) -> Result<(), Failure> {
        let context = IoContext { cause: IoCause::RewriteRestore, ..*self.context };
        let place = self.reservation.place.unwrap_or(0);
        let wanted: Vec<(usize, SavedTop)> =
            self.saved.iter().copied().enumerate().filter(|(_, top)| tops.contains(&top.track)).collect();
        for batch in Self::batches(self.core.batch_bytes(), &wanted, |(_, top)| top.length_bytes.max(1)) {
            let ranges: Vec<(u64, u64)> = batch
                .iter()
                .map(|(index, top)| {
                    (self.core.geometry.copy_offset(place, *index), self.whole_sectors(top.length_bytes))
                })
                .collect();
            let read = || self.read_all(&ranges, &context);
            let buffers = read().or_else(|_| read()).map_err(|(_, error)| self.failed("backup region", error))?;
            let mut pieces: Vec<(u64, [&[u8]; 2])> = Vec::with_capacity(batch.len());
            for ((index, top), buffer) in batch.iter().zip(&buffers) {
                let checksum = crc32c::crc32c(&buffer[..top.length_bytes as usize]);
                if checksum != top.checksum {
                    return Err(Failure::Error(crate::journal::corruption(
                        &self.core.label,
                        &format!("copy of track {}", top.track),
                        self.core.geometry.copy_offset(place, *index),
                        format!("crc32c {:#010x}", top.checksum),
                        format!("{checksum:#010x}"),
                    )));
                }
                pieces.push((self.core.geometry.tracks.start_bytes(top.track), [&buffer[..], &[]]));
            }
            self.core.write_all(&pieces, &context).map_err(|error| self.failed("a track beside a table", error))?;
        }
        Ok(())
    }
}
