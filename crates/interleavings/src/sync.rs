//! What threads meet at, of the shape of the engine's `sync`, made of loom's primitives. Faults are planted here.

use crate::exploration::{Fault, is_over, is_planted};
use loom::sync::atomic;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Counted references are not explored: what they point at is.
pub(crate) use std::sync::Arc;

/// What a load is made with.
fn of_load(order: Ordering) -> Ordering {
    if is_planted(Fault::RelaxedLoads) { Ordering::Relaxed } else { order }
}

/// What a store is made with.
fn of_store(order: Ordering) -> Ordering {
    if is_planted(Fault::RelaxedStores) { Ordering::Relaxed } else { order }
}

/// Comes after a store or an exchange. Loom takes `SeqCst` for less than it is; fences it takes in full, and one after every
/// such store orders what `SeqCst` does.
fn after_store(order: Ordering) {
    if order == Ordering::SeqCst && !is_planted(Fault::RelaxedStores) {
        atomic::fence(Ordering::SeqCst);
    }
}

/// What an exchange is made with.
fn of_exchange(order: Ordering) -> Ordering {
    match (is_planted(Fault::RelaxedLoads), is_planted(Fault::RelaxedStores), order) {
        (true, _, Ordering::Acquire) | (_, true, Ordering::Release | Ordering::SeqCst) => Ordering::Relaxed,
        (true, _, Ordering::AcqRel) => Ordering::Release,
        (_, true, Ordering::AcqRel) => Ordering::Acquire,
        _ => order,
    }
}

/// Stands beside every atomic, and is changed, without ordering anything, before each step at it.
///
/// Loom looks for the other orders of a step and the last one before it at the same place, and a load counts only for
/// stores. So where a thread loads before it stores, as all do that exchange, what others loaded before that load is
/// forgotten, and that they might load after the store is never tried. Steps that all change something are all compared.
#[derive(Debug)]
struct Turns(atomic::AtomicUsize);

impl Turns {
    #[track_caller]
    fn new() -> Self {
        Turns(atomic::AtomicUsize::new(0))
    }

    #[track_caller]
    fn take(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Exchanges of what is found as expected, in two steps where that is planted.
macro_rules! exchanges {
    ($value:ty, $split:expr) => {
        #[allow(dead_code, reason = "not all are changed in all ways")]
        #[track_caller]
        pub(crate) fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            if is_planted($split) {
                let found = self.load(Ordering::Acquire);
                if found != current {
                    return Err(found);
                }
                self.store(new, Ordering::Release);
                return Ok(found);
            }
            self.1.take();
            self.0.compare_exchange(current, new, of_exchange(success), of_load(failure))
        }

        #[allow(dead_code, reason = "not all are changed in all ways")]
        #[track_caller]
        pub(crate) fn compare_exchange_weak(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.compare_exchange(current, new, success, failure)
        }
    };
}

macro_rules! number {
    ($name:ident, $number:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name(atomic::$name, Turns);

        impl $name {
            #[track_caller]
            pub(crate) fn new(value: $number) -> Self {
                $name(atomic::$name::new(value), Turns::new())
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $number {
                if is_over() {
                    return 0;
                }
                self.1.take();
                self.0.load(of_load(order))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $number, order: Ordering) {
                self.1.take();
                self.0.store(value, of_store(order));
                after_store(order);
            }

            /// One step, or two where that is planted.
            #[track_caller]
            fn change(&self, order: Ordering, change: impl Fn($number) -> $number) -> $number {
                if is_over() {
                    return 0;
                }
                if is_planted(Fault::SplitExchanges) {
                    let before = self.load(Ordering::Acquire);
                    self.store(change(before), Ordering::Release);
                    return before;
                }
                let changed = self.0.fetch_update(of_exchange(order), Ordering::Relaxed, |before| Some(change(before)));
                after_store(order);
                match changed {
                    Ok(before) | Err(before) => before,
                }
            }

            #[allow(dead_code, reason = "not all numbers are changed in all ways")]
            #[track_caller]
            pub(crate) fn fetch_add(&self, more: $number, order: Ordering) -> $number {
                self.change(order, |before| before.wrapping_add(more))
            }

            #[allow(dead_code, reason = "not all numbers are changed in all ways")]
            #[track_caller]
            pub(crate) fn fetch_sub(&self, less: $number, order: Ordering) -> $number {
                self.change(order, |before| before.wrapping_sub(less))
            }

            #[allow(dead_code, reason = "not all numbers are changed in all ways")]
            #[track_caller]
            pub(crate) fn fetch_or(&self, bits: $number, order: Ordering) -> $number {
                self.change(order, |before| before | bits)
            }

            #[allow(dead_code, reason = "not all numbers are changed in all ways")]
            #[track_caller]
            pub(crate) fn fetch_max(&self, other: $number, order: Ordering) -> $number {
                self.change(order, |before| before.max(other))
            }

            #[allow(dead_code, reason = "not all numbers are changed in all ways")]
            #[track_caller]
            pub(crate) fn fetch_min(&self, other: $number, order: Ordering) -> $number {
                if is_planted(Fault::IgnoredMinimum) {
                    return self.load(order);
                }
                self.change(order, |before| before.min(other))
            }

            exchanges!($number, Fault::SplitExchanges);
        }
    };
}

number!(AtomicU64, u64);
number!(AtomicUsize, usize);

#[derive(Debug)]
pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>, Turns);

impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn new(value: *mut T) -> Self {
        AtomicPtr(atomic::AtomicPtr::new(value), Turns::new())
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        if is_over() {
            return std::ptr::null_mut();
        }
        self.1.take();
        self.0.load(of_load(order))
    }

