//! Memory of a block and what is known of it, in one allocation with a reference count.
//!
//! A lookup in a cached block needs the count, the layout, and the end of the contents where records
//! and keys are. Here they are neighbours: the contents come first and the rest right behind them, so
//! that the lines a lookup will want are known from the one pointer a slot holds, and can be fetched
//! together. A block read from a medium takes one allocation instead of two.

use super::slab;
use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What stands behind the bytes.
struct Header<T> {
    references: AtomicUsize,
    value: T,
    length: usize,
}

/// Size and alignment of an allocation for `length` bytes, and where in it the header is.
fn place<T>(length: usize) -> Option<(Layout, usize)> {
    let bytes = Layout::from_size_align(length, 1).ok()?;
    let (layout, header_at) = bytes.extend(Layout::new::<Header<T>>()).ok()?;
    Some((layout, header_at))
}

/// Bytes that will be a block: written first, described later.
pub(crate) struct BlockBuffer<T> {
    start: NonNull<u8>,
    length: usize,
    /// Where the header will be.
    header_at: usize,
    becomes: PhantomData<T>,
}

// SAFETY: it owns its bytes alone; no `T` exists in it.
unsafe impl<T> Send for BlockBuffer<T> {}
// SAFETY: shared access only reads bytes.
unsafe impl<T> Sync for BlockBuffer<T> {}

impl<T> BlockBuffer<T> {
    /// Bytes of no particular value, to be written. `None` when there is no memory for so many, so that a
    /// length read from a medium cannot end the process.
    pub(crate) fn new(length: usize) -> Option<Self> {
        let (layout, header_at) = place::<T>(length)?;
        // SAFETY: the size is not zero, since a header is in it.
        match unsafe { slab::allocate(layout) } {
            Some(start) => Some(BlockBuffer { start, length, header_at, becomes: PhantomData }),
            // A small request fails only when nothing goes on anyway.
            None if length < 1 << 20 => handle_alloc_error(layout),
            None => None,
        }
    }

    /// A copy of bytes that are in memory already.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        match Self::new(bytes.len()) {
            Some(mut buffer) => {
                buffer.copy_from_slice(bytes);
                buffer
            }
            None => handle_alloc_error(Layout::new::<u8>()),
        }
    }

    /// The block. Its bytes do not change any more.
    pub(crate) fn share(self, value: T) -> Block<T> {
        let (start, length, header_at) = (self.start, self.length, self.header_at);
        std::mem::forget(self);
        // SAFETY: `place` has put the header there, aligned and within the allocation.
        let header = unsafe { start.add(header_at) }.cast::<Header<T>>();
        // SAFETY: as above; nothing was there before.
        unsafe { header.write(Header { references: AtomicUsize::new(1), value, length }) };
        Block { header }
    }
}

impl<T> Drop for BlockBuffer<T> {
    fn drop(&mut self) {
        if let Some((layout, _)) = place::<T>(self.length) {
            // SAFETY: allocated in `new` with this layout, and nothing but bytes was written to it; `share`
            // forgets the buffer it takes.
            unsafe { slab::free(self.start, layout) }
        }
    }
}

impl<T> Deref for BlockBuffer<T> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: so many initialised bytes are there while the buffer is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for BlockBuffer<T> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

/// A shared block: bytes and what is known of them. Clones are the same block, like those of an `Arc`.
pub(crate) struct Block<T> {
    header: NonNull<Header<T>>,
}

// SAFETY: as `Arc<T>`: clones on several threads share `T`, and the last one drops it.
unsafe impl<T: Send + Sync> Send for Block<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Block<T> {}

impl<T> Block<T> {
    /// Memory an allocation takes besides its bytes.
    pub(crate) const OVERHEAD_BYTES: usize = size_of::<Header<T>>() + align_of::<Header<T>>();

    #[inline(always)]
    fn header(&self) -> &Header<T> {
        // SAFETY: the header lives as long as there are references, of which this is one.
        unsafe { self.header.as_ref() }
    }

