//! Parts of a disk as devices of their own.

use std::ops::Range;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{
    AlignedBuffer, BlockDevice, Capabilities, Counters, Device, Geometry, IoContext, MediaError, Request, SyncOrder,
    TrackGeometry, TrackId, check_request,
};

/// A disk that several users write to and sync.
pub(super) struct Disk {
    pub(super) block: Arc<dyn BlockDevice>,
    pub(super) order: Arc<SyncOrder>,
}

impl Disk {
    /// For one who formats it or looks at it.
    pub(super) fn new(block: Arc<dyn BlockDevice>) -> Arc<Disk> {
        Arc::new(Disk { order: SyncOrder::alone(block.clone()), block })
    }

    /// For the users of an open store.
    pub(super) fn shared(env: &Env, block: Arc<dyn BlockDevice>) -> Arc<Disk> {
        Arc::new(Disk { order: SyncOrder::shared(env, block.clone()), block })
    }

    pub(super) fn buffer(&self, length_bytes: usize) -> AlignedBuffer {
        AlignedBuffer::new(length_bytes, self.block.capabilities().buffer_alignment_bytes as usize)
    }
}

/// A part of a disk as one conventional device: a range of its bytes, or of its top tracks one after the
/// other, which are freely updatable. A request within one track goes through as it is; one that crosses
/// tracks is done in pieces.
pub(super) struct DevicePart {
    disk: Arc<Disk>,
    /// Only the tops of these; `None` for the bytes as they are.
    tops: Option<TrackGeometry>,
    /// Bytes of all tops together, or of the disk, that this is.
    range: Range<u64>,
    geometry: Geometry,
    capabilities: Capabilities,
}

impl DevicePart {
    /// Bytes `range` of the tops; whole sectors, and no more than there are.
    pub(super) fn of_tops(disk: &Arc<Disk>, tracks: &TrackGeometry, range: Range<u64>) -> Device {
        DevicePart::device(disk, Some(tracks.clone()), range)
    }

    /// Bytes `range` of the disk; whole sectors, and no more than there are.
    pub(super) fn of_bytes(disk: &Arc<Disk>, range: Range<u64>) -> Device {
        DevicePart::device(disk, None, range)
    }

    fn device(disk: &Arc<Disk>, tops: Option<TrackGeometry>, range: Range<u64>) -> Device {
        let geometry = Geometry { capacity_bytes: range.end - range.start, ..disk.block.geometry().clone() };
        let capabilities = Capabilities { tracks: None, protection: None, ..disk.block.capabilities().clone() };
        Device::of_blocks(Arc::new(DevicePart { disk: disk.clone(), tops, range, geometry, capabilities }))
    }

    /// Where a byte is on the disk, and how many follow it there.
    fn locate(&self, offset_bytes: u64) -> (u64, u64) {
        let at = self.range.start + offset_bytes;
        let Some(tracks) = &self.tops else { return (at, self.range.end.saturating_sub(at)) };
        let (top, within) = (at / tracks.top_track_bytes, at % tracks.top_track_bytes);
        (tracks.start_bytes(top_track(top)) + within, tracks.top_track_bytes - within)
    }

    fn is_whole(&self, request: &Request<'_>) -> bool {
        check_request(self, request).is_ok() && request.length_bytes() <= self.locate(request.offset_bytes).1
    }

    fn execute_in_pieces(&self, request: &mut Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        check_request(self, request)?;
        let length_bytes = request.length_bytes();
        let (mut places, mut lengths, mut done_bytes) = (Vec::new(), Vec::new(), 0);
        while done_bytes < length_bytes {
            let (at, contiguous_bytes) = self.locate(request.offset_bytes + done_bytes);
            let piece_bytes = contiguous_bytes.min(length_bytes - done_bytes);
            places.push(at);
            lengths.push(piece_bytes);
            done_bytes += piece_bytes;
        }
        let mut parts = request.divide(self, lengths)?;
        let mut requests: Vec<Request<'_>> = parts.iter_mut().zip(places).map(|(part, at)| part.request(at)).collect();
        self.disk.block.execute(&mut requests, context)
    }
}

/// The top track of this number among the tops.
pub(super) fn top_track(number: u64) -> TrackId {
    TrackId(u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(2).saturating_add(1))
}

