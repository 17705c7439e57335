//! Space reserved for running compactions that they did not take yet. Writers and other compactions do not count on it: else
//! one that fitted when it was planned runs out of space that was taken meanwhile, and what it wrote is thrown away, or
//! stays twice where it was done in parts.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all of them have left.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    left_bytes: AtomicU64,
}

impl Reservations {
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes.load(Ordering::SeqCst)
    }
}

/// What one compaction has left, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    reservations: Arc<Reservations>,
    given_bytes: u64,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    spent_bytes: u64,
    regained_bytes: u64,
}

impl Reservation {
    pub(crate) fn new(reservations: &Arc<Reservations>, given_bytes: u64) -> Reservation {
        reservations.left_bytes.fetch_add(given_bytes, Ordering::SeqCst);
        Reservation { reservations: reservations.clone(), given_bytes, account: Mutex::default() }
    }

    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_of(&self.account.lock())
    }

    fn left_of(&self, account: &Account) -> u64 {
        self.given_bytes.saturating_sub(account.spent_bytes.saturating_sub(account.regained_bytes))
    }

    /// Counts the bytes that a new table takes.
    pub(crate) fn spend(&self, bytes: u64) {
        self.change(|account| account.spent_bytes = account.spent_bytes.saturating_add(bytes));
    }

    /// Counts the bytes of removed tables: they may be written once more, up to the original grant.
    pub(crate) fn regain(&self, bytes: u64) {
        self.change(|account| account.regained_bytes = account.regained_bytes.saturating_add(bytes));
    }

    fn change(&self, of: impl FnOnce(&mut Account)) {
        let mut account = self.account.lock();
        let before = self.left_of(&account);
        of(&mut account);
        let after = self.left_of(&account);
        let sum = &self.reservations.left_bytes;
        match after.checked_sub(before) {
            Some(more_bytes) => sum.fetch_add(more_bytes, Ordering::SeqCst),
            None => sum.fetch_sub(before - after, Ordering::SeqCst),
        };
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reservations.left_bytes.fetch_sub(self.left_bytes(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_there_until_it_is_taken_and_gone_with_the_compaction() {
        let reservations = Arc::new(Reservations::default());
        let (first, second) = (Reservation::new(&reservations, 100), Reservation::new(&reservations, 10));
        assert_eq!(reservations.left_bytes(), 110);
        first.spend(60);
        second.spend(11);
        assert_eq!((first.left_bytes(), second.left_bytes(), reservations.left_bytes()), (40, 0, 40));
        first.regain(70);
        assert_eq!((first.left_bytes(), reservations.left_bytes()), (100, 100));
        first.spend(130);
        first.regain(20);
        assert_eq!((first.left_bytes(), reservations.left_bytes()), (0, 0), "100 more than was given up were written");
        drop(first);
        assert_eq!(reservations.left_bytes(), 0);
    }
}
