//! Clauses of devices that keep protection information.

use super::block_device::Check;
use super::subject::{Subject, context, pattern};
use super::tracks::Change;
use super::{Clause, Violation};
use crate::device::BlockDeviceExt;
use crate::error::{MediaError, MediaErrorKind};
use crate::protection::{ProtectionFormat, ProtectionTuple, ProtectionType};
use crate::request::{Request, Transfer};
use std::io::IoSlice;
use varve_env::Random;

/// Checks of tuples. They skip devices without protection information, and devices with interlaced tracks.
pub(super) const CHECKS: [Check; 1] = [generates_tuples];
/// Checks that also compare application tags.
pub(super) const TAG_CHECKS: [Check; 3] = [keeps_tuples, refuses_wrong_tuples, random_walk_of_tuples];

fn format_of(subject: &Subject) -> Option<ProtectionFormat> {
    let capabilities = subject.block().capabilities();
    capabilities.protection.filter(|_| capabilities.tracks.is_none())
}

fn generated(format: &ProtectionFormat, at: u64, application_tag: u16, data: &[u8]) -> Vec<u8> {
    let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
    format.generate(at, application_tag, [data], &mut tuples);
    tuples
}

fn write(subject: &Subject, at: u64, data: &[u8], tuples: &[u8]) -> Result<(), MediaError> {
    let written = subject.block().write_protected_at(at, &subject.buffer(data), tuples, &context());
    if written.is_ok() {
        subject.done(&[Change { range: at..at + data.len() as u64, is_write: true }]);
    }
    written
}

/// Reads data and tuples of a range, and checks that they fit each other.
fn read(
    subject: &Subject,
    clause: Clause,
    format: &ProtectionFormat,
    at: u64,
    length: usize,
) -> Result<(Vec<u8>, Vec<u8>), Violation> {
    let mut data = subject.buffer(&vec![0xEE; length]);
    let mut tuples = vec![0xEE; format.tuples_bytes(length as u64) as usize];
    let result = subject.block().read_protected_at(at, &mut data, &mut tuples, &context());
    clause.succeed(&format!("a read of {length} bytes at {at} with tuples"), result)?;
    let verified = format.verify(at, None, [&data[..]], &tuples);
    clause.require(verified.is_ok(), || format!("a read gave tuples that do not fit its data: {verified:?}"))?;
    Ok((data.to_vec(), tuples))
}

fn keeps_tuples(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("keeps tuples with their data");
    let Some(format) = format_of(subject) else { return Ok(()) };
    clause.require(subject.sector.is_multiple_of(u64::from(format.interval_bytes.max(1))), || {
        format!("intervals of {} bytes do not divide sectors of {}", format.interval_bytes, subject.sector)
    })?;
    let length = 24 * subject.sector as usize;
    for (salt, at) in (0..).zip([0, subject.sector, subject.span / 2 / subject.sector * subject.sector]) {
        let data = pattern(salt, length);
        let tuples = generated(&format, at, 0x1234, &data);
        clause.succeed("a write with tuples", write(subject, at, &data, &tuples))?;
        let (found, found_tuples) = read(subject, clause, &format, at, length)?;
        clause.same("data written with tuples", &data, &found)?;
        clause.same("tuples", &tuples, &found_tuples)?;
        // A read without tuples.
        subject.expect(clause, at, &data)?;
    }
    // Escapes are kept too.
    let unchecked = vec![0xFF; format.tuples_bytes(subject.sector) as usize];
    let data = pattern(9, subject.sector as usize);
    clause.succeed("a write with escapes", write(subject, 0, &data, &unchecked))?;
    let (found, found_tuples) = read(subject, clause, &format, 0, data.len())?;
    clause.same("data written with escapes", &data, &found)?;
    clause.same("escapes", &unchecked, &found_tuples)
}

fn generates_tuples(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("generates missing tuples");
    let Some(format) = format_of(subject) else { return Ok(()) };
    let length = 8 * subject.sector as usize;
    let (found, _) = read(subject, clause, &format, 0, length)?;
    clause.same("sectors never written", &vec![0; length], &found)?;
    let data = pattern(2, length);
    subject.write(clause, 0, &data)?;
    let (found, tuples) = read(subject, clause, &format, 0, length)?;
    clause.same("data written without tuples", &data, &found)?;
    for bytes in tuples.as_chunks::<{ ProtectionTuple::BYTES }>().0 {
        let tuple = ProtectionTuple::decode(*bytes);
        clause.require(!tuple.is_escape(format.protection_type), || {
            format!("the tuple of data written without tuples is an escape: {tuple:?}")
        })?;
    }
    subject.discard(clause, subject.sector, subject.sector)?;
    let (found, _) = read(subject, clause, &format, subject.sector, subject.sector as usize)?;
    clause.same("a discarded sector", &vec![0; subject.sector as usize], &found)
}

