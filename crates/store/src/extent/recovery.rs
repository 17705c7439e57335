//! Opening: from what is on the medium to a store that may be written.
//!
//! Reads first: superblocks, checkpoint, log; then the framed files, whose length may be beyond what
//! the metadata knows. What cannot be read and may be the end of something is an error, and nothing was written until
//! then. Then blocks beyond the length of each file are given back, and a new generation
//! begins, with a checkpoint if there was anything to replay. A crash anywhere in this leaves the old
//! generation, and the next open does the same again.

use super::Extent;
use super::allocation::policy_of;
use super::change::{Change, FileRecord, decode_checkpoint, decode_commit};
use super::ext4::Ext4Commits;
use super::frame::FrameFormat;
use super::geometry::{LayoutGeometry, StoreGeometry};
use super::map::ExtentMap;
use super::node::Node;
use super::open_store::OpenStore;
use super::state::{ExtentState, free_space_without};
use crate::access_times::AccessTimes;
use crate::error::StoreError;
use crate::file_store::{Location, StoreProperties};
use crate::journal::{Journal, Recovered, corruption, unreadable};
use crate::kernel::{self, CommitPolicy, FoundNames, Kernel, Latch, Numbered, Replay, SingleCommits, StoreState};
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{BlockDeviceExt, Device, IoClass, IoContext, MediaError, SyncOrder, find_sound_answer};

/// How far behind the end of a log it is looked for proof that the end is damage.
const LOOK_AHEAD_BYTES: u64 = 1 << 20;
/// Numbers of files begin with the generation in which they were drawn.
const GENERATION_SHIFT: u32 = 32;
/// Largest piece read of a framed file.
const TRANSFER_BYTES: u64 = 1 << 20;

/// What the metadata on a medium says.
pub(super) struct Found {
    pub(super) geometry: StoreGeometry,
    pub(super) files: BTreeMap<String, FoundFile>,
    pub(super) next_file: u64,
}

#[derive(Clone, Debug)]
pub(super) struct FoundFile {
    pub(super) file: u64,
    pub(super) framed: bool,
    pub(super) size_bytes: u64,
    pub(super) extents: ExtentMap,
}

impl Numbered for FoundFile {
    fn number(&self) -> u64 {
        self.file
    }
}

/// Puts together what was read; anything may come.
pub(super) fn replay(label: &str, journal: &Journal, recovered: &Recovered) -> Result<Found, StoreError> {
    let damaged = |structure: &str, offset: u64, expected: &str, found: String| {
        corruption(label, structure, offset, expected, found)
    };
    let regions = journal.regions();
    let geometry = StoreGeometry::decode(&recovered.parameters, regions, journal.capacity_bytes())
        .map_err(|found| damaged("superblock", 0, "parameters of an extent store", found))?;
    let (next_file, records) = decode_checkpoint(&recovered.checkpoint)
        .map_err(|offset| damaged("checkpoint", offset as u64, "the record of a file", "something else".to_owned()))?;
    let files = records.into_iter().map(|FileRecord { file, framed, size_bytes, name, extents }| {
        (name, FoundFile { file, framed, size_bytes, extents: ExtentMap::of(&extents) })
    });
    let mut names = kernel::names_of(label, next_file, files)?;
    kernel::replay(label, &mut names, &recovered.commits)?;
    let (files, next_file) = names.into_parts();
    Ok(Found { geometry, files, next_file })
}

impl Replay for FoundNames<FoundFile> {
    type Change = Change;

    const LOG: &'static str = "metadata log";

    fn decode(commit: &[u8]) -> Result<Vec<Change>, usize> {
        decode_commit(commit)
    }

    fn apply(&mut self, change: &Change) -> Option<()> {
        match change {
            Change::Create { file, framed, name } => {
                let found = FoundFile { file: *file, framed: *framed, size_bytes: 0, extents: ExtentMap::default() };
                self.create(name, found)?;
            }
            Change::Extend { file, extents } => {
                let found = self.file_mut(*file)?;
                extents.iter().for_each(|extent| found.extents.push(*extent));
            }
            Change::Size { file, size_bytes } => self.file_mut(*file)?.size_bytes = *size_bytes,
            Change::Trim { file, blocks } => {
                self.file_mut(*file)?.extents.trim(*blocks);
            }
            Change::Rename { from, to } => self.rename(from, to)?,
            Change::Remove { name } => self.remove(name)?,
        }
        Some(())
    }
}

