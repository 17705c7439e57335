//! Reading: tables from their fragments, small files from the frames that hold them.

use super::node::{Damage, Node};
use super::open_store::OpenStore;
use super::pieces::Piece;
use crate::error::StoreError;
use crate::file_store::{ReadRange, ReadableFile};
use crate::journal::{self, corruption};
use crate::kernel::RawStore;
use crate::record_cache::RecordCache;
use crate::segments::{Segment, read_segments};
use std::sync::Arc;
use varve_media::{BlockDeviceExt, FileMapping, IoContext};

/// Frames read with one request, at most.
const TRANSFER_BYTES: u64 = 1 << 20;

/// Reads any file of the store.
pub(super) struct BandReader {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
}

/// A part of a range: where it lies on the device, and which range it belongs to.
struct Part {
    at: u64,
    length: usize,
    range: usize,
}

impl BandReader {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str) -> Self {
        BandReader { core, node, name: name.to_owned() }
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

    /// Refuses what is not there, or what the device may have dropped.
    fn admit(&self, offset_bytes: u64, length: usize) -> Result<u64, StoreError> {
        let end = offset_bytes.checked_add(length as u64).filter(|end| *end <= self.node.flushed_bytes());
        let end = end.ok_or_else(|| self.past_end(offset_bytes, length))?;
        // After a failed sync the device may have dropped what it took, and show what was there before.
        if end > self.node.durable_bytes() {
            self.core.check()?;
        }
        Ok(end)
    }

    /// Reads ranges of a table that is on the device, all in flight at once.
    fn read_fragments(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) {
        let mut parts: Vec<Part> = Vec::with_capacity(ranges.len());
        {
            let fragments = self.node.fragments.read();
            for (number, range) in ranges.iter_mut().enumerate() {
                let mut done = 0;
                while done < range.data.len() {
                    let offset_bytes = range.offset_bytes + done as u64;
                    let Some((band, within, contiguous)) = fragments.locate(offset_bytes) else {
                        range.outcome = Err(self.past_end(range.offset_bytes, range.data.len()));
                        break;
                    };
                    let length = contiguous.min((range.data.len() - done) as u64) as usize;
                    parts.push(Part { at: self.core.geometry.start_bytes(band) + within, length, range: number });
                    done += length;
                }
            }
        }
        let mut owners = Vec::with_capacity(parts.len());
        let mut segments = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter().peekable();
        let mut outcomes: Vec<&mut Result<(), StoreError>> = Vec::with_capacity(ranges.len());
        for (number, range) in ranges.iter_mut().enumerate() {
            let is_located = range.outcome.is_ok();
            let mut rest = &mut *range.data;
            while let Some(part) = parts.next_if(|part| part.range == number) {
                let (head, tail) = rest.split_at_mut(part.length);
                rest = tail;
                if is_located {
                    segments.push(Segment { at: part.at, data: head });
                    owners.push(number);
                }
            }
            outcomes.push(&mut range.outcome);
        }
        for (owner, outcome) in owners.iter().zip(read_segments(&*self.core.device.block, &mut segments, context)) {
            if let (Err(error), Ok(())) = (outcome, &*outcomes[*owner]) {
                *outcomes[*owner] = Err(self.core.media_error(&self.name, error));
            }
        }
    }

    /// Reads a range of a table of which the end may still be in memory.
    fn read_table(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let end = offset_bytes + data.len() as u64;
        loop {
            let written = self.node.written_bytes();
            let (on_device, in_memory) = data.split_at_mut((written.clamp(offset_bytes, end) - offset_bytes) as usize);
            let is_read = in_memory.is_empty() || self.node.tail.read().read(end - in_memory.len() as u64, in_memory);
            if !is_read {
                if self.node.written_bytes() > written {
                    // It went to the device between the two looks.
                    continue;
                }
                return Err(self.past_end(offset_bytes, data.len()));
            }
            if on_device.is_empty() {
                return Ok(());
            }
            let mut range = [ReadRange { offset_bytes, data: on_device, outcome: Ok(()) }];
            self.read_fragments(&mut range, context);
            let [range] = range;
            return range.outcome;
        }
    }
}

