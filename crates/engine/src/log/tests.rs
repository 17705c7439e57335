//! What a log promises, after crashes and after damage.

use super::reader::{Record, Tail, TailReason};
use super::*;
use crate::error::ErrorKind;
use crate::memory_file::MemoryFile;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::Random;

const HEADER: LogHeader =
    LogHeader { purpose: Purpose::WriteAhead, number: 12, salt: 0x1234_5678_9abc, database: 9, previous: None };

fn create(file: &MemoryFile) -> LogWriter {
    LogWriter::create(file.writer(), &HEADER, Arc::default()).unwrap()
}

/// Everything a reader returns: the records, and how it ended.
fn read(bytes: &[u8], expect_synced: u64) -> (Vec<Vec<u8>>, Result<Tail, Error>) {
    let file = MemoryFile::of(bytes.to_vec());
    let mut reader = match LogReader::open(file.reader(), "000012.log", Purpose::WriteAhead, 12) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    reader.expect_synced(expect_synced);
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record.data.to_vec()),
            Ok(None) => return (records, Ok(reader.tail().unwrap().clone())),
            Err(error) => return (records, Err(error)),
        }
    }
}

/// A log with everything in it: its bytes, its records, where each begins and which are synced.
struct Sample {
    bytes: Vec<u8>,
    records: Vec<Vec<u8>>,
    offsets: Vec<u64>,
    /// Synced bytes after each record.
    synced: Vec<u64>,
}

fn sample(seed: u64, count: usize, bytes_max: u64, sync: (u64, u64)) -> Sample {
    let mut random = Random::seeded(seed);
    let file = MemoryFile::default();
    let mut writer = create(&file);
    let (mut records, mut offsets, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let length = random.below(bytes_max) as usize;
        let record: Vec<u8> = (0..length).map(|_| random.below(4) as u8 * 0x41).collect();
        let cut = random.below(length as u64 + 1) as usize;
        offsets.push(writer.append(&[&record[..cut], &[], &record[cut..]]).unwrap());
        if random.chance(sync.0, sync.1) {
            writer.sync().unwrap();
        }
        records.push(record);
        synced.push(writer.synced_bytes());
    }
    Sample { bytes: file.bytes(), records, offsets, synced }
}

/// A reader of a log that is still written may meet a record half way and those behind it whole.
#[test]
fn what_was_on_its_way_when_it_was_read_is_read_again() {
    let sample = sample(31, 40, 300, (1, 2));
    let mut met = 0;
    for (number, &offset) in sample.offsets.iter().enumerate().take(30) {
        let mut early = sample.bytes.clone();
        early[offset as usize..offset as usize + frame::FIXED_BYTES].fill(0);
        let (records, outcome) = read(&early, 0);
        assert_eq!(records.len(), number, "record {number}");
        let file = MemoryFile::of(early);
        let mut reader = LogReader::open(file.reader(), "000012.log", Purpose::WriteAhead, 12).unwrap();
        file.replace(sample.bytes.clone());
        let mut records = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            records.push(record.data.to_vec());
        }
        match outcome {
            // Nothing says that it is there by now.
            Ok(_) => assert_eq!(records, sample.records[..number], "record {number}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert_eq!(records, sample.records, "record {number}");
                met += 1;
            }
        }
    }
    assert!(met >= 10, "{met} records were proven to be there");
}

#[test]
fn records_of_all_lengths_come_back() {
    let file = MemoryFile::default();
    let counters = Arc::new(LogCounters::default());
    let mut writer = LogWriter::create(file.writer(), &HEADER, counters.clone()).unwrap();
    assert_eq!(file.synced_bytes(), HEADER_BYTES);
    let limit = frame::PAYLOAD_BYTES_MAX;
    let lengths = [0, 1, 100, limit - 1, limit, limit + 1, 5 * limit, 3 * limit + 17, 0];
    let records: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![length as u8 ^ 0x5a; length]).collect();
    for record in &records {
        let pieces: Vec<&[u8]> = record.chunks(100_001).collect();
        writer.append(&pieces).unwrap();
    }
    writer.flush().unwrap();
    let durable = writer.finish().unwrap();
    assert!(file.finished());
    let (found, tail) = read(&file.bytes(), durable);
    assert!(found == records);
    let size = file.bytes().len() as u64;
    assert_eq!(tail.unwrap(), Tail { valid_bytes: size, dropped_bytes: 0, reason: TailReason::Sealed });
    assert_eq!(counters.records.load(Ordering::Relaxed), lengths.len() as u64);
    assert_eq!(counters.record_bytes.load(Ordering::Relaxed), lengths.iter().sum::<usize>() as u64);
    assert_eq!(counters.file_bytes.load(Ordering::Relaxed), size);
    assert_eq!(counters.syncs.load(Ordering::Relaxed), 2);
}