fn refuses_wrong_tuples(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("refuses wrong tuples and changes nothing");
    let Some(format) = format_of(subject) else { return Ok(()) };
    let length = 8 * subject.sector as usize;
    let (old, new) = (pattern(1, length), pattern(2, length));
    let tuples = generated(&format, 0, 1, &old);
    clause.succeed("a write with tuples", write(subject, 0, &old, &tuples))?;
    let good = generated(&format, 0, 2, &new);
    let last = good.len() - ProtectionTuple::BYTES;
    let with_flip = |byte: usize| {
        let mut wrong = good.clone();
        wrong[last + byte] ^= 0x20;
        wrong
    };
    let kind = MediaErrorKind::Protection;
    clause.fail("a write with a wrong guard tag", kind, write(subject, 0, &new, &with_flip(1)))?;
    if format.protection_type != ProtectionType::Type3 {
        clause.fail("a write with a wrong reference tag", kind, write(subject, 0, &new, &with_flip(5)))?;
        clause.fail(
            "a write of tuples that belong elsewhere",
            kind,
            write(subject, 16 * subject.sector, &new, &good),
        )?;
    }
    let kind = MediaErrorKind::InvalidRequest;
    clause.fail("a write with too few tuples", kind, write(subject, 0, &new, &good[..last]))?;
    let mut data = subject.buffer(&vec![0; length]);
    let too_few = subject.block().read_protected_at(0, &mut data, &mut vec![0; last], &context());
    clause.fail("a read with room for too few tuples", kind, too_few)?;

    // A batch with a wrong and a good write: the good one is done.
    let buffers = [subject.buffer(&new), subject.buffer(&new)];
    let slices = [[IoSlice::new(&buffers[0])], [IoSlice::new(&buffers[1])]];
    let place = 32 * subject.sector;
    let (wrong, right) = (with_flip(1), generated(&format, place, 2, &new));
    let request = |at, index: usize, tuples| {
        let transfer = Transfer::Write { data: &slices[index], protection: Some(tuples), durable: false };
        Request { offset_bytes: at, transfer, outcome: Ok(()) }
    };
    let mut batch = [request(0, 0, &wrong), request(place, 1, &right)];
    let result = subject.block().execute(&mut batch, &context());
    clause.fail("a batch with a wrong tuple", MediaErrorKind::Protection, result)?;
    clause.require(batch[0].outcome.is_err() && batch[1].outcome.is_ok(), || {
        format!("of a wrong and a good write: {:?}, {:?}", batch[0].outcome, batch[1].outcome)
    })?;
    subject.done(&[Change { range: place..place + length as u64, is_write: true }]);
    clause.same("a write next to a refused one", &new, &read(subject, clause, &format, place, length)?.0)?;

    let (found, found_tuples) = read(subject, clause, &format, 0, length)?;
    clause.same("data after refused writes", &old, &found)?;
    clause.same("tuples after refused writes", &tuples, &found_tuples)
}

/// Compares random writes, with tuples and without, and discards with a model: the data and the application tag of each
/// sector.
fn random_walk_of_tuples(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("behaves like an array of protected sectors");
    let Some(format) = format_of(subject) else { return Ok(()) };
    let mut random = Random::named(subject.seed, "random walk of tuples");
    let sectors = (subject.span / subject.sector).min(128);
    let sector = subject.sector as usize;
    let per_sector = format.tuples_bytes(subject.sector) as usize;
    let mut model = vec![0; sectors as usize * sector];
    // Application tag of each sector; `None` where the device chooses it.
    let mut tags: Vec<Option<u16>> = vec![None; sectors as usize];
    for step in 0..subject.steps {
        let first = random.below(sectors);
        let count = (1 + random.below(20)).min(sectors - first);
        let (at, indices) = (first * subject.sector, first as usize..(first + count) as usize);
        let own = indices.start * sector..indices.end * sector;
        match random.below(4) {
            0 => {
                subject.discard(clause, at, count * subject.sector)?;
                model[own].fill(0);
                tags[indices].fill(None);
            }
            1 => {
                random.fill_bytes(&mut model[own.clone()]);
                subject.write(clause, at, &model[own])?;
                tags[indices].fill(None);
            }
            _ => {
                random.fill_bytes(&mut model[own.clone()]);
                let tag = random.below(0xFFFF) as u16;
                let tuples = generated(&format, at, tag, &model[own.clone()]);
                clause.succeed("a write with tuples", write(subject, at, &model[own], &tuples))?;
                tags[indices].fill(Some(tag));
            }
        }
        let first = random.below(sectors);
        let count = (1 + random.below(32)).min(sectors - first);
        let at = first * subject.sector;
        let (found, tuples) = read(subject, clause, &format, at, (count * subject.sector) as usize)?;
        let indices = first as usize..(first + count) as usize;
        clause.same(&format!("data of step {step}"), &model[indices.start * sector..indices.end * sector], &found)?;
        for ((tag, tuples), data) in tags[indices].iter().zip(tuples.chunks(per_sector)).zip(found.chunks(sector)) {
            let found = tuples.as_chunks::<{ ProtectionTuple::BYTES }>().0.first();
            let found = found.map(|bytes| ProtectionTuple::decode(*bytes).application);
            clause.require(tag.is_none_or(|tag| found == Some(tag)), || {
                format!(
                    "seed {} step {step}: {} bytes have the application tag {found:?}, expected {tag:?}",
                    subject.seed,
                    data.len()
                )
            })?;
        }
    }
    Ok(())
}
