//! Reading log bands: which frames are in them, and where they end.

use super::frame::{FRAME_BYTES_MAX, Frame, FrameFormat, FrameHeader};
use super::geometry::StoreGeometry;
use super::pieces::{Dead, Piece};
use crate::error::StoreError;
use crate::journal::{self, corruption};
use varve_media::{BlockDeviceExt, Device, IoContext};

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

/// What a log band holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundLog {
    pub(super) frames: Vec<FoundFrame>,
    /// Bytes of them.
    pub(super) valid_bytes: u64,
    /// Number of the next frame.
    pub(super) next_sequence: u64,
}

/// Reads a log band. What cannot be read is no frame.
///
/// # Errors
/// [`StoreError::Corruption`] when a frame is missing that was durable: in a sealed band any, else one that a later
/// frame says was.
pub(super) fn scan(
    device: &Device,
    label: &str,
    format: &FrameFormat,
    geometry: &StoreGeometry,
    extent: &LogExtent,
    context: &IoContext,
) -> Result<FoundLog, StoreError> {
    let mut found = FoundLog { frames: Vec::new(), valid_bytes: 0, next_sequence: extent.first_sequence };
    let mut window = Window::new(device, geometry.start_bytes(extent.band), extent.end_bytes);
    while found.valid_bytes < extent.end_bytes {
        let bytes = window.at(found.valid_bytes, format.unit_bytes, context);
        let Some(frame) = format.open(bytes).filter(|frame| frame.header.sequence == found.next_sequence) else {
            break;
        };
        let Frame { header, payload, frame_bytes } = frame;
        let piece = Piece::whole(extent.band, found.valid_bytes, header.offset_bytes, payload.len() as u32);
        found.frames.push(FoundFrame { header, piece });
        found.valid_bytes += frame_bytes as u64;
        found.next_sequence += 1;
    }
    let damaged = |what: String| {
        corruption(
            label,
            "log band",
            geometry.start_bytes(extent.band) + found.valid_bytes,
            format!("frame {}, {what}", found.next_sequence),
            "something else, or a wrong crc32c",
        )
    };
    if extent.is_sealed && found.valid_bytes < extent.end_bytes {
        return Err(damaged("which the band table says was durable".to_owned()));
    }
    // Behind the end: a frame that knows more was durable.
    let mut at = found.valid_bytes;
    while at < extent.end_bytes {
        let bytes = window.at(at, format.unit_bytes, context);
        at += match format.open(bytes) {
            Some(frame) if frame.header.durable_sequence > found.next_sequence => {
                return Err(damaged(format!("which frame {} says was durable", frame.header.sequence)));
            }
            Some(frame) => frame.frame_bytes as u64,
            None => format.unit_bytes as u64,
        };
    }
    Ok(found)
}

/// A part of a band in memory that moves on.
struct Window<'a> {
    device: &'a Device,
    start_bytes: u64,
    end_bytes: u64,
    at: u64,
    length: usize,
    buffer: varve_media::AlignedBuffer,
}

impl<'a> Window<'a> {
    fn new(device: &'a Device, start_bytes: u64, end_bytes: u64) -> Self {
        let buffer = journal::buffer(device, TRANSFER_BYTES.min(end_bytes) as usize);
        Window { device, start_bytes, end_bytes, at: 0, length: 0, buffer }
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
                // Units that cannot be read become zeros, which are no frames.
                for (number, unit) in bytes.chunks_mut(unit_bytes).enumerate() {
                    if self.device.block.read_at(place + (number * unit_bytes) as u64, unit, context).is_err() {
                        unit.fill(0);
                    }
                }
            }
        }
        &self.buffer[(at - self.at) as usize..self.length]
    }
}

/// Adds a found frame to the file it is of. What it replaces counts no more.
pub(super) fn add_frame(map: &mut super::pieces::PieceMap, found: &FoundFrame, dead: &mut Vec<Dead>) {
    match found.header.is_copy {
        true => map.replace(found.piece, dead),
        false => map.append(found.piece, dead),
    }
}
