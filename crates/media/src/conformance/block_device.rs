//! The contract of block devices.

use super::subject::{Subject, context, pattern};
use super::tracks::{self, Change};
use super::{Clause, Violation, protection};
use crate::buffer::AlignedBuffer;
use crate::context::{IoClass, IoContext};
use crate::device::{BlockDeviceExt, Device};
use crate::error::{MediaError, MediaErrorKind};
use crate::request::{Request, Transfer};
use std::io::{IoSlice, IoSliceMut};
use varve_env::{Env, Random};

/// How to check a block device.
#[derive(Clone, Copy, Debug)]
pub struct BlockDeviceCheck {
    /// Where random choices come from.
    pub seed: u64,
    /// Steps of the random walk against a model.
    pub steps: u32,
    /// Application tags are kept with their data, and escapes. An array without all of its members computes data and not what
    /// the caller put beside them.
    pub keeps_application_tags: bool,
}

impl Default for BlockDeviceCheck {
    fn default() -> Self {
        BlockDeviceCheck { seed: 1, steps: 300, keeps_application_tags: true }
    }
}

/// Checks the contract of [`BlockDevice`](crate::BlockDevice) on devices that `make` makes: empty, at least 256 KiB, any
/// sector writable at any time, and each made anew. A device with interlaced tracks, at least five of
/// 64 KiB, is checked for what they add ([`TrackControl`](crate::TrackControl)) too: everywhere what
/// its writes destroyed must be unreadable, and nothing else. A strict one refuses what most checks
/// do all over a device, so they keep to its first and last track. The tuples of a device with
/// protection information are checked too.
///
/// # Errors
/// The first clause that is broken.
pub fn check_block_device(make: &dyn Fn(&Env) -> Device, options: &BlockDeviceCheck) -> Result<(), Violation> {
    for simulated in [false, true] {
        let env = || env_of(simulated, options);
        let checks: [Check; 9] =
            [description, zeros_at_first, round_trips, vectors, bad_requests, batches, discards, counters, random_walk];
        let of_tags = protection::TAG_CHECKS.into_iter().filter(|_| options.keeps_application_tags);
        for check in tracks::CHECKS.into_iter().chain(checks).chain(protection::CHECKS).chain(of_tags) {
            let env = env();
            check(&Subject::new(make(&env), options)?)?;
        }
        let env = env();
        several_threads(&env, &make(&env), options)?;
    }
    let hash = || {
        let env = Env::sim(options.seed);
        several_threads(&env, &make(&env), options).map(|()| env.event_hash())
    };
    let (first, second) = (hash()?, hash()?);
    Clause("repeats by seed").require(first == second, || {
        format!("the same simulation ended with the event hash {first:#x} and then with {second:#x}")
    })
}

fn env_of(simulated: bool, options: &BlockDeviceCheck) -> Env {
    if simulated { Env::sim(options.seed) } else { Env::real() }
}

pub(super) type Check = fn(&Subject) -> Result<(), Violation>;

fn description(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("describes itself");
    let block = subject.block();
    let (geometry, capabilities) = (block.geometry().clone(), block.capabilities().clone());
    clause.require(!block.name().is_empty(), || "the name is empty".to_owned())?;
    clause.require(geometry.sector_bytes.is_power_of_two(), || {
        format!("the sector of {} bytes is no power of two", geometry.sector_bytes)
    })?;
    clause.require(
        geometry.physical_sector_bytes >= geometry.sector_bytes
            && geometry.physical_sector_bytes.is_multiple_of(geometry.sector_bytes),
        || format!("physical sectors are not whole sectors: {geometry:?}"),
    )?;
    clause.require(geometry.capacity_bytes.is_multiple_of(subject.sector), || {
        format!("the capacity is not whole sectors: {geometry:?}")
    })?;
    clause.require(capabilities.queue_depth > 0, || "the queue depth is 0".to_owned())?;
    clause.require(capabilities.buffer_alignment_bytes.is_power_of_two(), || {
        format!("the buffer alignment of {} is no power of two", capabilities.buffer_alignment_bytes)
    })?;
    let facets = (subject.device.zones.is_some(), subject.device.tracks.is_some());
    clause.require(facets == (capabilities.zones.is_some(), capabilities.tracks.is_some()), || {
        format!("facets (zones, tracks) are {facets:?}, the capabilities say otherwise: {capabilities:?}")
    })?;
    subject.write(clause, 0, &pattern(1, subject.sector as usize))?;
    clause.require(*block.geometry() == geometry && *block.capabilities() == capabilities, || {
        "the description changed while the device was open".to_owned()
    })
}

