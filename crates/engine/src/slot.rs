//! A place that holds at most one shared value, read without a lock list or a hash table.

use crate::sync::{AtomicPtr, SpinWait};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, null_mut};
use std::sync::atomic::Ordering;

/// A counted reference, like `Arc`, that can be a pointer for a while.
///
/// # Safety
/// `into_raw` gives a pointer aligned to 4 and not null that stands for the reference, `from_raw` takes
/// one such reference back, and `retain` counts one more.
pub(crate) unsafe trait Counted: Sized {
    /// What the pointer is of.
    type Target;

    fn into_raw(self) -> *mut Self::Target;

    /// # Safety
    /// `raw` stands for a reference nobody else takes back.
    unsafe fn from_raw(raw: *mut Self::Target) -> Self;

    /// # Safety
    /// `raw` stands for a reference that is still there.
    unsafe fn retain(raw: *mut Self::Target);

    /// Asks the processor for what `raw` points at, which may be gone already.
    fn prefetch(raw: *mut Self::Target);
}

/// Set while one thread works on the slot. Held for a few instructions, never across a call that
/// could wait, so waiting threads spin.
const LOCKED: usize = 1;
/// The slot holds a note, a number shifted by [`NOTE_SHIFT`], and no value.
const NOTE: usize = 2;
const NOTE_SHIFT: u32 = 2;

/// Eight bytes: nothing, or a counted reference, or a number left behind by the one that was there.
///
/// Thread-safe. Reading costs two atomic operations and never waits for anything but another
/// thread's few instructions on the very same slot.
pub(crate) struct Slot<C: Counted> {
    /// Null, or a reference, or a note; and the lock bit.
    word: AtomicPtr<C::Target>,
    owns: PhantomData<C>,
}

/// What [`Slot::take_if`] did.
#[derive(Debug)]
pub(crate) enum Taken<C> {
    /// There was nothing.
    Empty,
    /// It stays.
    Kept,
    /// It is out.
    Out(C),
}

impl<C: Counted> Slot<C> {
    pub(crate) fn empty() -> Self {
        Slot { word: AtomicPtr::new(null_mut()), owns: PhantomData }
    }

    /// Takes the lock bit; returns the word without it.
    #[inline]
    fn lock(&self) -> *mut C::Target {
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
    fn unlock(&self, word: *mut C::Target) {
        self.word.store(word, Ordering::Release);
    }

    #[inline]
    fn is_value(word: *mut C::Target) -> bool {
        word.addr() & NOTE == 0 && word.addr() & !LOCKED != 0
    }

    /// The value, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<C> {
        let seen = self.word.load(Ordering::Relaxed);
        if !Self::is_value(seen) {
            return None;
        }
        C::prefetch(seen);
        let word = self.lock();
        if !Self::is_value(word) {
            self.unlock(word);
            return None;
        }
        // SAFETY: the word stands for a reference and the slot's own reference cannot go while
        // this thread holds the lock bit.
        unsafe { C::retain(word) };
        self.unlock(word);
        // SAFETY: the reference counted just now is the one made here.
        Some(unsafe { C::from_raw(word) })
    }

    /// Puts a value into an empty slot and returns the note that was there. When another value is there,
    /// returns that one and drops the new one.
    pub(crate) fn put_if_empty(&self, value: C) -> Result<Option<u64>, C> {
        let word = self.lock();
        if Self::is_value(word) {
            // SAFETY: as in `get`.
            unsafe { C::retain(word) };
            self.unlock(word);
            // SAFETY: as in `get`.
            return Err(unsafe { C::from_raw(word) });
        }
        let note = (word.addr() & NOTE != 0).then(|| (word.addr() >> NOTE_SHIFT) as u64);
        self.unlock(value.into_raw());
        Ok(note)
    }

    /// Takes the value out when `decide` says so, and leaves `note` (its lowest 62 bits) in its place.
    /// `decide` must be short and must not touch slots.
    pub(crate) fn take_if(&self, note: Option<u64>, decide: impl FnOnce(&C) -> bool) -> Taken<C> {
        if !Self::is_value(self.word.load(Ordering::Relaxed)) {
            return Taken::Empty;
        }
        let word = self.lock();
        if !Self::is_value(word) {
            self.unlock(word);
            return Taken::Empty;
        }
        // SAFETY: the word stands for a reference; `ManuallyDrop` leaves the slot's reference alone.
        let value = ManuallyDrop::new(unsafe { C::from_raw(word) });
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

impl<C: Counted> Drop for Slot<C> {
    fn drop(&mut self) {
        let word = self.word.load(Ordering::Relaxed);
        if Self::is_value(word) {
            // SAFETY: nobody else has the slot; its reference ends here.
            drop(unsafe { C::from_raw(word) });
        }
    }
}

// SAFETY: a slot gives out clones of its reference and takes it in through a shared reference, so it is as
// shareable as the reference itself.
unsafe impl<C: Counted + Send + Sync> Sync for Slot<C> {}
// SAFETY: as above.
unsafe impl<C: Counted + Send + Sync> Send for Slot<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    // SAFETY: this is what `Arc` does.
    unsafe impl<T> Counted for Arc<T> {
        type Target = T;

        fn into_raw(self) -> *mut T {
            Arc::into_raw(self).cast_mut()
        }

        unsafe fn from_raw(raw: *mut T) -> Self {
            // SAFETY: as the caller promises.
            unsafe { Arc::from_raw(raw) }
        }

        unsafe fn retain(raw: *mut T) {
            // SAFETY: as the caller promises.
            unsafe { Arc::increment_strong_count(raw) }
        }

        fn prefetch(_: *mut T) {}
    }

    struct Witness(u64, Arc<AtomicUsize>);

    impl Drop for Witness {
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
        let slots: Vec<Slot<Arc<Witness>>> = (0..4).map(|_| Slot::empty()).collect();
        let alive = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (slots, alive) = (&slots, alive.clone());
                scope.spawn(move || {
                    let mut random = varve_env::Random::seeded(thread);
                    for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
                        let slot = &slots[random.index(4)];
                        match random.below(4) {
                            0 => {
                                alive.fetch_add(1, Ordering::Relaxed);
                                let value = Witness(thread << 32 | round, alive.clone());
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
