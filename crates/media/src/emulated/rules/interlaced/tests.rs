//! What interlaced tracks do to data, and what they say about it.

use super::*;
use crate::context::IoContext;
use crate::device::BlockDeviceExt;
use crate::emulated::{Emulated, Immediate, Pacing, RamBacking};
use crate::error::MediaErrorKind;
use crate::presets::Preset;
use std::io::IoSlice;
use varve_env::{Env, Random};

const TRACK: u64 = 64 << 10;
const SECTOR: u64 = 512;
const PHYSICAL: u32 = 4096;

fn context() -> IoContext {
    IoContext::default()
}

/// Eleven tracks of memory.
fn device(env: &Env, bottom_track_bytes: u64, strict: bool) -> Device {
    let tracks = TrackGeometry { track_count: 11, top_track_bytes: TRACK, bottom_track_bytes, interlaced: true };
    let rules = Interlaced::new(&tracks, PHYSICAL, strict);
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: SECTOR as u32, physical_sector_bytes: PHYSICAL };
    let geometry = rules.cut(&asked);
    rules.device("imr", |rules| {
        Emulated::new(env, "imr", geometry, rules, Box::<Immediate>::default(), Box::new(RamBacking::new()))
    })
}

fn destroyed(device: &Device) -> (u64, u64) {
    let DestroyedData { writes, bytes } = device.tracks.as_ref().unwrap().destroyed();
    (writes, bytes)
}

#[test]
fn a_write_is_counted_by_the_live_bytes_it_destroys() {
    let env = Env::real();
    let device = device(&env, TRACK, false);
    let (block, tracks) = (&device.block, device.tracks.as_ref().unwrap());
    // Nothing live: nothing counted, but the tops are unreadable.
    block.write_at(0, &[1; 8192], &context()).unwrap();
    assert_eq!(destroyed(&device), (0, 0));
    assert!(matches!(block.read_at(TRACK, &mut [0; 512], &context()), Err(MediaError::Unreadable { .. })));
    // One and a half physical sectors live on track 1, all of track 3.
    block.write_at(TRACK, &[2; 6144], &context()).unwrap();
    block.write_at(3 * TRACK, &vec![3; TRACK as usize], &context()).unwrap();
    block.write_at(2 * TRACK, &[4; 8192], &context()).unwrap();
    assert_eq!(destroyed(&device), (1, 6144 + 8192));
    // Once is enough.
    block.write_at(2 * TRACK, &[5; 8192], &context()).unwrap();
    block.write_at(0, &[5; 8192], &context()).unwrap();
    assert_eq!(destroyed(&device), (1, 6144 + 8192));
    // One logical sector of the bottom is a physical one of the top.
    block.write_at(2 * TRACK + 8192 + 512, &[6; 512], &context()).unwrap();
    assert_eq!(destroyed(&device), (2, 6144 + 8192 + 4096));
    // Free and discarded data is not live.
    tracks.mark_free(TrackId(3)).unwrap();
    block.write_at(5 * TRACK, &[7; 4096], &context()).unwrap();
    block.discard_at(5 * TRACK, 4096, &context()).unwrap();
    block.write_at(4 * TRACK, &vec![8; TRACK as usize], &context()).unwrap();
    assert_eq!(destroyed(&device), (2, 6144 + 8192 + 4096));
    // Writing makes it live again.
    block.write_at(3 * TRACK, &[9; 512], &context()).unwrap();
    block.write_at(4 * TRACK, &[8; 512], &context()).unwrap();
    assert_eq!(destroyed(&device), (3, 6144 + 8192 + 4096 + 512));
}

