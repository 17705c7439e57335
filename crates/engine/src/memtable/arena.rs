//! Memory that is taken in small pieces and given back all at once.

use crate::sync::{Arc, AtomicPtr, AtomicUsize, Mutex, Published};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use varve_env::Pages;

/// Every chunk starts on a multiple of this.
const CHUNK_ALIGNMENT: usize = 64;

/// Chunks from this size on are pages of their own: they come and go with memtables, and in a heap
/// the blocks cached meanwhile would keep their places from being given back.
const PAGES_BYTES_MIN: usize = 64 << 10;

/// Chunks that pieces are cut from. Pieces may be taken from any thread at once; they live, at
/// their address, until the arena is dropped.
///
/// A piece larger than a quarter of a chunk gets a chunk of its own, so at most a quarter of each
/// chunk is left unused.
pub(crate) struct Arena {
    pool: Arc<ChunkPool>,
    /// The chunk pieces are cut from; null before the first.
    current: AtomicPtr<Chunk>,
    /// Bytes of chunks made for one large piece each.
    large_bytes: AtomicUsize,
    /// Every chunk; held while one is added.
    #[allow(clippy::vec_box, reason = "a chunk's address must not change")]
    chunks: Mutex<Vec<Box<Chunk>>>,
}

/// Chunks that arenas left behind, for arenas to come: memory the operating system has mapped costs
/// less than new memory. Thread-safe.
pub(crate) struct ChunkPool {
    chunk_bytes: usize,
    chunks_max: usize,
    #[allow(clippy::vec_box, reason = "a chunk's address must not change")]
    chunks: Mutex<Vec<Box<Chunk>>>,
}

impl ChunkPool {
    /// A pool of chunks of `chunk_bytes` that keeps at most `kept_bytes` of them.
    pub(crate) fn new(chunk_bytes: usize, kept_bytes: usize) -> Self {
        ChunkPool { chunk_bytes, chunks_max: kept_bytes / chunk_bytes.max(1), chunks: Mutex::new(Vec::new()) }
    }

    fn take(&self, used: usize, bytes_before: usize) -> Box<Chunk> {
        match self.chunks.lock().pop() {
            Some(mut chunk) => {
                // Nobody else has it.
                chunk.used.store(used, Ordering::Relaxed);
                chunk.place = Published::new(Place { bytes_before, ..*chunk.place.get() });
                chunk
            }
            None => Chunk::new(self.chunk_bytes, used, bytes_before),
        }
    }

    fn give_back(&self, chunk: Box<Chunk>) {
        let mut chunks = self.chunks.lock();
        if chunk.bytes() == self.chunk_bytes && chunks.len() < self.chunks_max {
            chunks.push(chunk);
        }
    }
}

struct Chunk {
    place: Published<Place>,
    memory: ChunkMemory,
    /// Bytes taken from this chunk.
    used: AtomicUsize,
}

/// Where a chunk's bytes are, and which of an arena's they are.
struct Place {
    data: NonNull<u8>,
    bytes: usize,
    /// Bytes of the shared chunks before this one.
    bytes_before: usize,
}

/// What a chunk's memory is freed as.
enum ChunkMemory {
    Heap(Layout),
    /// Kept for its drop.
    Pages {
        _pages: Pages,
    },
}

// SAFETY: a chunk owns its memory like a Box does, and hands it out by pointer only.
unsafe impl Send for Chunk {}
// SAFETY: pieces are taken by an atomic counter, each byte of a chunk by one caller at most.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(bytes: usize, used: usize, bytes_before: usize) -> Box<Chunk> {
        let chunk = |data, bytes, memory| {
            let place = Published::new(Place { data, bytes, bytes_before });
            Box::new(Chunk { place, memory, used: AtomicUsize::new(used) })
        };
        if bytes >= PAGES_BYTES_MIN {
            let mut pages = Pages::new(bytes);
            // Pages begin at a multiple of far more than a chunk's alignment.
            let Some(data) = NonNull::new(pages.as_mut_ptr()) else { handle_alloc_error(Layout::new::<u8>()) };
            return chunk(data, bytes, ChunkMemory::Pages { _pages: pages });
        }
        let Ok(layout) = Layout::from_size_align(bytes.max(1), CHUNK_ALIGNMENT) else {
            // Larger than the address space; no caller can hold such a value.
            panic!("arena piece of {bytes} bytes");
        };
        // SAFETY: the layout is not of size zero.
        let data = unsafe { alloc(layout) };
        let Some(data) = NonNull::new(data) else { handle_alloc_error(layout) };
        chunk(data, layout.size(), ChunkMemory::Heap(layout))
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.place.get().bytes
    }

    #[inline]
    fn data(&self) -> NonNull<u8> {
        self.place.get().data
    }

    /// Bytes of the shared chunks before this one, and of it.
    #[inline]
    fn bytes_before_next(&self) -> usize {
        self.place.get().bytes_before + self.bytes()
    }

    /// Takes `bytes` if they are left.
    #[inline]
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            if bytes > self.bytes() - used {
                return None;
            }
            match self.used.compare_exchange_weak(used, used + bytes, Ordering::Relaxed, Ordering::Relaxed) {
                // SAFETY: used + bytes is at most the chunk's size, so this is inside it.
                Ok(_) => return Some(unsafe { self.data().add(used) }),
                Err(now) => used = now,
            }
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let ChunkMemory::Heap(layout) = self.memory {
            // SAFETY: allocated with this layout and freed once.
            unsafe { dealloc(self.data().as_ptr(), layout) }
        }
    }
}

