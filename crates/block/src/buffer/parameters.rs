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

impl EvictionOrder {
    /// Whether pages leave with others of their zone, where the disk has zones.
    pub(super) fn is_by_zones(self) -> bool {
        self != EvictionOrder::Pages
    }
}

/// How pages leave before room is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionAhead {
    /// One in so many pages is kept free. The fewer that is, the less of what is written again is still there.
    pub reserve_share: u32,
    /// When less than one in so many is free pages leave although requests are outstanding.
    pub urgent_share: u32,
    /// How long no request must have been outstanding at the disk, while there is no hurry.
    pub quiet_nanos: u64,
}

impl Default for EvictionAhead {
    fn default() -> Self {
        EvictionAhead { reserve_share: 8, urgent_share: 32, quiet_nanos: 2_000_000 }
    }
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
    /// Evictions that those who wait for room have under way at once. They begin no more than they need.
    pub evictions_at_once: u32,
    /// How pages leave before room is needed, in a thread of its own; `None` lets them leave when somebody waits for room, as in the paper.
    pub ahead: Option<EvictionAhead>,
}

impl BufferParameters {
    /// The paper's: 64 MB of pages, by zones, rewritten above 400; pages leave when room is needed. Not said there: 8 requests at once, of one eviction.
    pub fn paper() -> Self {
        BufferParameters {
            page_count: 16_384,
            order: EvictionOrder::Zones,
            rewrite_pages: Some(400),
            evicted_pages_min: 1,
            requests_at_once: 8,
            evictions_at_once: 1,
            ahead: None,
        }
    }
}

impl Default for BufferParameters {
    /// The paper's, but for evictions: pages leave ahead of need, and where that was not enough in several evictions at once.
    fn default() -> Self {
        BufferParameters { evictions_at_once: 16, ahead: Some(EvictionAhead::default()), ..BufferParameters::paper() }
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
    /// Of these, those before room was needed.
    pub evictions_ahead: u64,
    /// Zones that were written anew.
    pub rewritten_zones: u64,
    /// Writes that waited for room.
    pub waits: u64,
    /// Records of the page map.
    pub records: u64,
}
