//! A device that is only read, below those who would write.

use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Device, Geometry};
use crate::emulated::{ZoneState, ZoneTable, Zoned};
use crate::error::{MediaError, MediaErrorKind};
use crate::layer::Layer;
use crate::ranges::RangeSet;
use crate::request::{Request, Transfer, check_request};
use crate::sectors::{Sectors, format_in_pages};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use crate::tracks::{DestroyedData, TrackControl, TrackDescription, TrackId};
use crate::zones::ZoneId;
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::Arc;

/// A device over another one that is only read: what is written, discarded or synced here stays in memory and is
/// forgotten with this device. To those above it is as any other: they see what they wrote.
///
/// So whatever opens a device, a file store that recovers from a power cut say, opens one without permission to
/// write, and finds exactly what it would find if it had it. Zones move, open and reset in memory too. Writes to
/// interlaced tracks destroy nothing here. It keeps the tuples of what is written here, and verifies like the device below.
///
/// Memory: 4 KiB for each 4 KiB piece written; what a store writes when it is opened. Time: reads take that of the
/// device below, all else none. A read that covers both waits for one piece after the other.
pub struct OverlayDevice {
    inner: Arc<dyn BlockDevice>,
    written: RwLock<SparseBytes>,
    /// Sectors of pages written in part that could not be read below, and were not written here. Locked after `written`.
    unreadable: RwLock<RangeSet>,
}

impl OverlayDevice {
    /// A device over `inner`, which is not written to from now on.
    ///
    /// # Errors
    /// Errors of a zoned device whose zones cannot be listed. [`MediaError::Rule`] for protection information of
    /// byte-addressable memory or of intervals that do not divide 4 KiB.
    pub fn device(inner: &Device) -> Result<Device, MediaError> {
        let block: Arc<dyn BlockDevice> = Arc::new(OverlayDevice {
            inner: inner.block.clone(),
            written: RwLock::new(SparseBytes::with_tuples(format_in_pages(inner)?)),
            unreadable: RwLock::default(),
        });
        if let (Some(zones), Some(control)) = (&inner.block.capabilities().zones, &inner.zones) {
            let mut table = ZoneTable::new(zones);
            let context = IoContext::default();
            for (zone, found) in (0..).map(ZoneId).zip(control.report(ZoneId(0), zones.zone_count, &context)?) {
                table.restore_open(zone, ZoneState::of(&found));
            }
            let over = Zoned::of(table).over(&block);
            return Ok(Device { zones: over.zones, ..inner.below(&Layer::Overlay(&over.block), over.block.clone()) });
        }
        Ok(inner.below(&Layer::Overlay(&block), block.clone()))
    }

    /// Pages of `range` that were written here, as runs, and those between them that were not.
    fn runs(written: &SparseBytes, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at / PAGE_BYTES + 1).saturating_mul(PAGE_BYTES).min(range.end);
            let is_here = written.contains_page(at / PAGE_BYTES);
            match runs.last_mut() {
                Some((run, was_here)) if *was_here == is_here => run.end = end,
                _ => runs.push((at..end, is_here)),
            }
            at = end;
        }
        runs
    }

    fn read(&self, request: &mut Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        let mut found = Sectors::default();
        // The lock is not held while the device below is read.
        let runs = Self::runs(&self.written.read(), range);
        for (run, is_here) in runs {
            found.append(match is_here {
                true => {
                    let written = self.written.read();
                    if let Some(offset_bytes) = self.unreadable.read().first_within(&run) {
                        return Err(MediaError::Unreadable { device: self.name().to_owned(), offset_bytes });
                    }
                    written.sectors(&run)
                }
                false => Sectors::read(&*self.inner, &run, context)?,
            });
        }
        found.answer(self.name(), self.capabilities().protection, request)
    }

    /// Brings pages here that a change covers in part.
    fn fetch_edges(&self, range: &Range<u64>, context: &IoContext) -> Result<(), MediaError> {
        let capacity_bytes = self.inner.geometry().capacity_bytes;
        for edge in [range.start, range.end - 1] {
            let page = edge / PAGE_BYTES * PAGE_BYTES;
            let end = (page + PAGE_BYTES).min(capacity_bytes);
            let is_covered = range.start <= page && end <= range.end;
            if is_covered || self.written.read().contains_page(page / PAGE_BYTES) {
                continue;
            }
            // A change next to a sector that cannot be read does not concern it.
            let is_lost = |error: &MediaError| error.kind() == MediaErrorKind::Unreadable;
            let read = |part: &Range<u64>| Sectors::read(&*self.inner, part, context);
            let (found, unreadable) = Sectors::salvage(&*self.inner, &(page..end), is_lost, read)?;
            let mut written = self.written.write();
            // Somebody else may have been faster, and have changed it.
            if !written.contains_page(page / PAGE_BYTES) {
                written.write(page, found.as_slice());
                let mut known = self.unreadable.write();
                unreadable.into_iter().for_each(|sector| known.insert(sector));
            }
        }
        Ok(())
    }

    fn change(&self, request: &Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        if range.is_empty() {
            return Ok(());
        }
        self.fetch_edges(&range, context)?;
        let mut written = self.written.write();
        self.unreadable.write().remove(range.clone());
        match &request.transfer {
            Transfer::Write { data, protection, .. } => {
                let format = self.capabilities().protection;
                written.write(range.start, Sectors::of_write(format, range.start, data, *protection).as_slice());
            }
            Transfer::Discard { .. } => written.clear(range.start, range.end - range.start),
            Transfer::Read { .. } => {}
        }
        Ok(())
    }
}