impl BlockDevice for DevicePart {
    fn name(&self) -> &str {
        self.disk.block.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        for run in requests.chunk_by_mut(|one, next| self.is_whole(one) == self.is_whole(next)) {
            if run.first().is_some_and(|request| self.is_whole(request)) {
                let offsets: Vec<u64> = run.iter().map(|request| request.offset_bytes).collect();
                run.iter_mut().for_each(|request| request.offset_bytes = self.locate(request.offset_bytes).0);
                let outcome = self.disk.block.execute(run, context);
                run.iter_mut().zip(offsets).for_each(|(request, offset)| request.offset_bytes = offset);
                result = result.and(outcome);
            } else {
                for request in run {
                    request.outcome = self.execute_in_pieces(request, context);
                    result = result.and(request.outcome.clone());
                }
            }
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.disk.order.sync(context)
    }

    fn counters(&self) -> Counters {
        self.disk.block.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;
    use varve_media::{BlockDeviceExt, Emulated};

    /// What is written to the tops as one device lies on the tops and on nothing else.
    #[test]
    fn tops_follow_each_other_and_bottoms_are_left_alone() {
        let env = Env::real();
        let tracks =
            TrackGeometry { track_count: 21, top_track_bytes: 8192, bottom_track_bytes: 12_288, interlaced: true };
        let block = Arc::new(Emulated::immediate(&env, "disk", tracks.capacity_bytes()));
        let disk = Disk::new(block.clone());
        let (start, length) = (8192 + 4096, 8 * 8192 - 512);
        let device = DevicePart::of_tops(&disk, &tracks, start..start + length as u64);
        let context = IoContext::default();
        let mut model = vec![0u8; length];
        let mut random = Random::seeded(5);
        for step in 0..400 {
            let at = random.index(length / 512) * 512;
            let size = (random.index(40) * 512).min(length - at);
            if random.chance(1, 10) {
                model[at..at + size].fill(0);
                device.block.discard_at(at as u64, size as u64, &context).unwrap();
            } else if random.chance(1, 2) {
                random.fill_bytes(&mut model[at..at + size]);
                device.block.write_at(at as u64, &model[at..at + size], &context).unwrap();
            }
            let mut data = vec![1; size];
            device.block.read_at(at as u64, &mut data, &context).unwrap();
            assert_eq!(data, model[at..at + size], "step {step}");
        }
        let mut at = start;
        for (number, byte) in model.iter().enumerate().step_by(512) {
            let track = top_track(at / 8192);
            let mut sector = [0; 512];
            block.read_at(tracks.start_bytes(track) + at % 8192, &mut sector, &context).unwrap();
            assert_eq!(sector, model[number..number + 512], "sector {number}, first byte {byte}");
            at += 512;
        }
        for bottom in (0..21).step_by(2) {
            let mut data = vec![1; 12_288];
            block.read_at(tracks.start_bytes(TrackId(bottom)), &mut data, &context).unwrap();
            assert!(data.iter().all(|&byte| byte == 0), "bottom {bottom} was written");
        }
    }

    #[test]
    fn a_range_of_bytes_is_what_it_is_on_the_disk() {
        let env = Env::real();
        let disk = Disk::new(Arc::new(Emulated::immediate(&env, "disk", 64 << 10)));
        let part = DevicePart::of_bytes(&disk, 8192..32 << 10);
        assert_eq!(part.block.geometry().capacity_bytes, 24 << 10);
        let context = IoContext::default();
        part.block.write_at(512, &[7; 20 << 10], &context).unwrap();
        let mut data = vec![0; 64 << 10];
        disk.block.read_at(0, &mut data, &context).unwrap();
        let written = 8192 + 512..8192 + 512 + (20 << 10);
        assert!(data.iter().enumerate().all(|(at, &byte)| byte == if written.contains(&at) { 7 } else { 0 }));
        assert!(part.block.write_at(20 << 10, &[7; 8192], &context).is_err());
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let env = Env::real();
        let tracks =
            TrackGeometry { track_count: 9, top_track_bytes: 8192, bottom_track_bytes: 8192, interlaced: true };
        let disk = Disk::new(Arc::new(Emulated::immediate(&env, "disk", tracks.capacity_bytes())));
        let device = DevicePart::of_tops(&disk, &tracks, 0..4 * 8192);
        let context = IoContext::default();
        let write = |at, length| device.block.write_at(at, &vec![7; length], &context);
        assert!(matches!(write(3 * 8192, 8704), Err(MediaError::OutOfRange { .. })));
        assert!(matches!(write(u64::MAX - 511, 1024), Err(MediaError::OutOfRange { .. })));
        assert!(matches!(write(8192 - 512, 1000), Err(MediaError::Misaligned { .. })));
        assert!(matches!(write(100, 16_384), Err(MediaError::Misaligned { .. })));
        assert!(write(4 * 8192, 0).is_ok());
        let mut data = vec![1; 4 * 8192];
        device.block.read_at(0, &mut data, &context).unwrap();
        assert!(data.iter().all(|&byte| byte == 0));
    }
}