fn zeros_at_first(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("reads zeros at first");
    let length = 16 * subject.sector;
    for at in [0, subject.span / 2 / subject.sector * subject.sector, subject.capacity() - length] {
        subject.expect(clause, at, &vec![0; length as usize])?;
    }
    subject.write(clause, length, &pattern(1, length as usize))?;
    subject.expect(clause, 0, &vec![0; length as usize])?;
    subject.expect(clause, 2 * length, &vec![0; length as usize])
}

fn round_trips(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("reads what was written");
    let mut length = subject.sector;
    while length <= subject.span / 2 {
        for at in [0, subject.sector, subject.span / 2 / subject.sector * subject.sector, subject.capacity() - length] {
            let data = pattern(length ^ at, length as usize);
            subject.write(clause, at, &data)?;
            subject.expect(clause, at, &data)?;
            if length > subject.sector {
                let part = subject.sector as usize;
                subject.expect(clause, at + subject.sector, &data[part..2 * part])?;
            }
        }
        length = (length * 3).next_multiple_of(subject.sector);
    }
    let data = pattern(9, subject.sector as usize);
    let buffer = subject.buffer(&data);
    let slices = [IoSlice::new(&buffer)];
    let request = Request::write_durable(0, &slices);
    clause.succeed("a durable write", subject.block().execute(&mut [request], &context()))?;
    subject.done(&[Change { range: 0..subject.sector, is_write: true }]);
    subject.expect(clause, 0, &data)?;
    clause.succeed("a sync", subject.block().sync(&context()))?;
    subject.expect(clause, 0, &data)
}

fn vectors(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("takes buffers in pieces");
    let mut random = Random::named(subject.seed, "vectors");
    for step in 0..30 {
        let length = (1 + random.below(40)) * subject.sector;
        let at = random.below((subject.span - length) / subject.sector + 1) * subject.sector;
        let data = subject.buffer(&pattern(step, length as usize));
        let cuts = subject.cuts(&mut random, data.len());
        let slices: Vec<IoSlice<'_>> = cuts.windows(2).map(|cut| IoSlice::new(&data[cut[0]..cut[1]])).collect();
        let result = subject.block().execute(&mut [Request::write(at, &slices)], &context());
        clause.succeed(&format!("a write of {} pieces", slices.len()), result)?;
        subject.done(&[Change { range: at..at + length, is_write: true }]);
        subject.expect(clause, at, &data)?;
        if subject.parts(at..at + length).len() > 1 {
            continue;
        }

        let mut found = subject.buffer(&vec![0xEE; data.len()]);
        let mut slices = Vec::new();
        let mut rest = &mut found[..];
        for cut in subject.cuts(&mut random, data.len()).windows(2) {
            let (head, tail) = rest.split_at_mut(cut[1] - cut[0]);
            slices.push(IoSliceMut::new(head));
            rest = tail;
        }
        let result = subject.block().execute(&mut [Request::read(at, &mut slices)], &context());
        clause.succeed("a read in pieces", result)?;
        clause.same("a read in pieces", &data, &found)?;
    }
    Ok(())
}