impl Arena {
    /// An arena that takes its chunks from `pool`.
    pub(crate) fn new(pool: &Arc<ChunkPool>) -> Self {
        Arena {
            pool: pool.clone(),
            current: AtomicPtr::new(ptr::null_mut()),
            large_bytes: AtomicUsize::new(0),
            chunks: Mutex::new(Vec::new()),
        }
    }

    /// A piece of `bytes`, not initialised. It is aligned to the largest power of two, up to 64,
    /// that divides the sizes of all pieces taken from this arena.
    #[inline]
    pub(crate) fn take(&self, bytes: usize) -> NonNull<u8> {
        // SAFETY: chunks are freed only when the arena is dropped; null becomes None.
        let current = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        if let Some(chunk) = current
            && let Some(piece) = chunk.take(bytes)
        {
            return piece;
        }
        self.take_from_new_chunk(bytes)
    }

    #[cold]
    fn take_from_new_chunk(&self, bytes: usize) -> NonNull<u8> {
        let mut chunks = self.chunks.lock();
        if bytes > self.pool.chunk_bytes / 4 {
            let chunk = Chunk::new(bytes, bytes, 0);
            let piece = chunk.data();
            self.large_bytes.fetch_add(bytes, Ordering::Relaxed);
            chunks.push(chunk);
            return piece;
        }
        // SAFETY: as in `take`.
        let current = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        let mut bytes_before = 0;
        if let Some(chunk) = current {
            // Another thread may have added one meanwhile.
            if let Some(piece) = chunk.take(bytes) {
                return piece;
            }
            bytes_before = chunk.bytes_before_next();
        }
        let chunk = self.pool.take(bytes, bytes_before);
        let piece = chunk.data();
        chunks.push(chunk);
        if let Some(chunk) = chunks.last() {
            self.current.store(ptr::from_ref::<Chunk>(chunk).cast_mut(), Ordering::Release);
        }
        piece
    }

    /// Bytes taken, the unused ends of full chunks included.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        // SAFETY: as in `take`.
        let current = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        let shared = current.map_or(0, |chunk| chunk.place.get().bytes_before + chunk.used.load(Ordering::Relaxed));
        shared + self.large_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all chunks.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.chunks.lock().iter().map(|chunk| chunk.bytes()).sum()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().drain(..) {
            self.pool.give_back(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_aligned_and_counted() {
        let arena = Arena::new(&Arc::new(ChunkPool::new(1024, 0)));
        assert_eq!(arena.used_bytes(), 0);
        let mut pieces = Vec::new();
        for index in 0..200_usize {
            let bytes = 8 * (1 + index % 50);
            let piece = arena.take(bytes);
            assert_eq!(piece.as_ptr() as usize % 8, 0);
            // SAFETY: the piece has this many bytes and no one else holds it.
            unsafe { piece.as_ptr().write_bytes(index as u8, bytes) };
            pieces.push((piece, bytes, index as u8));
        }
        for (piece, bytes, mark) in &pieces {
            // SAFETY: written above.
            let found = unsafe { std::slice::from_raw_parts(piece.as_ptr(), *bytes) };
            assert!(found.iter().all(|byte| byte == mark));
        }
        let total: usize = pieces.iter().map(|piece| piece.1).sum();
        assert!(arena.used_bytes() >= total);
        assert!(arena.reserved_bytes() >= arena.used_bytes());
        assert!(arena.used_bytes() < total + total / 3 + 1024);
    }

    #[test]
    fn a_large_piece_leaves_the_chunk_in_use() {
        let arena = Arena::new(&Arc::new(ChunkPool::new(1024, 0)));
        let first = arena.take(64);
        arena.take(1 << 20);
        let second = arena.take(64);
        assert_eq!(second.as_ptr() as usize, first.as_ptr() as usize + 64);
        assert_eq!(arena.used_bytes(), 128 + (1 << 20));
    }

    #[test]
    fn chunks_go_from_one_arena_to_the_next() {
        let pool = Arc::new(ChunkPool::new(1024, 3 * 1024));
        let fill = || {
            let arena = Arena::new(&pool);
            arena.take(1 << 16);
            let pieces: Vec<usize> = (0..20).map(|_| arena.take(200).as_ptr() as usize).collect();
            assert_eq!(arena.used_bytes(), (1 << 16) + 3 * 1024 + 5 * 200);
            pieces
        };
        let first = fill();
        assert_eq!(pool.chunks.lock().len(), 3);
        let second = fill();
        assert!(second.iter().filter(|piece| first.contains(piece)).count() >= 15);
        assert_eq!(pool.chunks.lock().len(), 3);
    }

    #[test]
    fn threads_never_get_the_same_byte() {
        let arena = Arena::new(&Arc::new(ChunkPool::new(4096, 0)));
        let starts: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..200).map(|_| arena.take(24).as_ptr() as usize).collect())).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let mut starts: Vec<usize> = starts.into_iter().flatten().collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 24));
    }
}