#[test]
fn strict_rules_refuse_and_say_what_to_do() {
    let env = Env::real();
    let device = device(&env, TRACK, true);
    let (block, tracks) = (&device.block, device.tracks.as_ref().unwrap());
    block.write_at(TRACK + 4096, &[1; 4096], &context()).unwrap();
    let error = block.write_at(2 * TRACK, &vec![2; TRACK as usize], &context()).unwrap_err();
    assert_eq!(error.kind(), MediaErrorKind::InvalidRequest);
    assert_eq!(
        error.to_string(),
        "imr: write at offset 131072 breaks a rule of the medium: writing 65536 bytes to bottom track 2 would destroy \
         live data of top track 1 at bytes 69632 to 73728; back it up and mark the track free first, restore it \
         afterwards, or write elsewhere"
    );
    let mut data = [0; 4096];
    block.read_at(TRACK + 4096, &mut data, &context()).unwrap();
    assert!(data == [1; 4096] && destroyed(&device) == (0, 0));
    block.read_at(2 * TRACK, &mut data, &context()).unwrap();
    assert!(data == [0; 4096]);
    // Beside the live span there is nothing to refuse.
    block.write_at(2 * TRACK, &[2; 4096], &context()).unwrap();
    tracks.mark_free(TrackId(1)).unwrap();
    block.write_at(2 * TRACK, &vec![2; TRACK as usize], &context()).unwrap();
    assert!(block.read_at(TRACK + 4096, &mut data, &context()).is_err());
    // A write that would destroy its own beginning.
    let long = vec![3; 3 * TRACK as usize];
    let error = block.write_at(0, &long, &context()).unwrap_err().to_string();
    assert!(error.contains("to tracks 0 to 2 would destroy live data of top track 1"), "{error}");
    block.write_at(0, &long[..2 * TRACK as usize], &context()).unwrap();
}

/// Requests of a batch have no order, so a host that relies on one must not get away with it.
#[test]
fn a_batch_of_a_top_track_and_its_bottom_track_destroys_in_either_order() {
    for strict in [false, true] {
        for bottom_first in [false, true] {
            let env = Env::real();
            let device = device(&env, TRACK, strict);
            let data = [1; 4096];
            let slices = [IoSlice::new(&data)];
            let (bottom, top) = (Request::write(0, &slices), Request::write(TRACK, &slices));
            let mut batch = if bottom_first { [bottom, top] } else { [top, bottom] };
            device.block.execute(&mut batch, &context()).unwrap();
            assert!(device.block.read_at(TRACK, &mut [0; 512], &context()).is_err());
            assert_eq!(destroyed(&device), (1, 4096));
        }
    }
}

#[test]
fn commands_about_tracks_that_are_not_there_are_errors() {
    let env = Env::real();
    let device = device(&env, TRACK, false);
    let tracks = device.tracks.as_ref().unwrap();
    assert_eq!(tracks.report(TrackId(9), u32::MAX).unwrap().len(), 2);
    assert_eq!(tracks.report(TrackId(0), 0).unwrap(), []);
    assert_eq!(tracks.describe(TrackId(10)).unwrap().overlaps, [TrackId(9)]);
    for result in [
        tracks.describe(TrackId(11)).err(),
        tracks.report(TrackId(u32::MAX), 1).err(),
        tracks.mark_free(TrackId(11)).err(),
    ] {
        let error = result.unwrap();
        assert_eq!(error.kind(), MediaErrorKind::InvalidRequest);
        assert!(error.to_string().contains("there is no track"), "{error}");
    }
}

/// Random requests against a model of sectors that knows the rule in other words.
#[test]
fn destruction_follows_the_model() {
    for (seed, bottom_track_bytes) in [(1, TRACK), (2, TRACK), (3, TRACK / 4 * 5), (4, TRACK / 2)] {
        let env = Env::sim(seed);
        let mut random = Random::seeded(seed);
        let device = device(&env, bottom_track_bytes, false);
        let geometry = device.block.capabilities().tracks.clone().unwrap();
        let sectors = device.block.geometry().capacity_bytes / SECTOR;
        let mut readable = vec![true; sectors as usize];
        let mut live = vec![false; sectors as usize];
        let mut counted = (0, 0);
        for step in 0..400 {
            let first = random.below(sectors);
            let count = 1 + random.below((sectors - first).min(if step % 20 == 0 { 500 } else { 20 }));
            let own = first as usize..(first + count) as usize;
            match random.below(8) {
                0 => {
                    device.block.discard_at(first * SECTOR, count * SECTOR, &context()).unwrap();
                    readable[own.clone()].fill(true);
                    live[own].fill(false);
                }
                1 => {
                    let track = TrackId(random.below(11) as u32);
                    device.tracks.as_ref().unwrap().mark_free(track).unwrap();
                    let Range { start, end } = geometry.range(track);
                    live[(start / SECTOR) as usize..(end / SECTOR) as usize].fill(false);
                }
                _ => {
                    device.block.write_at(first * SECTOR, &vec![1; (count * SECTOR) as usize], &context()).unwrap();
                    // Destroyed is what was live before and is not now; a sector that the write itself covers counts once.
                    let mut lost = vec![false; sectors as usize];
                    for sector in own.clone() {
                        let track = geometry.track_at(sector as u64 * SECTOR).unwrap();
                        if geometry.tier(track) == TrackTier::Top {
                            (readable[sector], live[sector], lost[sector]) = (true, true, false);
                            continue;
                        }
                        readable[sector] = true;
                        let start = sector as u64 * SECTOR - geometry.start_bytes(track);
                        for (_, span) in geometry.overlapped_span(track, start..start + SECTOR, PHYSICAL.into()) {
                            for hit in (span.start / SECTOR) as usize..(span.end / SECTOR) as usize {
                                lost[hit] |= live[hit] || (own.contains(&hit) && hit < sector);
                                (readable[hit], live[hit]) = (false, false);
                            }
                        }
                    }
                    for sector in own {
                        lost[sector] &= !readable[sector];
                    }
                    let bytes = lost.iter().filter(|&&lost| lost).count() as u64 * SECTOR;
                    counted = (counted.0 + u64::from(bytes > 0), counted.1 + bytes);
                }
            }
            let at = random.below(sectors - 64);
            for sector in at..at + 64 {
                let found = device.block.read_at(sector * SECTOR, &mut [0; 512], &context()).is_ok();
                assert_eq!(found, readable[sector as usize], "seed {seed} step {step} sector {sector}");
            }
            assert_eq!(destroyed(&device), counted, "seed {seed} step {step}");
        }
        assert!(counted.0 > 20, "seed {seed}: {counted:?}");
    }
}

