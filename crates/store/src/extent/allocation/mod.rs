//! Where a file's next blocks go.
//!
//! A policy is a pure function from the free space and what is known about the file to extents. It
//! changes nothing; the store takes the extents out of the free space. A new policy is one new file
//! and one line in [`policy_of`].

mod ext4;
mod first_fit;
mod next_fit;

use super::free_space::FreeSpace;
use super::geometry::LayoutGeometry;
use super::{Extent, FileKind};
use ext4::Ext4Allocation;
use first_fit::FirstFit;
use next_fit::NextFit;
use std::ops::Range;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocationView<'a> {
    pub(super) free: &'a FreeSpace,
    /// Blocks near the metadata, preferred for logs and small files.
    pub(super) log_zone: &'a Range<u64>,
    /// One past the last block of the store.
    pub(super) end: u64,
    /// Block behind the last placement of this policy; 0 when the store was just opened.
    pub(super) cursor: u64,
}

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocationRequest {
    /// Blocks that must be given.
    pub(super) needed_blocks: u64,
    /// Blocks that would be good, because more of the file is expected; at least `needed_blocks`.
    pub(super) wanted_blocks: u64,
    /// Block behind the file's last one.
    pub(super) behind: Option<u64>,
    /// What the file holds.
    pub(super) kind: FileKind,
    /// Blocks the file has.
    pub(super) file_blocks: u64,
}

/// What a policy answers: extents in file order, together at least the needed blocks, all free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) extents: Vec<Extent>,
    /// The cursor from now on.
    pub(super) cursor: u64,
}