    /// What is known of the bytes.
    #[inline(always)]
    pub(crate) fn value(&self) -> &T {
        &self.header().value
    }

    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let length = self.header().length;
        // SAFETY: the bytes end where the header's padding begins, `length` bytes from the start of
        // the allocation they share with it, and are never written once shared.
        unsafe { std::slice::from_raw_parts(self.start(length).as_ptr(), length) }
    }

    #[inline(always)]
    fn start(&self, length: usize) -> NonNull<u8> {
        let header_at = length.next_multiple_of(align_of::<Header<T>>());
        // SAFETY: `place` has put the header so many bytes behind the start of the allocation: bytes
        // have alignment 1, so `extend` pads them just up to the header's alignment.
        unsafe { self.header.cast::<u8>().sub(header_at) }
    }

    /// Memory the block takes, with what its allocation leaves unused.
    pub(crate) fn memory_bytes(&self) -> usize {
        place::<T>(self.header().length).map_or(0, |(layout, _)| slab::memory_bytes(layout))
    }

    /// How many clones there are.
    #[inline]
    pub(crate) fn references(&self) -> usize {
        self.header().references.load(Ordering::Acquire)
    }

    /// Gives the reference away as a pointer.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut () {
        let raw = self.header.as_ptr().cast();
        std::mem::forget(self);
        raw
    }

    /// Takes a reference back.
    ///
    /// # Safety
    /// `raw` came from [`Block::into_raw`] of the same type, and stands for a reference nobody else
    /// takes back.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: it came from a `NonNull`.
        Block { header: unsafe { NonNull::new_unchecked(raw.cast()) } }
    }

    /// Counts one more reference, to be taken back by [`Block::from_raw`].
    ///
    /// # Safety
    /// `raw` came from [`Block::into_raw`] of the same type, and that reference is still there.
    #[inline]
    pub(crate) unsafe fn retain(raw: *mut ()) {
        // SAFETY: the header is there while a reference is. The count cannot overflow: references
        // are in memory, each in a place of its own.
        unsafe { &*raw.cast::<Header<T>>() }.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks the processor for the lines a lookup begins with. `raw` may be stale: nothing is read.
    #[inline(always)]
    pub(crate) fn prefetch(raw: *mut ()) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let raw = raw.cast::<i8>();
            for line in [0, 64, -64isize, -128] {
                // SAFETY: a prefetch is a hint and cannot fault, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(raw.wrapping_offset(line)) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = raw;
    }
}

impl<T> Clone for Block<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.header().references.fetch_add(1, Ordering::Relaxed);
        Block { header: self.header }
    }
}

impl<T> Drop for Block<T> {
    #[inline]
    fn drop(&mut self) {
        // Release: what this thread did with the block happens before it is freed.
        if self.header().references.fetch_sub(1, Ordering::Release) == 1 {
            // A load where a fence would do: ThreadSanitizer does not know fences, and this costs the same.
            self.header().references.load(Ordering::Acquire);
            self.free();
        }
    }
}

impl<T> Block<T> {
    #[cold]
    #[inline(never)]
    fn free(&mut self) {
        let length = self.header().length;
        let start = self.start(length);
        // SAFETY: this was the last reference.
        unsafe {
            std::ptr::drop_in_place(self.header.as_ptr());
            // Its padding is not initialised, and its memory will be somebody's bytes.
            self.header.cast::<u8>().write_bytes(0, size_of::<Header<T>>());
        }
        if let Some((layout, _)) = place::<T>(length) {
            // SAFETY: allocated in `BlockBuffer::new` with this layout.
            unsafe { slab::free(start, layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn bytes_and_value_live_until_the_last_reference_goes() {
        for length in [0, 1, 7, 8, 9, 63, 64, 4096, 4101, 100_000] {
            let witness = Arc::new(());
            let mut buffer = BlockBuffer::<(Arc<()>, u64)>::new(length).expect("small");
            buffer.fill(7);
            let block = buffer.share((witness.clone(), 42));
            assert_eq!((block.bytes().len(), block.value().1, block.references()), (length, 42, 1));
            let other = block.clone();
            let raw = other.into_raw();
            // SAFETY: `raw` stands for a reference.
            unsafe { Block::<(Arc<()>, u64)>::retain(raw) };
            assert_eq!(block.references(), 3);
            drop(block);
            // SAFETY: two references are left.
            let (one, two) =
                unsafe { (Block::<(Arc<()>, u64)>::from_raw(raw), Block::<(Arc<()>, u64)>::from_raw(raw)) };
            drop(one);
            assert_eq!((Arc::strong_count(&witness), two.bytes().iter().all(|byte| *byte == 7)), (2, true));
            Block::<(Arc<()>, u64)>::prefetch(raw);
            drop(two);
            assert_eq!(Arc::strong_count(&witness), 1);
        }
        drop(BlockBuffer::<u64>::copy_of(b"never shared"));
    }

    #[test]
    fn an_impossible_length_is_refused() {
        assert!(BlockBuffer::<u64>::new(usize::MAX).is_none());
        assert!(BlockBuffer::<u64>::new(isize::MAX as usize - 4).is_none());
    }

    #[test]
    fn threads_count_together() {
        let witness = Arc::new(());
        let block = BlockBuffer::<Arc<()>>::copy_of(&[9; 100]).share(witness.clone());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let block = block.clone();
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 100 } else { 10_000 } {
                        let clone = block.clone();
                        assert_eq!(clone.bytes()[99], 9);
                    }
                });
            }
        });
        assert_eq!((block.references(), Arc::strong_count(&witness)), (1, 2));
        drop(block);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