/// The bytes of the format; a change here is a change of the format.
#[test]
fn golden_log() {
    let file = MemoryFile::default();
    let previous = Some(PreviousLog { number: 11, synced_bytes: 4096 });
    let header =
        LogHeader { purpose: Purpose::Manifest, number: 12, salt: 7, database: 0x0807_0605_0403_0201, previous };
    let mut writer = LogWriter::create(file.writer(), &header, Arc::default()).unwrap();
    writer.append(&[b"one"]).unwrap();
    writer.sync().unwrap();
    writer.append(&[b"t", b"wo"]).unwrap();
    writer.finish().unwrap();
    let bytes = file.bytes();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected = include_str!("golden.txt").split_whitespace().collect::<Vec<_>>();
    let parts = [&bytes[..64], &bytes[64..77], &bytes[77..98], &bytes[98..]].map(hex);
    assert_eq!(parts.to_vec(), expected);
    let mut reader = LogReader::open(file.reader(), "MANIFEST-000012", Purpose::Manifest, 12).unwrap();
    assert_eq!(reader.header(), Some(&header));
    assert_eq!(reader.next().unwrap(), Some(Record { offset_bytes: 64, data: b"one" }));
    assert_eq!(reader.next().unwrap(), Some(Record { offset_bytes: 77, data: b"two" }));
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(reader.tail().unwrap().reason, TailReason::Sealed);
}

#[test]
fn every_truncation_keeps_whole_records_and_reports_the_rest() {
    let sample = sample(1, 40, 300, (0, 1));
    for length in HEADER_BYTES..=sample.bytes.len() {
        for zeros in [0, 700] {
            let mut bytes = sample.bytes[..length].to_vec();
            bytes.resize(length + zeros, 0);
            let (records, tail) = read(&bytes, 0);
            let ends = sample.offsets[1..].iter().copied().chain([sample.bytes.len() as u64]);
            // Zeros may complete a record that ends with them, never more than one.
            let whole = ends.filter(|&end| end <= length as u64).count();
            assert!(records.len() == whole || (zeros > 0 && records.len() == whole + 1), "length {length}");
            assert_eq!(records, sample.records[..records.len()]);
            let tail = tail.unwrap();
            if records.len() == whole {
                let end = sample.offsets.get(whole).copied().unwrap_or(sample.bytes.len() as u64);
                assert_eq!(tail.valid_bytes, end, "length {length}");
                let last = bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
                assert_eq!(tail.dropped_bytes, last.saturating_sub(end), "length {length}");
                assert_eq!(tail.reason == TailReason::Ended, tail.dropped_bytes == 0);
            }
        }
    }
}

/// A file as a crash leaves it: what was synced, and any mixture of the sectors that were not.
fn crash(sample: &Sample, written: usize, synced: usize, sector_bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = sample.bytes[..written].to_vec();
    let mut at = synced;
    while at < written {
        let end = (at / sector_bytes * sector_bytes + sector_bytes).min(written);
        match random.below(6) {
            0 => bytes[at..end].fill(0),
            1 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.next_u64() as u8),
            // Stale bytes that look like the log's own.
            2 => {
                let from = random.below((sample.bytes.len() - (end - at)) as u64) as usize;
                bytes[at..end].copy_from_slice(&sample.bytes[from..from + end - at]);
            }
            3 => {
                let cut = at + random.below((end - at) as u64) as usize;
                bytes[cut..end].fill(0);
            }
            _ => {}
        }
        at = end;
    }
    match random.below(3) {
        0 => bytes.resize(written + 1000, 0),
        1 => bytes.truncate(written - random.below((written - synced) as u64 + 1) as usize),
        _ => {}
    }
    bytes
}