/// How blocks are chosen.
pub(super) trait AllocationPolicy: Send + Sync {
    /// Places blocks; `None` only when fewer than the needed blocks are free.
    fn place(&self, view: &AllocationView<'_>, request: &AllocationRequest) -> Option<Placement>;
}

/// The policy of a layout.
pub(super) fn policy_of(layout: &LayoutGeometry) -> Box<dyn AllocationPolicy> {
    match layout {
        LayoutGeometry::FirstFit => Box::new(FirstFit),
        LayoutGeometry::NextFit => Box::new(NextFit),
        LayoutGeometry::Ext4(geometry) => Box::new(Ext4Allocation::new(geometry)),
    }
}

/// Whether a file belongs near the metadata rather than among the tables.
fn is_small(kind: FileKind) -> bool {
    matches!(kind, FileKind::Log | FileKind::Manifest | FileKind::Pointer)
}

/// The start of a range, as long as wanted.
fn cut(range: Extent, blocks: u64) -> Extent {
    Extent { start: range.start, blocks: range.blocks.min(blocks) }
}

/// The last resort of every policy: the largest ranges until the need is covered.
fn gather(view: &AllocationView<'_>, request: &AllocationRequest) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut missing = request.needed_blocks;
    if missing > view.free.blocks() {
        return None;
    }
    for range in view.free.ranges_by_size() {
        let extent = cut(range, missing);
        missing -= extent.blocks;
        extents.push(extent);
        if missing == 0 {
            return Some(extents);
        }
    }
    None
}

/// One extent: directly behind the file when there is space, else the first of `windows` that has all
/// that is wanted, else the first that has what is needed.
fn contiguous(view: &AllocationView<'_>, request: &AllocationRequest, windows: &[Range<u64>]) -> Option<Extent> {
    if let Some(behind) = request.behind {
        let blocks = view.free.blocks_from(behind).min(request.wanted_blocks);
        if blocks >= request.needed_blocks {
            return Some(Extent { start: behind, blocks });
        }
    }
    for blocks in [request.wanted_blocks, request.needed_blocks] {
        for window in windows {
            let found = view.free.ranges_within(window.clone()).find(|range| range.blocks >= blocks);
            if let Some(range) = found {
                return Some(cut(range, request.wanted_blocks));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::geometry::Ext4Geometry;
    use varve_env::Random;

    fn policies() -> Vec<Box<dyn AllocationPolicy>> {
        let geometry = Ext4Geometry { group_blocks: 64, groups: 16, inode_table_blocks: 1, first_metadata_block: 2 };
        vec![Box::new(FirstFit), Box::new(NextFit), Box::new(Ext4Allocation::new(&geometry))]
    }

    #[test]
    fn every_policy_gives_free_blocks_and_enough_or_none() {
        let seed = 9;
        for (number, policy) in policies().iter().enumerate() {
            let mut random = Random::seeded(seed);
            let mut free = FreeSpace::default();
            free.release(Extent { start: 10, blocks: 990 });
            let mut held: Vec<Extent> = Vec::new();
            let mut cursor = 0;
            let log_zone = 10..100;
            for step in 0..5_000 {
                if random.chance(1, 2) && !held.is_empty() {
                    let extent = held.swap_remove(random.index(held.len()));
                    assert!(free.release(extent));
                    continue;
                }
                let needed_blocks = 1 + random.below(40);
                let kind = [FileKind::Log, FileKind::Table, FileKind::Other][random.index(3)];
                let request = AllocationRequest {
                    needed_blocks,
                    wanted_blocks: needed_blocks + random.below(60),
                    behind: held.last().map(|extent| extent.start + extent.blocks),
                    kind,
                    file_blocks: random.below(50),
                };
                let view = AllocationView { free: &free, log_zone: &log_zone, end: 1000, cursor };
                let placement = policy.place(&view, &request);
                let context = format!("policy {number}, seed {seed}, step {step}, {request:?}");
                assert_eq!(placement.is_some(), free.blocks() >= needed_blocks, "{context}");
                let Some(placement) = placement else { continue };
                assert_eq!(Some(&placement), policy.place(&view, &request).as_ref(), "{context}: not a function");
                cursor = placement.cursor;
                let given: u64 = placement.extents.iter().map(|extent| extent.blocks).sum();
                assert!(given >= needed_blocks, "{context}: {placement:?}");
                for extent in placement.extents {
                    assert!(free.take(extent), "{context}: {extent:?} is not free");
                    held.push(extent);
                }
            }
        }
    }

    #[test]
    fn first_fit_keeps_tables_whole_and_logs_in_their_zone() {
        let mut free = FreeSpace::default();
        free.release(Extent { start: 0, blocks: 1000 });
        free.take(Extent { start: 120, blocks: 10 });
        let zone = 0..100;
        let view = AllocationView { free: &free, log_zone: &zone, end: 1000, cursor: 0 };
        let request = |kind, needed_blocks, wanted_blocks| AllocationRequest {
            needed_blocks,
            wanted_blocks,
            behind: None,
            kind,
            file_blocks: 0,
        };
        let place = |request| FirstFit.place(&view, &request).unwrap().extents;
        assert_eq!(place(request(FileKind::Log, 1, 16)), [Extent { start: 0, blocks: 16 }]);
        assert_eq!(place(request(FileKind::Table, 1, 64)), [Extent { start: 130, blocks: 64 }]);
        assert_eq!(place(request(FileKind::Table, 1, 8)), [Extent { start: 100, blocks: 8 }]);
        // More than any range has: the need is met from the first that can.
        assert_eq!(place(request(FileKind::Table, 30, 5000)), [Extent { start: 130, blocks: 870 }]);
    }

    #[test]
    fn next_fit_goes_on_where_it_was() {
        let mut free = FreeSpace::default();
        free.release(Extent { start: 0, blocks: 1000 });
        let zone = 0..100;
        let request = AllocationRequest {
            needed_blocks: 1,
            wanted_blocks: 50,
            behind: None,
            kind: FileKind::Table,
            file_blocks: 0,
        };
        let mut cursor = 980;
        let mut starts = Vec::new();
        for _ in 0..3 {
            let view = AllocationView { free: &free, log_zone: &zone, end: 1000, cursor };
            let placement = NextFit.place(&view, &request).unwrap();
            cursor = placement.cursor;
            starts.push(placement.extents[0].start);
        }
        assert_eq!(starts, [100, 150, 200]);
    }
}
