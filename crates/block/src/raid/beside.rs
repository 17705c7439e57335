//! Protection information of members that keep none: tuples lie beside the data, on the member itself.
//!
//! From the data offset on, a member is divided into groups: a block of 4096 bytes with the tuples of 512 intervals, then the data
//! of these intervals. The last group may be shorter. Before the data offset nothing is changed, and nothing has tuples.
//!
//! | offset in a group | size | content |
//! |---|---|---|
//! | 0 | 4096 | tuples of the intervals in order, each as [`ProtectionTuple`] is encoded |
//! | 4096 | 512 intervals | data |
//!
//! Eight zero bytes stand for the tuple of zeros at that place, so a blank member is valid, and so is a discarded group. The tuple of
//! data that belong to byte 0 modulo 2^32 intervals may have the same bytes, and means the same.
//!
//! Blocks alternate with data so that a large transfer is one request, and so that a small one finds its tuples near its data.
//!
//! A power cut may leave new data with old tuples, or old data with new ones. The journal of stripes, which such an array always
//! has, writes both again. Tuples are read as often as data are, but for a cache of blocks: it makes small writes cost no read, and
//! small reads one request. Reads for maintenance do not use it.

use super::cost;
use super::member::execute_all;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};
use varve_media::{
    AlignedBuffer, BlockDevice, Capabilities, Counters, Device, Geometry, GuardKind, IoCause, IoClass, IoContext,
    MediaError, MediaErrorKind, Operation, ProtectionFormat, ProtectionTuple, ProtectionType, Request, RequestPart,
    Transfer, check_request,
};

/// Bytes of a block of tuples.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Intervals of a group.
const GROUP_INTERVALS: u64 = BLOCK_BYTES / ProtectionTuple::BYTES as u64;
/// Bytes of a cached member's blocks, at most: those of 256 MiB of data with intervals of 512 bytes.
const CACHE_BYTES_MAX: u64 = 4 << 20;
/// Size of one request, at most.
const RUN_BYTES_MAX: u64 = 4 << 20;
/// Buffers of one request, at most.
const RUN_BUFFERS_MAX: usize = 256;

/// The format of tuples that lie beside the data: the guard that finds more errors, as both take the same time.
pub(super) fn format(interval_bytes: u32) -> ProtectionFormat {
    ProtectionFormat { protection_type: ProtectionType::Type1, guard: GuardKind::Crc, interval_bytes }
}

/// Where data and tuples lie on a member. Places are offsets as the array sees the member, without the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TupleLayout {
    pub(super) data_offset: u64,
    pub(super) interval_bytes: u64,
    /// Bytes of the member, blocks included.
    pub(super) member_bytes: u64,
}

impl TupleLayout {
    fn group_bytes(&self) -> u64 {
        GROUP_INTERVALS * self.interval_bytes
    }

    /// Bytes that the array sees: those of the member without the blocks.
    pub(super) fn usable_bytes(&self) -> u64 {
        let behind = self.member_bytes.saturating_sub(self.data_offset);
        let of_group = BLOCK_BYTES + self.group_bytes();
        let rest = (behind % of_group).saturating_sub(BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        let rest = rest / self.interval_bytes * self.interval_bytes;
        self.data_offset.min(self.member_bytes) + behind / of_group * self.group_bytes() + rest
    }

    /// Offset of a group's block on the member.
    fn block_at(&self, group: u64) -> u64 {
        self.data_offset + group * (BLOCK_BYTES + self.group_bytes())
    }

    /// Group of a place behind the data offset.
    fn group_of(&self, place: u64) -> u64 {
        (place - self.data_offset) / self.group_bytes()
    }

    /// First place of a group.
    fn first_place(&self, group: u64) -> u64 {
        self.data_offset + group * self.group_bytes()
    }

    /// Offset of a place on the member.
    fn data_at(&self, place: u64) -> u64 {
        match place < self.data_offset {
            true => place,
            false => place + (self.group_of(place) + 1) * BLOCK_BYTES,
        }
    }

    /// Lengths of the parts of a range: that before the data offset, then one for each group.
    fn parts(&self, range: Range<u64>) -> Vec<u64> {
        let mut lengths = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = match at < self.data_offset {
                true => self.data_offset,
                false => self.first_place(self.group_of(at) + 1),
            };
            let length = end.min(range.end) - at;
            lengths.push(length);
            at += length;
        }
        lengths
    }

