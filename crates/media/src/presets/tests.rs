//! Presets do what their sources say.

use super::*;
use crate::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::emulated::NoBacking;
use crate::emulated::SeekCurve;
use crate::probe::{Characterization, CharacterizationOptions, Pattern, Probe};

fn device(env: &Env, preset: &Preset) -> Arc<dyn BlockDevice> {
    Arc::new(preset.build(env, preset.name(), Box::new(NoBacking), Pacing::Sleep))
}

fn characterize(preset: &Preset) -> Characterization {
    let promises = preset.promises();
    let options = CharacterizationOptions {
        sequential_request_bytes: promises.sequential_request_bytes,
        sequential_depth: promises.sequential_depth,
        sequential_bytes: 512 << 20,
        spots: 16,
        random_requests: 1_500,
        seed: 1,
    };
    let env = Env::sim(1);
    Characterization::measure(&env, &device(&env, preset), &options).unwrap()
}

#[test]
fn every_preset_does_what_its_sources_promise_and_its_nominal_performance_says() {
    for preset in Preset::all() {
        let reached = characterize(&preset);
        let promises = preset.promises();
        let rate = |rate: Option<u64>| rate.map(|rate| rate as f64);
        for (what, promised, reached) in [
            ("outer read", rate(promises.outer_read_bytes_per_second), reached.outer_read_bytes_per_second),
            ("outer write", rate(promises.outer_write_bytes_per_second), reached.outer_write_bytes_per_second),
            ("average read", rate(promises.average_read_bytes_per_second), reached.average_read_bytes_per_second),
            ("average write", rate(promises.average_write_bytes_per_second), reached.average_write_bytes_per_second),
            ("random reads", promises.random_reads_per_second, reached.random_reads_per_second),
        ] {
            if let Some(promised) = promised {
                let deviation = reached / promised - 1.0;
                assert!(deviation.abs() < 0.05, "{}: {what} {reached:.1}, promised {promised:.1}", preset.name());
            }
        }
        let nominal = preset.nominal();
        for (what, nominal, reached) in [
            ("read", nominal.sequential_read_bytes_per_second as f64, reached.average_read_bytes_per_second),
            ("write", nominal.sequential_write_bytes_per_second as f64, reached.average_write_bytes_per_second),
            ("random", nominal.random_reads_per_second as f64, reached.random_reads_per_second),
        ] {
            assert!((reached / nominal - 1.0).abs() < 0.08, "{}: {what} {reached} nominal {nominal}", preset.name());
        }
        assert!(reached.deep_random_reads_per_second > 1.5 * reached.random_reads_per_second, "{}", preset.name());
    }
}

#[test]
fn names_are_unique_and_found() {
    let all = Preset::all();
    for preset in &all {
        assert_eq!(Preset::find(preset.name()).unwrap().description(), preset.description());
        assert!(preset.geometry().capacity_bytes.is_multiple_of(u64::from(preset.geometry().sector_bytes)));
    }
    assert!(all.windows(2).all(|pair| pair[0].name() < pair[1].name()));
    assert!(Preset::find("floppy").is_none());
}

#[test]
fn measured_seek_curve_has_its_published_mean() {
    let curve = measured_4tb::seek_curve();
    let mean = data_sheet::mean_seek_nanos(&curve, measured_4tb::CYLINDERS);
    assert!(mean.abs_diff(7_930_000) < 10_000, "{mean}");
    assert!(curve.nanos(67_103).abs_diff(6_478_000) < 1_000);
    assert!(matches!(curve, SeekCurve::TwoPiece { .. }));
}

/// Sequential and random work of sizes divided by `divisor`, on a device scaled likewise.
fn work(preset: &Preset, divisor: u64) -> u64 {
    let env = Env::sim(1);
    let disk = device(&env, &preset.scaled(divisor));
    let capacity = disk.geometry().capacity_bytes;
    for (pattern, request, depth, requests) in [
        (Pattern::SequentialWrite, 4 << 20, 2, 100),
        (Pattern::SequentialRead, 2 << 20, 1, 100),
        (Pattern::RandomRead, 512 << 10, 4, 200),
        (Pattern::RandomWrite, 512 << 10, 1, 200),
    ] {
        let request_bytes = request / divisor;
        let region = 0..capacity / request_bytes * request_bytes;
        Probe { pattern, request_bytes, depth, requests, region, seed: 3 }.run(&env, &disk).unwrap();
    }
    env.now().as_nanos()
}

#[test]
fn scaling_is_a_similarity() {
    // Sectors do not scale, so the old disks with caches of hundreds of sectors are left out.
    for preset in Preset::all().iter().filter(|preset| preset.physical_sector_bytes == 4096) {
        let whole = work(preset, 1);
        for divisor in [16, 64] {
            let scaled = work(preset, divisor) * divisor;
            let deviation = scaled as f64 / whole as f64 - 1.0;
            assert!(deviation.abs() < 0.03, "{} at 1/{divisor}: {deviation}", preset.name());
        }
    }
}

/// Average streaming rate and random reads per second.
fn streaming_and_positioning(preset: &Preset) -> (f64, f64) {
    let env = Env::sim(1);
    let disk = device(&env, preset);
    let capacity = disk.geometry().capacity_bytes;
    let (mut bytes, mut nanos) = (0, 0);
    for spot in 0..16 {
        let start = capacity / 16 / 4096 * 4096 * spot;
        let region = start..start + (64 << 20);
        let probe =
            Probe { pattern: Pattern::SequentialRead, request_bytes: 1 << 20, depth: 1, requests: 64, region, seed: 0 };
        let result = probe.run(&env, &disk).unwrap();
        bytes += result.bytes;
        nanos += result.elapsed_nanos;
    }
    let region = 0..capacity / 4096 * 4096;
    let probe = Probe { pattern: Pattern::RandomRead, request_bytes: 4096, depth: 1, requests: 3_000, region, seed: 1 };
    (bytes as f64 / nanos as f64, probe.run(&env, &disk).unwrap().requests_per_second())
}

#[test]
fn any_capacity_positions_and_streams_like_the_whole_device() {
    for preset in Preset::all() {
        let whole = streaming_and_positioning(&preset);
        let own = preset.geometry().capacity_bytes;
        for capacity in [own / 5 + 12_345, own * 2] {
            let other = preset.with_capacity(capacity);
            let physical = u64::from(preset.geometry().physical_sector_bytes);
            assert_eq!(other.geometry().capacity_bytes, capacity / physical * physical);
            let reached = streaming_and_positioning(&other);
            let deviations = [reached.0 / whole.0 - 1.0, reached.1 / whole.1 - 1.0];
            assert!(deviations.iter().all(|by| by.abs() < 0.05), "{} {capacity}: {deviations:?}", preset.name());
        }
    }
}

#[test]
fn smallest_and_largest_capacities_work() {
    for preset in Preset::all() {
        for capacity in [0, 4096, 100_000, 1 << 20, u64::MAX] {
            let env = Env::sim(1);
            let disk = device(&env, &preset.with_capacity(capacity));
            let last = disk.geometry().capacity_bytes - u64::from(disk.geometry().sector_bytes);
            let data = vec![1; disk.geometry().sector_bytes as usize];
            disk.write_at(last, &data, &IoContext::default()).unwrap();
            disk.sync(&IoContext::default()).unwrap();
        }
    }
}
