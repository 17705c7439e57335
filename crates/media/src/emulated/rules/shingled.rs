//! Raw shingled tracks: writing one destroys the next few.

use super::Rules;
use super::zoned::{ZoneTable, Zoned};
use crate::device::Capabilities;
use crate::error::MediaError;
use crate::request::Request;
use crate::zones::{TrackOverlap, ZoneGeometry, ZoneType};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Bands of shingled tracks. A host may write anywhere, and a write to a track destroys the same span of the
/// next tracks of its band ([`TrackOverlap`]), since the head is wider than a track. What is destroyed is
/// unreadable until it is written again or the band is reset. A gap at the end of each band keeps the next
/// band unharmed. A band that is written in order loses nothing.
///
/// Only what was written is destroyed: what lies above the write pointer still reads as zeros. The disk writes
/// whole physical sectors, so a span is whole physical sectors too.
pub(super) struct Shingled {
    zoned: Zoned,
    table: Arc<Mutex<ZoneTable>>,
    zones: ZoneGeometry,
    overlap: TrackOverlap,
    physical_sector_bytes: u64,
}

impl Shingled {
    /// These zones, of which all but the conventional ones are bands of overlapping tracks; the zones
    /// themselves where no tracks overlap.
    pub(super) fn over(zoned: Zoned) -> Box<dyn Rules> {
        let table = zoned.table();
        let zones = table.lock().geometry().clone();
        match zones.track_overlap {
            Some(overlap) if zones.sequential_type == ZoneType::SequentialWritePreferred => {
                let physical_sector_bytes = u64::from(zoned.physical_sector_bytes().max(1));
                Box::new(Shingled { zoned, table, zones, overlap, physical_sector_bytes })
            }
            _ => Box::new(zoned),
        }
    }

    /// What writing `written`, in ascending order, destroys: parts of later tracks, in each band those behind
    /// the end of the write.
    fn destroyed_by(&self, written: &Range<u64>) -> Vec<Range<u64>> {
        let track_bytes = self.overlap.track_bytes.max(1);
        let mut destroyed = Vec::new();
        for zone in self.zones.zones_in(written) {
            if self.zones.zone_type(zone) == ZoneType::Conventional {
                continue;
            }
            let band = self.zones.range(zone);
            let sector = self.physical_sector_bytes;
            let start = (written.start.max(band.start) - band.start) / sector * sector;
            let end = (written.end.min(band.end) - band.start).next_multiple_of(sector);
            // Only the last tracks written reach beyond the end of the write.
            let reach = track_bytes.saturating_mul(u64::from(self.overlap.tracks));
            let mut at = start.max(end.saturating_sub(reach) / track_bytes * track_bytes);
            while at < end {
                let track_end = ((at / track_bytes + 1) * track_bytes).min(end);
                for later in 1..=u64::from(self.overlap.tracks) {
                    let shift = later * track_bytes;
                    let span = band.start + (at + shift).max(end)..band.start.saturating_add(track_end + shift);
                    let span = span.start..span.end.min(band.end);
                    if !span.is_empty() {
                        destroyed.push(span);
                    }
                }
                at = track_end;
            }
        }
        destroyed
    }
}

impl Rules for Shingled {
    fn describe(&self, capabilities: &mut Capabilities) {
        self.zoned.describe(capabilities);
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        self.zoned.admit(device, request)
    }

    fn refused(&mut self, request: &Request<'_>) {
        self.zoned.refused(request);
    }

    fn may_destroy(&self, written: Range<u64>) -> bool {
        !self.destroyed_by(&written).is_empty()
    }

    fn written(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>) {
        self.zoned.written(written.clone(), destroyed);
        let table = self.table.lock();
        for span in self.destroyed_by(&written) {
            let unwritten = table.unwritten(&span).next().map_or(span.end, |part| part.start);
            if span.start < unwritten {
                destroyed.push(span.start..unwritten);
            }
        }
    }

