//! A place that holds at most one shared value, read without a lock list or a hash table.

use parking_lot_core::SpinWait;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Set while one thread works on the slot. Held for a few instructions, never across a call that
/// could wait, so waiting threads spin.
const LOCKED: usize = 1;
/// The slot holds a note, a number shifted by [`NOTE_SHIFT`], and no value.
const NOTE: usize = 2;
const NOTE_SHIFT: u32 = 2;

/// Eight bytes: nothing, or an `Arc<T>`, or a number left behind by the value that was there.
///
/// Thread-safe. Reading costs two atomic operations and never waits for anything but another
/// thread's few instructions on the very same slot.
pub(crate) struct Slot<T> {
    /// Null, or `Arc::into_raw`, or a note; and the lock bit.
    word: AtomicPtr<T>,
    owns: PhantomData<Arc<T>>,
}

/// What [`Slot::take_if`] did.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    /// There was nothing.
    Empty,
    /// It stays.
    Kept,
    /// It is out.
    Out(Arc<T>),
}

impl<T> Slot<T> {
    const ALIGNED: () = assert!(align_of::<T>() >= 4, "the two lowest bits of a pointer are tags");

    pub(crate) fn empty() -> Self {
        let () = Self::ALIGNED;
        Slot { word: AtomicPtr::new(null_mut()), owns: PhantomData }
    }

    /// Takes the lock bit; returns the word without it.
    #[inline]
    fn lock(&self) -> *mut T {
        let mut spin = SpinWait::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word.addr() & LOCKED == 0
                && self
                    .word
                    .compare_exchange_weak(
                        word,
                        word.map_addr(|word| word | LOCKED),
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return word;
            }
            spin.spin();
        }
    }

    /// Gives the lock bit back and leaves `word`.
    #[inline]
    fn unlock(&self, word: *mut T) {
        self.word.store(word, Ordering::Release);
    }

    #[inline]
    fn is_value(word: *mut T) -> bool {
        word.addr() & NOTE == 0 && word.addr() & !LOCKED != 0
    }

    /// The value, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        if !Self::is_value(self.word.load(Ordering::Relaxed)) {
            return None;
        }
        let word = self.lock();
        if !Self::is_value(word) {
            self.unlock(word);
            return None;
        }
        // SAFETY: the word came from `Arc::into_raw` and the slot's own reference cannot go while
        // this thread holds the lock bit.
        unsafe { Arc::increment_strong_count(word) };
        self.unlock(word);
        // SAFETY: the reference counted just now is the one made here.
        Some(unsafe { Arc::from_raw(word) })
    }

    /// Puts a value into an empty slot and returns the note that was there. When another value is there,
    /// returns that one and drops the new one.
    pub(crate) fn put_if_empty(&self, value: Arc<T>) -> Result<Option<u64>, Arc<T>> {
        let word = self.lock();
        if Self::is_value(word) {
            // SAFETY: as in `get`.
            unsafe { Arc::increment_strong_count(word) };
            self.unlock(word);
            // SAFETY: as in `get`.
            return Err(unsafe { Arc::from_raw(word) });
        }
        let note = (word.addr() & NOTE != 0).then(|| (word.addr() >> NOTE_SHIFT) as u64);
        self.unlock(Arc::into_raw(value).cast_mut());
        Ok(note)
    }

    /// Takes the value out when `decide` says so, and leaves `note` (its lowest 62 bits) in its place.
    /// `decide` must be short and must not touch slots.
    pub(crate) fn take_if(&self, note: Option<u64>, decide: impl FnOnce(&Arc<T>) -> bool) -> Taken<T> {
        if !Self::is_value(self.word.load(Ordering::Relaxed)) {
            return Taken::Empty;
        }
        let word = self.lock();
        if !Self::is_value(word) {
            self.unlock(word);
            return Taken::Empty;
        }
        // SAFETY: the word came from `Arc::into_raw`; `ManuallyDrop` leaves the slot's reference alone.
        let value = ManuallyDrop::new(unsafe { Arc::from_raw(word) });
        if !decide(&value) {
            self.unlock(word);
            return Taken::Kept;
        }
        self.unlock(match note {
            Some(note) => ptr::without_provenance_mut((note as usize) << NOTE_SHIFT | NOTE),
            None => null_mut(),
        });
        Taken::Out(ManuallyDrop::into_inner(value))
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let word = *self.word.get_mut();
        if Self::is_value(word) {
            // SAFETY: nobody else has the slot; its reference ends here.
            drop(unsafe { Arc::from_raw(word) });
        }
    }
}

// SAFETY: a slot gives out and takes in `Arc<T>` through a shared reference, so it is as shareable as
// `Arc<T>` itself, which needs `T: Send + Sync`.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Slot<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Counted(u64, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn values_and_notes_take_turns() {
        let slot = Slot::empty();
        assert!(slot.get().is_none());
        assert!(matches!(slot.take_if(None, |_| true), Taken::Empty));
        let first = Arc::new(1u64);
        assert_eq!(slot.put_if_empty(first.clone()), Ok(None));
        assert_eq!(slot.get().as_deref(), Some(&1));
        assert_eq!(slot.put_if_empty(Arc::new(2)), Err(first.clone()));
        assert_eq!(Arc::strong_count(&first), 2);
        assert!(matches!(slot.take_if(Some(9), |_| false), Taken::Kept));
        assert!(matches!(slot.take_if(Some(9), |value| **value == 1), Taken::Out(_)));
        assert!(slot.get().is_none());
        assert_eq!(Arc::strong_count(&first), 1);
        assert_eq!(slot.put_if_empty(first.clone()), Ok(Some(9)));
        drop(slot);
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn threads_share_slots_without_losing_a_value() {
        let slots: Vec<Slot<Counted>> = (0..4).map(|_| Slot::empty()).collect();
        let alive = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (slots, alive) = (&slots, alive.clone());
                scope.spawn(move || {
                    let mut random = varve_env::Random::seeded(thread);
                    for round in 0..20_000 {
                        let slot = &slots[random.index(4)];
                        match random.below(4) {
                            0 => {
                                alive.fetch_add(1, Ordering::Relaxed);
                                let value = Counted(thread << 32 | round, alive.clone());
                                drop(slot.put_if_empty(Arc::new(value)));
                            }
                            1 => drop(slot.take_if(Some(round), |value| value.0 % 3 != 0)),
                            2 => drop(slot.take_if(None, |_| true)),
                            _ => {
                                if let Some(value) = slot.get() {
                                    assert!(value.0 >> 32 < 4);
                                }
                            }
                        }
                    }
                });
            }
        });
        let left = slots.iter().filter(|slot| slot.get().is_some()).count();
        assert_eq!(alive.load(Ordering::Relaxed), left);
        drop(slots);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }
}