impl OpenStore {
    /// Reads a range of a small file: whole frames, of which the payloads are taken. A frame that was moved meanwhile
    /// is looked for again.
    pub(super) fn read_pieces(
        &self,
        node: &Node,
        name: &str,
        offset_bytes: u64,
        data: &mut [u8],
        context: &IoContext,
    ) -> Result<(), StoreError> {
        let end_bytes = offset_bytes.saturating_add(data.len() as u64);
        let is_damaged = |damage: &&Damage| damage.from_bytes == 0 || end_bytes > damage.from_bytes;
        if let Some(Damage { from_bytes, expected, found, failure }) = node.damage.get().filter(is_damaged) {
            if let Some(error) = failure {
                let error = error.clone();
                return Err(StoreError::Media { store: self.label.clone(), name: name.to_owned(), error });
            }
            return Err(corruption(&self.label, &format!("file '{name}'"), *from_bytes, expected, found));
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let pieces = self.adjacent_pieces(node, at, (data.len() - done) as u64);
            let Some((first, last)) = pieces.first().zip(pieces.last()) else {
                let what = format!("pieces of '{name}'");
                return Err(corruption(&self.label, &what, 0, format!("byte {at}"), "no frame with it"));
            };
            let frame_bytes = |piece: &Piece| self.frame.frame_bytes(piece.frame_payload_bytes as usize) as u64;
            let start = self.geometry.start_bytes(first.band) + first.frame_at;
            let length = last.frame_at + frame_bytes(last) - first.frame_at;
            let mut bytes = journal::buffer(&self.device, length as usize);
            let outcome = self.device.block.read_at(start, &mut bytes, context);
            let mut broken = None;
            if outcome.is_ok() {
                for piece in &pieces {
                    let frame = &bytes[(piece.frame_at - first.frame_at) as usize..];
                    let opened = self.frame.open(frame).filter(|frame| {
                        (frame.header.file, frame.header.offset_bytes, frame.payload.len() as u32)
                            == (node.file, piece.frame_offset_bytes, piece.frame_payload_bytes)
                    });
                    let Some(opened) = opened else {
                        broken = Some(*piece);
                        break;
                    };
                    let from = (offset_bytes + done as u64 - piece.frame_offset_bytes) as usize;
                    let until = (piece.skip_bytes() + piece.length_bytes) as usize;
                    let count = (until - from).min(data.len() - done);
                    data[done..done + count].copy_from_slice(&opened.payload[from..from + count]);
                    done += count;
                }
            }
            let suspect = match &outcome {
                Err(_) => Some(*first),
                Ok(()) => broken,
            };
            let Some(suspect) = suspect else { continue };
            if node.pieces.read().from(suspect.offset_bytes).first() != Some(&suspect) {
                continue;
            }
            outcome.map_err(|error| self.media_error(name, error))?;
            return Err(corruption(
                &self.label,
                &format!("file '{name}'"),
                self.geometry.start_bytes(suspect.band) + suspect.frame_at,
                format!("a frame of file {} for offset {}", node.file, suspect.frame_offset_bytes),
                "something else, or a wrong crc32c",
            ));
        }
        Ok(())
    }

    /// The pieces from a byte of the file on whose frames follow each other in their band.
    fn adjacent_pieces(&self, node: &Node, offset_bytes: u64, length_bytes: u64) -> Vec<Piece> {
        let map = node.pieces.read();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut total = 0;
        for piece in map.from(offset_bytes) {
            let frame_bytes = self.frame.frame_bytes(piece.frame_payload_bytes as usize) as u64;
            if let Some(last) = pieces.last() {
                let behind = last.frame_at + self.frame.frame_bytes(last.frame_payload_bytes as usize) as u64;
                let is_wanted = piece.offset_bytes < offset_bytes + length_bytes;
                let is_adjacent =
                    (piece.band, piece.frame_at, piece.offset_bytes) == (last.band, behind, last.end_bytes());
                if !is_wanted || !is_adjacent || total + frame_bytes > TRANSFER_BYTES {
                    break;
                }
            }
            total += frame_bytes;
            pieces.push(*piece);
        }
        pieces
    }
}

impl ReadableFile for BandReader {
    fn size_bytes(&self) -> u64 {
        self.node.flushed_bytes()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        self.admit(offset_bytes, data.len())?;
        if self.node.is_packed {
            self.core.read_pieces(&self.node, &self.name, offset_bytes, data, context)
        } else {
            self.read_table(offset_bytes, data, context)
        }
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let written = self.node.written_bytes();
        let (mut together, mut outcomes) = (Vec::with_capacity(ranges.len()), Vec::with_capacity(ranges.len()));
        for range in ranges.iter_mut() {
            let ReadRange { offset_bytes, data, outcome } = range;
            *outcome = match self.admit(*offset_bytes, data.len()) {
                Ok(end) if !self.node.is_packed && end <= written => {
                    together.push(ReadRange { offset_bytes: *offset_bytes, data, outcome: Ok(()) });
                    outcomes.push(outcome);
                    continue;
                }
                Ok(_) => self.read_at(*offset_bytes, data, context),
                Err(error) => Err(error),
            };
        }
        self.read_fragments(&mut together, context);
        for (range, outcome) in together.into_iter().zip(outcomes) {
            *outcome = range.outcome;
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
