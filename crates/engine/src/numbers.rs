//! Numbers of files and jobs, and random ones.

use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Random};
use varve_store::JobId;

/// Numbers of one database's opening, each given once. Thread-safe.
pub(crate) struct Numbers {
    /// Id of the database: logs and manifests of others are not taken for its own.
    pub(crate) database: u64,
    next_file: AtomicU64,
    next_job: AtomicU64,
    salts: parking_lot::Mutex<Random>,
}

impl Numbers {
    pub(crate) fn new(env: &Env, database: u64, next_file: u64) -> Numbers {
        // No other database has these, and not this one at another opening: numbers of files only grow.
        let salts = env.random(&format!("salts of {database:016x} from {next_file}"));
        Numbers {
            database,
            next_file: AtomicU64::new(next_file),
            next_job: AtomicU64::new(1),
            salts: parking_lot::Mutex::new(salts),
        }
    }

    /// Of a new file.
    pub(crate) fn file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// What [`Numbers::file`] returns next.
    pub(crate) fn next_file(&self) -> u64 {
        self.next_file.load(Ordering::Relaxed)
    }

    pub(crate) fn job(&self) -> JobId {
        JobId(self.next_job.fetch_add(1, Ordering::Relaxed))
    }

    /// For a new log or table: nobody who writes records knows it.
    pub(crate) fn random(&self) -> u64 {
        self.salts.lock().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_no_other_opening_has_the_random_ones() {
        let env = Env::sim(1);
        let numbers = Numbers::new(&env, 7, 20);
        assert_eq!([numbers.file(), numbers.file(), numbers.next_file()], [20, 21, 22]);
        assert_eq!([numbers.job(), numbers.job()], [JobId(1), JobId(2)]);
        let random = numbers.random();
        assert_eq!(Numbers::new(&env, 7, 20).random(), random, "of the same moment of a simulation");
        assert_ne!(Numbers::new(&env, 7, 22).random(), random);
        assert_ne!(Numbers::new(&env, 8, 20).random(), random);
    }
}