    /// Where the tuples of a range of one group lie in its block.
    fn tuples_of(&self, range: &Range<u64>) -> Range<usize> {
        let first = self.first_place(self.group_of(range.start));
        let place = |at: u64| ((at - first) / self.interval_bytes) as usize * ProtectionTuple::BYTES;
        place(range.start)..place(range.end)
    }

    /// A write of this range leaves nothing of the block of its group.
    fn is_whole_group(&self, range: &Range<u64>) -> bool {
        let group = self.group_of(range.start);
        let end = self.first_place(group + 1).min(self.usable_bytes());
        range.start == self.first_place(group) && range.end >= end
    }
}

/// Tuples as they are in a block, made what they stand for.
fn decode(format: &ProtectionFormat, place: u64, stored: &[u8], of_zeros: u16, tuples: &mut [u8]) {
    tuples.copy_from_slice(stored);
    for (number, bytes) in tuples.as_chunks_mut::<{ ProtectionTuple::BYTES }>().0.iter_mut().enumerate() {
        if *bytes == [0; ProtectionTuple::BYTES] {
            let place = place + number as u64 * u64::from(format.interval_bytes);
            let reference = format.reference_tag(place).unwrap_or(0);
            *bytes = ProtectionTuple { guard: of_zeros, application: 0, reference }.encode();
        }
    }
}

/// A block that fits no data: each tuple names another place.
fn invalid_block(format: &ProtectionFormat, first_place: u64, alignment_bytes: usize) -> AlignedBuffer {
    let mut block = AlignedBuffer::new(BLOCK_BYTES as usize, alignment_bytes);
    for (number, bytes) in block.as_chunks_mut::<{ ProtectionTuple::BYTES }>().0.iter_mut().enumerate() {
        let place = first_place + number as u64 * u64::from(format.interval_bytes);
        let reference = !format.reference_tag(place).unwrap_or(0);
        *bytes = ProtectionTuple { guard: 0, application: 0, reference }.encode();
    }
    block
}

/// Blocks that were used last. Least recently added ones go first.
#[derive(Default)]
struct BlockCache {
    blocks: BTreeMap<u64, Arc<AlignedBuffer>>,
    order: VecDeque<u64>,
}

impl BlockCache {
    fn insert(&mut self, group: u64, block: Arc<AlignedBuffer>) {
        if self.blocks.insert(group, block).is_none() {
            self.order.push_back(group);
        }
        while self.order.len() as u64 * BLOCK_BYTES > CACHE_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.blocks.remove(&oldest);
        }
    }

    fn remove(&mut self, group: u64) {
        if self.blocks.remove(&group).is_some() {
            self.order.retain(|other| *other != group);
        }
    }
}

#[derive(Default)]
struct Groups {
    /// Requests that use a group: reads by number, or one write.
    readers: BTreeMap<u64, usize>,
    writers: BTreeSet<u64>,
    cache: BlockCache,
}

/// A member that keeps no protection information, as one that keeps it.
///
/// The contract of [`BlockDevice`] but for power cuts: see the module.
pub(super) struct TuplesBeside {
    env: Env,
    inner: Device,
    layout: TupleLayout,
    format: ProtectionFormat,
    /// Guard tag of an interval of zeros.
    of_zeros: u16,
    geometry: Geometry,
    capabilities: Capabilities,
    groups: Mutex<Groups>,
    freed: Condvar,
}

/// Groups in use, until it is dropped.
struct InUse<'a> {
    member: &'a TuplesBeside,
    groups: BTreeSet<u64>,
    is_write: bool,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut state = self.member.groups.lock();
        for group in &self.groups {
            if self.is_write {
                state.writers.remove(group);
            } else if let Some(readers) = state.readers.get_mut(group) {
                *readers -= 1;
                if *readers == 0 {
                    state.readers.remove(group);
                }
            }
        }
        self.member.freed.notify_all();
    }
}

