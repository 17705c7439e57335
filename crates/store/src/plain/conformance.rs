//! What this store is tested on.

use super::{PlainOptions, PlainStore};
use crate::conformance::{DirectorySubject, Effort, Fixture, Ground, TestedStore, TestedSubject};
use crate::error::StoreError;
use crate::file_store::FileStore;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Directory, MemoryDirectoryOptions};

const CAPACITY_BYTES: u64 = 16 << 20;

/// For the table of stores. Nothing of it is decoded: what is in a directory are files.
pub(crate) const TESTED: TestedStore =
    TestedStore { name: "plain", subjects, fixtures: FIXTURES, decode_anything: |_| {}, open_anything: |_| {} };

const FIXTURE: Fixture = Fixture { share: 2, ..Fixture::new("Plain", Ground::Directory { open }) };

const FIXTURES: &[Fixture] = &[FIXTURE, Fixture { name: "PlainLogsApart", share: 1, logs_apart: true, ..FIXTURE }];

fn subjects() -> Vec<TestedSubject> {
    vec![
        // Every call fails once.
        TestedSubject::new(subject(1), Effort { fault_stride: 1, ..Effort::FULL }),
        TestedSubject::new(subject(512), Effort::FULL),
    ]
}

/// The store in a directory with this alignment.
pub(crate) fn subject(direct_alignment_bytes: u32) -> DirectorySubject {
    DirectorySubject {
        name: "plain",
        options: MemoryDirectoryOptions { capacity_bytes: Some(CAPACITY_BYTES), direct_alignment_bytes },
        open,
    }
}

fn open(env: &Env, directory: Arc<dyn Directory>) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(PlainStore::open(env, directory, PlainOptions::default())))
}
