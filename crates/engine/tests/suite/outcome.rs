//! A workload on a medium that fails, and what it may leave behind.

use super::history::{History, State, Step};
use super::medium::Image;
use std::collections::BTreeMap;
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, ReadOptions, WriteState};
use varve_env::Env;
use varve_media::FaultInjector;

/// Numbers of the keys of the history.
pub(crate) const UNIVERSE: u64 = 64;

/// Which acknowledged batches a medium may lose while the database runs and opens again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayLose {
    /// None.
    Nothing,
    /// The last ones, as far as they were not synced.
    Unsynced,
    /// The last ones, however many.
    Last,
}

/// What a run under faults may leave behind.
pub(crate) struct Outcome {
    /// The states after each acknowledged batch, the empty one first.
    pub(crate) acknowledged: Vec<State>,
    /// Of these, the newest known to be durable.
    pub(crate) synced: usize,
    /// Batches that failed after the last acknowledged one: at most one of them may be there.
    pub(crate) failed: Vec<State>,
    /// Errors met, by kind.
    pub(crate) errors: BTreeMap<String, usize>,
    /// What may be lost.
    may_lose: MayLose,
    /// How often an older state was found because [`MayLose::Last`] allowed it.
    pub(crate) rolled_back: usize,
    /// Flushes of ranges of keys.
    pub(crate) range_flushes: u64,
    /// Pieces of compactions.
    pub(crate) pieces: u64,
    /// Bursts of background work.
    pub(crate) bursts: u64,
}

impl Outcome {
    pub(crate) fn met(&mut self, error: &Error) -> Result<(), String> {
        let text = error.to_string();
        if text.contains("panic") {
            return Err(text);
        }
        *self.errors.entry(format!("{:?}", error.kind())).or_default() += 1;
        Ok(())
    }

    pub(crate) fn last(&self) -> &State {
        &self.acknowledged[self.acknowledged.len() - 1]
    }

    pub(crate) fn allows(&self, found: &State, may_lose_unsynced: bool) -> bool {
        found == self.last()
            || self.failed.contains(found)
            || (may_lose_unsynced && self.acknowledged[self.synced..].contains(found))
    }

    /// Adds what a database did that is about to go.
    fn count(&mut self, db: &Db) {
        let counters = db.statistics().counters;
        self.range_flushes += counters.range_flushes;
        self.pieces += counters.compaction_pieces;
        self.bursts += counters.bursts;
    }

    /// The state is an older one, and may be; counts it.
    pub(crate) fn rolls_back(&mut self, found: &State) -> bool {
        let older = self.may_lose == MayLose::Last && self.acknowledged.contains(found);
        self.rolled_back += usize::from(older);
        older
    }
}

