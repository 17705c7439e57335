//! The contract of byte-addressable memory.

use super::subject::{context, pattern};
use super::{BlockDeviceCheck, Clause, Violation};
use crate::bytes::{ByteAddressable, FlushQueue, MemoryReader};
use crate::device::{BlockDeviceExt, Device};
use crate::error::MediaErrorKind;
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Env, Random};

/// Bytes at the start of the memory that the checks use, at most.
const SPAN_BYTES_MAX: u64 = 1 << 20;
const WORD_BYTES: u64 = 8;

/// Checks the contract of [`ByteAddressable`] on devices that `make` makes: of at least 256 KiB,
/// all zeros, each made anew, and that blocks and bytes are the same bytes. Durability is not in
/// it, as in [`check_block_device`](super::check_block_device).
///
/// # Errors
/// The first clause that is broken; a device without this facet breaks one.
pub fn check_bytes(make: &dyn Fn(&Env) -> Device, options: &BlockDeviceCheck) -> Result<(), Violation> {
    let checks: [fn(&Memory) -> Result<(), Violation>; 7] =
        [description, round_trips, bad_ranges, blocks_and_bytes, reads_in_place, flushes, random_walk];
    for simulated in [false, true] {
        let env = || if simulated { Env::sim(options.seed) } else { Env::real() };
        for check in checks {
            let env = env();
            check(&Memory::new(make(&env), options)?)?;
        }
        let env = env();
        whole_words(&env, &Memory::new(make(&env), options)?)?;
    }
    Ok(())
}

struct Memory {
    device: Device,
    bytes: Arc<dyn ByteAddressable>,
    span: u64,
    seed: u64,
    steps: u32,
}

impl Memory {
    fn new(device: Device, options: &BlockDeviceCheck) -> Result<Self, Violation> {
        let clause = Clause("scope of the suite");
        let Some(bytes) = device.bytes.clone() else {
            return clause.broken("the device has no byte-addressable memory");
        };
        let capacity_bytes = bytes.capacity_bytes();
        clause.require(capacity_bytes >= 256 << 10, || format!("the memory has {capacity_bytes} bytes only"))?;
        let span = capacity_bytes.min(SPAN_BYTES_MAX);
        Ok(Memory { device, bytes, span, seed: options.seed, steps: options.steps })
    }

    fn load(&self, clause: Clause, offset_bytes: u64, length: usize) -> Result<Vec<u8>, Violation> {
        let mut data = vec![0xEE; length];
        clause.succeed(
            &format!("a load of {length} bytes at {offset_bytes}"),
            self.bytes.load(offset_bytes, &mut data),
        )?;
        Ok(data)
    }

    fn store(&self, clause: Clause, offset_bytes: u64, data: &[u8]) -> Result<(), Violation> {
        clause.succeed(
            &format!("a store of {} bytes at {offset_bytes}", data.len()),
            self.bytes.store(offset_bytes, data),
        )
    }

    fn expect(&self, clause: Clause, offset_bytes: u64, expected: &[u8]) -> Result<(), Violation> {
        let found = self.load(clause, offset_bytes, expected.len())?;
        clause.same(&format!("{} bytes at {offset_bytes}", expected.len()), expected, &found)
    }
}

fn description(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("memory describes itself");
    let line = memory.bytes.line_bytes();
    clause.require(line.is_power_of_two() && u64::from(line) >= WORD_BYTES, || format!("lines of {line} bytes"))?;
    let (of_bytes, of_blocks) = (memory.bytes.capacity_bytes(), memory.device.block.geometry().capacity_bytes);
    clause.require(of_bytes == of_blocks, || format!("{of_bytes} bytes of memory, {of_blocks} bytes of blocks"))?;
    memory.expect(clause, 0, &[0; 4096])?;
    let persistence = memory.bytes.persistence();
    memory.store(clause, 0, &[1])?;
    clause.require(memory.bytes.persistence() == persistence, || "what a fence buys changed".to_owned())
}

fn round_trips(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("loads what was stored");
    let line = u64::from(memory.bytes.line_bytes());
    for at in (0..2 * WORD_BYTES).chain([line - 1, line, 4095, memory.bytes.capacity_bytes() - 300]) {
        for length in (0..20).chain([line as usize, 300]) {
            let around = (at.saturating_sub(20), at + length as u64);
            let before = memory.load(clause, around.0, (at - around.0) as usize)?;
            let after_bytes = (memory.bytes.capacity_bytes() - around.1).min(20) as usize;
            let after = memory.load(clause, around.1, after_bytes)?;
            let data = pattern(at + length as u64, length);
            memory.store(clause, at, &data)?;
            memory.expect(clause, at, &data)?;
            memory.expect(clause, around.0, &before)?;
            memory.expect(clause, around.1, &after)?;
        }
    }
    Ok(())
}

