//! Content that is not durable yet, and what a power cut leaves of it.

use super::fate::{Fate, FateChooser};
use super::tracks::TrackContent;
use super::zones::{ZoneArrival, ZoneContent};
use crate::sectors::{SectorSlice, Sectors};
use crate::sparse::SparseBytes;
use crate::zones::ZoneId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A change of the content of a file or device.
#[derive(Clone)]
pub(crate) enum ContentChange {
    Write {
        offset_bytes: u64,
        data: Arc<Sectors>,
    },
    /// Bytes stored to one line of memory: torn at 8 bytes.
    Store {
        offset_bytes: u64,
        data: Arc<Sectors>,
    },
    /// Makes a range zero (a discard).
    Clear {
        offset_bytes: u64,
        length_bytes: u64,
    },
    Truncate {
        size_bytes: u64,
    },
    /// Empties a zone.
    ResetZone {
        zone: ZoneId,
    },
    /// Moves the write pointer of a zone to its end.
    FinishZone {
        zone: ZoneId,
    },
    /// What a failed request on a device with tracks left, found by looking: it destroys nothing more.
    Found {
        offset_bytes: u64,
        data: Arc<Sectors>,
        /// Parts that cannot be read.
        unreadable: Arc<[Range<u64>]>,
    },
}

impl ContentChange {
    /// Bytes that a write or discard of blocks covers; none for other changes.
    pub(super) fn block_range(&self) -> Range<u64> {
        match self {
            ContentChange::Write { offset_bytes, data } => *offset_bytes..offset_bytes + data.len() as u64,
            ContentChange::Clear { offset_bytes, length_bytes } => *offset_bytes..offset_bytes + length_bytes,
            _ => 0..0,
        }
    }
}

/// A change that is not durable yet.
#[derive(Clone)]
pub(crate) struct Pending {
    /// Order among all changes of the medium.
    pub(crate) sequence: u64,
    /// Known to be on the medium (a durable write): every image has it.
    pub(crate) certain: bool,
    pub(crate) change: ContentChange,
}

/// Content and length.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) bytes: SparseBytes,
    pub(crate) size_bytes: u64,
    /// What writes destroyed, on a device with tracks.
    pub(crate) tracks: Option<TrackContent>,
    /// What zones are in, on a device with zones.
    pub(crate) zones: Option<ZoneContent>,
}

impl Content {
    pub(crate) fn write(&mut self, offset_bytes: u64, data: SectorSlice<'_>) {
        self.bytes.write(offset_bytes, data);
        let end = offset_bytes + data.data.len() as u64;
        self.size_bytes = self.size_bytes.max(end);
        if let Some(tracks) = &mut self.tracks {
            tracks.written(offset_bytes..end);
        }
        if let Some(zones) = &mut self.zones {
            zones.written(offset_bytes..end);
        }
    }

    fn find(&mut self, offset_bytes: u64, data: SectorSlice<'_>, unreadable: &[Range<u64>]) {
        self.bytes.write(offset_bytes, data);
        if let Some(tracks) = &mut self.tracks {
            tracks.found(offset_bytes..offset_bytes + data.data.len() as u64, unreadable);
        }
    }

    pub(crate) fn clear(&mut self, offset_bytes: u64, length_bytes: u64) {
        self.bytes.clear(offset_bytes, length_bytes);
        self.size_bytes = self.size_bytes.max(offset_bytes + length_bytes);
        if let Some(tracks) = &mut self.tracks {
            tracks.discarded(offset_bytes..offset_bytes + length_bytes);
        }
    }

    fn reset_zone(&mut self, zone: ZoneId) {
        if let Some(zones) = &mut self.zones {
            let Range { start, end } = zones.geometry().range(zone);
            zones.reset(zone);
            self.bytes.clear(start, end - start);
        }
    }

    fn finish_zone(&mut self, zone: ZoneId) {
        if let Some(zones) = &mut self.zones {
            zones.finished(zone);
        }
    }

    pub(crate) fn truncate(&mut self, size_bytes: u64) {
        if size_bytes < self.size_bytes {
            self.bytes.truncate(size_bytes);
        }
        self.size_bytes = size_bytes;
    }

    pub(crate) fn apply(&mut self, change: &ContentChange) {
        match change {
            ContentChange::Write { offset_bytes, data } | ContentChange::Store { offset_bytes, data } => {
                self.write(*offset_bytes, data.as_slice());
            }
            ContentChange::Clear { offset_bytes, length_bytes } => self.clear(*offset_bytes, *length_bytes),
            ContentChange::Truncate { size_bytes } => self.truncate(*size_bytes),
            ContentChange::ResetZone { zone } => self.reset_zone(*zone),
            ContentChange::FinishZone { zone } => self.finish_zone(*zone),
            ContentChange::Found { offset_bytes, data, unreadable } => {
                self.find(*offset_bytes, data.as_slice(), unreadable)
            }
        }
    }
}

/// A part of a change that lies in one sector: of its data with their tuples.
#[derive(Clone, Copy)]
enum Piece<'a> {
    Write(u64, SectorSlice<'a>),
    Clear(u64, u64),
    Found(u64, SectorSlice<'a>, &'a [Range<u64>]),
}

