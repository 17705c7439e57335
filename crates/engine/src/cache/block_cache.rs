//! The block cache.
//!
//! There is no hash table: an open table has one [`Slot`] per data block, and a cached block hangs in
//! its slot. A hit is two atomic operations on that slot and on the block, takes no lock of the cache
//! and moves nothing. The cache proper knows only how much memory the blocks take and which of them to
//! drop: queues of (table, block) per shard, behind one short lock that only misses take.
//!
//! What to drop is decided by S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for
//! cache eviction", SOSP 2023): a small queue takes new blocks, so that a scan washes through it, and
//! those hit twice move on to the main queue; blocks dropped from the small queue leave a note
//! in their slot, and go to the main queue directly when they are read again soon. Everything is
//! deterministic.

use super::eviction::{EvictedBlock, EvictionSink};
use crate::block::DataBlock;
use crate::slot::{Slot, Taken};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// A tenth of a shard is for new blocks (section 4.2 of the paper).
const SMALL_QUEUE_SHARE: usize = 10;

/// Hits in the small queue that make a block move to the main queue.
const HITS_TO_STAY: u8 = 2;

/// Shards smaller than this serve large blocks badly, and only misses meet in them.
const SHARD_BYTES_MIN: usize = 4 << 20;
const SHARD_BITS_MAX: u32 = 6;

/// The cached blocks of one open table.
pub(crate) struct FileBlocks {
    /// Name of the file, for hints.
    name: Arc<str>,
    file_number: u64,
    slots: Box<[Slot<DataBlock>]>,
}

impl FileBlocks {
    pub(crate) fn new(file_number: u64, name: Arc<str>, blocks: usize) -> Arc<Self> {
        Arc::new(FileBlocks { name, file_number, slots: (0..blocks).map(|_| Slot::empty()).collect() })
    }

    /// The block, if it is cached. Counts a hit.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<DataBlock> {
        let found = self.slots[block].get()?;
        found.touch();
        Some(found)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of::<Self>()
    }
}

/// A place in a queue: a block that is, or was, in a slot.
struct Entry {
    file: Weak<FileBlocks>,
    block: u32,
}

#[derive(Default)]
struct Shard {
    small: VecDeque<Entry>,
    main: VecDeque<Entry>,
    small_bytes: usize,
    main_bytes: usize,
    /// Entries whose block was erased and not dropped by the queue.
    stale: usize,
    /// Blocks dropped from the small queue so far; notes in slots are values of this clock.
    clock: u64,
    insertions: u64,
    evictions: u64,
    refusals: u64,
}

/// What the cache has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCacheStatistics {
    /// Memory of the cached blocks, in bytes.
    pub(crate) usage_bytes: usize,
    /// Blocks.
    pub(crate) blocks: usize,
    /// Blocks put in, each of them a miss.
    pub(crate) insertions: u64,
    /// Blocks dropped to make room.
    pub(crate) evictions: u64,
    /// Blocks not put in because all others were in use.
    pub(crate) refusals: u64,
}

/// Bytes of a shard, in a cache line that is written only when they change.
#[repr(align(64))]
struct Usage(AtomicUsize);

/// A bounded amount of memory for data blocks. Thread-safe.
pub(crate) struct BlockCache {
    shards: Box<[Mutex<Shard>]>,
    /// Bytes in each shard, for those who only look.
    usage: Box<[Usage]>,
    shard_capacity: usize,
    capacity: usize,
    sink: Option<Arc<dyn EvictionSink>>,
}

