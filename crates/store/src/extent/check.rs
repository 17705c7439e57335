//! Verifying the store's structures against each other and the medium.
//!
//! | code | severity | meaning |
//! |---|---|---|
//! | `superblock-damaged` | warning | one of the two superblocks; the next open writes it again |
//! | `metadata-unreadable` | fatal | the store could not be opened from what is on the medium now |
//! | `metadata-lost` | fatal | the medium lacks commits that were acknowledged |
//! | `extent-out-of-range` | error | a file has blocks outside those for files |
//! | `extent-overlap` | error | two files, or a file and the free space, have the same block |
//! | `extent-missing` | error | a file is longer than its blocks |
//! | `space-leak` | error | blocks belong to nothing |
//! | `free-space-mismatch` | error | the free space counts its blocks wrongly |
//! | `log-damaged` | error | a frame of a log inside its durable length is damaged |

use super::Extent;
use super::frame::FrameFormat;
use super::free_space::FreeSpace;
use super::map::ExtentMap;
use super::open_store::OpenStore;
use super::recovery::{replay, stored_bytes};
use crate::file_store::Finding;
use crate::journal::Journal;
use std::collections::BTreeMap;
use varve_media::{BlockDeviceExt, Device, IoClass, IoContext};

/// A file as the check sees it.
pub(super) struct CheckedFile {
    pub(super) name: String,
    pub(super) file: u64,
    pub(super) framed: bool,
    /// Durable length.
    pub(super) size_bytes: u64,
    pub(super) extents: ExtentMap,
}

/// Compares what belongs to files, what is free and what there is.
pub(super) fn map_findings(
    label: &str,
    frame: &FrameFormat,
    block_bytes: u64,
    all: &[Extent],
    files: &[CheckedFile],
    free: &FreeSpace,
    waiting: &[Extent],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Owner of every range, by start; ranges in it do not overlap.
    let mut owners: BTreeMap<u64, (Extent, String)> = BTreeMap::new();
    let file_extents =
        files.iter().flat_map(|file| file.extents.extents().map(move |extent| (extent, file.name.as_str())));
    let free_extents = free.ranges().map(|extent| (extent, "the free space"));
    let waiting = waiting.iter().map(|extent| (*extent, "blocks waiting to be discarded"));
    for (extent, owner) in file_extents.chain(free_extents).chain(waiting) {
        let end = extent.start.saturating_add(extent.blocks);
        let inside = all.iter().any(|range| range.start <= extent.start && end <= range.start + range.blocks);
        if !inside {
            findings.push(Finding::error(
                "extent-out-of-range",
                format!("{label}: '{owner}' has {} blocks at {}, which are not for files", extent.blocks, extent.start),
            ));
        }
        let clash = owners.range(..end).next_back().filter(|(_, (other, _))| other.start + other.blocks > extent.start);
        if let Some((_, (other, other_owner))) = clash {
            findings.push(Finding::error(
                "extent-overlap",
                format!(
                    "{label}: '{owner}' has {} blocks at {} and '{other_owner}' {} blocks at {}",
                    extent.blocks, extent.start, other.blocks, other.start
                ),
            ));
            continue;
        }
        owners.insert(extent.start, (extent, owner.to_owned()));
    }
    for range in all {
        let mut at = range.start;
        let end = range.start + range.blocks;
        for (extent, _) in owners.range(range.start..end).map(|(_, owned)| owned) {
            if extent.start > at {
                findings.push(leak(label, at, extent.start));
            }
            at = at.max(extent.start + extent.blocks);
        }
        if at < end {
            findings.push(leak(label, at, end));
        }
    }
    let counted: u64 = free.ranges().map(|extent| extent.blocks).sum();
    let by_size: u64 = free.ranges_by_size().map(|extent| extent.blocks).sum();
    if counted != free.blocks() || by_size != counted {
        findings.push(Finding::error(
            "free-space-mismatch",
            format!(
                "{label}: {} blocks are said to be free, {counted} are by place and {by_size} by size",
                free.blocks()
            ),
        ));
    }
    for file in files {
        let needed = stored_bytes(frame, file.framed, file.size_bytes).div_ceil(block_bytes);
        if needed > file.extents.blocks() {
            findings.push(Finding::error(
                "extent-missing",
                format!(
                    "{label}: '{}' of {} bytes needs {needed} blocks and has {}",
                    file.name,
                    file.size_bytes,
                    file.extents.blocks()
                ),
            ));
        }
    }
    findings
}

fn leak(label: &str, from: u64, until: u64) -> Finding {
    Finding::error("space-leak", format!("{label}: {} blocks at {from} belong to nothing", until - from))
}

/// Reads the durable part of every framed file.
fn log_findings(
    device: &Device,
    label: &str,
    frame: &FrameFormat,
    block_bytes: u64,
    files: &[CheckedFile],
) -> Vec<Finding> {
    let context = IoContext::of(IoClass::Check);
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.framed) {
        let mut bytes = crate::journal::buffer(device, frame.frame_bytes);
        // Only full frames: the last one may be rewritten while this looks.
        for index in 0..file.size_bytes / frame.payload_bytes() as u64 {
            let Some((at, _)) = file.extents.locate(index * frame.frame_bytes as u64, block_bytes) else { break };
            let read = device.block.read_at(at, &mut bytes, &context);
            if read.is_err() || frame.open(&bytes, file.file, index).is_none() {
                findings.push(Finding::error(
                    "log-damaged",
                    format!("{label}: frame {index} of log '{}' at offset {at} is damaged", file.name),
                ));
            }
        }
    }
    findings
}