/// Tracks lie in address order on the disk model: every other one costs what the model says of the
/// same places of a conventional disk, and skipping costs revolutions that writing on does not.
#[test]
fn writing_bottoms_only_takes_the_time_of_the_disk() {
    const TRACK: u64 = 2 << 20;
    let preset = Preset::find("st500dm002").unwrap().with_capacity(1 << 30);
    let tracks = TrackGeometry::fit(1 << 30, TRACK, TRACK).unwrap();
    let write = |interlaced: bool, stride: u64| {
        let env = Env::sim(7);
        let backing = Box::new(crate::NoBacking);
        let device = if interlaced {
            let rules = Interlaced::new(&tracks, 4096, true);
            preset.build_interlaced(&env, "imr", rules, backing, Pacing::Sleep)
        } else {
            Device::of_blocks(Arc::new(preset.build(&env, "disk", backing, Pacing::Sleep)))
        };
        let data = vec![1; TRACK as usize];
        for number in 0..100 {
            device.block.write_at(number * stride, &data, &context()).unwrap();
        }
        device.block.sync(&context()).unwrap();
        (env.now().as_nanos(), device.block.counters().time, env.event_hash())
    };
    let bottoms = write(true, 2 * TRACK);
    assert_eq!(bottoms, write(true, 2 * TRACK));
    assert_eq!(bottoms.1, write(false, 2 * TRACK).1);
    let on_and_on = write(false, TRACK);
    // 200 MiB at the outer 168 MB/s are 1.25 s; the skips add revolutions and short seeks, not more than
    // the 1.25 s that reading on over the skipped tracks would take.
    assert!(on_and_on.0 > 1_200_000_000, "{on_and_on:?}");
    let (skipping, writing_on) = (bottoms.1, on_and_on.1);
    assert!(bottoms.0 > on_and_on.0 + 300_000_000, "{skipping:?} beside {writing_on:?}");
    assert!(bottoms.0 < 2 * on_and_on.0 + 200_000_000, "{skipping:?} beside {writing_on:?}");
}

/// A probe writes everywhere, so it reads what it destroyed; that takes the disk as long as reading.
#[test]
fn an_interlaced_disk_can_be_probed_and_is_as_fast_as_the_disk() {
    use crate::probe::{Characterization, CharacterizationOptions};
    let preset = Preset::find("st500dm002").unwrap().with_capacity(64 << 20);
    let options = CharacterizationOptions { sequential_bytes: 16 << 20, random_requests: 200, ..Default::default() };
    let measure = |interlaced: bool| {
        let env = Env::sim(1);
        let backing = Box::new(crate::NoBacking);
        let block: Arc<dyn BlockDevice> = if interlaced {
            let rules = Interlaced::new(&TrackGeometry::fit(64 << 20, 2 << 20, 2 << 20).unwrap(), 4096, false);
            preset.build_interlaced(&env, "imr", rules, backing, Pacing::Sleep).block
        } else {
            Arc::new(preset.build(&env, "disk", backing, Pacing::Sleep))
        };
        Characterization::measure(&env, &block, &options).unwrap()
    };
    assert_eq!(measure(true), measure(false));
}
