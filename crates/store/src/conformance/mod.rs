//! What every store is tested with: one suite for the contract of [`FileStore`](crate::FileStore), one for power cuts,
//! one for failing I/O, one for I/O that fails while a store is opened, one for syncs that fail late, one for damaged
//! bytes.
//!
//! A store joins by a line in the table of [stores](STORES), and says in its folder what it is tested on: [subjects](Subject),
//! each a way to make a medium with an empty store on it, and to open it. Devices have a [table](varve_media::conformance::devices()) of their own.
//! Every suite returns what it found instead of panicking, so that the suites themselves are tested, with stores that
//! break the contract on purpose ([`canary`]).
//!
//! Not for production: it lies in the library so that stores of other crates can join.

#[cfg(test)]
mod attempts;
pub mod canary;
mod concurrency;
mod contents;
mod crash;
mod damage;
mod faults;
mod fixture;
mod late_failure;
mod model;
mod names;
mod opening;
mod report;
mod stores;
mod subject;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use crash::verify_store;
pub use crash::{CrashReport, CrashSuite};
pub use damage::{DamageReport, damage};
pub use faults::{FaultReport, faults};
pub use fixture::{Fixture, FixturePolicies, Ground};
pub use late_failure::{LateFailureReport, late_failure};
#[cfg(test)]
pub(crate) use model::{FileHandle, Model};
pub use opening::{OpeningReport, OpeningSuite};
pub use stores::{Effort, STORES, TestedStore, TestedSubject};
pub use subject::{DeviceSubject, DirectorySubject, Ending, Image, Medium, PairSubject, Subject};

use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions, Severity};
use std::cell::Cell;
use std::sync::Arc;
use varve_env::Env;
use varve_media::IoContext;

/// Fails the check when something is not so.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

/// How a check ends: nothing, or what is wrong.
pub type Outcome = Result<(), String>;

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub check: &'static str,
    /// What is wrong.
    pub message: String,
}

/// One clause of the contract, as a function on a fresh, empty store.
type Check = fn(&Setting<'_>) -> Outcome;

/// What a check runs on.
struct Setting<'a> {
    env: &'a Env,
    medium: Box<dyn Medium>,
    store: Arc<dyn FileStore>,
    /// The process of `store` was ended; another one has the medium.
    ended: Cell<bool>,
}

const CHECKS: &[(&str, Check)] = &[
    ("empty store", names::empty_store),
    ("odd names", names::odd_names),
    ("list is sorted", names::list_is_sorted),
    ("create replaces", names::create_replaces),
    ("rename replaces", names::rename_replaces),
    ("rename of a file being written", names::rename_while_written),
    ("remove", names::remove),
    ("lock", names::lock),
    ("share", names::share),
    ("sizes and visibility", contents::sizes_and_visibility),
    ("every alignment", contents::every_alignment),
    ("past the end", contents::past_the_end),
    ("read many", contents::read_many),
    ("tail of a log", contents::tail_of_a_log),
    ("dropped writer", contents::dropped_writer),
    ("large and empty files", contents::large_and_empty),
    ("every kind and option", contents::every_kind_and_option),
    ("hints", contents::hints),
    ("reopen", contents::reopen),
    ("end of the process", contents::end_of_process),
    ("space", contents::space),
    ("no space", contents::no_space),
    ("statistics", report::statistics),
    ("occupancy", report::occupancy),
    ("writers and readers at once", concurrency::writers_and_readers),
    ("names at once", concurrency::names_at_once),
];

/// Runs every clause of the contract on fresh stores of `subject`.
pub fn conformance(env: &Env, subject: &dyn Subject) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (check, run) in CHECKS {
        let outcome = Setting::new(env, subject).and_then(|setting| {
            run(&setting)?;
            setting.check_is_clean()
        });
        if let Err(message) = outcome {
            failures.push(Failure { check, message: format!("{}: {message}", subject.name()) });
        }
    }
    failures
}

/// Bytes `offset..offset + length` of the file number `file`. None is zero, so bytes of another file
/// or of nothing are told apart.
pub fn content(file: u64, offset: u64, length: u64) -> Vec<u8> {
    // By words: the suites make and compare more of it than anything else.
    let skipped = (offset % 8) as usize;
    let words = offset / 8..(offset + length).div_ceil(8);
    let mut data = vec![0; (words.end - words.start) as usize * 8];
    let salt = file.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (bytes, word) in data.chunks_exact_mut(8).zip(words) {
        let mixed = (salt ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (mixed ^ (mixed >> 32)) | 0x0101_0101_0101_0101;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    data.truncate(skipped + length as usize);
    if skipped > 0 {
        data.drain(..skipped);
    }
    data
}

/// An error as the message of a failed check.
fn text(error: StoreError) -> String {
    format!("unexpected error: {error}")
}

impl<'a> Setting<'a> {
    fn new(env: &'a Env, subject: &dyn Subject) -> Result<Self, String> {
        let medium = subject.medium(env).map_err(text)?;
        let store = medium.open().map_err(text)?;
        Ok(Setting { env, medium, store, ended: Cell::new(false) })
    }

    /// Ends the process that has `store` open and starts the next.
    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, String> {
        self.ended.set(true);
        self.medium.end_process(store).map_err(text)
    }

    fn check_is_clean(&self) -> Outcome {
        if self.ended.get() { Ok(()) } else { check_is_clean(&*self.store) }
    }

    /// Writes a whole file: synced and finished.
    fn write(&self, name: &str, file: u64, length: u64) -> Outcome {
        write_file(&*self.store, name, file, length)
    }

    fn expect(&self, name: &str, file: u64, length: u64) -> Outcome {
        expect_file(&*self.store, name, file, length)
    }
}

fn write_file(store: &dyn FileStore, name: &str, file: u64, length: u64) -> Outcome {
    let context = IoContext::default();
    let options = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
    let mut writer = store.create(name, &options).map_err(text)?;
    writer.append(&content(file, 0, length), &context).map_err(text)?;
    writer.sync(&context).map_err(text)?;
    writer.finish(&context).map_err(text)
}

/// The whole content of a file.
fn read_file(store: &dyn FileStore, name: &str) -> Result<Vec<u8>, StoreError> {
    let reader = store.open(name, &OpenOptions::default())?;
    let mut data = vec![0; reader.size_bytes() as usize];
    reader.read_at(0, &mut data, &IoContext::default())?;
    Ok(data)
}

fn expect_file(store: &dyn FileStore, name: &str, file: u64, length: u64) -> Outcome {
    let data = read_file(store, name).map_err(text)?;
    let expected = content(file, 0, length);
    if data == expected {
        return Ok(());
    }
    ensure!(data.len() == expected.len(), "'{name}' has {} bytes, not {length}", data.len());
    let wrong = data.iter().zip(&expected).position(|(found, expected)| found != expected);
    ensure!(wrong.is_none(), "'{name}': byte {wrong:?} of {length} is not that of file {file}");
    Ok(())
}

/// The store finds nothing wrong with itself.
fn check_is_clean(store: &dyn FileStore) -> Outcome {
    let findings = store.check().map_err(text)?;
    let bad: Vec<_> = findings.iter().filter(|finding| finding.severity > Severity::Warning).collect();
    ensure!(bad.is_empty(), "check finds {bad:?}");
    Ok(())
}