/// Crashes a log at random places; every image must give back a prefix that holds what was synced.
fn crash_and_read(seed: u64, sample: &Sample, sector_bytes: usize, images: usize) {
    let mut random = Random::seeded(seed ^ 0xc4a5);
    for _ in 0..images {
        let last = random.index(sample.records.len());
        let written = sample.offsets.get(last + 1).map_or(sample.bytes.len(), |&end| end as usize);
        let synced = sample.synced[last] as usize;
        let bytes = crash(sample, written, synced, sector_bytes, &mut random);
        let (records, tail) = read(&bytes, synced as u64);
        let tail = tail.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(records == sample.records[..records.len()], "seed {seed}");
        assert!(tail.valid_bytes >= synced as u64, "seed {seed}");
        assert!(records.len() <= last + 1, "seed {seed}");
    }
}

#[test]
fn no_crash_loses_synced_records_or_is_taken_for_damage() {
    for seed in 0..300 {
        crash_and_read(seed, &sample(seed, 60, 200, (1, 5)), 64, 20);
    }
}

#[test]
fn no_crash_within_a_long_record_is_taken_for_damage() {
    for seed in 0..4 {
        let bytes_max = 3 * frame::PAYLOAD_BYTES_MAX as u64;
        crash_and_read(seed, &sample(seed, 6, bytes_max, (1, 3)), 4096, 8);
    }
}

#[test]
fn damage_before_a_mark_is_an_error_and_after_it_never_a_wrong_record() {
    for seed in 0..20 {
        let sample = sample(seed, 30, 120, (1, 3));
        // What the marks in the log prove: the sync before the last append that had a newer one.
        let marked = sample.synced[sample.synced.len() - 2];
        for position in 0..sample.bytes.len() {
            let mut bytes = sample.bytes.clone();
            bytes[position] ^= 1 << (seed % 8);
            let (records, end) = read(&bytes, 0);
            assert_eq!(records, sample.records[..records.len()], "seed {seed} position {position}");
            match end {
                Ok(tail) => {
                    assert!(position as u64 >= marked, "seed {seed} position {position}: {tail:?}");
                    assert!(tail.dropped_bytes > 0 || bytes[position] == 0, "seed {seed} position {position}");
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign), "{error}");
                }
            }
            // Told how far it was synced, the reader finds every flip before that.
            let synced = *sample.synced.last().unwrap();
            let (_, end) = read(&bytes, synced);
            assert_eq!(end.is_err(), (position as u64) < synced, "seed {seed} position {position}");
        }
    }
}

#[test]
fn a_sealed_log_hides_no_flip() {
    let file = MemoryFile::default();
    let mut writer = create(&file);
    for index in 0..20_u8 {
        writer.append(&[&[index; 37]]).unwrap();
    }
    let seal_offset = writer.size_bytes();
    writer.finish().unwrap();
    let good = file.bytes();
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 0x10;
        let (records, end) = read(&bytes, 0);
        if (position as u64) < seal_offset {
            assert!(end.is_err(), "position {position}");
        } else {
            assert_eq!(records.len(), 20);
        }
    }
}

#[test]
fn a_mark_covers_what_was_synced_before_it() {
    let file = MemoryFile::default();
    let mut writer = create(&file);
    for index in 0..5_u8 {
        writer.append(&[&[index; 37]]).unwrap();
        writer.sync().unwrap();
        writer.mark().unwrap();
        writer.mark().unwrap();
    }
    let marked = writer.synced_bytes();
    assert_eq!(writer.size_bytes(), marked + 18, "a mark is written once");
    let good = file.bytes();
    let (records, tail) = read(&good, 0);
    assert_eq!(records.len(), 5);
    assert_eq!(tail.unwrap(), Tail { valid_bytes: marked + 18, dropped_bytes: 0, reason: TailReason::Ended });
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 2;
        let (records, end) = read(&bytes, 0);
        assert_eq!(end.is_err(), (position as u64) < marked, "position {position}");
        assert!(end.is_err() || records.len() == 5);
    }
}

