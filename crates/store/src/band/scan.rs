//! Reading log bands: which frames are in them, and where they end.

use super::change::Cut;
use super::frame::{FRAME_BYTES_MAX, Frame, FrameFormat, FrameHeader};
use super::geometry::StoreGeometry;
use super::pieces::{Dead, Piece, PieceMap};
use crate::error::StoreError;
use crate::journal::{self, corruption};
use varve_media::{BlockDeviceExt, Device, IoContext, MediaError};

/// Largest piece read of a log band; a frame fits several times.
const TRANSFER_BYTES: u64 = 1 << 20;

/// A log band to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogExtent {
    pub(super) band: u32,
    pub(super) first_sequence: u64,
    /// Bytes in which frames may be.
    pub(super) end_bytes: u64,
    /// All of them are frames that are durable; else they end somewhere.
    pub(super) is_sealed: bool,
}

/// A frame that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundFrame {
    pub(super) header: FrameHeader,
    pub(super) piece: Piece,
}

/// A part of a log band in which frames are missing that were durable, or may have been.
#[derive(Clone, Debug)]
pub(super) struct DamagedPart {
    pub(super) start_bytes: u64,
    pub(super) end_bytes: u64,
    /// What should be there, and is not.
    pub(super) expected: String,
    pub(super) found: String,
    /// The error of the device, where the part, or what lies behind it, could not be read.
    pub(super) source: Option<MediaError>,
}

impl DamagedPart {
    pub(super) fn error(&self, label: &str, geometry: &StoreGeometry, band: u32) -> StoreError {
        let at = geometry.start_bytes(band) + self.start_bytes;
        corruption(label, "log band", at, self.expected.clone(), self.found.clone())
    }
}

/// What a log band holds.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundLog {
    pub(super) frames: Vec<FoundFrame>,
    /// Bytes up to the end of the last of them.
    pub(super) valid_bytes: u64,
    /// In the order of the band.
    pub(super) damaged: Vec<DamagedPart>,
}

/// Reads a log band.
///
/// Frames follow each other without a gap up to where the band ends. In a sealed band every gap is damage. One that was
/// being written may end anywhere, for what was not synced may be torn by a power cut: there a gap is damage when a
/// later frame says that what is missing was durable, or when something from the gap on cannot be read, for that may
/// have said so. Frames behind damage are found; behind a torn end none are.
pub(super) fn scan(
    device: &Device,
    format: &FrameFormat,
    geometry: &StoreGeometry,
    extent: &LogExtent,
    context: &IoContext,
) -> FoundLog {
    let start_bytes = geometry.start_bytes(extent.band);
    let mut window = Window::new(device, start_bytes, extent.end_bytes);
    let (mut frames, mut at, mut expected) = (Vec::new(), 0, extent.first_sequence);
    while at < extent.end_bytes {
        let bytes = window.at(at, format.unit_bytes, context);
        at += match format.open(bytes).filter(|frame| frame.header.sequence >= expected) {
            Some(Frame { header, payload, frame_bytes }) => {
                expected = header.sequence + 1;
                let piece = Piece::whole(extent.band, at, header.offset_bytes, payload.len() as u32);
                frames.push((FoundFrame { header, piece }, at + frame_bytes as u64));
                frame_bytes as u64
            }
            None => format.unit_bytes as u64,
        };
    }
    judge(frames, extent, &window.unreadable)
}

/// Tells gaps that are damage from a torn end. `frames` are those that are whole, each with where it ends.
fn judge(frames: Vec<(FoundFrame, u64)>, extent: &LogExtent, unreadable: &[(u64, MediaError)]) -> FoundLog {
    let mut found = FoundLog::default();
    let mut expected = extent.first_sequence;
    let mut witnesses = frames.iter().map(|(frame, _)| frame.header).collect::<Vec<_>>();
    witnesses.reverse();
    for (frame, frame_end) in frames {
        let header = frame.header;
        if (frame.piece.frame_at, header.sequence) != (found.valid_bytes, expected) {
            let end_bytes = frame.piece.frame_at;
            match damage(&witnesses, extent, unreadable, found.valid_bytes, end_bytes, expected) {
                Some(part) => found.damaged.push(part),
                None => return found,
            }
        }
        witnesses.pop();
        found.frames.push(frame);
        found.valid_bytes = frame_end;
        expected = header.sequence + 1;
    }
    if found.valid_bytes < extent.end_bytes {
        let part = damage(&[], extent, unreadable, found.valid_bytes, extent.end_bytes, expected);
        found.damaged.extend(part);
    }
    found
}