fn apply(state: &State, history: &History, number: usize) -> State {
    let mut state = state.clone();
    for (key, value) in &history.batches[number - 1] {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
    state
}

/// All pairs, or how far the walk came and why it ended.
pub(crate) fn walk_all(db: &Db) -> (State, Option<Error>) {
    let mut found = State::new();
    let mut walk = match db.iterator(&ReadOptions::default()) {
        Ok(walk) => walk,
        Err(error) => return (found, Some(error)),
    };
    walk.seek_to_first();
    while walk.valid() {
        found.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.next();
    }
    (found, walk.status().err())
}

/// Reads of the running database: an error, or exactly what was acknowledged.
fn read(db: &Db, outcome: &mut Outcome, note: &str) -> Result<(), String> {
    let expected = outcome.last().clone();
    for number in 0..UNIVERSE {
        let key = format!("key{number:03}").into_bytes();
        match db.get(&key) {
            Ok(value) if value.as_deref() == expected.get(&key).map(Vec::as_slice) => {}
            Ok(_) => return Err(format!("{note}: get of '{}' is wrong", key.escape_ascii())),
            Err(error) => outcome.met(&error)?,
        }
    }
    let (found, error) = walk_all(db);
    match error {
        None if found == expected => Ok(()),
        None => Err(format!("{note}: a whole walk is wrong")),
        Some(error) => {
            outcome.met(&error)?;
            if !expected.iter().zip(&found).all(|(expected, found)| expected == found) || found.len() > expected.len() {
                return Err(format!("{note}: a walk was wrong before it failed with {error}"));
            }
            Ok(())
        }
    }
}

/// Runs the workload whatever fails.
pub(crate) fn run(
    env: &Env,
    image: &Image,
    injector: &FaultInjector,
    history: &History,
    may_lose: MayLose,
) -> Result<Outcome, String> {
    let mut outcome = Outcome {
        acknowledged: vec![State::new()],
        synced: 0,
        failed: Vec::new(),
        errors: BTreeMap::new(),
        may_lose,
        rolled_back: 0,
        range_flushes: 0,
        pieces: 0,
        bursts: 0,
    };
    let open =
        || -> Result<Db, Error> { Db::open(env, image.media_under(env, Some(injector))?, history.options.clone()) };
    let mut db: Option<Db> = None;
    let mut written = 0;
    let mut poisoned: Option<String> = None;
    for step in &history.steps {
        if db.is_none() {
            match open() {
                Ok(opened) => {
                    db = Some(opened);
                    poisoned = None;
                    // What recovery found is durable, a failed batch included.
                    let (found, error) = walk_all(db.as_ref().ok_or("no database")?);
                    match error {
                        Some(error) => outcome.met(&error)?,
                        None if outcome.allows(&found, may_lose == MayLose::Unsynced) || outcome.rolls_back(&found) => {
                            outcome.acknowledged.push(found);
                            outcome.synced = outcome.acknowledged.len() - 1;
                            outcome.failed.clear();
                        }
                        None => {
                            let older = outcome.acknowledged.iter().rposition(|state| *state == found);
                            return Err(format!(
                                "before batch {written}: reopening found a wrong state: {} were acknowledged, {} of them \
                                 synced, found is that after {older:?}; errors: {:?}",
                                outcome.acknowledged.len() - 1,
                                outcome.synced,
                                outcome.errors
                            ));
                        }
                    }
                }
                Err(error) => outcome.met(&error)?,
            }
        }
        let Some(current) = &db else {
            written += usize::from(matches!(step, Step::Write { .. }));
            continue;
        };
        let result = match *step {
            Step::Write { sync } => {
                written += 1;
                let state = apply(outcome.last(), history, written);
                let result = history.write(current, written, sync);
                match &result {
                    Ok(()) => {
                        if let Some(cause) = poisoned {
                            return Err(format!("batch {written} was taken after poison: {cause}"));
                        }
                        outcome.acknowledged.push(state);
                        outcome.failed.clear();
                        if sync {
                            outcome.synced = outcome.acknowledged.len() - 1;
                        }
                    }
                    Err(error) => {
                        // An error of this class may also be that of a file that another takes the place of.
                        if error.kind() == ErrorKind::Poisoned
                            && current.statistics().write_state == WriteState::Poisoned
                        {
                            poisoned = Some(error.to_string());
                        }
                        outcome.failed.push(state);
                    }
                }
                result
            }
            Step::Flush | Step::CompactAll => {
                let result = match step {
                    Step::Flush => current.flush(),
                    _ => current.compact_range(None, None),
                };
                if result.is_ok() {
                    outcome.synced = outcome.acknowledged.len() - 1;
                }
                result
            }
            Step::WaitIdle => current.wait_idle(),
            Step::Sleep => {
                env.sleep(Duration::from_millis(1));
                Ok(())
            }
            Step::Reopen { close } => {
                outcome.count(current);
                let result = if close { current.close() } else { Ok(()) };
                db = None;
                result
            }
        };
        if let Err(error) = result {
            outcome.met(&error)?;
        }
        if let Some(db) = &db
            && written % 8 == 0
        {
            read(db, &mut outcome, &format!("after batch {written}"))?;
        }
    }
    if let Some(db) = db {
        outcome.count(&db);
        if let Err(error) = db.close() {
            outcome.met(&error)?;
        }
    }
    Ok(outcome)
}
