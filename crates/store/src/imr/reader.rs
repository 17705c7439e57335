//! The read handler: tables from their tracks or the write buffer, other files from the store of small
//! files.

use super::map::TrackMap;
use super::node::Node;
use super::open_store::{OpenStore, named};
use crate::error::StoreError;
use crate::file_store::{ReadRange, ReadableFile};
use crate::kernel::RawStore;
use crate::record_cache::RecordCache;
use crate::segments::{Segment, read_segments};
use std::sync::Arc;
use varve_media::{FileMapping, IoContext, MediaError, TrackId};

/// What a segment is a part of.
struct Part {
    /// Of the file, for messages.
    file_offset: u64,
    /// Which of the ranges.
    range: usize,
}

/// A range of a file to be read from its tracks.
pub(super) struct TrackRead<'a> {
    pub(super) offset_bytes: u64,
    pub(super) data: &'a mut [u8],
    pub(super) outcome: Result<(), StoreError>,
}

impl OpenStore {
    /// Reads ranges of a file that its map covers, all in flight at once.
    pub(super) fn read_tracks(&self, name: &str, map: &TrackMap, reads: &mut [TrackRead<'_>], context: &IoContext) {
        loop {
            let mut tracks: Vec<TrackId> = Vec::new();
            let (mut parts, mut segments): (Vec<Part>, Vec<Segment<'_>>) = (Vec::new(), Vec::new());
            let epoch = {
                let relocations = self.relocations.lock();
                for (range, read) in reads.iter_mut().enumerate() {
                    read.outcome = Ok(());
                    let mut file_offset = read.offset_bytes;
                    // Pieces that follow each other on the disk are read as one.
                    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
                    for piece in map.pieces(read.offset_bytes, read.data.len() as u64) {
                        let start = relocations
                            .copy_of(piece.track)
                            .unwrap_or_else(|| self.geometry.tracks.start_bytes(piece.track));
                        let at = start + piece.within_bytes;
                        tracks.push(piece.track);
                        match runs.last_mut().filter(|(last, length, _)| last + *length == at) {
                            Some((_, length, _)) => *length += piece.length_bytes,
                            None => runs.push((at, piece.length_bytes, file_offset)),
                        }
                        file_offset += piece.length_bytes;
                    }
                    let mut rest = &mut read.data[..];
                    for (at, length, file_offset) in runs {
                        let (data, later) = rest.split_at_mut(length as usize);
                        rest = later;
                        segments.push(Segment { at, data });
                        parts.push(Part { file_offset, range });
                    }
                }
                relocations.epoch()
            };
            let outcomes = read_segments(&*self.disk.block, &mut segments, context);
            let failures: Vec<(usize, StoreError)> = segments
                .iter()
                .zip(parts)
                .zip(outcomes)
                .filter_map(|((segment, part), outcome)| {
                    let error = outcome.err()?;
                    Some((part.range, self.read_error(name, segment.at, part.file_offset, error)))
                })
                .collect();
            drop(segments);
            let relocations = self.relocations.lock();
            if tracks.iter().any(|&track| relocations.has_moved(track, epoch)) {
                continue;
            }
            for (range, error) in failures {
                if reads[range].outcome.is_ok() {
                    reads[range].outcome = Err(error);
                }
            }
            return;
        }
    }

    /// What an error of the device means to the reader of a file.
    fn read_error(&self, name: &str, at: u64, file_offset: u64, error: MediaError) -> StoreError {
        match error {
            MediaError::Unreadable { offset_bytes, .. } => {
                let track = self.geometry.tracks.track_at(offset_bytes);
                let track = track.map_or_else(String::new, |track| format!(" in track {track}"));
                StoreError::Corruption {
                    store: self.label.clone(),
                    structure: format!("file '{name}'"),
                    offset_bytes: file_offset + offset_bytes.saturating_sub(at),
                    expected: "data".to_owned(),
                    found: format!("an unreadable sector at offset {offset_bytes}{track} of the disk"),
                    advice: "the rest of the file can be read; restore it from a backup".to_owned(),
                }
            }
            error => self.media_error(name, error),
        }
    }
}

pub(super) struct TableReader {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
}

impl TableReader {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str) -> Self {
        TableReader { core, node, name: name.to_owned() }
    }

    #[cold]
    fn past_end(&self, offset_bytes: u64, length: usize) -> StoreError {
        StoreError::PastEnd {
            store: self.core.label.clone(),
            name: self.name.clone(),
            offset_bytes,
            length_bytes: length as u64,
            size_bytes: self.node.flushed_bytes(),
        }
    }
}

impl ReadableFile for TableReader {
    fn size_bytes(&self) -> u64 {
        self.node.flushed_bytes()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let length = data.len();
        let end = match offset_bytes.checked_add(length as u64) {
            Some(end) if end <= self.node.flushed_bytes() => end,
            _ => return Err(self.past_end(offset_bytes, length)),
        };
        loop {
            let map = self.node.map();
            let split = map.size_bytes().clamp(offset_bytes, end);
            let (on_tracks, in_memory) = data.split_at_mut((split - offset_bytes) as usize);
            if !in_memory.is_empty() {
                let buffer = self.node.buffer.read();
                match buffer.get(split, in_memory.len()) {
                    Some(bytes) => in_memory.copy_from_slice(bytes),
                    // It went to tracks between the two looks.
                    None if self.node.map().size_bytes() > map.size_bytes() => continue,
                    None => return Err(self.past_end(offset_bytes, length)),
                }
            }
            if on_tracks.is_empty() {
                return Ok(());
            }
            let mut reads = [TrackRead { offset_bytes, data: on_tracks, outcome: Ok(()) }];
            self.core.read_tracks(&self.name, &map, &mut reads, context);
            let [read] = reads;
            return read.outcome;
        }
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let map = self.node.map();
        let is_on_tracks = |range: &ReadRange<'_>| {
            let end = range.offset_bytes.checked_add(range.data.len() as u64);
            end.is_some_and(|end| end <= map.size_bytes())
        };
        for range in ranges.iter_mut().filter(|range| !is_on_tracks(range)) {
            range.outcome = self.read_at(range.offset_bytes, range.data, context);
        }
        let (mut reads, mut outcomes) = (Vec::new(), Vec::new());
        for range in ranges.iter_mut().filter(|range| is_on_tracks(range)) {
            reads.push(TrackRead { offset_bytes: range.offset_bytes, data: &mut *range.data, outcome: Ok(()) });
            outcomes.push(&mut range.outcome);
        }
        if !reads.is_empty() {
            self.core.read_tracks(&self.name, &map, &mut reads, context);
            for (read, outcome) in reads.into_iter().zip(outcomes) {
                *outcome = read.outcome;
            }
        }
        ranges.iter().find_map(|range| range.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn prefetch(&self, _offset_bytes: u64, _length_bytes: u64, _context: &IoContext) {
        // There is no cache to fetch into; the device reads ahead by itself.
    }

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}

/// A reader of the store of small files.
pub(super) struct PackedReader {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    inner: Arc<dyn ReadableFile>,
}

impl PackedReader {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str, inner: Arc<dyn ReadableFile>) -> Self {
        PackedReader { core, node, name: name.to_owned(), inner }
    }

    /// After a failed sync the disk may have dropped what it took, and show what was there before.
    fn check(&self, offset_bytes: u64, length: usize) -> Result<(), StoreError> {
        let end = offset_bytes.checked_add(length as u64);
        match self.core.disk.order.failure() {
            Some(_) if end > Some(self.node.durable_bytes()) => self.core.check(),
            _ => Ok(()),
        }
    }
}

impl ReadableFile for PackedReader {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        self.check(offset_bytes, data.len())?;
        self.inner.read_at(offset_bytes, data, context).map_err(|error| named(error, &self.name))
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        for range in ranges.iter() {
            self.check(range.offset_bytes, range.data.len())?;
        }
        let result = self.inner.read_many(ranges, context).map_err(|error| named(error, &self.name));
        for range in ranges.iter_mut() {
            range.outcome = std::mem::replace(&mut range.outcome, Ok(())).map_err(|error| named(error, &self.name));
        }
        result
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64, context: &IoContext) {
        self.inner.prefetch(offset_bytes, length_bytes, context);
    }

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}
