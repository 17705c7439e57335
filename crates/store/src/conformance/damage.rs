//! Damaged bytes: a bit flipped anywhere in the store's structures gives an error or the right answer.

use super::subject::Subject;
use super::{content, text};
use crate::file_store::{CreateOptions, FileKind};
use std::collections::BTreeMap;
use varve_env::{Env, Random};
use varve_media::{CrashVariant, IoContext};

/// What the suite did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamageReport {
    /// Bytes damaged, one store each.
    pub flips: u64,
    /// Stores that answered rightly all the same.
    pub right: u64,
    /// Stores that said so with an error.
    pub errors: u64,
    /// Stores that gave a file with just that bit flipped: the contents of files that are not framed
    /// are for their owner to check.
    pub contents: u64,
    /// What was wrong, the first few.
    pub failures: Vec<String>,
}

const FAILURES_MAX: usize = 8;

/// Makes a small store, ends it, and flips one bit in each byte that is not zero, every `stride` of them.
pub fn damage(env: &Env, subject: &dyn Subject, stride: u64) -> DamageReport {
    let mut report = DamageReport::default();
    if let Err(message) = run(env, subject, stride, &mut report) {
        report.failures.push(format!("{}: {message}", subject.name()));
    }
    report
}

fn run(env: &Env, subject: &dyn Subject, stride: u64, report: &mut DamageReport) -> Result<(), String> {
    let context = IoContext::default();
    let medium = subject.medium(env).map_err(text)?;
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let store = medium.open().map_err(text)?;
    for (number, (name, kind, length)) in [
        ("000001.log", FileKind::Log, 3000),
        ("000002.log", FileKind::Log, 700),
        ("MANIFEST", FileKind::Manifest, 5000),
        ("empty", FileKind::Other, 0),
        ("gone", FileKind::Log, 100),
    ]
    .into_iter()
    .enumerate()
    {
        let data = content(number as u64, 0, length);
        let mut writer = store.create(name, &CreateOptions { kind, ..CreateOptions::default() }).map_err(text)?;
        writer.append(&data, &context).map_err(text)?;
        writer.sync(&context).map_err(text)?;
        writer.finish(&context).map_err(text)?;
        expected.insert(name.to_owned(), data);
    }
    store.rename("000002.log", "000003.log").map_err(text)?;
    let renamed = expected.remove("000002.log").unwrap_or_default();
    expected.insert("000003.log".to_owned(), renamed);
    store.remove("gone").map_err(text)?;
    expected.remove("gone");
    store.sync_names().map_err(text)?;
    drop(store);

    // What is on the medium now, as images that are damaged one by one.
    let image = medium.capture();
    let mut random = Random::named(env.seed(), "damage");
    let interesting = image.medium(env, CrashVariant::KeepAll, 0).stored_bytes();
    for offset in interesting.into_iter().step_by(stride.max(1) as usize) {
        let bit = random.below(8) as u8;
        let damaged = image.medium(env, CrashVariant::KeepAll, 0);
        damaged.flip(offset, bit);
        report.flips += 1;
        let answer = damaged.open().and_then(|store| {
            let mut found = BTreeMap::new();
            for entry in store.list()? {
                found.insert(entry.name.clone(), super::read_file(&*store, &entry.name)?);
            }
            store.check()?;
            Ok(found)
        });
        match answer {
            Err(_) => report.errors += 1,
            Ok(found) if found == expected => report.right += 1,
            Ok(found) if one_bit_apart(&found, &expected) => report.contents += 1,
            Ok(found) => {
                let lengths: BTreeMap<_, _> = found.iter().map(|(name, data)| (name, data.len())).collect();
                report.failures.push(format!("bit {bit} of byte {offset}: wrong without an error: {lengths:?}"));
                if report.failures.len() >= FAILURES_MAX {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Whether two stores differ in one bit of the contents of one file.
fn one_bit_apart(one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) -> bool {
    let same_shape = one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((name, data), (other_name, other_data))| name == other_name && data.len() == other_data.len());
    let bits: u32 = one
        .values()
        .flatten()
        .zip(other.values().flatten())
        .map(|(byte, other_byte)| (byte ^ other_byte).count_ones())
        .sum();
    same_shape && bits == 1
}