impl BlockDevice for OverlayDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let is_below = |request: &Request<'_>| {
            let range = request.offset_bytes..request.offset_bytes.saturating_add(request.length_bytes());
            matches!(request.transfer, Transfer::Read { .. })
                && Self::runs(&self.written.read(), range).iter().all(|(_, is_here)| !is_here)
        };
        for request in requests.iter_mut() {
            request.outcome = check_request(self, request).and_then(|()| {
                self.capabilities().protection.map_or(Ok(()), |format| format.verify_write(self.name(), request))
            });
        }
        // Reads of what was never written here stay one batch.
        if requests.iter().all(|request| request.outcome.is_ok() && is_below(request)) {
            return self.inner.execute(requests, context);
        }
        let mut result = Ok(());
        for request in requests.iter_mut() {
            if request.outcome.is_ok() {
                request.outcome = match request.transfer {
                    Transfer::Read { .. } => self.read(request, context),
                    _ => self.change(request, context),
                };
            }
            result = result.and(request.outcome.clone());
        }
        result
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Tracks of which none is given up below.
pub(crate) struct OverlayTracks {
    inner: Arc<dyn TrackControl>,
}

impl OverlayTracks {
    pub(crate) fn facet(inner: &Arc<dyn TrackControl>) -> Arc<dyn TrackControl> {
        Arc::new(OverlayTracks { inner: inner.clone() })
    }
}

impl TrackControl for OverlayTracks {
    fn describe(&self, track: TrackId) -> Result<TrackDescription, MediaError> {
        self.inner.describe(track)
    }

    fn report(&self, first: TrackId, count: u32) -> Result<Vec<TrackDescription>, MediaError> {
        self.inner.report(first, count)
    }

    fn mark_free(&self, track: TrackId) -> Result<(), MediaError> {
        self.inner.describe(track).map(|_| ())
    }

