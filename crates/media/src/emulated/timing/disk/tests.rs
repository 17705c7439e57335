//! The disk as a state machine: no env, no threads.

use super::*;
use varve_env::Random;

/// A small disk of round numbers: 4 surfaces, 400 tracks of 256 KiB, a rotation of 8 ms.
fn parameters() -> DiskParameters {
    let zone = |track_bytes| LayoutZone {
        cylinders: 50,
        track_bytes,
        data_bytes: 200 * track_bytes,
        track_skew_nanos: 1_000_000,
        cylinder_skew_nanos: 1_600_000,
    };
    DiskParameters {
        mechanism: MechanismParameters {
            rotation_nanos: 8_000_000,
            surfaces: 4,
            surface_order: SurfaceOrder::Forward,
            zones: vec![zone(256 << 10), zone(128 << 10)],
            seek: SeekCurve::Table(vec![(1, 1_000_000), (100, 10_000_000)]),
            stroke_cylinders: 100,
            head_switch_nanos: 500_000,
            write_settle_nanos: 500_000,
        },
        sector_bytes: 512,
        physical_sector_bytes: 4096,
        link_bytes_per_second: 500_000_000,
        overhead: CommandOverhead::uniform(100_000),
        cache: DiskCacheParameters {
            write_bytes: 1 << 20,
            destage_delay_nanos: 20_000_000,
            destage_begin_bytes: 256 << 10,
            destage_urgent_bytes: 512 << 10,
            contention_slice_nanos: 30_000_000,
            read_segments: 4,
            read_segment_bytes: 256 << 10,
            read_ahead_bytes: 128 << 10,
            read_ahead_on_hit: true,
            keeps_written: false,
        },
        queue_depth: 32,
        scheduling: Scheduling::ShortestPositioning { ageing_divisor: 16 },
    }
}

/// Submits `work` at `now` and gives the time it completes, alone.
fn serve(disk: &mut Disk, now: u64, work: Work, offset_bytes: u64, length_bytes: u64) -> u64 {
    let mut done = Vec::new();
    disk.advance(now, &mut done);
    assert!(done.is_empty());
    disk.submit(now, Task { id: 7, work, offset_bytes, length_bytes });
    let mut at = now;
    loop {
        disk.advance(at, &mut done);
        if done == [7] {
            return at;
        }
        at = disk.next_event_nanos().expect("a task is in flight");
    }
}

const WRITE: Work = Work::Write { durable: false };

#[test]
fn random_read_is_overhead_seek_rotation_and_transfer() {
    let mut disk = Disk::new(parameters());
    // Cylinder 9 begins at byte 9 MiB; its angle is 9 cylinders of 3 + 1.6 ms skews: 41.4 ms.
    let done = serve(&mut disk, 0, Work::Read, 9 << 20, 4096);
    let arrival = 100_000 + disk.parameters.mechanism.seek.nanos(9);
    let angle = 9 * (3 * 1_000_000 + 1_600_000) % 8_000_000;
    let on_track = arrival + (angle + 8_000_000 - arrival % 8_000_000) % 8_000_000;
    assert_eq!(done, on_track + 8_000_000 / 64 + disk.link_nanos(512));
    assert_eq!(disk.counters(0).seeks, 1);
}

#[test]
fn sequential_reads_run_at_media_rate_even_when_the_host_pauses() {
    // 8 cylinders of 4 tracks, each cylinder 4 rotations and its skews.
    let cylinder_nanos = 4 * 8_000_000 + 3 * 1_000_000 + 1_600_000;
    for pause in [0, 100_000, 400_000] {
        let mut disk = Disk::new(parameters());
        let mut now = serve(&mut disk, 0, Work::Read, 0, 65_536) + pause;
        let begin = now;
        for number in 1..128 {
            now = serve(&mut disk, now, Work::Read, number * 65_536, 65_536) + pause;
        }
        let spent = now - begin;
        let media = 8 * cylinder_nanos * 127 / 128;
        assert!(spent.abs_diff(media) < media / 50, "pause {pause}: {spent} ns, medium alone {media} ns");
        assert!(disk.counters(0).cache_hits == 0 || pause > 0);
    }
}