fn bad_requests(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("refuses bad requests and changes nothing");
    let (sector, capacity) = (subject.sector, subject.capacity());
    let ends = 8 * sector;
    let (head, tail) = (pattern(1, ends as usize), pattern(2, ends as usize));
    subject.write(clause, 0, &head)?;
    subject.write(clause, capacity - ends, &tail)?;
    let (one, two) = (sector as usize, 2 * sector as usize);
    let mut places = vec![(capacity, one), (capacity - sector, two), (u64::MAX / sector * sector, one)];
    if sector > 1 {
        places.extend([(1, one), (sector / 2, two), (0, one / 2), (sector, two - 1)]);
    }
    for (at, length) in places {
        let what = |name: &str| format!("a {name} of {length} bytes at {at}");
        let mut data = subject.buffer(&vec![0xBB; length]);
        let kind = MediaErrorKind::InvalidRequest;
        clause.fail(&what("write"), kind, subject.block().write_at(at, &data, &context()))?;
        clause.fail(&what("read"), kind, subject.block().read_at(at, &mut data, &context()))?;
        clause.fail(&what("discard"), kind, subject.block().discard_at(at, length as u64, &context()))?;
    }
    // A length no device has.
    let huge = u64::MAX / sector * sector;
    clause.fail(
        "a huge discard",
        MediaErrorKind::InvalidRequest,
        subject.block().discard_at(sector, huge, &context()),
    )?;
    if subject.block().capabilities().protection.is_none() {
        let data = subject.buffer(&vec![0xBB; one]);
        let slices = [IoSlice::new(&data)];
        let tuples = vec![0; 8 * one];
        let mut request = Request::write(0, &slices);
        if let Transfer::Write { protection, .. } = &mut request.transfer {
            *protection = Some(&tuples);
        }
        let result = subject.block().execute(&mut [request], &context());
        clause.fail("a write with protection the device does not keep", MediaErrorKind::InvalidRequest, result)?;
    }
    clause.succeed("a batch of nothing", subject.block().execute(&mut [], &context()))?;
    // A request of no bytes may be refused or not; it must change nothing.
    let _ = subject.block().execute(&mut [Request::write(0, &[]), Request::discard(sector, 0)], &context());
    subject.expect(clause, 0, &head)?;
    subject.expect(clause, capacity - ends, &tail)
}

