//! Memory of blocks, apart from the general allocator's heap.
//!
//! A block cache replaces its blocks one by one, for as long as the process lives, and whichever
//! thread reads a block allocates it. In a general heap with a part for each thread the places of
//! dropped blocks are then of no use to the thread that reads next, and a process comes to hold twice
//! what its cache may. Here every thread takes from the same slabs: pages of their own, each cut into
//! slots of one size, given back to the operating system when their last slot is free.
//!
//! Slot sizes are a sixteenth of a power of two apart, so at most 6 % of a slot is unused. Of several
//! slabs with free slots the one at the lowest address serves first, which empties the others. One
//! empty slab of each size is kept.
//!
//! Before each piece lies the address of its slab. What is too small, too large or too strictly aligned
//! for a slot comes from the general allocator.

use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use varve_env::Pages;

/// Powers of two of the smallest and the largest slots: 2 to 128 KiB.
const SLOT_BITS: (u32, u32) = (11, 17);

/// Sizes within a power of two.
const STEPS: usize = 16;

const CLASSES: usize = (SLOT_BITS.1 - SLOT_BITS.0) as usize * STEPS;

/// Bytes in front of a piece: the address of its slab, and what keeps the piece aligned.
const HEADER_BYTES: usize = 16;

/// Least bytes and slots of a slab.
const SLAB_BYTES_MIN: usize = 256 << 10;
const SLAB_SLOTS_MIN: usize = 16;

/// The slabs of one slot size.
#[derive(Default)]
struct Class {
    slabs: BTreeMap<usize, Slab>,
    /// Addresses of those with a free slot.
    partial: BTreeSet<usize>,
    /// How many of those are empty.
    empty: usize,
}

struct Slab {
    /// Kept for its drop.
    _pages: Pages,
    /// Where the pages begin. Pieces are reached by this alone: a reference to all of the pages would
    /// claim pieces that others write to.
    start: NonNull<u8>,
    /// Slots never used so far begin here: their pages are not in memory yet.
    fresh: u32,
    /// Slots given back.
    free: Vec<u32>,
    used: u32,
}

// SAFETY: it owns its pages; pieces of them are handed out by pointer only.
unsafe impl Send for Slab {}

static SLABS: [Mutex<Class>; CLASSES] = [const { Mutex::new(Class::new()) }; CLASSES];

impl Class {
    const fn new() -> Class {
        Class { slabs: BTreeMap::new(), partial: BTreeSet::new(), empty: 0 }
    }
}

/// Bytes of the slots of a class: `(16 + step) / 16` of its power of two, the next step up.
fn slot_bytes(class: usize) -> usize {
    let power = 1usize << (SLOT_BITS.0 as usize + class / STEPS);
    power + power / STEPS * (class % STEPS + 1)
}

/// The smallest class whose slots hold so many bytes; none for small and large pieces.
fn class_of(bytes: usize) -> Option<usize> {
    if bytes <= 1 << SLOT_BITS.0 || bytes > 1 << SLOT_BITS.1 {
        return None;
    }
    let last = bytes - 1;
    let bits = last.ilog2();
    let step = (last >> (bits - STEPS.ilog2())) & (STEPS - 1);
    Some((bits - SLOT_BITS.0) as usize * STEPS + step)
}

fn slots(class: usize) -> u32 {
    (slab_bytes(class) / slot_bytes(class)) as u32
}

fn slab_bytes(class: usize) -> usize {
    (slot_bytes(class) * SLAB_SLOTS_MIN).next_power_of_two().max(SLAB_BYTES_MIN)
}

/// The class a piece of this layout is in. None: it is the general allocator's.
fn class_for(layout: Layout) -> Option<usize> {
    // An interpreter that checks pointers sees more in an allocation of its own.
    if cfg!(miri) || layout.align() > HEADER_BYTES {
        return None;
    }
    class_of(layout.size().checked_add(HEADER_BYTES)?)
}

/// Memory that a piece of this layout takes.
pub(super) fn memory_bytes(layout: Layout) -> usize {
    class_for(layout).map_or(layout.size(), slot_bytes)
}

/// A piece to be freed by [`free`]. Its bytes are initialised, and of no particular value: zeros, or
/// what a piece before it left. `None` when there is no memory.
///
/// # Safety
/// The layout's size is not zero.
pub(super) unsafe fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    let Some(class) = class_for(layout) else {
        // SAFETY: the caller promises a size.
        return NonNull::new(unsafe { alloc_zeroed(layout) });
    };
    let slot = SLABS[class].lock().take(class);
    // SAFETY: the slot is that of nobody else, and holds the header and the layout's size behind it,
    // both aligned: slabs are pages, and slots are multiples of the header's size.
    unsafe {
        slot.start.cast::<usize>().write(slot.slab);
        Some(slot.start.add(HEADER_BYTES))
    }
}

/// Gives a piece back.
///
/// # Safety
/// It came from [`allocate`] with this layout, nobody uses it any more, and every byte of it is
/// initialised: who has it next may read them.
pub(super) unsafe fn free(piece: NonNull<u8>, layout: Layout) {
    let Some(class) = class_for(layout) else {
        // SAFETY: then `allocate` took it there, with this layout.
        return unsafe { dealloc(piece.as_ptr(), layout) };
    };
    // SAFETY: the header lies before every piece of a slab.
    let (start, slab) = unsafe {
        let start = piece.sub(HEADER_BYTES);
        (start, start.cast::<usize>().read())
    };
    let emptied = SLABS[class].lock().give_back(class, slab, start.addr().get() - slab);
    // Outside the lock: the operating system takes its time.
    drop(emptied);
}

/// A slot for a piece.
struct Slot {
    start: NonNull<u8>,
    /// Address of its slab.
    slab: usize,
}