/// Bytes of blocks that a file of this length needs.
pub(super) fn stored_bytes(frame: &FrameFormat, framed: bool, size_bytes: u64) -> u64 {
    if framed { frame.stored_bytes(size_bytes) } else { size_bytes }
}

/// A store of which everything was read, and on which nothing was written.
pub(super) struct Unbegun {
    core: OpenStore,
    /// The state, where the medium has another one.
    checkpoint: Option<Vec<u8>>,
}

impl Unbegun {
    /// Begins a generation: from here on the store is open.
    pub(super) fn begin(self) -> Result<OpenStore, StoreError> {
        self.core.committer.lock().journal.begin(self.checkpoint.as_deref())?;
        Ok(self.core)
    }
}

/// Reads what is on a device; writes nothing. `beneath` has the syncs of the disks that the device is a part of.
pub(super) fn read(env: &Env, device: Device, beneath: Vec<Arc<SyncOrder>>) -> Result<Unbegun, StoreError> {
    let label = device.block.name().to_owned();
    let (mut journal, recovered) = Journal::recover(&device, &label, &super::opened_as(&device))?;
    let Found { geometry, mut files, next_file } = replay(&label, &journal, &recovered)?;
    let frame = FrameFormat { store_id: journal.store_id(), frame_bytes: geometry.frame_bytes as usize };
    let block_bytes = geometry.block_bytes;

    // Blocks first: what is read below must belong to one file only.
    let free_extents = geometry.free_extents().unwrap_or_default();
    free_space_without(&free_extents, files.values().map(|file| &file.extents))
        .map_err(|extent| overlap(&label, extent))?;

    let mut changed = false;
    for (name, file) in &mut files {
        if file.framed && is_of_last_process(file.file, next_file) {
            let size_bytes = framed_length(&device, &label, &frame, block_bytes, name, file)?;
            changed |= size_bytes != file.size_bytes;
            file.size_bytes = size_bytes;
        }
        let blocks = stored_bytes(&frame, file.framed, file.size_bytes).div_ceil(block_bytes);
        if blocks > file.extents.blocks() {
            return Err(corruption(
                &label,
                "extent map",
                0,
                format!("{blocks} blocks of '{name}' with {} bytes", file.size_bytes),
                format!("{} blocks", file.extents.blocks()),
            ));
        }
        changed |= !file.extents.trim(blocks).is_empty();
    }
    let free = free_space_without(&free_extents, files.values().map(|file| &file.extents))
        .map_err(|extent| overlap(&label, extent))?;

    let ext4 = match &geometry.layout {
        LayoutGeometry::Ext4(of_layout) => {
            Some(Ext4Commits::new(env, &device, of_layout, block_bytes, geometry.journal.unit_bytes, &files))
        }
        _ => None,
    };
    let node = |found: FoundFile| Node::found(env, found.file, found.framed, found.extents, found.size_bytes);
    let names = files.into_iter().map(|(name, found)| (name, Arc::new(node(found)))).collect();
    // A number that a crash made the metadata forget must not be used again: its bytes may be there.
    let next_file = next_file.max((journal.generation() + 1) << GENERATION_SHIFT);
    let state = ExtentState::new(names, free, next_file, journal.state_bytes_max());
    let checkpoint = (changed || !recovered.commits.is_empty()).then(|| state.checkpoint());

    let capabilities = device.block.capabilities();
    let free_blocks: u64 = free_extents.iter().map(|extent| extent.blocks).sum();
    let properties = StoreProperties {
        read_alignment_bytes: device.block.geometry().sector_bytes.max(capabilities.buffer_alignment_bytes),
        rotational: capabilities.rotational,
        access: AccessTimes::of(capabilities),
        places_by_level: false,
        preferred_transfer_bytes: None,
        preferred_table_bytes: None,
        table_bytes_max: free_blocks * block_bytes,
        wants_evictions: false,
        wants_rewrites: false,
        flush_is_device_request: true,
        location: Location::Private,
    };
    let order = SyncOrder::shared(env, device.block.clone());
    journal.set_sync_order(&order);
    let latch = Latch::new(&label, order, beneath);
    let caches = ext4.is_some();
    let policy: Box<dyn CommitPolicy<Node>> = match ext4 {
        Some(ext4) => Box::new(ext4),
        None => Box::new(SingleCommits),
    };
    let core = OpenStore {
        kernel: Kernel::new(env, &label, state, journal, policy, latch),
        properties,
        frame,
        policy: policy_of(&geometry.layout),
        caches,
        discards: capabilities.discard,
        geometry,
        device,
    };
    Ok(Unbegun { core, checkpoint })
}

