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
use std::time::Duration;
use varve_env::Env;

/// Readings from the start before a state that changes each time is given up.
const READINGS_MAX: u32 = 200;

/// Between two readings: what a writer has in hand is done by then, mostly.
const PAUSE: Duration = Duration::from_millis(1);

/// Calls `read`, which begins at CURRENT each time, until what it finds counts; see the module. `torn_tail` says what is behind
/// the last whole record, and the newest sequence number before it; `forget_tail` is told when that is being written.
pub(crate) fn read_beside_writer<T>(
    env: &Env,
    read: impl Fn() -> Result<T, Error>,
    torn_tail: impl Fn(&T) -> Option<(u64, Sequence)>,
    forget_tail: impl Fn(&T),
) -> Result<T, Error> {
    let mut failure = None;
    let mut torn = None;
    let mut readings = 0;
    loop {
        readings += 1;
        match read() {
            Ok(state) => {
                let found = torn_tail(&state);
                if found.is_none() || found == torn {
                    return Ok(state);
                }
                if torn.is_some() || readings == READINGS_MAX {
                    // The end moved on: somebody writes, and what he was writing is not lost.
                    forget_tail(&state);
                    return Ok(state);
                }
                torn = found;
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