/// A contiguous piece of a transfer on the member.
struct Piece<B> {
    offset_bytes: u64,
    length_bytes: u64,
    buffers: Vec<B>,
    /// Number of the request it is of; `None` for a block.
    request: Option<usize>,
    /// Group that it belongs to, unless it lies before the data offset.
    group: Option<u64>,
}

/// Pieces that follow each other on the member, as runs of pieces that one request transfers.
fn runs<B>(mut pieces: Vec<Piece<B>>) -> Vec<Vec<Piece<B>>> {
    pieces.sort_by_key(|piece| piece.offset_bytes);
    let mut runs: Vec<Vec<Piece<B>>> = Vec::new();
    let (mut end, mut bytes, mut buffers) = (0, 0, 0);
    for piece in pieces {
        let is_next = piece.offset_bytes == end
            && bytes + piece.length_bytes <= RUN_BYTES_MAX
            && buffers + piece.buffers.len() <= RUN_BUFFERS_MAX;
        end = piece.offset_bytes + piece.length_bytes;
        match runs.last_mut().filter(|_| is_next) {
            Some(run) => {
                (bytes, buffers) = (bytes + piece.length_bytes, buffers + piece.buffers.len());
                run.push(piece);
            }
            None => {
                (bytes, buffers) = (piece.length_bytes, piece.buffers.len());
                runs.push(vec![piece]);
            }
        }
    }
    runs
}

/// Parts of requests in groups, with the request that each is of.
struct Divided<'a> {
    parts: Vec<RequestPart<'a>>,
    owners: Vec<usize>,
}

impl TuplesBeside {
    /// A member with tuples beside its data, in groups of a layout.
    pub(super) fn device(env: &Env, inner: &Device, layout: TupleLayout) -> Device {
        let format = format(layout.interval_bytes as u32);
        let geometry = Geometry { capacity_bytes: layout.usable_bytes(), ..inner.block.geometry().clone() };
        let capabilities = Capabilities { protection: Some(format), ..inner.block.capabilities().clone() };
        let of_zeros = format.guard.compute(&vec![0; layout.interval_bytes as usize]);
        Device::of_blocks(Arc::new(TuplesBeside {
            env: env.clone(),
            inner: inner.clone(),
            layout,
            format,
            of_zeros,
            geometry,
            capabilities,
            groups: Mutex::new(env, "tuples beside data", Groups::default()),
            freed: Condvar::new(env, "tuples beside data"),
        }))
    }

    fn alignment_bytes(&self) -> usize {
        self.capabilities.buffer_alignment_bytes as usize
    }