impl Piece<'_> {
    fn apply(self, content: &mut Content) {
        match self {
            Piece::Write(offset_bytes, data) => content.write(offset_bytes, data),
            Piece::Clear(offset_bytes, length_bytes) => content.clear(offset_bytes, length_bytes),
            Piece::Found(offset_bytes, data, unreadable) => content.find(offset_bytes, data, unreadable),
        }
    }
}

/// What is kept or lost whole.
#[derive(Clone, Copy)]
pub(crate) struct Units {
    /// Unit of writes.
    pub(crate) sector_bytes: u64,
    /// Unit of the order of changes: a cache line of memory, which stores change too; elsewhere a sector. Divides a sector.
    pub(crate) line_bytes: u64,
}

impl Units {
    /// Sectors alone.
    pub(crate) fn of_sectors(sector_bytes: u64) -> Units {
        Units { sector_bytes, line_bytes: sector_bytes }
    }
}

/// Content after the changes that arrived, sector by sector.
///
/// A sector on the medium is always some version it had: one that kept a later write has the
/// earlier writes to the same sector too, even where those were chosen to be lost; of memory that is so line by line. `changes` are in
/// the order in which they reach the medium; in a zone that is written in order none arrives without
/// those before it; on a device with tracks, each sector that arrives destroys
/// what it overlaps at that moment.
pub(crate) fn surviving_content(
    durable: &Content,
    changes: &[&Pending],
    units: Units,
    chooser: &mut FateChooser,
) -> Content {
    let Units { sector_bytes, line_bytes } = units;
    let mut content = durable.clone();
    let mut zones = ZoneArrival::new(durable, changes);
    // What was lost so far, by line.
    let mut lost: BTreeMap<u64, Vec<Piece<'_>>> = BTreeMap::new();
    for pending in changes {
        let by_variant = chooser.content(pending.sequence);
        let fate = if pending.certain { Fate::Kept } else { by_variant };
        if let Some(zone) = durable.zones.as_ref().and_then(|zones| zones.ordered_zone(&pending.change)) {
            zones.arrive(zone, pending, fate, &mut content, sector_bytes, chooser);
            continue;
        }
        let (start, end) = match &pending.change {
            // Only of a device without zones.
            ContentChange::ResetZone { .. } | ContentChange::FinishZone { .. } => continue,
            ContentChange::Truncate { size_bytes } => {
                if fate == Fate::Kept || (fate == Fate::Torn && chooser.sector()) {
                    content.truncate(*size_bytes);
                    lost.clear();
                }
                continue;
            }
            ContentChange::Write { offset_bytes, data }
            | ContentChange::Store { offset_bytes, data }
            | ContentChange::Found { offset_bytes, data, .. } => (*offset_bytes, offset_bytes + data.len() as u64),
            ContentChange::Clear { offset_bytes, length_bytes } => (*offset_bytes, offset_bytes + length_bytes),
        };
        if fate == Fate::Kept && lost.is_empty() {
            content.apply(&pending.change);
            continue;
        }
        if let (ContentChange::Store { data, .. }, Fate::Torn) = (&pending.change, fate) {
            let lost = lost.entry(start / line_bytes).or_default();
            tear_store(&mut content, lost, start, data.as_slice().data, chooser);
            continue;
        }
        let within = |from: u64, to: u64| (from - start) as usize..(to - start) as usize;
        let mut at = start;
        // Whether the sector arrived that was chosen last.
        let mut chosen: Option<(u64, bool)> = None;
        while at < end {
            let (sector, line) = (at / sector_bytes, at / line_bytes);
            let piece_end = end.min((line + 1) * line_bytes);
            let piece = match &pending.change {
                ContentChange::Write { data, .. } | ContentChange::Store { data, .. } => {
                    Piece::Write(at, data.as_slice().part(within(at, piece_end)))
                }
                ContentChange::Found { data, unreadable, .. } => {
                    Piece::Found(at, data.as_slice().part(within(at, piece_end)), unreadable)
                }
                _ => Piece::Clear(at, piece_end - at),
            };
            let arrived = match fate {
                Fate::Kept => true,
                Fate::Lost => false,
                Fate::Torn => match chosen {
                    Some((last, arrived)) if last == sector => arrived,
                    _ => chooser.sector(),
                },
            };
            chosen = Some((sector, arrived));
            if arrived {
                for earlier in lost.remove(&line).unwrap_or_default() {
                    earlier.apply(&mut content);
                }
                piece.apply(&mut content);
            } else {
                lost.entry(line).or_default().push(piece);
            }
            at = piece_end;
        }
        if content.size_bytes < end && fate != Fate::Kept && chooser.length_without_data(fate) {
            content.size_bytes = end;
        }
    }
    content
}

/// Some words of a store to one line arrive, and with them everything stored to the line before; the others are lost.
fn tear_store<'a>(
    content: &mut Content,
    lost: &mut Vec<Piece<'a>>,
    start: u64,
    data: &'a [u8],
    chooser: &mut FateChooser,
) {
    let (mut at, mut rest) = (start, data);
    let (mut arrived, mut missing) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (word, later) = rest.split_at(rest.len().min((8 - at % 8) as usize));
        if chooser.sector() { &mut arrived } else { &mut missing }.push(Piece::Write(at, word.into()));
        at += word.len() as u64;
        rest = later;
    }
    if !arrived.is_empty() {
        lost.drain(..).chain(arrived).for_each(|piece| piece.apply(content));
    }
    lost.extend(missing);
}