/// What is damaged in a gap before which frame `expected` was missed; `None` when the band just ends there. `later` are
/// the frames behind it.
fn damage(
    later: &[FrameHeader],
    extent: &LogExtent,
    unreadable: &[(u64, MediaError)],
    start_bytes: u64,
    end_bytes: u64,
    expected: u64,
) -> Option<DamagedPart> {
    let in_gap = unreadable.iter().find(|(at, _)| (start_bytes..end_bytes).contains(at));
    let behind = unreadable.iter().find(|(at, _)| *at >= start_bytes);
    let witness = later.iter().find(|header| header.durable_sequence > expected);
    let why = if extent.is_sealed {
        "which the band table says was durable".to_owned()
    } else if let Some(witness) = witness {
        format!("which frame {} says was durable", witness.sequence)
    } else {
        let (at, _) = behind?;
        format!("or the end of what was written: byte {at} of the band may have told, and cannot be read")
    };
    let found = in_gap.or(behind.filter(|_| witness.is_none() && !extent.is_sealed));
    let source = found.map(|(_, error)| error.clone());
    let found = source.as_ref().map_or_else(|| "something else, or a wrong crc32c".to_owned(), MediaError::to_string);
    Some(DamagedPart { start_bytes, end_bytes, expected: format!("frame {expected}, {why}"), found, source })
}

/// A part of a band in memory that moves on.
struct Window<'a> {
    device: &'a Device,
    start_bytes: u64,
    end_bytes: u64,
    at: u64,
    length: usize,
    buffer: varve_media::AlignedBuffer,
    /// Units that cannot be read, in their order, and what the device said.
    unreadable: Vec<(u64, MediaError)>,
}

impl<'a> Window<'a> {
    fn new(device: &'a Device, start_bytes: u64, end_bytes: u64) -> Self {
        let buffer = journal::buffer(device, TRANSFER_BYTES.min(end_bytes) as usize);
        Window { device, start_bytes, end_bytes, at: 0, length: 0, buffer, unreadable: Vec::new() }
    }

    /// The band from a place on: a whole frame, if there is one.
    fn at(&mut self, at: u64, unit_bytes: usize, context: &IoContext) -> &[u8] {
        let needed = (self.end_bytes - at).min(FRAME_BYTES_MAX as u64);
        if at < self.at || at + needed > self.at + self.length as u64 {
            self.at = at;
            self.length = (self.end_bytes - at).min(self.buffer.len() as u64) as usize;
            let place = self.start_bytes + at;
            let bytes = &mut self.buffer[..self.length];
            if self.device.block.read_at(place, bytes, context).is_err() {
                // Units that cannot be read become zeros, which are no frames, and are remembered.
                for (unit_at, unit) in (at..).step_by(unit_bytes).zip(bytes.chunks_mut(unit_bytes)) {
                    if let Err(error) = self.device.block.read_at(self.start_bytes + unit_at, unit, context) {
                        unit.fill(0);
                        if self.unreadable.last().is_none_or(|(last, _)| *last < unit_at) {
                            self.unreadable.push((unit_at, error));
                        }
                    }
                }
            }
        }
        &self.buffer[(at - self.at) as usize..self.length]
    }
}

/// Adds a found frame to the file it is of, as much of it as counts. What it replaces counts no more.
pub(super) fn add_frame(map: &mut PieceMap, cut: Option<Cut>, found: &FoundFrame, dead: &mut Vec<Dead>) {
    let mut piece = found.piece;
    if let Some(cut) = cut.filter(|cut| found.header.sequence < cut.sequence) {
        piece.length_bytes = piece.length_bytes.min(cut.size_bytes.saturating_sub(piece.offset_bytes));
        if piece.length_bytes == 0 {
            return;
        }
    }
    match found.header.is_copy {
        true => map.replace(piece, dead),
        false => map.append(piece, dead),
    }
}