#[test]
fn slow_host_reads_from_the_buffer() {
    let mut disk = Disk::new(parameters());
    let mut now = serve(&mut disk, 0, Work::Read, 0, 4096);
    for number in 1..200 {
        now += 5_000_000;
        let done = serve(&mut disk, now, Work::Read, number * 4096, 4096);
        assert_eq!(done - now, 100_000 + disk.link_nanos(4096), "read {number}");
        now = done;
    }
    assert_eq!(disk.counters(0).cache_hits, 199);
}

#[test]
fn cached_writes_are_quick_and_flushes_wait_for_the_medium() {
    let mut disk = Disk::new(parameters());
    let done = serve(&mut disk, 0, WRITE, 50 << 20, 4096);
    assert_eq!(done, 100_000 + disk.link_nanos(4096));
    assert_eq!(disk.counters(0).written_bytes, 0);
    let flushed = serve(&mut disk, done, Work::Flush, 0, 0);
    assert!(flushed - done > 5_000_000, "{flushed}");
    assert_eq!(disk.counters(0).written_bytes, 4096);
    // Nothing is left to flush.
    assert_eq!(serve(&mut disk, flushed, Work::Flush, 0, 0), flushed + 100_000);
    // A durable write waits by itself.
    let begin = flushed + 1_000_000;
    let durable = serve(&mut disk, begin, Work::Write { durable: true }, 10 << 20, 4096);
    assert!(durable - begin > 2_000_000);
    assert_eq!(disk.counters(0).written_bytes, 8192);
}

#[test]
fn synced_appends_take_a_rotation_each() {
    let mut disk = Disk::new(parameters());
    let mut now = serve(&mut disk, 0, WRITE, 0, 4096);
    now = serve(&mut disk, now, Work::Flush, 0, 0);
    let begin = now;
    for number in 1..33 {
        now = serve(&mut disk, now, WRITE, number * 4096, 4096);
        now = serve(&mut disk, now, Work::Flush, 0, 0);
    }
    assert_eq!(now - begin, 32 * (8_000_000 + 8_000_000 / 64));
}

#[test]
fn full_cache_makes_writes_wait_and_idle_time_empties_it() {
    let mut disk = Disk::new(parameters());
    let mut now = 0;
    let mut slow = 0;
    for number in 0..32 {
        let done = serve(&mut disk, now, WRITE, number << 18, 1 << 18);
        slow += u64::from(done - now > 2_000_000);
        now = done;
    }
    assert!(slow > 20, "{slow}");
    let cylinder_nanos = 4 * 8_000_000 + 3 * 1_000_000 + 1_600_000;
    assert!(now > 7 * cylinder_nanos - (1 << 20) && now < 9 * cylinder_nanos, "{now}");
    disk.advance(now + 1_000_000_000, &mut Vec::new());
    assert!(disk.dirty.is_empty());
    assert_eq!(disk.counters(0).written_bytes, 32 << 18);
}

#[test]
fn write_larger_than_the_cache_streams_through_it() {
    let mut disk = Disk::new(parameters());
    let done = serve(&mut disk, 0, WRITE, 0, 8 << 20);
    let cylinder_nanos = 4 * 8_000_000 + 3 * 1_000_000 + 1_600_000;
    assert!(done > 6 * cylinder_nanos && done < 9 * cylinder_nanos, "{done}");
}

#[test]
fn writing_half_a_physical_sector_costs_another_rotation() {
    let cost = |offset, length| {
        let mut disk = Disk::new(parameters());
        let done = serve(&mut disk, 0, WRITE, offset, length);
        serve(&mut disk, done, Work::Flush, 0, 0)
    };
    // It ends 3.5 KiB of the track earlier, and a rotation later.
    assert_eq!(cost(65_536, 512), cost(65_536, 4096) - 8_000_000 * 3_584 / 262_144 + 8_000_000);
}