    #[track_caller]
    pub(crate) fn store(&self, value: *mut T, order: Ordering) {
        self.1.take();
        self.0.store(value, of_store(order));
    }

    exchanges!(*mut T, Fault::SplitPointerExchanges);
}

/// Lets another thread go on.
pub(crate) struct SpinWait;

impl SpinWait {
    pub(crate) fn new() -> Self {
        SpinWait
    }

    pub(crate) fn spin(&mut self) {
        loom::thread::yield_now();
    }
}

/// What is written before other threads can know of it: a read that nothing orders after the writing ends the exploration.
#[derive(Debug)]
pub(crate) struct Published<T> {
    value: T,
    /// Stands for the value where loom watches.
    written: loom::cell::UnsafeCell<()>,
}

impl<T> Published<T> {
    #[track_caller]
    pub(crate) fn new(value: T) -> Self {
        Published { value, written: loom::cell::UnsafeCell::new(()) }
    }

    #[track_caller]
    pub(crate) fn get(&self) -> &T {
        if !is_over() {
            self.written.with(|_| ());
        }
        &self.value
    }
}

/// A lock that nobody waits on for long.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    lock: loom::sync::Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only under the lock, or when the run is over and its threads end one after another.
unsafe impl<T: Send> Sync for Mutex<T> {}

pub(crate) struct MutexGuard<'a, T> {
    /// `None` while waiting, and when the run is over.
    held: Option<loom::sync::MutexGuard<'a, ()>>,
    value: &'a UnsafeCell<T>,
}

impl<T> Mutex<T> {
    #[track_caller]
    pub(crate) fn new(value: T) -> Self {
        Mutex { lock: loom::sync::Mutex::new(()), value: UnsafeCell::new(value) }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = (!is_over()).then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        MutexGuard { held, value: &self.value }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held as long as the guard can be used, or no other thread runs.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.value.get() }
    }
}

/// What may be held across a wait.
pub(crate) mod waiting {
    use super::{Fault, PoisonError, is_planted};

    /// Waiting needs nothing from it here.
    #[derive(Clone, Debug)]
    pub(crate) struct Env;

    pub(crate) use super::MutexGuard;

    /// There is no time.
    pub(crate) fn now_nanos(_: &Env) -> u64 {
        0
    }

    /// Without time every deadline has passed.
    pub(crate) fn wait_until<T>(_: &Condvar, _: &mut MutexGuard<'_, T>, _: u64) -> bool {
        true
    }

    /// As in a simulation.
    pub(crate) fn can_yield(_: &Env) -> bool {
        false
    }

    pub(crate) fn yield_until(_: &Env, _: u64, _: impl Fn() -> bool) {}

    /// Looks once: what spinning adds, which is time, is not explored.
    pub(crate) fn spin_until(_: &Env, is_over: impl Fn() -> bool) -> bool {
        is_over()
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(super::Mutex<T>);

    impl<T> Mutex<T> {
        #[track_caller]
        pub(crate) fn new(_: &Env, _: &'static str, value: T) -> Self {
            Mutex(super::Mutex::new(value))
        }

        #[track_caller]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock()
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        #[track_caller]
        pub(crate) fn new(_: &Env, _: &'static str) -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        #[track_caller]
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let Some(held) = guard.held.take() else { return };
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        #[track_caller]
        pub(crate) fn notify_one(&self) {
            if !is_planted(Fault::LostNotifications) {
                self.0.notify_one();
            }
        }

        #[track_caller]
        pub(crate) fn notify_all(&self) {
            if !is_planted(Fault::LostNotifications) {
                self.0.notify_all();
            }
        }
    }
}

/// A counted reference that is replaced as a whole, with no more order between its loads and stores than `arc_swap` says.
pub(crate) struct ArcSwap<T> {
    current: AtomicPtr<Arc<T>>,
    /// All there ever were; none is dropped before this is.
    #[allow(clippy::vec_box, reason = "a reference's address must not change")]
    all: parking_lot::Mutex<Vec<Box<Arc<T>>>>,
}

/// A loaded reference.
pub(crate) struct Guard<T>(T);

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> ArcSwap<T> {
    #[track_caller]
    pub(crate) fn from_pointee(value: T) -> Self {
        let first = Box::new(Arc::new(value));
        let current = AtomicPtr::new(std::ptr::from_ref(&*first).cast_mut());
        ArcSwap { current, all: parking_lot::Mutex::new(vec![first]) }
    }

    #[track_caller]
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        // SAFETY: all there ever were are still there, and nothing writes to them.
        Guard(unsafe { (*self.current.load(Ordering::Acquire)).clone() })
    }

    #[track_caller]
    pub(crate) fn store(&self, value: Arc<T>) {
        let next = Box::new(value);
        let pointer = std::ptr::from_ref(&*next).cast_mut();
        self.all.lock().push(next);
        self.current.store(pointer, Ordering::Release);
    }
}