    fn discarded(&mut self, discarded: Range<u64>) {
        self.zoned.discarded(discarded);
    }

    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError> {
        self.zoned.complete(device, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDeviceExt, Device, Geometry};
    use crate::emulated::{Emulated, Immediate, RamBacking};
    use crate::zones::ZoneId;
    use crate::{CrashDevice, IoContext, MediaErrorKind};
    use varve_env::{Env, Random};

    const SECTOR: u64 = 4096;
    /// Sectors of a track, tracks of a band.
    const TRACK: u64 = 4;
    const TRACKS: u64 = 6;
    const BANDS: u64 = 4;
    const SECTORS: u64 = TRACK * TRACKS * BANDS;

    fn shingled(env: &Env, tracks: u32) -> Device {
        let fit = ZoneGeometry::fit(SECTORS * SECTOR, TRACK * TRACKS * SECTOR).unwrap();
        let zones = ZoneGeometry {
            conventional_zones: 1,
            sequential_type: ZoneType::SequentialWritePreferred,
            track_overlap: Some(TrackOverlap { tracks, track_bytes: TRACK * SECTOR }),
            ..fit
        };
        let rules = Zoned::new(&zones);
        let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
        let geometry = rules.cut(&asked);
        rules.device(|rules| {
            let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
            Emulated::new(env, "shingled", geometry, rules, timing, backing)
        })
    }

    fn write(device: &Device, sector: u64, count: u64, value: u8) {
        let data = vec![value; (count * SECTOR) as usize];
        device.block.write_at(sector * SECTOR, &data, &IoContext::default()).unwrap();
    }

    fn read(device: &Device, sector: u64) -> Option<u8> {
        let mut data = [99; SECTOR as usize];
        match device.block.read_at(sector * SECTOR, &mut data, &IoContext::default()) {
            Ok(()) => Some(data[0]),
            Err(error) => {
                assert_eq!(error.kind(), MediaErrorKind::Unreadable, "{error}");
                None
            }
        }
    }

    /// Sector by sector, in ascending order: what the definition says.
    #[test]
    fn later_tracks_of_the_band_lose_what_the_head_passes_over() {
        for (seed, tracks) in [(1, 1), (2, 2), (3, 3), (4, 1), (5, 5), (6, 9)] {
            let env = Env::real();
            let device = shingled(&env, tracks);
            let mut random = Random::seeded(seed);
            let mut model = vec![Some(0); SECTORS as usize];
            let mut highest = [0; BANDS as usize];
            let mut destroyed = 0;
            for step in 1..200u8 {
                let first = random.below(SECTORS);
                let count = (1 + random.below(3 * TRACK)).min(SECTORS - first);
                let band_of = |sector: u64| (sector / (TRACK * TRACKS)) as usize;
                if random.chance(1, 15) && band_of(first) > 0 {
                    let band = band_of(first);
                    device.zones.as_ref().unwrap().reset(ZoneId(band as u32), &IoContext::default()).unwrap();
                    let start = band as u64 * TRACK * TRACKS;
                    model[start as usize..(start + TRACK * TRACKS) as usize].fill(Some(0));
                    highest[band] = start;
                } else {
                    write(&device, first, count, step);
                    for sector in first..first + count {
                        model[sector as usize] = Some(step);
                        highest[band_of(sector)] = highest[band_of(sector)].max(sector + 1);
                        for later in 1..=u64::from(tracks) {
                            let other = sector + later * TRACK;
                            let lost = band_of(sector) > 0
                                && other < SECTORS
                                && band_of(other) == band_of(sector)
                                && other < highest[band_of(sector)].max(first + count);
                            if lost && other < highest[band_of(other)] {
                                model[other as usize] = None;
                                destroyed += 1;
                            }
                        }
                    }
                }
                let found: Vec<Option<u8>> = (0..SECTORS).map(|sector| read(&device, sector)).collect();
                assert_eq!(found, model, "seed {seed} step {step}: {count} sectors at {first}");
            }
            assert!(destroyed > 50, "seed {seed}: {destroyed}");
        }
    }

    #[test]
    fn a_band_written_in_order_loses_nothing() {
        let env = Env::real();
        let device = shingled(&env, 3);
        let band = TRACK * TRACKS;
        for sector in 0..SECTORS {
            write(&device, sector, 1, sector as u8);
        }
        assert!((0..SECTORS).all(|sector| read(&device, sector) == Some(sector as u8)));
        // The first track again: the next three are gone, of this band only.
        write(&device, 2 * band, TRACK, 200);
        let lost: Vec<u64> = (0..SECTORS).filter(|&sector| read(&device, sector).is_none()).collect();
        assert_eq!(lost, (2 * band + TRACK..2 * band + 4 * TRACK).collect::<Vec<_>>());
        device.zones.as_ref().unwrap().reset(ZoneId(2), &IoContext::default()).unwrap();
        assert!((2 * band..3 * band).all(|sector| read(&device, sector) == Some(0)));
    }

    #[test]
    fn a_crash_layer_says_that_it_has_no_images_of_it() {
        let env = Env::real();
        let error = CrashDevice::new(&env, &shingled(&env, 1)).err().unwrap();
        assert!(error.to_string().contains("overlapping tracks"), "{error}");
    }
}