    /// Waits until nobody uses groups in a way that excludes this one. All are taken at once, so nobody waits for each other.
    fn take(&self, groups: BTreeSet<u64>, is_write: bool) -> InUse<'_> {
        let mut state = self.groups.lock();
        let is_free = |state: &Groups| {
            groups.iter().all(|group| !(state.writers.contains(group) || is_write && state.readers.contains_key(group)))
        };
        while !is_free(&state) {
            self.freed.wait(&mut state);
        }
        for group in &groups {
            match is_write {
                true => _ = state.writers.insert(*group),
                false => *state.readers.entry(*group).or_default() += 1,
            }
        }
        drop(state);
        InUse { member: self, groups, is_write }
    }

    /// Divides requests that can be done and that `is_meant` chooses.
    fn divide<'a>(
        &self,
        requests: &'a mut [Request<'_>],
        outcomes: &mut [Result<(), MediaError>],
        is_meant: impl Fn(&Transfer<'_>) -> bool,
    ) -> Divided<'a> {
        let mut divided = Divided { parts: Vec::new(), owners: Vec::new() };
        for (number, request) in requests.iter_mut().enumerate() {
            if outcomes[number].is_err() || !is_meant(&request.transfer) {
                continue;
            }
            let start = request.offset_bytes;
            let lengths = self.layout.parts(start..start + request.length_bytes());
            match request.divide(self, lengths) {
                Ok(parts) => {
                    divided.owners.extend(parts.iter().map(|_| number));
                    divided.parts.extend(parts);
                }
                Err(error) => outcomes[number] = Err(error),
            }
        }
        divided
    }

    /// The group of each part; `None` before the data offset.
    fn groups_of(&self, parts: &[RequestPart<'_>]) -> Vec<Option<u64>> {
        let group = |part: &RequestPart<'_>| {
            (part.offset_bytes() >= self.layout.data_offset).then(|| self.layout.group_of(part.offset_bytes()))
        };
        parts.iter().map(group).collect()
    }

    /// Refuses parts behind the data offset that hold no whole intervals.
    fn check_intervals(&self, divided: &Divided<'_>, outcomes: &mut [Result<(), MediaError>], operation: Operation) {
        let required_bytes = self.layout.interval_bytes;
        for (part, owner) in divided.parts.iter().zip(&divided.owners) {
            let (offset_bytes, length_bytes) = (part.offset_bytes(), part.length_bytes());
            let is_whole = (offset_bytes.wrapping_sub(self.layout.data_offset)).is_multiple_of(required_bytes)
                && length_bytes.is_multiple_of(required_bytes);
            if offset_bytes >= self.layout.data_offset && !is_whole {
                let device = self.inner.block.name().to_owned();
                outcomes[*owner] =
                    Err(MediaError::Misaligned { device, operation, offset_bytes, length_bytes, required_bytes });
            }
        }
    }

    fn cached(&self, groups: impl Iterator<Item = u64>) -> BTreeMap<u64, Arc<AlignedBuffer>> {
        let state = self.groups.lock();
        groups.filter_map(|group| Some((group, Arc::clone(state.cache.blocks.get(&group)?)))).collect()
    }

    /// Reads runs of pieces, each with one request; where one fails its pieces are read one by one, to find those that fail.
    /// Calls `failed` with their requests and groups.
    fn read_runs(
        &self,
        mut runs: Vec<Vec<Piece<IoSliceMut<'_>>>>,
        context: &IoContext,
        failed: &mut dyn FnMut(Option<usize>, Option<u64>, MediaError),
    ) {
        let mut again = Vec::new();
        {
            let mut slices: Vec<(u64, Vec<IoSliceMut<'_>>)> = Vec::new();
            for run in &mut runs {
                let offset_bytes = run[0].offset_bytes;
                let buffers = run.iter_mut().flat_map(|piece| piece.buffers.iter_mut());
                slices.push((offset_bytes, buffers.map(|buffer| IoSliceMut::new(&mut *buffer)).collect()));
            }
            let outcomes = self.execute_inner(
                slices.iter_mut().map(|(offset_bytes, data)| Request::read(*offset_bytes, data)).collect(),
                context,
            );
            for (place, outcome) in outcomes.into_iter().enumerate() {
                if let Err(error) = outcome {
                    again.push((place, error));
                }
            }
        }
        for (place, error) in again {
            if let [piece] = &runs[place][..] {
                failed(piece.request, piece.group, error);
                continue;
            }
            for piece in &mut runs[place] {
                let outcome = self
                    .inner
                    .block
                    .execute(&mut [Request::read(piece.offset_bytes, &mut as_slices(&mut piece.buffers))], context);
                if let Err(error) = outcome {
                    failed(piece.request, piece.group, error);
                }
            }
        }
    }

    fn execute_inner(&self, requests: Vec<Request<'_>>, context: &IoContext) -> Vec<Result<(), MediaError>> {
        match requests.is_empty() {
            true => Vec::new(),
            false => execute_all(&self.inner, requests, context),
        }
    }

    /// Reads data and tuples.
    fn read(&self, requests: &mut [Request<'_>], outcomes: &mut [Result<(), MediaError>], context: &IoContext) {
        let wants_tuples: Vec<bool> = requests
            .iter()
            .map(|request| matches!(request.transfer, Transfer::Read { protection: Some(_), .. }))
            .collect();
        let mut divided = self.divide(requests, outcomes, |transfer| matches!(transfer, Transfer::Read { .. }));
        self.check_intervals(&divided, outcomes, Operation::Read);
        if divided.parts.is_empty() {
            return;
        }
        let groups = self.groups_of(&divided.parts);
        let in_use = self.take(groups.iter().flatten().copied().collect(), false);
        let mut blocks = match context.class {
            IoClass::Maintenance => BTreeMap::new(),
            _ => self.cached(in_use.groups.iter().copied()),
        };
        let mut fresh: BTreeMap<u64, AlignedBuffer> = in_use
            .groups
            .iter()
            .filter(|group| !blocks.contains_key(group))
            .map(|group| (*group, AlignedBuffer::new(BLOCK_BYTES as usize, self.alignment_bytes())))
            .collect();
        let extents: Vec<Range<u64>> =
            divided.parts.iter().map(|part| part.offset_bytes()..part.offset_bytes() + part.length_bytes()).collect();
        let mut of_parts: Vec<Request<'_>> = divided.parts.iter_mut().map(RequestPart::request_in_place).collect();
        let mut unreadable: BTreeMap<u64, MediaError> = BTreeMap::new();
        let mut failed_requests: Vec<(usize, MediaError)> = Vec::new();
        {
            let mut pieces = Vec::new();
            for (place, request) in of_parts.iter_mut().enumerate() {
                let owner = divided.owners[place];
                let extent = &extents[place];
                if outcomes[owner].is_err() || extent.is_empty() {
                    continue;
                }
                let Transfer::Read { data, .. } = &mut request.transfer else { continue };
                pieces.push(Piece {
                    offset_bytes: self.layout.data_at(extent.start),
                    length_bytes: extent.end - extent.start,
                    buffers: as_slices(data),
                    request: Some(owner),
                    group: groups[place],
                });
            }
            pieces.extend(fresh.iter_mut().map(|(group, block)| Piece {
                offset_bytes: self.layout.block_at(*group),
                length_bytes: BLOCK_BYTES,
                buffers: vec![IoSliceMut::new(block)],
                request: None,
                group: Some(*group),
            }));
            self.read_runs(runs(pieces), context, &mut |request, group, error| match (request, group) {
                (Some(request), _) => failed_requests.push((request, error)),
                (None, Some(group)) => _ = unreadable.insert(group, error),
                (None, None) => {}
            });
        }
        for (request, error) in failed_requests {
            outcomes[request] = Err(error);
        }
        {
            let mut state = self.groups.lock();
            for (group, block) in fresh {
                if !unreadable.contains_key(&group) {
                    let block = Arc::new(block);
                    state.cache.insert(group, Arc::clone(&block));
                    blocks.insert(group, block);
                }
            }
        }
        for (place, request) in of_parts.iter_mut().enumerate() {
            let (owner, extent) = (divided.owners[place], &extents[place]);
            let Transfer::Read { data, protection } = &mut request.transfer else { continue };
            if outcomes[owner].is_err() || extent.is_empty() {
                continue;
            }
            let Some(group) = groups[place] else {
                // Nothing before the data offset has tuples; what is asked for is what data would have.
                if let Some(tuples) = protection {
                    self.format.generate(extent.start, 0, data.iter().map(|slice| &**slice), tuples);
                }
                continue;
            };
            let Some(block) = blocks.get(&group) else {
                if let Some(error) = unreadable.get(&group) {
                    outcomes[owner] = Err(error.clone());
                }
                continue;
            };
            let stored = &block[self.layout.tuples_of(extent)];
            let mut own = vec![0; if wants_tuples[owner] { 0 } else { stored.len() }];
            let tuples = protection.as_deref_mut().unwrap_or(&mut own);
            decode(&self.format, extent.start, stored, self.of_zeros, tuples);
            if !wants_tuples[owner] {
                self.env.charge(cost::of_guards(self.format.guard, extent.end - extent.start));
                let verified = self.format.verify(extent.start, None, data.iter().map(|slice| &**slice), tuples);
                if let Err(mismatch) = verified {
                    outcomes[owner] = Err(mismatch.at(self.inner.block.name(), Operation::Read));
                }
            }
        }
    }

    /// Reads the blocks of groups that are written. Those of `replaced` groups are not read: each of their tuples is replaced.
    ///
    /// A block that cannot be read fits no data from now on, but for what is written: redundancy has them.
    fn blocks_before(
        &self,
        groups: &BTreeSet<u64>,
        replaced: &BTreeSet<u64>,
        context: &IoContext,
    ) -> Result<BTreeMap<u64, AlignedBuffer>, MediaError> {
        let alignment = self.alignment_bytes();
        let cached = self.cached(groups.iter().copied());
        let mut blocks: BTreeMap<u64, AlignedBuffer> = BTreeMap::new();
        let mut missing = Vec::new();
        for group in groups {
            let block = match cached.get(group) {
                Some(block) => AlignedBuffer::copy_of(block, alignment),
                None => {
                    if !replaced.contains(group) {
                        missing.push(*group);
                    }
                    AlignedBuffer::new(BLOCK_BYTES as usize, alignment)
                }
            };
            blocks.insert(*group, block);
        }
        let mut unreadable = Vec::new();
        {
            let mut slices: Vec<(u64, [IoSliceMut<'_>; 1])> = blocks
                .iter_mut()
                .filter(|(group, _)| missing.contains(group))
                .map(|(group, block)| (self.layout.block_at(*group), [IoSliceMut::new(block)]))
                .collect();
            let requests = slices.iter_mut().map(|(offset_bytes, data)| Request::read(*offset_bytes, data)).collect();
            let context = IoContext { cause: IoCause::Parity, ..*context };
            for (group, outcome) in missing.iter().zip(self.execute_inner(requests, &context)) {
                match outcome {
                    Ok(()) => {}
                    Err(error) if error.kind() == MediaErrorKind::Unreadable => unreadable.push(*group),
                    Err(error) => return Err(error),
                }
            }
        }
        for group in unreadable {
            blocks.insert(group, invalid_block(&self.format, self.layout.first_place(group), alignment));
        }
        Ok(blocks)
    }

    /// Writes and discards data, with their tuples.
    fn write(&self, requests: &mut [Request<'_>], outcomes: &mut [Result<(), MediaError>], context: &IoContext) {
        let mut divided = self.divide(requests, outcomes, |transfer| !matches!(transfer, Transfer::Read { .. }));
        self.check_intervals(&divided, outcomes, Operation::Write);
        if divided.parts.is_empty() {
            return;
        }
        let groups = self.groups_of(&divided.parts);
        let extents: Vec<Range<u64>> =
            divided.parts.iter().map(|part| part.offset_bytes()..part.offset_bytes() + part.length_bytes()).collect();
        let is_done = |place: &usize, outcomes: &[Result<(), MediaError>]| {
            outcomes[divided.owners[*place]].is_ok() && !extents[*place].is_empty()
        };
        let places: Vec<usize> = (0..extents.len()).filter(|place| is_done(place, outcomes)).collect();
        let in_use = self.take(places.iter().filter_map(|place| groups[*place]).collect(), true);
        let replaced = places
            .iter()
            .filter(|place| groups[**place].is_some() && self.layout.is_whole_group(&extents[**place]))
            .filter_map(|place| groups[*place])
            .collect();
        let mut blocks = match self.blocks_before(&in_use.groups, &replaced, context) {
            Ok(blocks) => blocks,
            Err(error) => {
                places.iter().for_each(|place| outcomes[divided.owners[*place]] = Err(error.clone()));
                return;
            }
        };
        let of_parts: Vec<Request<'_>> = divided.parts.iter_mut().map(RequestPart::request_in_place).collect();
        for &place in &places {
            let (extent, Some(group)) = (&extents[place], groups[place]) else { continue };
            let Some(block) = blocks.get_mut(&group) else { continue };
            let stored = &mut block[self.layout.tuples_of(extent)];
            match &of_parts[place].transfer {
                Transfer::Write { protection: Some(tuples), .. } => stored.copy_from_slice(tuples),
                Transfer::Write { data, protection: None, .. } => {
                    self.env.charge(cost::of_guards(self.format.guard, extent.end - extent.start));
                    self.format.generate(extent.start, 0, data.iter().map(|slice| &**slice), stored);
                }
                // Zeros stand for the tuples of zeros.
                Transfer::Discard { .. } | Transfer::Read { .. } => stored.fill(0),
            }
        }
        let mut pieces = Vec::new();
        let mut discards = Vec::new();
        let mut is_durable = false;
        for &place in &places {
            let extent = &extents[place];
            let (offset_bytes, length_bytes) = (self.layout.data_at(extent.start), extent.end - extent.start);
            match &of_parts[place].transfer {
                Transfer::Write { data, durable, .. } => {
                    is_durable |= durable;
                    let buffers = data.iter().map(|slice| IoSlice::new(slice)).collect();
                    let (request, group) = (Some(divided.owners[place]), groups[place]);
                    pieces.push(Piece { offset_bytes, length_bytes, buffers, request, group });
                }
                Transfer::Discard { .. } | Transfer::Read { .. } => discards.push((place, offset_bytes, length_bytes)),
            }
        }
        pieces.extend(blocks.iter().map(|(group, block)| Piece {
            offset_bytes: self.layout.block_at(*group),
            length_bytes: BLOCK_BYTES,
            buffers: vec![IoSlice::new(block)],
            request: None,
            group: Some(*group),
        }));
        let runs = runs(pieces);
        let slices: Vec<(u64, Vec<IoSlice<'_>>)> = runs
            .iter()
            .map(|run| (run[0].offset_bytes, run.iter().flat_map(|piece| piece.buffers.iter().copied()).collect()))
            .collect();
        let writes = slices.iter().map(|(offset_bytes, data)| match is_durable {
            true => Request::write_durable(*offset_bytes, data),
            false => Request::write(*offset_bytes, data),
        });
        let discard =
            |(_, offset_bytes, length_bytes): &(usize, u64, u64)| Request::discard(*offset_bytes, *length_bytes);
        let all: Vec<Request<'_>> = writes.chain(discards.iter().map(discard)).collect();
        let mut done = self.execute_inner(all, context).into_iter();
        let mut failed_groups: BTreeMap<u64, MediaError> = BTreeMap::new();
        let mut failed_requests: Vec<(usize, MediaError)> = Vec::new();
        for (run, outcome) in runs.iter().zip(done.by_ref()) {
            let Err(error) = outcome else { continue };
            for piece in run {
                failed_requests.extend(piece.request.map(|request| (request, error.clone())));
                failed_groups.extend(piece.group.map(|group| (group, error.clone())));
            }
        }
        for ((place, ..), outcome) in discards.iter().zip(done) {
            failed_requests.extend(outcome.err().map(|error| (divided.owners[*place], error)));
        }
        for (request, error) in failed_requests {
            outcomes[request] = Err(error);
        }
        for &place in &places {
            if let Some(error) = groups[place].and_then(|group| failed_groups.get(&group)) {
                outcomes[divided.owners[place]] = Err(error.clone());
            }
        }
        drop(slices);
        drop(runs);
        let mut state = self.groups.lock();
        for (group, block) in blocks {
            match failed_groups.contains_key(&group) {
                true => state.cache.remove(group),
                false => state.cache.insert(group, Arc::new(block)),
            }
        }
    }
}

fn as_slices<'a>(buffers: &'a mut [IoSliceMut<'_>]) -> Vec<IoSliceMut<'a>> {
    buffers.iter_mut().map(|buffer| IoSliceMut::new(&mut *buffer)).collect()
}

impl BlockDevice for TuplesBeside {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut outcomes: Vec<Result<(), MediaError>> =
            requests.iter().map(|request| check_request(self, request)).collect();
        self.read(requests, &mut outcomes, context);
        self.write(requests, &mut outcomes, context);
        for (request, outcome) in requests.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.sync(context)
    }

    /// Those of the member, blocks included.
    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

#[cfg(test)]
mod tests;