/// Whether the process before this one may have made a file, and so may have appended to it. Numbers begin with the
/// generation in which the store was opened, and the metadata knows how far they came.
fn is_of_last_process(file: u64, next_file: u64) -> bool {
    file >> GENERATION_SHIFT >= next_file >> GENERATION_SHIFT
}

fn overlap(label: &str, extent: Extent) -> StoreError {
    let found = format!("{} blocks at {} that are not", extent.blocks, extent.start);
    corruption(label, "extent map", 0, "blocks that belong to files, and to one each", found)
}

/// The length of a framed file: what the metadata knows, and what follows on the medium.
fn framed_length(
    device: &Device,
    label: &str,
    frame: &FrameFormat,
    block_bytes: u64,
    name: &str,
    found: &FoundFile,
) -> Result<u64, StoreError> {
    let payload = frame.payload_bytes() as u64;
    let frame_bytes = frame.frame_bytes as u64;
    let frames = found.extents.blocks() * block_bytes / frame_bytes;
    let structure = format!("log '{name}'");
    // A length recorded in the middle of a frame is read again from the start of the frame.
    let mut index = found.size_bytes / payload;
    let mut size_bytes = found.size_bytes;
    let mut end_found = false;
    let mut limit = frames;
    let length = (frames.saturating_sub(index) * frame_bytes).min(TRANSFER_BYTES);
    let mut buffer = crate::journal::buffer(device, length as usize);
    while index < limit {
        let Some((offset, contiguous)) = found.extents.locate(index * frame_bytes, block_bytes) else { break };
        let length = contiguous.min(buffer.len() as u64) / frame_bytes * frame_bytes;
        let piece = &mut buffer[..length as usize];
        let lost = read_sectors(device, offset, piece, frame.frame_bytes);
        let mut lost = lost.into_iter().peekable();
        for (at, bytes) in (offset..).step_by(frame.frame_bytes).zip(piece.chunks_exact_mut(frame.frame_bytes)) {
            if let Some((_, error)) = lost.next_if(|(lost, _)| *lost == at) {
                if !end_found {
                    return Err(unreadable(label, &structure, at, format!("frame {index}"), error));
                }
                index += 1;
                continue;
            }
            if !end_found && frame.open(bytes, found.file, index).is_none() {
                let read = |bytes: &mut [u8], context: &IoContext| device.block.read_at(at, bytes, context);
                let is_sound = |bytes: &[u8]| frame.open(bytes, found.file, index).is_some();
                find_sound_answer(bytes, &IoContext::of(IoClass::Metadata), read, is_sound);
            }
            match frame.open(bytes, found.file, index) {
                Some(opened) if !end_found => {
                    size_bytes = size_bytes.max(index * payload + opened.payload.len() as u64);
                    end_found = opened.payload.len() as u64 != payload;
                }
                // It was written when more than what is found here was durable.
                Some(opened) if opened.durable_frames > size_bytes / payload => {
                    return Err(corruption(
                        label,
                        &structure,
                        at,
                        format!("{} frames, as a later one says", opened.durable_frames),
                        format!("{size_bytes} bytes"),
                    ));
                }
                Some(_) => {}
                // One of which the metadata knows a part is told to those who read it.
                None if !end_found && index * payload >= found.size_bytes && frame.names(bytes, found.file, index) => {
                    let expected = format!("frame {index} of file {}", found.file);
                    return Err(corruption(label, &structure, at, expected, "that, with a wrong crc32c"));
                }
                None => end_found = true,
            }
            index += 1;
        }
        if end_found {
            limit = limit.min((size_bytes / payload).saturating_add(LOOK_AHEAD_BYTES / frame_bytes));
        }
    }
    Ok(size_bytes)
}

/// Fills `data` with what can be read, and says where it cannot, and why.
fn read_sectors(device: &Device, offset_bytes: u64, data: &mut [u8], sector_bytes: usize) -> Vec<(u64, MediaError)> {
    let context = IoContext::of(IoClass::Metadata);
    if device.block.read_at(offset_bytes, data, &context).is_ok() {
        return Vec::new();
    }
    let sectors = (offset_bytes..).step_by(sector_bytes).zip(data.chunks_mut(sector_bytes));
    sectors.filter_map(|(at, sector)| Some((at, device.block.read_at(at, sector, &context).err()?))).collect()
}