#[test]
fn deeper_queues_are_served_faster_and_none_starves() {
    let mut random = Random::seeded(17);
    let offsets: Vec<u64> = (0..400).map(|_| random.below(60 << 20) / 4096 * 4096).collect();
    let total = |scheduling, depth: usize| {
        let mut disk = Disk::new(DiskParameters { scheduling, ..parameters() });
        let (mut now, mut next, mut latency_max) = (0, 0, 0);
        let mut begun = vec![0; offsets.len()];
        let mut done = Vec::new();
        let (mut completed, mut open) = (0, 0);
        while completed < offsets.len() {
            while open < depth && next < offsets.len() {
                begun[next] = now;
                disk.submit(
                    now,
                    Task { id: next as u64, work: Work::Read, offset_bytes: offsets[next], length_bytes: 4096 },
                );
                next += 1;
                open += 1;
            }
            disk.advance(now, &mut done);
            for id in done.drain(..) {
                latency_max = latency_max.max(now - begun[id as usize]);
                completed += 1;
                open -= 1;
            }
            if completed < offsets.len() && open > 0 && (open == depth || next == offsets.len()) {
                now = disk.next_event_nanos().unwrap();
            }
        }
        (now, latency_max)
    };
    let shortest = Scheduling::ShortestPositioning { ageing_divisor: 16 };
    let (alone, _) = total(shortest, 1);
    let (fifo, _) = total(Scheduling::Fifo, 32);
    let (elevator, _) = total(Scheduling::Elevator, 32);
    let (deep, waited) = total(shortest, 32);
    assert!(fifo > alone * 95 / 100, "{fifo} {alone}");
    assert!(elevator < alone * 80 / 100, "{elevator} {alone}");
    assert!(deep < elevator && deep < alone * 60 / 100, "{deep} {elevator} {alone}");
    // The longest positioning is 18 ms; with a divisor of 16 a request waits 16 of those at most, and
    // the queue in front of it.
    assert!(waited < 17 * 18_000_000 + 32 * 10_000_000, "{waited}");
}

#[test]
fn discarded_bytes_need_not_be_written_back() {
    let mut disk = Disk::new(parameters());
    let done = serve(&mut disk, 0, WRITE, 0, 65_536);
    let done = serve(&mut disk, done, Work::Discard, 0, 65_536);
    assert_eq!(serve(&mut disk, done, Work::Flush, 0, 0), done + 100_000);
    assert_eq!(disk.counters(0).written_bytes, 0);
}

/// Runs a random history; advances at further, random times too when `extra` is set.
fn history(seed: u64, extra: bool) -> (Vec<(u64, u64)>, MediaCounters, u64) {
    let mut random = Random::seeded(seed);
    let mut interruptions = Random::seeded(seed + 1);
    let mut disk = Disk::new(parameters());
    let (mut now, mut completed, mut done) = (0, Vec::new(), Vec::new());
    for id in 0..300 {
        let pause = random.below(3) * random.below(15_000_000);
        let arrival = now + pause;
        loop {
            let event = disk.next_event_nanos().map_or(arrival, |nanos| nanos.min(arrival));
            while extra && now < event && interruptions.below(3) > 0 {
                now += interruptions.below(event - now + 1);
                disk.advance(now, &mut done);
                assert!(now == event || done.is_empty(), "seed {seed}: a completion before the announced event");
                completed.extend(done.drain(..).map(|id| (now, id)));
            }
            now = event;
            disk.advance(now, &mut done);
            completed.extend(done.drain(..).map(|id| (now, id)));
            if now == arrival {
                break;
            }
        }
        let length_bytes = 512 << random.below(10);
        let near = random.below(4) > 0;
        let offset_bytes = random.below(if near { 4 << 20 } else { 70 << 20 }) / 512 * 512;
        let work = match random.below(12) {
            0 => Work::Flush,
            1 => Work::Discard,
            2 => Work::Write { durable: true },
            3..7 => WRITE,
            _ => Work::Read,
        };
        disk.submit(now, Task { id, work, offset_bytes, length_bytes });
        disk.advance(now, &mut done);
        completed.extend(done.drain(..).map(|id| (now, id)));
    }
    while let Some(event) = disk.next_event_nanos() {
        now = event;
        disk.advance(now, &mut done);
        completed.extend(done.drain(..).map(|id| (now, id)));
    }
    let counters = disk.counters(now);
    (completed, counters, now)
}

#[test]
fn what_happens_does_not_depend_on_when_one_looks() {
    for seed in 0..40 {
        let plain = history(seed, false);
        assert_eq!(plain.0.len(), 300, "seed {seed}");
        assert!(plain == history(seed, true), "seed {seed}");
    }
}

#[test]
fn parts_of_time_add_up_to_all_of_it() {
    for seed in 100..120 {
        let (_, counters, now) = history(seed, false);
        let time = counters.time;
        let parts = time.seek_nanos + time.rotation_nanos + time.transfer_nanos;
        assert_eq!(parts + time.overhead_nanos + time.flush_nanos + time.idle_nanos, now, "seed {seed}");
    }
}