impl BlockCache {
    /// A cache of `capacity` bytes in `2^shard_bits` shards, or in as many as suit the capacity. Blocks
    /// dropped to make room go to `sink`, if there is one.
    pub(crate) fn new(capacity: usize, shard_bits: Option<u32>, sink: Option<Arc<dyn EvictionSink>>) -> Self {
        let fitting = (capacity / SHARD_BYTES_MIN).max(1).ilog2();
        let bits = shard_bits.unwrap_or(fitting).min(SHARD_BITS_MAX);
        let shards = 1usize << bits;
        BlockCache {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            usage: (0..shards).map(|_| Usage(AtomicUsize::new(0))).collect(),
            shard_capacity: capacity / shards,
            capacity,
            sink,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks have to carry their bytes as they are on the medium.
    pub(crate) fn wants_stored_bytes(&self) -> bool {
        self.sink.is_some()
    }

    fn shard_of(&self, file: &FileBlocks, block: usize) -> usize {
        let mixed =
            (file.file_number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 32) as usize & (self.shards.len() - 1)
    }

    /// Tells those who only look what a locked shard holds now.
    fn note_usage(&self, number: usize, shard: &Shard) {
        self.usage[number].0.store(shard.small_bytes + shard.main_bytes, Ordering::Relaxed);
    }

    /// There is room for a block of about `bytes` without dropping another. Takes no lock.
    #[inline]
    pub(crate) fn has_room(&self, file: &FileBlocks, block: usize, bytes: usize) -> bool {
        let used = self.usage[self.shard_of(file, block)].0.load(Ordering::Relaxed);
        used + bytes + DataBlock::OVERHEAD_BYTES <= self.shard_capacity
    }

    /// Caches a block that was read. Returns the one to use: this one, or that of a thread that was
    /// faster. It may be used even when there was no room for it.
    pub(crate) fn insert(&self, file: &Arc<FileBlocks>, block: usize, value: DataBlock) -> DataBlock {
        let bytes = value.memory_bytes();
        if bytes > self.shard_capacity {
            return value;
        }
        let slot = &file.slots[block];
        let mut evicted = Vec::new();
        let number = self.shard_of(file, block);
        let mut shard = self.shards[number].lock();
        // Blocks of one slot are put in under one lock, so the slot stays empty if it is.
        if let Some(faster) = slot.get() {
            return faster;
        }
        if !shard.make_room(self.shard_capacity - bytes, self.shard_capacity / SMALL_QUEUE_SHARE, &mut evicted) {
            shard.refusals += 1;
        } else if let Ok(note) = slot.put_if_empty(value.clone()) {
            // The ghost queue of the paper is as long as the main queue; here it is the time in which
            // as many blocks were dropped.
            let ghost = note.is_some_and(|note| shard.clock.wrapping_sub(note) <= shard.main.len().max(16) as u64);
            let entry = Entry { file: Arc::downgrade(file), block: block as u32 };
            shard.insertions += 1;
            value.set_in_main_queue(ghost);
            if ghost {
                shard.main_bytes += bytes;
                shard.main.push_back(entry);
            } else {
                shard.small_bytes += bytes;
                shard.small.push_back(entry);
            }
        }
        self.note_usage(number, &shard);
        drop(shard);
        self.hand_over(evicted);
        value
    }

    fn hand_over(&self, evicted: Vec<(Arc<FileBlocks>, DataBlock)>) {
        if let Some(sink) = &self.sink {
            for (file, block) in evicted {
                sink.try_send(EvictedBlock::new(file.name.clone(), block));
            }
        }
    }

    /// Drops every cached block of a table that is being closed. Nothing goes to the sink.
    pub(crate) fn erase(&self, file: &FileBlocks) {
        for (block, slot) in file.slots.iter().enumerate() {
            if slot.get().is_none() {
                continue;
            }
            let number = self.shard_of(file, block);
            let mut shard = self.shards[number].lock();
            if let Taken::Out(gone) = slot.take_if(None, |_| true) {
                shard.subtract(&gone);
                shard.stale += 1;
                if shard.stale > 64 && shard.stale > (shard.small.len() + shard.main.len()) / 2 {
                    shard.drop_stale();
                }
            }
            self.note_usage(number, &shard);
        }
    }

    pub(crate) fn statistics(&self) -> BlockCacheStatistics {
        let mut sum = BlockCacheStatistics::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sum.usage_bytes += shard.small_bytes + shard.main_bytes;
            sum.blocks += (shard.small.len() + shard.main.len()).saturating_sub(shard.stale);
            sum.insertions += shard.insertions;
            sum.evictions += shard.evictions;
            sum.refusals += shard.refusals;
        }
        sum
    }
}

impl Shard {
    fn subtract(&mut self, block: &DataBlock) {
        if block.in_main_queue() {
            self.main_bytes -= block.memory_bytes();
        } else {
            self.small_bytes -= block.memory_bytes();
        }
    }

    fn drop_stale(&mut self) {
        let live =
            |entry: &Entry| entry.file.upgrade().is_some_and(|file| file.slots[entry.block as usize].get().is_some());
        self.small.retain(live);
        self.main.retain(live);
        self.stale = 0;
    }

    /// Drops blocks until at most `limit` bytes are left. False when those in use take more.
    fn make_room(&mut self, limit: usize, small_limit: usize, evicted: &mut Vec<(Arc<FileBlocks>, DataBlock)>) -> bool {
        // Each block can be passed over once per hit that counts, and once because it is in use.
        let mut patience = 5 * (self.small.len() + self.main.len()) + 1;
        while self.small_bytes + self.main_bytes > limit {
            patience -= 1;
            if patience == 0 {
                return false;
            }
            let from_small = self.small_bytes > small_limit || self.main.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let Some(entry) = queue.pop_front() else {
                // All bytes are in the main queue though the small one was to give some.
                continue;
            };
            let Some(file) = entry.file.upgrade() else {
                self.stale = self.stale.saturating_sub(1);
                continue;
            };
            let mut hits = 0;
            let mut memory = 0;
            let slot = &file.slots[entry.block as usize];
            let taken = slot.take_if(from_small.then_some(self.clock), |block| {
                hits = block.frequency();
                memory = block.memory_bytes();
                let in_use = block.references() > 1;
                !in_use && hits < if from_small { HITS_TO_STAY } else { 1 }
            });
            match taken {
                Taken::Empty => self.stale = self.stale.saturating_sub(1),
                Taken::Out(block) => {
                    self.subtract(&block);
                    self.clock += u64::from(from_small);
                    self.evictions += 1;
                    evicted.push((file, block));
                }
                Taken::Kept => self.keep(file, entry, from_small, hits, memory),
            }
        }
        true
    }

    /// Puts back an entry whose block stays.
    fn keep(&mut self, file: Arc<FileBlocks>, entry: Entry, from_small: bool, hits: u8, memory: usize) {
        let block = file.slots[entry.block as usize].get();
        let Some(block) = block else {
            return;
        };
        if from_small && hits >= HITS_TO_STAY {
            block.set_frequency(0);
            if !block.in_main_queue() {
                block.set_in_main_queue(true);
                self.small_bytes -= memory;
                self.main_bytes += memory;
            }
            self.main.push_back(entry);
        } else if from_small {
            self.small.push_back(entry);
        } else {
            block.set_frequency(hits.saturating_sub(1));
            self.main.push_back(entry);
        }
    }
}