#[test]
fn damage_of_a_fragment_names_the_place() {
    let file = MemoryFile::default();
    let mut writer = create(&file);
    writer.append(&[&vec![7; 3 * frame::PAYLOAD_BYTES_MAX]]).unwrap();
    writer.sync().unwrap();
    writer.append(&[b"marked"]).unwrap();
    let mut bytes = file.bytes();
    let second = HEADER_BYTES + frame::FIXED_BYTES + frame::PAYLOAD_BYTES_MAX;
    bytes[second + 5_000] ^= 1;
    let (records, end) = read(&bytes, 0);
    assert!(records.is_empty());
    match end.unwrap_err() {
        Error::Corruption { file, offset_bytes, .. } => {
            assert_eq!((file.as_str(), offset_bytes), ("000012.log", second as u64));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn headers_of_other_logs_are_refused_and_torn_ones_are_empty_logs() {
    let file = MemoryFile::default();
    let mut writer = create(&file);
    writer.append(&[b"record"]).unwrap();
    let good = file.bytes();
    let open = |bytes: &[u8], purpose, number| {
        LogReader::open(MemoryFile::of(bytes.to_vec()).reader(), "file", purpose, number).map(|_| ())
    };
    assert!(open(&good, Purpose::WriteAhead, 12).is_ok());
    for (purpose, number) in [(Purpose::Manifest, 12), (Purpose::WriteAhead, 13)] {
        let error = open(&good, purpose, number).unwrap_err();
        assert!(matches!(&error, Error::Misplaced { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
    let reader = LogReader::open(file.reader(), "file", Purpose::WriteAhead, 12).unwrap();
    assert!(reader.expect_database(9).is_ok() && reader.expect_salt(HEADER.salt).is_ok());
    for error in [reader.expect_database(10).unwrap_err(), reader.expect_salt(1).unwrap_err()] {
        assert!(matches!(&error, Error::Misplaced { .. }), "{error}");
    }
    for version in [1, 3] {
        let mut other = good.clone();
        other[8] = version;
        let checksum = checksum::crc32c(&other[..60]);
        other[60..64].copy_from_slice(&checksum.to_le_bytes());
        let error = open(&other, Purpose::WriteAhead, 12).unwrap_err();
        assert!(matches!(&error, Error::Foreign { offset_bytes: 8, .. }), "{error}");
    }
    assert_eq!(open(&[b'x'; 500], Purpose::WriteAhead, 12).unwrap_err().kind(), ErrorKind::Foreign);

    for length in 0..HEADER_BYTES {
        for zeros in [0, 4096] {
            let mut torn = good[..length].to_vec();
            torn.resize(length + zeros, 0);
            let (records, tail) = read(&torn, 0);
            assert!(records.is_empty());
            assert_eq!(tail.unwrap().reason, TailReason::NeverBegun);
            assert_eq!(read(&torn, 64).1.unwrap_err().kind(), ErrorKind::Corruption);
        }
    }
}

#[test]
fn after_a_failure_the_writer_refuses() {
    let file = MemoryFile::default();
    let mut writer = create(&file);
    writer.append(&[b"kept"]).unwrap();
    file.limit_space(100);
    assert_eq!(writer.append(&[&[1; 100]]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(writer.append(&[b""]).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::Poisoned);
    let (records, tail) = read(&file.bytes(), 0);
    assert_eq!(records, [b"kept"]);
    assert!(matches!(tail.unwrap().reason, TailReason::Torn { .. }));

    let file = MemoryFile::default();
    let mut writer = create(&file);
    file.fail_sync();
    assert!(writer.sync().is_err());
    assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(writer.synced_bytes(), HEADER_BYTES as u64);
}

#[test]
fn what_a_user_writes_is_never_a_frame() {
    // A value that holds the very bytes of this log, marks included.
    let sample = sample(5, 20, 50, (1, 2));
    let file = MemoryFile::default();
    let mut writer = create(&file);
    writer.append(&[b"first"]).unwrap();
    let torn = writer.append(&[&sample.bytes, &sample.bytes[1..], &sample.bytes]).unwrap() as usize;
    let mut bytes = file.bytes();
    bytes[torn] ^= 1;
    let (records, tail) = read(&bytes, 0);
    assert_eq!(records, [b"first"]);
    assert_eq!(tail.unwrap().valid_bytes, torn as u64);
}
