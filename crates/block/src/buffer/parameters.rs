//! What a write buffer is told, and what follows from it.

/// Which pages leave first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionOrder {
    /// All pages of the zone that nobody asked for longest (*ZLRU*: Zhang, section 4.4.3). On a disk without zones as `Pages`.
    #[default]
    Zones,
    /// The page that nobody asked for longest.
    Pages,
}

/// The numbers of a write buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferParameters {
    /// Pages of 4 KiB.
    pub page_count: u32,
    /// Which leave first.
    pub order: EvictionOrder,
    /// A zone with more pages than this is read, merged and written anew, where the disk has zones that may be written anywhere; `None` never
    /// does. Needs room for a zone beside the pages.
    pub rewrite_pages: Option<u32>,
    /// Pages that leave at least before those who wait go on.
    pub evicted_pages_min: u32,
    /// Requests of an eviction that are at the disk at once: reads of others wait behind them.
    pub requests_at_once: u32,
}

impl Default for BufferParameters {
    /// The paper's: 64 MB of pages, by zones, rewritten above 400. Not said there: 8 requests at once.
    fn default() -> Self {
        BufferParameters {
            page_count: 16_384,
            order: EvictionOrder::Zones,
            rewrite_pages: Some(400),
            evicted_pages_min: 1,
            requests_at_once: 8,
        }
    }
}

/// What a write buffer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferStatistics {
    /// Pages that were written over where they were.
    pub overwritten_pages: u64,
    /// Pages that were taken in.
    pub absorbed_pages: u64,
    /// Writes that went by the buffer, in order at a write pointer.
    pub direct_writes: u64,
    /// Pages of reads that were in the buffer.
    pub read_hit_pages: u64,
    /// Reads that asked the disk.
    pub disk_reads: u64,
    /// Pages that left for the disk.
    pub evicted_pages: u64,
    /// Writes to the disk that these were.
    pub eviction_writes: u64,
    /// Times that pages left.
    pub evictions: u64,
    /// Zones that were written anew.
    pub rewritten_zones: u64,
    /// Times that a write found no room.
    pub waits: u64,
    /// Records of the page map.
    pub records: u64,
}
