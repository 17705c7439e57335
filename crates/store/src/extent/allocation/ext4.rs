//! Placement as the multi-block allocator of ext4 does it.
//!
//! After Linux `fs/ext4/mballoc.c` and its own description at the top of that file, of the 5.x and
//! 6.x series, reduced to what decides where blocks of a log-structured store go:
//!
//! - a request of a growing file is *normalized*: rounded up to a power of two between 16 KiB and
//!   8 MiB, the more the larger the file (`ext4_mb_normalize_request`); what is left of the chunk is
//!   the inode's preallocation;
//! - a *large* file (over 64 KiB, `s_mb_stream_request`) continues from its last block or else from
//!   where the last large allocation ended (`s_mb_last_group`, `s_mb_last_start`), group by group;
//! - a *small* file comes from the locality group's chunk near the start of the directory's block
//!   group: here, first fit from the first group;
//! - the search takes the first group with a free run of the whole chunk, then any group with the
//!   largest run that serves the need, then fragments.

use super::{AllocationPolicy, AllocationRequest, AllocationView, Placement, cut, gather};
use crate::extent::Extent;
use crate::extent::geometry::Ext4Geometry;

/// `s_mb_stream_request`, in blocks: files up to this size are small.
const STREAM_BLOCKS: u64 = 16;
/// Largest normalized chunk: 8 MiB.
const CHUNK_BLOCKS_MAX: u64 = 2048;

pub(super) struct Ext4Allocation {
    group_blocks: u64,
    groups: u64,
}

impl Ext4Allocation {
    pub(super) fn new(geometry: &Ext4Geometry) -> Self {
        Ext4Allocation { group_blocks: geometry.group_blocks, groups: geometry.groups }
    }

    /// The chunk asked for: a power of two that covers the need and grows with the file.
    fn normalized(&self, request: &AllocationRequest) -> u64 {
        let size = (request.file_blocks + request.needed_blocks).min(CHUNK_BLOCKS_MAX);
        let chunk = size.next_power_of_two().clamp(4, CHUNK_BLOCKS_MAX);
        chunk.max(request.needed_blocks).min(self.group_blocks.max(request.needed_blocks))
    }

    /// The first run of `blocks` in groups from that of `goal` on, from `goal` in its own group.
    fn find(&self, view: &AllocationView<'_>, goal: u64, blocks: u64) -> Option<Extent> {
        let goal_group = goal / self.group_blocks;
        for step in 0..=self.groups {
            let group = (goal_group + step) % self.groups.max(1);
            let start = group * self.group_blocks;
            let end = (start + self.group_blocks).min(view.end);
            let from = if step == 0 { goal.clamp(start, end) } else { start };
            if let Some(range) = view.free.ranges_within(from..end).find(|range| range.blocks >= blocks) {
                return Some(range);
            }
        }
        None
    }
}

impl AllocationPolicy for Ext4Allocation {
    fn place(&self, view: &AllocationView<'_>, request: &AllocationRequest) -> Option<Placement> {
        let large = request.file_blocks + request.needed_blocks > STREAM_BLOCKS;
        let chunk = if large { self.normalized(request) } else { request.needed_blocks };
        if let Some(behind) = request.behind {
            // A chunk never leaves its group, where the bitmap ends.
            let in_group = self.group_blocks - behind % self.group_blocks;
            let blocks = view.free.blocks_from(behind).min(chunk).min(in_group);
            if blocks >= request.needed_blocks {
                let extent = Extent { start: behind, blocks };
                return Some(self.placed(view, large, vec![extent]));
            }
        }
        let goal = if large { view.cursor } else { 0 };
        let found = self.find(view, goal, chunk).or_else(|| self.find(view, goal, request.needed_blocks));
        let extents = match found {
            Some(range) => vec![cut(range, chunk)],
            None => gather(view, request)?,
        };
        Some(self.placed(view, large, extents))
    }
}

impl Ext4Allocation {
    fn placed(&self, view: &AllocationView<'_>, large: bool, extents: Vec<Extent>) -> Placement {
        let behind = extents.last().map_or(view.cursor, |extent| extent.start + extent.blocks);
        Placement { extents, cursor: if large { behind } else { view.cursor } }
    }
}
