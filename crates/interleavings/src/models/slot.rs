//! A cache's slot: references are counted right, and what they stand for is there as long as somebody has one.

use super::Model;
use crate::exploration::Fault;
use crate::slot::{Counted, Slot, Taken};
use crate::sync::{AtomicPtr, AtomicUsize, Published};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const MODELS: &[Model] = &[
    Model {
        name: "slot: a value that is put, read and taken at once is there as long as somebody has it, and then gone",
        run: |_| put_get_take(),
        seeds: 1,
        finds: &[Fault::SplitPointerExchanges, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
    Model {
        name: "slot: of two values that are put at once one stays, and a note is given to one of them",
        run: |_| two_put(),
        seeds: 1,
        finds: &[Fault::SplitPointerExchanges],
    },
];

/// Values that exist.
type Alive = Arc<AtomicUsize>;

/// A counted reference to a number.
struct Reference(*mut Value);

struct Value {
    references: AtomicUsize,
    number: Published<u64>,
    /// Set to null when the value ends: whoever reads that had no right to.
    itself: AtomicPtr<Value>,
    alive: Alive,
}

impl Reference {
    fn new(number: u64, alive: &Alive) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        let value = Box::into_raw(Box::new(Value {
            references: AtomicUsize::new(1),
            number: Published::new(number),
            itself: AtomicPtr::new(std::ptr::null_mut()),
            alive: alive.clone(),
        }));
        let reference = Reference(value);
        reference.value().itself.store(value, Ordering::Relaxed);
        reference
    }

    fn value(&self) -> &Value {
        // SAFETY: the memory of values is kept until the end of a run; `itself` tells those that ended.
        unsafe { &*self.0 }
    }

    fn number(&self) -> u64 {
        assert_eq!(self.value().itself.load(Ordering::Relaxed), self.0, "the value is gone");
        *self.value().number.get()
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let value = self.value();
        if value.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            assert_eq!(value.itself.load(Ordering::Relaxed), self.0, "a value ends twice");
            value.itself.store(std::ptr::null_mut(), Ordering::Relaxed);
            value.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: a value is atomic but for its number, which `Published` watches.
unsafe impl Send for Reference {}
// SAFETY: as above.
unsafe impl Sync for Reference {}

// SAFETY: a reference is its pointer and one count; the pointer is of a box of words, so it is aligned to 8.
unsafe impl Counted for Reference {
    type Target = Value;

    fn into_raw(self) -> *mut Value {
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_raw(raw: *mut Value) -> Self {
        Reference(raw)
    }

    unsafe fn retain(raw: *mut Value) {
        // SAFETY: as the caller promises.
        let before = unsafe { &*raw }.references.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "a value that ended is used again");
    }

    fn prefetch(_: *mut Value) {}
}

fn put_get_take() {
    let alive = Alive::new(AtomicUsize::new(0));
    let slot = Arc::new(Slot::empty());
    let putter = {
        let (slot, alive) = (slot.clone(), alive.clone());
        thread::spawn(move || {
            if let Err(there) = slot.put_if_empty(Reference::new(7, &alive)) {
                assert_eq!(there.number(), 7);
            }
        })
    };
    let taker = {
        let slot = slot.clone();
        thread::spawn(move || match slot.take_if(Some(9), |value: &Reference| value.number() == 7) {
            Taken::Out(value) => assert_eq!(value.number(), 7),
            Taken::Kept => panic!("the value is not the one that was put"),
            Taken::Empty => {}
        })
    };
    if let Some(value) = slot.get() {
        assert_eq!(value.number(), 7);
    }
    putter.join().unwrap();
    taker.join().unwrap();
    let left = usize::from(slot.get().is_some());
    assert_eq!(alive.load(Ordering::Relaxed), left, "values that exist, and values in the slot");
    drop(Arc::into_inner(slot));
    assert_eq!(alive.load(Ordering::Relaxed), 0, "a value was never let go");
}

fn two_put() {
    let alive = Alive::new(AtomicUsize::new(0));
    let slot = Arc::new(Slot::empty());
    assert!(slot.put_if_empty(Reference::new(1, &alive)).is_ok());
    assert!(matches!(slot.take_if(Some(5), |_| true), Taken::Out(_)));
    let putter = {
        let (slot, alive) = (slot.clone(), alive.clone());
        thread::spawn(move || slot.put_if_empty(Reference::new(2, &alive)).map_err(|there| there.number()))
    };
    let mine = slot.put_if_empty(Reference::new(3, &alive)).map_err(|there| there.number());
    match (mine, putter.join().unwrap()) {
        (Ok(Some(5)), Err(3)) | (Err(2), Ok(Some(5))) => {}
        (mine, other) => panic!("one put gave {mine:?}, the other {other:?}"),
    }
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    drop(Arc::into_inner(slot));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}