    fn destroyed(&self) -> DestroyedData {
        self.inner.destroyed()
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;
    use crate::emulated::{Emulated, Immediate, RamBacking};
    use crate::zones::ZoneGeometry;
    use varve_env::{Env, Random};

    const CAPACITY_BYTES: u64 = 1 << 20;

    #[test]
    fn it_behaves_like_a_copy_and_nothing_reaches_the_device_below() {
        let env = Env::real();
        let inner = Device::of_blocks(Arc::new(Emulated::immediate(&env, "inner", CAPACITY_BYTES)));
        let context = IoContext::default();
        let seed = 3;
        let mut random = Random::seeded(seed);
        let mut original = vec![0; CAPACITY_BYTES as usize];
        random.fill_bytes(&mut original);
        inner.block.write_at(0, &original, &context).unwrap();
        let sector = u64::from(inner.block.geometry().sector_bytes);
        let before = inner.block.counters();
        let device = OverlayDevice::device(&inner).unwrap();
        let mut model = original.clone();
        for step in 0..2000 {
            let start = random.below(CAPACITY_BYTES / sector);
            let length = random.below((CAPACITY_BYTES / sector - start).min(40) + 1) * sector;
            let (start, place) = (start * sector, (start * sector) as usize..(start * sector + length) as usize);
            match random.below(8) {
                0 => {
                    device.block.discard_at(start, length, &context).unwrap();
                    model[place].fill(0);
                }
                1..4 => {
                    let mut data = vec![0; length as usize];
                    random.fill_bytes(&mut data);
                    device.block.write_at(start, &data, &context).unwrap();
                    model[place].copy_from_slice(&data);
                }
                4 => device.block.sync(&context).unwrap(),
                _ => {
                    let mut found = vec![1; length as usize];
                    device.block.read_at(start, &mut found, &context).unwrap();
                    assert!(found == model[place], "seed {seed} step {step}");
                }
            }
        }
        assert!(device.block.write_at(CAPACITY_BYTES, &[0; 4096], &context).is_err());
        let after = inner.block.counters();
        assert_eq!((before.writes, before.discards, before.syncs), (after.writes, after.discards, after.syncs));
        let mut found = vec![0; CAPACITY_BYTES as usize];
        inner.block.read_at(0, &mut found, &context).unwrap();
        assert!(found == original);
    }

    #[test]
    fn what_cannot_be_read_below_can_be_written_here() {
        let env = Env::real();
        let below = Arc::new(Emulated::immediate(&env, "inner", CAPACITY_BYTES));
        let inner = Device::of_blocks(below.clone());
        let context = IoContext::default();
        let sector = u64::from(inner.block.geometry().sector_bytes);
        inner.block.write_at(0, &[1; 8192], &context).unwrap();
        below.damage(4096..4096 + 2 * sector);
        let device = OverlayDevice::device(&inner).unwrap();
        let read = |at: u64| {
            let mut data = vec![0; sector as usize];
            device.block.read_at(at, &mut data, &context).map(|()| data)
        };
        device.block.write_at(4096, &vec![2; sector as usize], &context).unwrap();
        assert_eq!(read(4096).unwrap(), vec![2; sector as usize]);
        assert_eq!(read(4096 + sector).unwrap_err().kind(), MediaErrorKind::Unreadable, "it was not written");
        assert_eq!(read(4096 + 2 * sector).unwrap(), vec![1; sector as usize]);
        device.block.discard_at(4096 + sector, sector, &context).unwrap();
        assert_eq!(read(4096 + sector).unwrap(), vec![0; sector as usize]);
        assert!(inner.block.read_at(4096, &mut vec![0; sector as usize], &context).is_err());
    }

    #[test]
    fn zones_move_in_memory_only() {
        let env = Env::real();
        let zones = ZoneGeometry { conventional_zones: 2, ..ZoneGeometry::fit(1 << 20, 64 << 10).unwrap() };
        let rules = Zoned::new(&zones);
        let asked = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 512 };
        let geometry = rules.cut(&asked);
        let make = |rules| {
            Emulated::new(&env, "inner", geometry, rules, Box::<Immediate>::default(), Box::new(RamBacking::new()))
        };
        let inner = rules.device(make);
        let context = IoContext::default();
        let start = |zone: u32| u64::from(zone) * (64 << 10);
        inner.block.write_at(start(3), &[3; 8192], &context).unwrap();
        inner.block.write_at(start(4), &[4; 64 << 10], &context).unwrap();
        let report = |device: &Device| device.zones.as_ref().unwrap().report(ZoneId(0), 16, &context).unwrap();
        let before = report(&inner);
        let device = OverlayDevice::device(&inner).unwrap();
        assert_eq!(report(&device), before);
        let control = device.zones.as_ref().unwrap();
        device.block.write_at(start(3) + 8192, &[5; 4096], &context).unwrap();
        assert!(device.block.write_at(start(3), &[5; 4096], &context).is_err(), "behind the write pointer");
        assert!(device.block.write_at(start(4), &[5; 4096], &context).is_err(), "a full zone");
        control.reset(ZoneId(4), &context).unwrap();
        device.block.write_at(start(4), &[6; 4096], &context).unwrap();
        let mut data = vec![0; 16 << 10];
        device.block.read_at(start(3), &mut data, &context).unwrap();
        assert!(data[..8192] == [3; 8192] && data[8192..12288] == [5; 4096] && data[12288..] == [0; 4096]);
        device.block.read_at(start(4), &mut data, &context).unwrap();
        assert!(data[..4096] == [6; 4096] && data[4096..].iter().all(|&byte| byte == 0));
        assert_eq!(report(&inner), before);
        inner.block.read_at(start(4), &mut data, &context).unwrap();
        assert!(data.iter().all(|&byte| byte == 4));
        assert_eq!(inner.block.counters().errors, 0);
    }
}
