//! Reading what another process may be writing.
//!
//! What a writer acknowledged is in files that can be read, so the state is the manifest, then the files it names, then the logs
//! it needs, in this order: each is at least as new as the one before. What a newer manifest made needless may be gone by the
//! time it is looked for, and what is being written may be met half way. So what is missing or damaged counts only when
//! it is found so twice: everything is read again, from CURRENT on, until two readings fail alike.
//!
//! **Where a log ends** is said by the log, as for an opening that writes: before the first record that is not whole,
//! unless something proves that it was synced, which is damage. A record that is not whole is being written, or was when its
//! process or machine stopped. The first is nothing; the second is counted and told, so where a log ends
//! within a record it is read again: the same end twice is one that nobody writes on.

use crate::error::{Error, ErrorKind};
use crate::key::Sequence;
use crate::media::FileMedia;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_env::Env;
use varve_store::{FileStore, ReadOnlyStore};

/// Readings from the start before a state that changes each time is given up.
const READINGS_MAX: u32 = 200;

/// Between two readings: what a writer has in hand is done by then, mostly.
const PAUSE: Duration = Duration::from_millis(1);

/// Calls `read`, which begins at CURRENT each time, until what it finds counts; see the module. It gets media to read from, and
/// their store of files, to hold some of them open. `tail` says how many bytes are behind the last whole record, which becomes
/// none when they are being written, and the newest sequence number before them.
pub(crate) fn read_beside_writer<T>(
    env: &Env,
    media: &FileMedia,
    read: impl Fn(FileMedia, &ReadOnlyStore) -> Result<T, Error>,
    tail: impl Fn(&T) -> (&AtomicU64, Sequence),
) -> Result<T, Error> {
    let read = || -> Result<T, Error> {
        let read_only = |store: &Arc<dyn FileStore>| Arc::new(ReadOnlyStore::new(store.clone()));
        let files = read_only(&media.files);
        let logs = media.logs.as_ref().map(|logs| read_only(logs) as Arc<dyn FileStore>);
        let state = read(FileMedia { files: files.clone(), logs }, &files)?;
        files.settle();
        Ok(state)
    };
    let mut failure = None;
    let mut torn = None;
    let mut readings = 0;
    loop {
        readings += 1;
        match read() {
            Ok(state) => {
                let (bytes, sequence) = tail(&state);
                let found = (bytes.load(Ordering::Relaxed), sequence);
                if found.0 == 0 || torn == Some(found) {
                    return Ok(state);
                }
                if torn.is_some() || readings == READINGS_MAX {
                    // The end moved on: somebody writes, and what he was writing is not lost.
                    bytes.store(0, Ordering::Relaxed);
                    return Ok(state);
                }
                torn = Some(found);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign) => {
                let text = error.to_string();
                if readings == READINGS_MAX || failure.as_ref() == Some(&text) {
                    return Err(error);
                }
                failure = Some(text);
            }
            Err(error) => return Err(error),
        }
        env.sleep(PAUSE);
    }
}
