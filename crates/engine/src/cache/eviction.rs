//! What happens to blocks that had to make room.

use crate::block::DataBlock;
use std::sync::Arc;
use varve_env::Env;
use varve_env::channel::{Receiver, Sender, bounded};

/// A block the cache dropped to make room.
pub(crate) struct EvictedBlock {
    file: Arc<str>,
    block: DataBlock,
}

impl EvictedBlock {
    pub(crate) fn new(file: Arc<str>, block: DataBlock) -> Self {
        EvictedBlock { file, block }
    }

    /// Name of the table's file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Where the block is in the file.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.block.offset_bytes()
    }

    /// The block as it is on the medium, trailer included.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.stored_bytes()
    }
}

/// Takes blocks the cache dropped. Called without any lock of the cache held.
pub(crate) trait EvictionSink: Send + Sync {
    /// Takes a block, or drops it when too many wait already. Never waits.
    fn try_send(&self, evicted: EvictedBlock);
}

/// A bounded queue of evicted blocks; what does not fit is dropped.
pub(crate) struct EvictionQueue {
    sender: Sender<EvictedBlock>,
}

impl EvictionQueue {
    /// A queue for `capacity` blocks, and its other end.
    pub(crate) fn new(env: &Env, capacity: usize) -> (Arc<Self>, Receiver<EvictedBlock>) {
        let (sender, receiver) = bounded(env, "cache evictions", capacity);
        (Arc::new(EvictionQueue { sender }), receiver)
    }
}

impl EvictionSink for EvictionQueue {
    fn try_send(&self, evicted: EvictedBlock) {
        // Full, or nobody listens any more: the store can do without the hint.
        let _ = self.sender.try_send(evicted);
    }
}
