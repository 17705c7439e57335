//! Background work in bursts on an emulated disk, in virtual time: how long puts wait for it, and how many of them.

use std::time::Duration;
use varve::env::Env;
use varve::statistics::CounterValues;
use varve::{Options, TreeKind, Varve, WriteOptions};

/// Bands, and a disk that takes a revolution of 8.3 ms for a synced put.
const DISK: &str = "smr:64GiB?band=16MiB,conventional=128MiB,model=barracuda-3tb,backing=compressed";

/// What a put takes that waits for nobody: a revolution and the way to the log.
const PUT: Duration = Duration::from_millis(40);

const VALUE_BYTES: usize = 32 << 10;

const MEMTABLE_BYTES: usize = 16 << 20;

fn options(pace_background_work: bool, max_write_stall_ms: u64) -> Options {
    Options {
        tree: Some(TreeKind::TwoLevel),
        write_buffer_size: MEMTABLE_BYTES,
        max_write_buffer_number: 2,
        level0_file_num_compaction_trigger: 4,
        level0_slowdown_writes_trigger: 8,
        level0_stop_writes_trigger: 14,
        compaction_readahead_size: Some(1 << 20),
        bloom_bits_per_key: 0,
        overlap_depth_max: Some(0),
        flush_key_ranges: Some(false),
        compact_in_pieces: Some(false),
        pace_background_work: Some(pace_background_work),
        max_write_stall_ms: Some(max_write_stall_ms),
        ..Options::default()
    }
}

/// How long each of so many synced puts in no order takes, and what the database counted.
fn puts(count: u64, options: Options) -> (Vec<Duration>, CounterValues) {
    let env = Env::sim(1);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let db = Varve::builder().env(&of_client).options(options).open_spec(&DISK.parse().unwrap()).unwrap();
        let value = [7; VALUE_BYTES];
        let took = (0..count).map(|number| {
            let key = format!("{:08}", number * 7919 % count);
            let begin = of_client.now();
            db.put_with(key, value, &WriteOptions { sync: true }).unwrap();
            of_client.settle();
            of_client.now() - begin
        });
        let took: Vec<Duration> = took.collect();
        let counters = db.statistics().counters;
        db.close().unwrap();
        (took, counters)
    });
    client.join().unwrap_or_else(|panic| panic.resume())
}

/// As asked for, whatever is flushed and merged in which order.
#[test]
fn synced_puts_wait_as_long_where_ranges_are_flushed_and_merged_in_pieces() {
    const COUNT: u64 = 12_000;
    let stall = Duration::from_millis(150);
    let in_ranges = Options {
        flush_key_ranges: Some(true),
        compact_in_pieces: Some(true),
        overlap_depth_max: Some(2),
        ..options(true, 150)
    };
    let (took, counters) = puts(COUNT, in_ranges);
    let (bursts, waits) = (counters.bursts, counters.log_waits_for_bursts);
    let (range_flushes, pieces) = (counters.range_flushes, counters.compaction_pieces);
    println!("{range_flushes} range flushes, {pieces} pieces, {bursts} bursts, for which {waits} log writes waited");
    assert!(range_flushes >= 5 && pieces >= 5 && bursts >= 10 && waits >= 10, "{counters:?}");
    let longest = took.into_iter().max().unwrap();
    assert!(longest <= 2 * stall + PUT, "{longest:?}");
}

#[test]
fn synced_puts_wait_seldom_for_background_work_and_not_longer_than_was_asked_for() {
    const COUNT: u64 = 6000;
    const MEMTABLES: usize = (COUNT as usize * VALUE_BYTES).div_ceil(MEMTABLE_BYTES) + 1;
    let stall = Duration::from_millis(150);
    let ((at_once, without), (in_bursts, with)) = (puts(COUNT, options(false, 0)), puts(COUNT, options(true, 150)));
    let busy = Duration::from_nanos(with.compaction_nanos);
    println!("{} bursts, for which {} log writes waited", with.bursts, with.log_waits_for_bursts);
    assert_eq!((without.bursts, without.log_waits_for_bursts), (0, 0));
    assert!(with.bursts >= 10 && with.log_waits_for_bursts >= 10, "{with:?}");
    assert!(busy > Duration::from_secs(5), "compactions took {busy:?}");
    let longer = |took: &[Duration], than: Duration| took.iter().filter(|&&took| took > than).count();
    assert!(longer(&in_bursts, PUT) < longer(&at_once, PUT), "{} puts waited", longer(&in_bursts, PUT));
    // A put that begins a memtable begins a log, and then syncs it: two bursts may come between.
    assert_eq!(longer(&in_bursts, 2 * stall + PUT), 0);
    assert!(longer(&in_bursts, stall + PUT) <= MEMTABLES, "{} waited too long", longer(&in_bursts, stall + PUT));
}