fn bad_ranges(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("refuses ranges beyond the memory and changes nothing");
    let capacity_bytes = memory.bytes.capacity_bytes();
    let tail = pattern(1, 64);
    memory.store(clause, capacity_bytes - 64, &tail)?;
    for at in [capacity_bytes, capacity_bytes - 7, u64::MAX, u64::MAX - 7] {
        let kind = MediaErrorKind::InvalidRequest;
        let mut queue = FlushQueue::default();
        clause.fail(&format!("a load at {at}"), kind, memory.bytes.load(at, &mut [0; 8]))?;
        clause.fail(&format!("a store at {at}"), kind, memory.bytes.store(at, &[0xBB; 8]))?;
        let range = at..at.saturating_add(8);
        let is_empty = range.is_empty() || range.end - range.start < 8;
        if !is_empty {
            clause.fail(&format!("a flush at {at}"), kind, memory.bytes.flush(range.clone(), &mut queue))?;
        }
        // SAFETY: nothing changes the memory meanwhile.
        let read = unsafe { MemoryReader::new(&memory.bytes).read(range, <[u8]>::len) };
        if !is_empty {
            clause.fail(&format!("a read in place at {at}"), kind, read)?;
        }
    }
    let backwards = Range { start: 64, end: 8 };
    // SAFETY: as above.
    let read = unsafe { MemoryReader::new(&memory.bytes).read(backwards, <[u8]>::len) };
    clause.fail("a read of a range that ends before it begins", MediaErrorKind::InvalidRequest, read)?;
    memory.expect(clause, capacity_bytes - 64, &tail)
}

fn blocks_and_bytes(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("blocks and bytes are the same");
    let block = &*memory.device.block;
    let sector = block.geometry().sector_bytes as usize;
    let stored = pattern(1, 3 * sector);
    memory.store(clause, sector as u64, &stored)?;
    let mut read = vec![0; 3 * sector];
    clause.succeed("a read of blocks", block.read_at(sector as u64, &mut read, &context()))?;
    clause.same("blocks that were stored to", &stored, &read)?;
    let written = pattern(2, sector);
    clause.succeed("a write of a block", block.write_at(2 * sector as u64, &written, &context()))?;
    let mut expected = stored.clone();
    expected[sector..2 * sector].copy_from_slice(&written);
    memory.expect(clause, sector as u64, &expected)?;
    clause.succeed("a discard of a block", block.discard_at(sector as u64, sector as u64, &context()))?;
    expected[..sector].fill(0);
    memory.expect(clause, sector as u64, &expected)
}

fn reads_in_place(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("reads in place");
    let reader = MemoryReader::new(&memory.bytes);
    let data = pattern(3, 5000);
    memory.store(clause, 100, &data)?;
    for range in [100..5100, 100..100, 163..165, 4000..5100, 0..1] {
        // SAFETY: nothing changes the memory meanwhile.
        let read = unsafe { reader.read(range.clone(), <[u8]>::to_vec) };
        let read = clause.succeed(&format!("a read of {range:?}"), read)?;
        let expected = memory.load(clause, range.start, (range.end - range.start) as usize)?;
        clause.same(&format!("{range:?} in place"), &expected, &read)?;
    }
    if !reader.is_in_place() {
        return Ok(());
    }
    let line = u64::from(memory.bytes.line_bytes());
    let before = memory.bytes.counters();
    // SAFETY: as above.
    let read = unsafe { reader.read(line - 1..2 * line + 1, <[u8]>::len) };
    clause.succeed("a read of three lines", read)?;
    memory.load(clause, 0, line as usize)?;
    memory.store(clause, line / 2, &vec![1; line as usize])?;
    let mut queue = FlushQueue::default();
    clause.succeed("a flush", memory.bytes.flush(line - 1..line + 1, &mut queue))?;
    clause.succeed("a fence", memory.bytes.fence(&mut queue))?;
    let after = memory.bytes.counters();
    for (what, found, expected) in [
        ("loads", after.loads - before.loads, 2),
        ("loaded lines", after.loaded_lines - before.loaded_lines, 4),
        ("loaded bytes", after.loaded_bytes - before.loaded_bytes, 2 * line + 2),
        ("stores", after.stores - before.stores, 1),
        ("stored lines", after.stored_lines - before.stored_lines, 2),
        ("stored bytes", after.stored_bytes - before.stored_bytes, line),
        ("flushed lines", after.flushed_lines - before.flushed_lines, 2),
        ("fences", after.fences - before.fences, 1),
    ] {
        clause.require(found == expected, || format!("{what}: expected {expected}, found {found}"))?;
    }
    clause.require(memory.device.block.counters().memory == after, || {
        "the counters of the device do not have those of its memory".to_owned()
    })
}