impl Class {
    /// A free slot.
    fn take(&mut self, class: usize) -> Slot {
        let address = match self.partial.first() {
            Some(&address) => address,
            None => self.add_slab(class),
        };
        let Some(slab) = self.slabs.get_mut(&address) else { unreachable!("a partial slab is a slab") };
        if slab.used == 0 {
            self.empty -= 1;
        }
        slab.used += 1;
        let number = slab.free.pop().unwrap_or_else(|| {
            slab.fresh += 1;
            slab.fresh - 1
        });
        if slab.used == slots(class) {
            self.partial.remove(&address);
        }
        let offset = number as usize * slot_bytes(class);
        // SAFETY: the slab has this many slots, so this is inside its pages.
        let start = unsafe { slab.start.add(offset) };
        Slot { start, slab: address }
    }

    fn add_slab(&mut self, class: usize) -> usize {
        let mut pages = Pages::new(slab_bytes(class));
        let start = NonNull::from(&mut pages[..]).cast::<u8>();
        let address = start.addr().get();
        self.slabs.insert(address, Slab { _pages: pages, start, fresh: 0, free: Vec::new(), used: 0 });
        self.partial.insert(address);
        self.empty += 1;
        address
    }

    /// Takes a slot back. Returns a slab to be given back to the operating system.
    fn give_back(&mut self, class: usize, address: usize, offset: usize) -> Option<Slab> {
        let slab = self.slabs.get_mut(&address)?;
        slab.free.push((offset / slot_bytes(class)) as u32);
        slab.used -= 1;
        if slab.used > 0 {
            self.partial.insert(address);
            return None;
        }
        if self.empty > 0 {
            self.partial.remove(&address);
            return self.slabs.remove(&address);
        }
        self.empty += 1;
        self.partial.insert(address);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn classes_hold_what_they_are_for_and_not_much_more() {
        assert_eq!((class_of(1 << 11), class_of((1 << 17) + 1)), (None, None));
        for bytes in (1 << 11) + 1..=1 << 17 {
            let class = class_of(bytes).expect("in range");
            let slot = slot_bytes(class);
            assert!(slot >= bytes && slot <= bytes + bytes / STEPS + 1, "{bytes} in {slot}");
            assert!(slot.is_multiple_of(HEADER_BYTES));
            assert!(slots(class) as usize >= SLAB_SLOTS_MIN / 2 && class < CLASSES);
        }
    }

    /// Pieces of all sizes, from several threads, freed by others: apart, and what was written stays.
    #[test]
    fn pieces_are_apart_and_keep_what_is_written() {
        struct Piece(NonNull<u8>, Layout, u8);
        // SAFETY: a piece is memory of its own.
        unsafe impl Send for Piece {}
        let check_and_free = |piece: Piece| {
            // SAFETY: allocated with this layout, written whole, and freed once, here.
            unsafe {
                let bytes = std::slice::from_raw_parts(piece.0.as_ptr(), piece.1.size());
                assert!(bytes.iter().all(|&byte| byte == piece.2));
                free(piece.0, piece.1);
            }
        };
        let shelf: Mutex<Vec<Piece>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (shelf, check_and_free) = (&shelf, &check_and_free);
                scope.spawn(move || {
                    let mut random = Random::seeded(thread);
                    for round in 0..if cfg!(miri) { 4 } else { 3000 } {
                        let size = match random.below(4) {
                            0 => 1 + random.below(3000),
                            1 => 1 + random.below(200_000),
                            _ => 4000 + random.below(1200),
                        };
                        let layout = Layout::from_size_align(size as usize, 8).expect("layout");
                        // SAFETY: not of size zero.
                        let piece = unsafe { allocate(layout) }.expect("memory");
                        let fill = (round + thread * 7) as u8;
                        assert!(piece.addr().get().is_multiple_of(8));
                        // SAFETY: the piece is of this size and nobody else's.
                        unsafe {
                            std::slice::from_raw_parts_mut(piece.as_ptr(), layout.size()).fill(fill);
                        }
                        let mut shelf = shelf.lock();
                        shelf.push(Piece(piece, layout, fill));
                        if shelf.len() > 300 {
                            let index = random.index(shelf.len());
                            let piece = shelf.swap_remove(index);
                            drop(shelf);
                            check_and_free(piece);
                        }
                    }
                });
            }
        });
        for piece in shelf.into_inner() {
            check_and_free(piece);
        }
    }

    #[test]
    fn empty_slabs_go_back_and_low_ones_fill_first() {
        let class = class_of(5000).expect("in range");
        let mut slabs = Class::new();
        let slots = slots(class) as usize;
        let mut taken: Vec<(usize, usize)> = (0..3 * slots)
            .map(|_| {
                let slot = slabs.take(class);
                (slot.slab, slot.start.addr().get() - slot.slab)
            })
            .collect();
        assert_eq!((slabs.slabs.len(), slabs.partial.len()), (3, 0));
        taken.sort_unstable();
        // One slot of each slab, and the lowest slab serves first.
        for index in [0, slots, 2 * slots] {
            assert!(slabs.give_back(class, taken[index].0, taken[index].1).is_none());
        }
        assert_eq!(slabs.take(class).slab, taken[0].0);
        let gone: usize = taken[1..slots]
            .iter()
            .chain(&taken[slots + 1..2 * slots])
            .chain(&taken[2 * slots + 1..])
            .map(|&(slab, offset)| usize::from(slabs.give_back(class, slab, offset).is_some()))
            .sum();
        // The first slab still has the slot taken again; of the two empty ones one is kept.
        assert_eq!((gone, slabs.slabs.len(), slabs.empty), (1, 2, 1));
    }
}
