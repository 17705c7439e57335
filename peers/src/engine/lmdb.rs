//! LMDB, a copy-on-write B+ tree in a mapped file: the mark for reads.
//!
//! It has no cache of its own but the system's, no checksums, and one writer at a time. A commit writes every page from the
//! changed leaf to the root anew, so that many puts to a transaction are cheap and single ones are not.

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, PutFlags, RwTxn};
use std::ops::Bound;
use std::path::Path;
use varve_lab::target::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};

/// Addresses set apart for the file, which is as long but sparse: more than any comparison loads.
const MAP_BYTES: usize = 64 << 30;

/// Readers at a time; a slot each in the lock file.
const READERS: u32 = 64;

type Pairs = Database<'static, Bytes, Bytes>;

pub(crate) struct LmdbTarget {
    name: String,
    environment: Environment,
}

#[derive(Clone)]
struct Environment {
    env: Env,
    pairs: Pairs,
}

impl LmdbTarget {
    pub(crate) fn open(directory: &Path) -> Result<LmdbTarget, TargetError> {
        std::fs::create_dir_all(directory)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(READERS);
        // SAFETY: the directory is the comparison's own: nobody else changes the file while it is mapped, and it lies on a
        // local file system. A writable mapping is written by LMDB alone, since pairs are handed out as shared slices. What a
        // power cut leaves of a file that was not synced is never opened again.
        let env = unsafe {
            // Written pages are those of the mapping, which outlive the process without a call for each commit.
            options.flags(EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC);
            options.open(directory)?
        };
        let transaction = env.write_txn()?;
        let pairs: Pairs = env
            .create_databases_and_commit(transaction, |opener, transaction| -> Result<_, heed::Error> {
                opener.create_database::<Bytes, Bytes>(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .commit()
            .ok_or("LMDB opened no database")?;
        let version = heed::lmdb_version();
        let name = format!("lmdb {}.{}.{}", version.major, version.minor, version.patch);
        Ok(LmdbTarget { name, environment: Environment { env, pairs } })
    }
}

impl Target for LmdbTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(LmdbSession { environment: self.environment.clone() }))
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(self.environment.env.force_sync()?)
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        // It has no threads of its own.
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        // Only a copy of the file is compacted; the file itself stays as it is.
        Ok(())
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        let pages = self.environment.env.info().last_page_number as u64 + 1;
        let page_bytes = u64::from(self.environment.env.unnamed_database_stat().page_size);
        Ok(TargetStatistics { space_bytes: Some(pages * page_bytes), ..TargetStatistics::default() })
    }
}

impl Environment {
    /// Makes changes in a transaction of their own, as durable as asked.
    fn change(
        &self,
        durability: Durability,
        make: impl FnOnce(&Pairs, &mut RwTxn<'_>) -> Result<(), heed::Error>,
    ) -> Result<(), TargetError> {
        let mut transaction = self.env.write_txn()?;
        make(&self.pairs, &mut transaction)?;
        let syncs = self.env.get_flags()? & EnvFlags::NO_SYNC.bits() == 0;
        let wanted = durability == Durability::Synced;
        if syncs != wanted {
            let mode = if wanted { FlagSetMode::Disable } else { FlagSetMode::Enable };
            // SAFETY: only who holds the one write transaction comes here, so that one thread at a time changes the flags.
            // Without syncs nothing but the machine's end can damage the file, which is then not opened again.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
        }
        Ok(transaction.commit()?)
    }
}

struct LmdbSession {
    environment: Environment,
}

impl Session for LmdbSession {
    fn put(&mut self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), TargetError> {
        self.environment.change(durability, |pairs, transaction| pairs.put(transaction, key, value))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let transaction = self.environment.env.read_txn()?;
        let found = self.environment.pairs.get(&transaction, key)?;
        if let Some(bytes) = found {
            value.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8], durability: Durability) -> Result<(), TargetError> {
        self.environment.change(durability, |pairs, transaction| pairs.delete(transaction, key).map(|_| ()))
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> Result<(), TargetError> {
        self.environment.change(durability, |pairs, transaction| {
            let is_ascending = is_ascending(changes);
            let last = if is_ascending { pairs.last(transaction)? } else { None };
            // Appended pages are filled; split ones are left half full.
            let appends = is_ascending && last.is_none_or(|(last, _)| last < key_of(&changes[0]));
            for change in changes {
                match change {
                    Change::Put { key, value } if appends => {
                        pairs.put_with_flags(transaction, PutFlags::APPEND, key, value)?;
                    }
                    Change::Put { key, value } => pairs.put(transaction, key, value)?,
                    Change::Delete { key } => drop(pairs.delete(transaction, key)?),
                }
            }
            Ok(())
        })
    }

    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        let Environment { env, pairs } = &self.environment;
        let transaction = env.read_txn()?;
        let start = start.map_or(Bound::Unbounded, Bound::Included);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut visited = 0;
        let mut take = |pair: Result<(&[u8], &[u8]), heed::Error>| -> Result<(), TargetError> {
            let (key, value) = pair?;
            visit(key, value);
            visited += 1;
            Ok(())
        };
        match direction {
            Direction::Forward => {
                let range: (Bound<&[u8]>, Bound<&[u8]>) = (start, Bound::Unbounded);
                pairs.range(&transaction, &range)?.take(limit).try_for_each(&mut take)?;
            }
            Direction::Reverse => {
                let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, start);
                pairs.rev_range(&transaction, &range)?.take(limit).try_for_each(&mut take)?;
            }
        }
        Ok(visited)
    }
}