fn batches(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("does every request of a batch");
    let (sector, one) = (subject.sector, subject.sector as usize);
    let data: Vec<AlignedBuffer> = (0..60).map(|salt| subject.buffer(&pattern(salt, 2 * one))).collect();
    let slices: Vec<[IoSlice<'_>; 1]> = data.iter().map(|data| [IoSlice::new(data)]).collect();
    let place = |index: usize| (index as u64 * 7 % 60) * 2 * sector;
    let mut batch: Vec<Request<'_>> =
        slices.iter().enumerate().map(|(index, slices)| Request::write(place(index), slices)).collect();
    // What an outcome was before means nothing.
    let stale = MediaError::Unreadable { device: "stale".to_owned(), offset_bytes: 0 };
    batch[3].outcome = Err(stale.clone());
    clause.succeed("a batch of writes", subject.block().execute(&mut batch, &context()))?;
    let change = |at, sectors, is_write| Change { range: at..at + sectors * sector, is_write };
    subject.done(&(0..60).map(|index| change(place(index), 2, true)).collect::<Vec<_>>());
    for (index, request) in batch.iter().enumerate() {
        clause.require(request.outcome.is_ok(), || format!("request {index} ended with {:?}", request.outcome))?;
        subject.expect(clause, place(index), &data[index])?;
    }

    // Bad ones among good ones: each has its own outcome, the first bad one is the result.
    let [four, five] = [4, 5].map(|index| vec![IoSlice::new(&data[index])]);
    let mut target = subject.buffer(&vec![0xEE; 2 * one]);
    let mut into = [IoSliceMut::new(&mut target)];
    let outside = subject.capacity();
    let zeros = subject.buffer(&vec![0; 2 * one]);
    let zeros = [IoSlice::new(&zeros)];
    let mut batch = [
        Request::write(0, &four),
        Request::write(outside, &four),
        Request::write(4 * sector, &five),
        Request::read(outside + 8 * sector, &mut into),
        match subject.takes_discards() {
            true => Request::discard(8 * sector, 2 * sector),
            false => Request::write(8 * sector, &zeros),
        },
    ];
    let result = subject.block().execute(&mut batch, &context());
    let outcomes: Vec<bool> = batch.iter().map(|request| request.outcome.is_ok()).collect();
    clause.require(outcomes == [true, false, true, false, true], || {
        format!("of a good, a bad, a good, a bad and a good request these were done: {outcomes:?}")
    })?;
    match result {
        Err(MediaError::OutOfRange { offset_bytes, .. }) if offset_bytes == outside => {}
        other => return clause.broken(format!("the result is not the first error of the batch: {other:?}")),
    }
    subject.done(&[change(0, 2, true), change(4 * sector, 2, true), change(8 * sector, 2, false)]);
    subject.expect(clause, 0, &data[4])?;
    subject.expect(clause, 4 * sector, &data[5])?;
    subject.expect(clause, 8 * sector, &vec![0; 2 * one])?;

    // Overlapping ones: each sector is what one of them wrote.
    let long = [1, 2].map(|salt| subject.buffer(&pattern(salt + 100, 4 * one)));
    let [first, second] = [0, 1].map(|index| [IoSlice::new(&long[index])]);
    let mut batch = [Request::write(0, &first), Request::write(sector, &second)];
    clause.succeed("overlapping writes", subject.block().execute(&mut batch, &context()))?;
    subject.done(&[change(0, 4, true), change(sector, 4, true)]);
    let found = subject.read(clause, 0, 5 * one)?;
    for (index, sector) in found.chunks(one).enumerate() {
        let by_first = long[0].chunks(one).nth(index) == Some(sector);
        let by_second = index > 0 && long[1].chunks(one).nth(index - 1) == Some(sector);
        clause.require(by_first || by_second, || format!("sector {index} is of neither of two overlapping writes"))?;
    }
    Ok(())
}

fn discards(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("discarded sectors read as zeros");
    let sector = subject.sector;
    let length = subject.span / 2 / sector * sector;
    let mut model = pattern(5, length as usize);
    subject.write(clause, 0, &model)?;
    let mut random = Random::named(subject.seed, "discards");
    for _ in 0..12 {
        let first = random.below(length / sector) * sector;
        let count = (1 + random.below(200)).min((length - first) / sector) * sector;
        subject.discard(clause, first, count)?;
        model[first as usize..(first + count) as usize].fill(0);
        subject.expect(clause, 0, &model)?;
    }
    let data = pattern(6, sector as usize);
    subject.write(clause, sector, &data)?;
    model[sector as usize..2 * sector as usize].copy_from_slice(&data);
    subject.expect(clause, 0, &model)?;
    subject.discard(clause, 0, subject.span)?;
    subject.expect(clause, 0, &vec![0; length as usize])
}

fn counters(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("counts what it did");
    let before = subject.block().counters();
    let data = subject.buffer(&pattern(1, 3 * subject.sector as usize));
    let log = IoContext::of(IoClass::Log).at_level(3);
    clause.succeed("a write", subject.block().write_at(0, &data, &log))?;
    subject.done(&[Change { range: 0..data.len() as u64, is_write: true }]);
    subject.write(clause, 0, &data)?;
    let mut found = subject.buffer(&data[..subject.sector as usize]);
    clause.succeed("a read", subject.block().read_at(0, &mut found, &IoContext::of(IoClass::UserRead)))?;
    if subject.takes_discards() {
        subject.discard(clause, 0, subject.sector)?;
    }
    clause.succeed("a sync", subject.block().sync(&log))?;
    let refused = subject.block().write_at(subject.capacity(), &data, &log);
    clause.fail("a write behind the end", MediaErrorKind::InvalidRequest, refused)?;
    let after = subject.block().counters();
    let by_class = |counters: &crate::Counters, class: IoClass| counters.written_bytes_by_class[class.index()];
    let length = data.len() as u64;
    // A layer may read what it needs to know; it writes nothing of its own here.
    let exact = [
        ("writes", after.writes - before.writes, 2),
        ("written bytes", after.written_bytes - before.written_bytes, 2 * length),
        ("bytes of the log", by_class(&after, IoClass::Log) - by_class(&before, IoClass::Log), length),
        ("bytes of the check", by_class(&after, IoClass::Check) - by_class(&before, IoClass::Check), length),
        ("bytes of level 3", after.written_bytes_by_level[3] - before.written_bytes_by_level[3], length),
        ("discards", after.discards - before.discards, u64::from(subject.takes_discards())),
        ("syncs", after.syncs - before.syncs, 1),
        ("errors", after.errors - before.errors, 1),
    ];
    for (what, found, expected) in exact {
        clause.require(found == expected, || format!("{what}: expected {expected}, found {found}"))?;
    }
    let user = IoClass::UserRead.index();
    let least = [
        ("reads", after.reads - before.reads, 1),
        ("read bytes", after.read_bytes - before.read_bytes, subject.sector),
        ("user reads", after.reads_by_class[user] - before.reads_by_class[user], 1),
        ("user read bytes", after.read_bytes_by_class[user] - before.read_bytes_by_class[user], subject.sector),
    ];
    for (what, found, expected) in least {
        clause.require(found >= expected, || format!("{what}: expected at least {expected}, found {found}"))?;
    }
    Ok(())
}

/// Random batches against a plain array.
fn random_walk(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("behaves like an array of sectors");
    let mut random = Random::named(subject.seed, "random walk");
    let sectors = (subject.span / subject.sector).min(256);
    let sector = subject.sector as usize;
    let mut model = vec![0; sectors as usize * sector];
    for step in 0..subject.steps {
        // Requests of a batch do not overlap: the places are dealt out in order.
        let mut next = random.below(4);
        let mut writes = Vec::new();
        let mut discards = Vec::new();
        while next < sectors {
            let count = (1 + random.below(12)).min(sectors - next);
            let at = next as usize * sector..(next + count) as usize * sector;
            match random.below(4) {
                0 => {}
                1 => {
                    model[at.clone()].fill(0);
                    discards.push(at);
                }
                _ => {
                    random.fill_bytes(&mut model[at.clone()]);
                    writes.push((at.start as u64, subject.buffer(&model[at])));
                }
            }
            next += count + random.below(sectors);
        }
        let slices: Vec<[IoSlice<'_>; 1]> = writes.iter().map(|(_, data)| [IoSlice::new(data)]).collect();
        let mut batch: Vec<Request<'_>> =
            writes.iter().zip(&slices).map(|((at, _), slices)| Request::write(*at, slices)).collect();
        let zeros = subject.buffer(&vec![0; 12 * sector]);
        let zeros: Vec<[IoSlice<'_>; 1]> = discards.iter().map(|at| [IoSlice::new(&zeros[..at.len()])]).collect();
        batch.extend(discards.iter().zip(&zeros).map(|(at, zeros)| match subject.takes_discards() {
            true => Request::discard(at.start as u64, at.len() as u64),
            false => Request::write(at.start as u64, zeros),
        }));
        random.shuffle(&mut batch);
        clause.succeed(&format!("the batch of step {step}"), subject.block().execute(&mut batch, &context()))?;
        let changes = batch.iter().map(|request| Change {
            range: request.offset_bytes..request.offset_bytes + request.length_bytes(),
            is_write: matches!(request.transfer, Transfer::Write { .. }),
        });
        subject.done(&changes.collect::<Vec<_>>());
        if random.chance(1, 10) {
            clause.succeed("a sync", subject.block().sync(&context()))?;
        }
        let first = random.below(sectors);
        let count = (1 + random.below(32)).min(sectors - first);
        let at = first as usize * sector..(first + count) as usize * sector;
        subject.expect(clause, at.start as u64, &model[at]).map_err(|broken| Violation {
            detail: format!("seed {} step {step}: {}", subject.seed, broken.detail),
            ..broken
        })?;
    }
    subject.expect(clause, 0, &model)
}

/// Threads with sectors of their own, and all of them in turn on shared ones.
fn several_threads(env: &Env, device: &Device, options: &BlockDeviceCheck) -> Result<(), Violation> {
    let clause = Clause("serves several threads");
    const THREADS: u64 = 4;
    let handles: Vec<_> = (0..THREADS)
        .map(|number| {
            let (device, options) = (device.clone(), *options);
            env.spawn("conformance", move || {
                let subject = Subject::new(device, &options)?;
                let sector = subject.sector as usize;
                let mut random = Random::named(options.seed, &format!("thread {number}"));
                for round in 0..25u64 {
                    let own = subject.place(8 + (random.below(20) * THREADS + number) * 2);
                    let shared = subject.place(0);
                    let data = pattern(round * THREADS + number, 2 * sector);
                    subject.write(clause, own, &data)?;
                    if random.chance(1, 4) {
                        clause.succeed("a sync", subject.block().sync(&context()))?;
                    }
                    subject.expect(clause, own, &data)?;
                    // The shared sectors: each whole, of whichever writer.
                    subject.write(clause, shared, &vec![number as u8 + 1; 8 * sector])?;
                    let found = subject.read(clause, shared, 8 * sector)?;
                    for (index, bytes) in found.chunks(sector).enumerate() {
                        let whole = bytes.iter().all(|&byte| byte == bytes[0]);
                        clause.require(whole && (1..=THREADS as u8).contains(&bytes[0]), || {
                            format!("shared sector {index} is no whole write of any thread")
                        })?;
                    }
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