fn flushes(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("a fence empties its queue and no other");
    let (mut one, mut other) = (FlushQueue::default(), FlushQueue::default());
    clause.succeed("a fence of an empty queue", memory.bytes.fence(&mut one))?;
    memory.store(clause, 10, &[1; 200])?;
    clause.succeed("a flush", memory.bytes.flush(10..210, &mut one))?;
    clause.succeed("a flush into another queue", memory.bytes.flush(0..64, &mut other))?;
    clause.succeed("a flush of nothing", memory.bytes.flush(0..0, &mut one))?;
    clause.succeed("a fence", memory.bytes.fence(&mut one))?;
    clause.require(one.is_empty(), || "a queue is not empty after its fence".to_owned())?;
    clause.succeed("the other fence", memory.bytes.fence(&mut other))?;
    clause.require(other.is_empty(), || "the other queue is not empty after its fence".to_owned())?;
    memory.expect(clause, 10, &[1; 200])
}

fn random_walk(memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("behaves like an array of bytes");
    let mut random = Random::named(memory.seed, "bytes");
    let block = &*memory.device.block;
    let sector = u64::from(block.geometry().sector_bytes);
    let mut model = vec![0; memory.span as usize];
    let mut queue = FlushQueue::default();
    for step in 0..memory.steps {
        let start = random.below(memory.span);
        let length = random.below((memory.span - start).min(9000) + 1);
        let (start, end) = (start, start + length);
        let (first, last) =
            (start / sector * sector, (end.next_multiple_of(sector)).min(memory.span / sector * sector));
        let what = |text: &str| format!("seed {}, step {step}: {text}", memory.seed);
        match random.below(8) {
            0 if first < last => {
                model[first as usize..last as usize].fill(0);
                clause.succeed(&what("a discard"), block.discard_at(first, last - first, &context()))?;
            }
            1 if first < last => {
                let place = first as usize..last as usize;
                random.fill_bytes(&mut model[place.clone()]);
                clause.succeed(&what("a write"), block.write_at(first, &model[place], &context()))?;
            }
            0..=4 => {
                let place = start as usize..end as usize;
                random.fill_bytes(&mut model[place.clone()]);
                memory.store(clause, start, &model[place])?;
            }
            5 => clause.succeed(&what("a flush"), memory.bytes.flush(start..end, &mut queue))?,
            6 => clause.succeed(&what("a fence"), memory.bytes.fence(&mut queue))?,
            _ => {
                let found = memory.load(clause, start, length as usize)?;
                clause.same(&what("a load"), &model[start as usize..end as usize], &found)?;
            }
        }
    }
    memory.expect(clause, 0, &model)
}

/// Threads that store to the same words, each its own number.
fn whole_words(env: &Env, memory: &Memory) -> Result<(), Violation> {
    let clause = Clause("an aligned word is never torn");
    const THREADS: u8 = 4;
    const WORDS: usize = 16;
    let handles: Vec<_> = (1..=THREADS)
        .map(|number| {
            let bytes = memory.bytes.clone();
            env.spawn("conformance", move || {
                for _ in 0..200 {
                    clause.succeed("a store", bytes.store(0, &[number; WORDS * WORD_BYTES as usize]))?;
                    let mut found = [0; WORDS * WORD_BYTES as usize];
                    clause.succeed("a load", bytes.load(0, &mut found))?;
                    let torn = found.chunks(WORD_BYTES as usize).find(|word| word.iter().any(|byte| byte != &word[0]));
                    clause.require(torn.is_none(), || format!("found the word {torn:x?}"))?;
                }
                Ok(())
            })
        })
        .collect();
    let mut result = Ok(());
    for handle in handles {
        let outcome = handle.join().unwrap_or_else(|_| clause.broken("a thread panicked"));
        result = result.and(outcome);
    }
    result
}