fn key_of(change: &Change) -> &[u8] {
    match change {
        Change::Put { key, .. } | Change::Delete { key } => key,
    }
}

/// Puts only, each above the one before.
fn is_ascending(changes: &[Change]) -> bool {
    !changes.is_empty()
        && changes.iter().all(|change| matches!(change, Change::Put { .. }))
        && changes.is_sorted_by(|one, next| key_of(one) < key_of(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> Change {
        Change::Put { key: key.into(), value: key.to_uppercase().into_bytes() }
    }

    fn all(session: &mut dyn Session, start: Option<&[u8]>, direction: Direction, limit: u64) -> String {
        let mut keys = Vec::new();
        session
            .scan(start, direction, limit, &mut |key, _| keys.push(String::from_utf8_lossy(key).into_owned()))
            .unwrap();
        keys.join(" ")
    }

    #[test]
    fn pairs_come_back_in_order_and_survive_the_environment() {
        let place = tempfile::tempdir().unwrap();
        let target = LmdbTarget::open(place.path()).unwrap();
        let mut session = target.session().unwrap();
        session.write(&[put("b"), put("d"), put("f")], Durability::Buffered).unwrap();
        session.write(&[put("c"), put("e"), Change::Delete { key: b"f".into() }], Durability::Synced).unwrap();
        session.put(b"a", b"A", Durability::Synced).unwrap();
        session.put(b"g", b"G", Durability::Buffered).unwrap();
        session.delete(b"nothing", Durability::Buffered).unwrap();
        drop((session, target));

        let target = LmdbTarget::open(place.path()).unwrap();
        let mut session = target.session().unwrap();
        let session = session.as_mut();
        assert_eq!(all(session, None, Direction::Forward, u64::MAX), "a b c d e g");
        assert_eq!(all(session, None, Direction::Reverse, 2), "g e");
        assert_eq!(all(session, Some(b"bb"), Direction::Forward, 2), "c d");
        assert_eq!(all(session, Some(b"bb"), Direction::Reverse, 9), "b a");
        let mut value = vec![1];
        assert!(session.get(b"d", &mut value).unwrap() && value == b"D");
        assert!(!session.get(b"f", &mut value).unwrap() && value.is_empty());
        assert!(target.statistics().unwrap().space_bytes.unwrap() >= 4096);
        assert!(target.name().starts_with("lmdb 0.9."));
    }

    #[test]
    fn only_ascending_puts_are_appended() {
        assert!(is_ascending(&[put("a"), put("b")]));
        assert!(!is_ascending(&[put("b"), put("a")]) && !is_ascending(&[put("a"), put("a")]) && !is_ascending(&[]));
        assert!(!is_ascending(&[put("a"), Change::Delete { key: b"b".into() }]));
    }
}