/// Checks an open store.
pub(super) fn check(core: &OpenStore) -> Vec<Finding> {
    // No commit between the look at the medium and the look at memory.
    let committer = core.committer.lock();
    let mut findings = committer.journal.check_medium();
    let (files, removed, free, waiting) = {
        let state = core.state.lock();
        let file = |name: String, node: &super::node::Node| CheckedFile {
            name,
            file: node.file,
            framed: node.framed,
            size_bytes: node.known_bytes(),
            extents: node.extents.read().clone(),
        };
        let files: Vec<CheckedFile> = state.names.iter().map(|(name, node)| file(name.clone(), node)).collect();
        let removed: Vec<CheckedFile> =
            state.names.unnamed().map(|node| file(format!("removed file {}", node.file), node)).collect();
        (files, removed, state.free.clone(), state.discards.clone())
    };
    drop(committer);
    let all = core.geometry.free_extents().unwrap_or_default();
    let (label, frame, block_bytes) = (&core.label, &core.frame, core.geometry.block_bytes);
    findings.extend(log_findings(&core.device, label, frame, block_bytes, &files));
    let everything: Vec<CheckedFile> = files.into_iter().chain(removed).collect();
    findings.extend(map_findings(label, frame, block_bytes, &all, &everything, &free, &waiting));
    findings
}

/// Checks what is on a device without opening the store.
pub(super) fn inspect(device: &Device) -> Vec<Finding> {
    let label = device.block.name();
    let read = || {
        let (journal, recovered) = Journal::recover(device, label, &super::opened_as(device))?;
        let found = replay(label, &journal, &recovered)?;
        Ok((journal.store_id(), found, recovered.findings))
    };
    let (store_id, found, mut findings) = match read() {
        Ok(read) => read,
        Err::<_, crate::error::StoreError>(error) => {
            return vec![Finding::unreadable(&error)];
        }
    };
    let geometry = found.geometry;
    let frame = FrameFormat { store_id, frame_bytes: geometry.frame_bytes as usize };
    let files: Vec<CheckedFile> = found
        .files
        .into_iter()
        .map(|(name, found)| CheckedFile {
            name,
            file: found.file,
            framed: found.framed,
            size_bytes: found.size_bytes,
            extents: found.extents,
        })
        .collect();
    let all = geometry.free_extents().unwrap_or_default();
    // Free is what no file has: the medium keeps no other record of it.
    let mut free = FreeSpace::default();
    all.iter().for_each(|extent| {
        free.release(*extent);
    });
    for extent in files.iter().flat_map(|file| file.extents.extents()) {
        free.take(extent);
    }
    findings.extend(log_findings(device, label, &frame, geometry.block_bytes, &files));
    findings.extend(map_findings(label, &frame, geometry.block_bytes, &all, &files, &free, &[]));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: FrameFormat = FrameFormat { store_id: 1, frame_bytes: 512 };
    const ALL: [Extent; 2] = [Extent { start: 10, blocks: 30 }, Extent { start: 50, blocks: 50 }];

    fn file(name: &str, size_bytes: u64, extents: &[(u64, u64)]) -> CheckedFile {
        let extents: Vec<Extent> = extents.iter().map(|&(start, blocks)| Extent { start, blocks }).collect();
        CheckedFile { name: name.to_owned(), file: 1, framed: false, size_bytes, extents: ExtentMap::of(&extents) }
    }

    fn codes(files: &[CheckedFile], free: &[(u64, u64)], waiting: &[(u64, u64)]) -> Vec<&'static str> {
        let mut space = FreeSpace::default();
        for &(start, blocks) in free {
            assert!(space.release(Extent { start, blocks }));
        }
        let waiting: Vec<Extent> = waiting.iter().map(|&(start, blocks)| Extent { start, blocks }).collect();
        let findings = map_findings("disk", &FRAME, 4096, &ALL, files, &space, &waiting);
        findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn planted_damage_is_found_and_named() {
        let sound = || file("a", 40_000, &[(10, 5), (50, 5)]);
        let rest = [(15, 25), (55, 45)];
        assert_eq!(codes(&[sound()], &rest, &[]), [""; 0]);
        assert_eq!(codes(&[sound()], &[(15, 25), (55, 40)], &[(95, 5)]), [""; 0]);
        assert_eq!(codes(&[sound()], &[(15, 25), (56, 44)], &[]), ["space-leak"]);
        assert_eq!(codes(&[sound(), file("b", 1, &[(12, 1)])], &rest, &[]), ["extent-overlap"]);
        assert_eq!(codes(&[sound()], &[(14, 26), (55, 45)], &[])[0], "extent-overlap");
        assert_eq!(codes(&[sound(), file("b", 1, &[(45, 1)])], &rest, &[]), ["extent-out-of-range"]);
        assert_eq!(codes(&[sound(), file("b", 1, &[(38, 14)])], &rest, &[])[0], "extent-out-of-range");
        assert_eq!(codes(&[file("a", 41_000, &[(10, 5), (50, 5)])], &rest, &[]), ["extent-missing"]);
    }
}
