//! The array as a device: executes the plans of its requests.

use super::answers::PendingAnswers;
use super::geometry::{ArrayGeometry, Column, RaidLevel, StripePart};
use super::intent::IntentMap;
use super::locks::StripeLocks;
use super::member::{IoKind, Member, MemberIo};
use super::plan::{ColumnIo, ColumnSet, Damage, WriteMethod};
use super::protection::{ATTEMPTS_MAX, Dix, PiOperator, Tuples, slices_of};
use super::stripe::Found;
use super::stripe_journal::{OpenJournal, record_bytes_max};
use super::superblock::Superblock;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use varve_env::{Condvar, Env, JoinHandle, Mutex};
use varve_media::{
    AlignedBuffer, Attempt, BlockDevice, Capabilities, Counters, Geometry, IoContext, MediaError, MediaErrorKind,
    Operation, ProtectionMismatch, Request, Transfer, check_request,
};

/// Bytes of requests that are worked on at once for one caller.
const ROUND_BYTES_MAX: u64 = 32 << 20;
/// Stripes that are worked on at once for one caller.
const ROUND_STRIPES_MAX: usize = 256;

/// What an array did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayStatistics {
    /// Writes of a stripe by the method that computed their parity: without parity or to mirrors.
    pub plain_writes: u64,
    /// Writes that covered a stripe.
    pub full_stripe_writes: u64,
    /// Read-modify-writes.
    pub read_modify_writes: u64,
    /// Reconstruct-writes, with and without overwrite.
    pub reconstruct_writes: u64,
    /// Writes that first recovered lost data of their stripe.
    pub recovering_writes: u64,
    /// Reads of a stripe that recovered data.
    pub recovered_reads: u64,
    /// Members that failed.
    pub failed_members: u64,
    /// Updates of the intent map on the members.
    pub intent_updates: u64,
    /// Stripes that were compared after a power cut.
    pub resynced_stripes: u64,
    /// Stripes of these whose redundancy was wrong.
    pub repaired_stripes: u64,
    /// Stripes of which the chunk of a replaced member was rebuilt.
    pub rebuilt_stripes: u64,
    /// Stripes that scrubs have read.
    pub scrubbed_stripes: u64,
    /// Intervals, or the first of several, whose data and protection information disagree.
    pub mismatches: u64,
    /// Requests, or stripes of them, that were done again because of a mismatch.
    pub redone_requests: u64,
    /// Parts of stripes that could not be read, or did not fit their protection information, and were rewritten.
    pub rewritten_columns: u64,
    /// Answers that were computed because a reader found the one before wrong.
    pub other_answers: u64,
    /// Parts of stripes that a reader found wrong, and of which it accepted another answer.
    pub accepted_answers: u64,
}

impl ArrayStatistics {
    /// Every number with its name.
    pub fn measures(&self) -> Vec<(&'static str, u64)> {
        let &ArrayStatistics {
            plain_writes,
            full_stripe_writes,
            read_modify_writes,
            reconstruct_writes,
            recovering_writes,
            recovered_reads,
            failed_members,
            intent_updates,
            resynced_stripes,
            repaired_stripes,
            rebuilt_stripes,
            scrubbed_stripes,
            mismatches,
            redone_requests,
            rewritten_columns,
            other_answers,
            accepted_answers,
        } = self;
        vec![
            ("plain writes", plain_writes),
            ("full stripe writes", full_stripe_writes),
            ("read modify writes", read_modify_writes),
            ("reconstruct writes", reconstruct_writes),
            ("recovering writes", recovering_writes),
            ("recovered reads", recovered_reads),
            ("failed members", failed_members),
            ("intent updates", intent_updates),
            ("resynced stripes", resynced_stripes),
            ("repaired stripes", repaired_stripes),
            ("rebuilt stripes", rebuilt_stripes),
            ("scrubbed stripes", scrubbed_stripes),
            ("mismatches", mismatches),
            ("redone requests", redone_requests),
            ("rewritten columns", rewritten_columns),
            ("other answers", other_answers),
            ("accepted answers", accepted_answers),
        ]
    }
}

/// A part of a stripe that could not be read, or did not fit its protection information.
#[derive(Clone, Debug)]
pub struct Incident {
    /// Slot of the member.
    pub slot: usize,
    /// The error with its member and place; of protection information also the tag with its values.
    pub error: MediaError,
    /// It was computed from redundancy and rewritten.
    pub is_repaired: bool,
}

/// Damages buffers of an array, for experiments. Called with each part of a request that an array holds in memory of its own.
pub trait BufferFaults: Send + Sync {
    /// A write of a member was built; nothing of it was verified or sent. `tuples` is empty where there are none.
    fn write_built(&self, slot: usize, offset_bytes: &mut u64, data: &mut [u8], tuples: &mut [u8]);
    /// A read of a member arrived; nothing of it was copied or verified.
    fn read_arrived(&self, slot: usize, offset_bytes: u64, data: &mut [u8], tuples: &mut [u8]);
}

/// Incidents that are kept, at most.
const INCIDENTS_MAX: usize = 64;

/// State of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberState {
    /// It has its part of every stripe.
    InUse,
    /// It failed, or was not there when the array was opened.
    Lost,
    /// It has its part of the first stripes.
    Rebuilding {
        /// Stripes that it has.
        done_stripes: u64,
    },
}

/// A member and its state.
pub(super) struct Slot {
    pub(super) member: Option<Arc<Member>>,
    pub(super) state: MemberState,
}

impl Slot {
    /// Whether it has its part of a stripe.
    fn has(&self, stripe: u64) -> bool {
        match self.state {
            MemberState::InUse => true,
            MemberState::Lost => false,
            MemberState::Rebuilding { done_stripes } => stripe < done_stripes,
        }
    }
}

pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    /// Generation of the members in use, and that on the medium.
    pub(super) generation: u64,
    pub(super) recorded: u64,
    pub(super) stopped: Option<MediaError>,
    pub(super) is_closed: bool,
    /// The maintenance actor works, or is to begin.
    pub(super) is_maintaining: bool,
    pub(super) statistics: ArrayStatistics,
    /// The last ones.
    pub(super) incidents: VecDeque<Incident>,
    /// Answers that a reader may accept.
    pub(super) pending_answers: PendingAnswers,
    /// Of requests as they came.
    counters: Counters,
}

/// What all handles share.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) env: Env,
    pub(super) sizes: Geometry,
    pub(super) capabilities: Capabilities,
    /// Alignment of buffers that any member takes.
    pub(super) alignment_bytes: usize,
    pub(super) geometry: ArrayGeometry,
    /// Offset of the data on each member, in bytes.
    pub(super) data_offset: u64,
    /// Stripes to a region of the intent map.
    pub(super) region_stripes: u64,
    /// What is on the members, held while it is written. The slot means nothing.
    pub(super) record: Mutex<Superblock>,
    /// Held while a page is written. Taken before `record`.
    pub(super) intents: Mutex<IntentMap>,
    pub(super) state: Mutex<State>,
    pub(super) locks: StripeLocks,
    /// Something came for the maintenance actor.
    pub(super) work: Condvar,
    /// Nothing is written to the members.
    pub(super) is_read_only: bool,
    /// Operator of protection information, unless the array ignores it.
    pub(super) operator: Option<PiOperator>,
    pub(super) journal: Option<OpenJournal>,
    /// Bytes that are written at once, at most; with a journal, bytes of a record.
    round_bytes_max: u64,
    pub(super) faults: OnceLock<Arc<dyn BufferFaults>>,
}

/// A part of a request in one stripe.
pub(super) struct Piece {
    pub(super) request: usize,
    pub(super) part: StripePart,
    /// Offset of the part in the request, in bytes.
    pub(super) at: u64,
    /// Columns of the stripe that could not be read, and why.
    pub(super) failed: Vec<(Column, MediaError)>,
    pub(super) outcome: Result<(), MediaError>,
}

/// A plan whose reads are done, with what they found.
pub(super) struct Gathered<P> {
    pub(super) plan: P,
    pub(super) found: Vec<MemberIo>,
}

impl<P> Gathered<P> {
    /// What the reads of the plan found.
    pub(super) fn found<'a>(&'a self, reads: &'a [ColumnIo]) -> Vec<Found<'a>> {
        reads.iter().zip(self.found.iter().map(MemberIo::bytes)).collect()
    }

    pub(super) fn ios(&self) -> impl Iterator<Item = &MemberIo> {
        self.found.iter()
    }
}

/// A stripe that reads are planned for.
pub(super) struct Wanted {
    pub(super) stripe: u64,
    pub(super) damage: Damage,
    /// Reads that failed.
    pub(super) failed: Vec<(Column, MediaError)>,
    /// Columns whose reads did not fit their tuples, and were done again.
    reread: ColumnSet,
}

impl Wanted {
    pub(super) fn new(stripe: u64, damage: Damage, failed: Vec<(Column, MediaError)>) -> Wanted {
        Wanted { stripe, damage, failed, reread: ColumnSet::default() }
    }

    /// Notes that a read failed. Data that do not fit their tuples are read once more first: they may have changed on their way.
    /// Returns whether the read is to be done again.
    pub(super) fn failed(&mut self, column: Column, error: MediaError) -> bool {
        if error.kind() == MediaErrorKind::Protection && !self.reread.contains(column) {
            self.reread.insert(column);
            return true;
        }
        self.damage.unreadable.insert(column);
        self.failed.push((column, error));
        false
    }
}

impl Shared {
    pub(super) fn new(
        env: &Env,
        (name, dix): (String, Dix),
        (sizes, capabilities): (Geometry, Capabilities),
        (superblock, journal): (Superblock, Option<OpenJournal>),
        (slots, intents): (Vec<Slot>, IntentMap),
        is_read_only: bool,
    ) -> Shared {
        let alignment = |slot: &Slot| {
            slot.member.as_ref().map_or(1, |member| member.device.block.capabilities().buffer_alignment_bytes)
        };
        let alignment_bytes = slots.iter().map(alignment).max().unwrap_or(1) as usize;
        let state = State {
            slots,
            generation: superblock.generation,
            recorded: superblock.generation,
            stopped: None,
            is_closed: false,
            is_maintaining: true,
            statistics: ArrayStatistics::default(),
            incidents: VecDeque::new(),
            pending_answers: PendingAnswers::default(),
            counters: Counters::default(),
        };
        Shared {
            operator: PiOperator::new(env, superblock.protection, dix, superblock.geometry.level),
            faults: OnceLock::new(),
            round_bytes_max: round_bytes_max(&superblock),
            journal,
            name,
            env: env.clone(),
            sizes,
            capabilities,
            alignment_bytes,
            geometry: superblock.geometry.clone(),
            data_offset: superblock.data_offset,
            region_stripes: superblock.region_stripes,
            record: Mutex::new(env, "superblocks of an array", superblock),
            intents: Mutex::new(env, "intent map of an array", intents),
            state: Mutex::new(env, "array", state),
            locks: StripeLocks::new(env),
            work: Condvar::new(env, "array's maintenance"),
            is_read_only,
        }
    }

    /// The members that are there.
    pub(super) fn members(&self) -> Vec<Option<Arc<Member>>> {
        self.state.lock().slots.iter().map(|slot| slot.member.clone()).collect()
    }

    pub(super) fn check_running(&self) -> Result<(), MediaError> {
        self.state.lock().stopped.clone().map_or(Ok(()), Err)
    }

    pub(super) fn check_writable(&self) -> Result<(), MediaError> {
        if self.is_read_only {
            let (device, rule) = (self.name.clone(), "the array was opened for reading only".to_owned());
            return Err(MediaError::Rule { device, operation: Operation::Write, offset_bytes: 0, rule });
        }
        self.check_running()
    }

    /// Columns of a stripe that no member has.
    pub(super) fn damage(&self, stripe: u64) -> Damage {
        let state = self.state.lock();
        let mut damage = Damage::default();
        if state.slots.iter().any(|slot| slot.state != MemberState::InUse) {
            let columns = self.geometry.columns();
            for column in columns.filter(|column| !state.slots[self.geometry.member_of(stripe, *column)].has(stripe)) {
                damage.absent.insert(column);
            }
        }
        damage
    }

    /// Offset on its member, in bytes.
    pub(super) fn offset_of(&self, stripe: u64, io: &ColumnIo) -> u64 {
        self.data_offset + stripe * self.geometry.chunk_bytes + io.range.start
    }

    pub(super) fn target(&self, stripe: u64, io: &ColumnIo, kind: IoKind) -> (usize, MemberIo) {
        (self.geometry.member_of(stripe, io.column), MemberIo::new(self.offset_of(stripe, io), kind))
    }

    /// Counts a mismatch at a place of a member. Returns its error.
    pub(super) fn mismatch(&self, slot: usize, mismatch: ProtectionMismatch, operation: Operation) -> MediaError {
        let mut state = self.state.lock();
        state.statistics.mismatches += 1;
        let member = state.slots[slot].member.as_ref();
        mismatch.at(member.map_or(&self.name, |member| member.device.block.name()), operation)
    }

    pub(super) fn record_incident(&self, incident: Incident) {
        let mut state = self.state.lock();
        state.statistics.rewritten_columns += u64::from(incident.is_repaired);
        if state.incidents.len() == INCIDENTS_MAX {
            state.incidents.pop_front();
        }
        state.incidents.push_back(incident);
    }

    /// Lets an experiment damage a read that arrived.
    pub(super) fn strike_read(&self, slot: usize, io: &mut MemberIo) {
        if let (Some(faults), IoKind::Read { bytes, tuples }) = (self.faults.get(), &mut io.kind) {
            faults.read_arrived(slot, io.offset_bytes, bytes, tuples.as_deref_mut().unwrap_or_default());
        }
    }

    /// Lets an experiment damage a write that was built.
    pub(super) fn strike_write(&self, slot: usize, io: &mut MemberIo) {
        if let (Some(faults), IoKind::Write { bytes, tuples, .. }) = (self.faults.get(), &mut io.kind) {
            // Other members may have the same bytes.
            let mut own_bytes = AlignedBuffer::copy_of(bytes, self.alignment_bytes);
            let mut own_tuples = tuples.as_ref().map_or(Vec::new(), |tuples| tuples.to_vec());
            faults.write_built(slot, &mut io.offset_bytes, &mut own_bytes, &mut own_tuples);
            *bytes = Arc::new(own_bytes);
            *tuples = tuples.take().map(|_| Arc::new(own_tuples));
        }
    }

    /// The error of a stripe for which nothing could be planned.
    pub(super) fn lost(&self, stripe: u64, wanted: &Wanted) -> MediaError {
        let stopped = || self.state.lock().stopped.clone();
        let offset_bytes = stripe * self.geometry.stripe_bytes();
        let lost = || MediaError::Unreadable { device: self.name.clone(), offset_bytes };
        wanted.failed.last().map(|(_, error)| error.clone()).or_else(stopped).unwrap_or_else(lost)
    }

    pub(super) fn regions<'a>(&self, stripes: impl Iterator<Item = &'a u64>) -> BTreeSet<u64> {
        stripes.map(|stripe| stripe / self.region_stripes).collect()
    }

    /// The pieces of requests that can be done: of reads, and of the others.
    fn pieces(&self, requests: &[Request<'_>]) -> [Vec<Piece>; 2] {
        let mut pieces = [Vec::new(), Vec::new()];
        for (number, request) in requests.iter().enumerate().filter(|(_, request)| request.outcome.is_ok()) {
            let kind = usize::from(!matches!(request.transfer, Transfer::Read { .. }));
            pieces[kind].extend(self.pieces_of(number, request));
        }
        pieces
    }

    fn pieces_of(&self, number: usize, request: &Request<'_>) -> Vec<Piece> {
        let start = request.offset_bytes;
        let piece = |part: StripePart| {
            let at = part.stripe * self.geometry.stripe_bytes() + part.range.start - start;
            Piece { request: number, part, at, failed: Vec::new(), outcome: Ok(()) }
        };
        self.geometry.parts(start..start + request.length_bytes()).map(piece).collect()
    }

    fn execute(&self, device: &dyn BlockDevice, requests: &mut [Request<'_>], context: &IoContext) {
        requests.iter_mut().for_each(|request| request.outcome = check_request(device, request));
        let mut tuples = self.tuples_of(requests);
        let [mut reads, writes] = self.pieces(requests);
        if context.attempt != Attempt::First && self.geometry.level != RaidLevel::Raid0 {
            self.answer_again(reads, requests, &mut tuples, context);
            self.redo_mismatched_reads(requests, &mut tuples, context);
        } else if let ([request], [piece]) = (&mut requests[..], &mut reads[..])
            && self.read_directly(device, piece, request, tuples.first_mut().map_or(&mut [], |own| own), context)
        {
            request.outcome = piece.outcome.clone();
        } else {
            self.do_pieces(reads, requests, &mut tuples, context);
            self.redo_mismatched_reads(requests, &mut tuples, context);
        }
        self.do_pieces(writes, requests, &mut tuples, context);
        for (request, own) in requests.iter_mut().zip(&tuples) {
            if let Transfer::Read { protection: Some(protection), .. } = &mut request.transfer
                && protection.len() == own.len()
            {
                protection.copy_from_slice(own);
            }
        }
    }

    /// Tuples of requests that can be done. Sets the outcomes of writes whose tuples do not fit.
    fn tuples_of(&self, requests: &mut [Request<'_>]) -> Tuples {
        let Some(operator) = &self.operator else { return vec![Vec::new(); requests.len()] };
        let of_request = |request: &mut Request<'_>| {
            if request.outcome.is_err() {
                return Vec::new();
            }
            operator.of_request(request).unwrap_or_else(|mismatch| {
                self.state.lock().statistics.mismatches += 1;
                request.outcome = Err(mismatch.at(&self.name, Operation::Write));
                Vec::new()
            })
        };
        requests.iter_mut().map(of_request).collect()
    }

    /// Does reads, or writes, in rounds.
    fn do_pieces(
        &self,
        mut pieces: Vec<Piece>,
        requests: &mut [Request<'_>],
        tuples: &mut Tuples,
        context: &IoContext,
    ) {
        let is_write = |piece: &Piece| !matches!(requests[piece.request].transfer, Transfer::Read { .. });
        let is_write = pieces.first().is_some_and(is_write);
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            let bytes_max = if is_write { self.round_bytes_max } else { ROUND_BYTES_MAX };
            let bytes_of = |piece: &Piece| match is_write && self.journal.is_some() {
                true => journaled_bytes(&self.geometry, &piece.part.range),
                false => piece.part.range.end - piece.part.range.start,
            };
            let (round, later) = rest.split_at_mut(round_length(rest, is_write, bytes_max, bytes_of));
            match is_write {
                true => self.write_round(round, requests, tuples, context),
                false => self.read_round(round, requests, tuples, context),
            }
            rest = later;
        }
        for piece in pieces {
            let request = &mut requests[piece.request];
            if request.outcome.is_ok() {
                request.outcome = piece.outcome;
            }
        }
    }

    /// Verifies reads as a whole, if that is to be done, and does those again that do not fit.
    fn redo_mismatched_reads(&self, requests: &mut [Request<'_>], tuples: &mut Tuples, context: &IoContext) {
        let Some(operator) = self.operator.as_ref().filter(|operator| operator.verifies_requests) else { return };
        for number in 0..requests.len() {
            for attempt in 1..=ATTEMPTS_MAX {
                let request = &mut requests[number];
                if request.outcome.is_err() || !matches!(request.transfer, Transfer::Read { .. }) {
                    break;
                }
                let length_bytes = request.length_bytes();
                let data = slices_of(request, 0, length_bytes);
                let Err(mismatch) = operator.verify(request.offset_bytes, data, &tuples[number]) else { break };
                let error = self.mismatch_of_request(mismatch);
                if attempt == ATTEMPTS_MAX {
                    request.outcome = Err(error);
                    break;
                }
                self.state.lock().statistics.redone_requests += 1;
                let pieces = self.pieces_of(number, request);
                self.do_pieces(pieces, requests, tuples, context);
            }
        }
    }

    /// The error of an interval of the array that does not fit, with the member that has it.
    fn mismatch_of_request(&self, mismatch: ProtectionMismatch) -> MediaError {
        let at = mismatch.offset_bytes;
        let place = self.geometry.parts(at..at + 1).next().and_then(|part| {
            let (place, range) = self.geometry.columns_of(&part.range).into_iter().next()?;
            Some((part.stripe, ColumnIo { column: Column::Data(place), range }))
        });
        let Some((stripe, io)) = place else { return mismatch.at(&self.name, Operation::Read) };
        let offset_bytes = self.offset_of(stripe, &io);
        let slot = self.geometry.member_of(stripe, io.column);
        let moved = match &self.operator {
            Some(operator) => operator.at_other_place(mismatch, at, offset_bytes),
            None => mismatch,
        };
        self.mismatch(slot, moved, Operation::Read)
    }
}

/// Bytes that one round works on, at most. With a journal they are a record of it; a stripe always fits.
fn round_bytes_max(superblock: &Superblock) -> u64 {
    match superblock.has_journal() {
        false => ROUND_BYTES_MAX,
        true => record_bytes_max(superblock.journal_area_bytes).min(ROUND_BYTES_MAX),
    }
}

/// Bytes that the write of a part of a stripe has at most in a record of the journal: the columns it covers, and parity over its hull,
/// which may be much longer; each copy of a mirror.
fn journaled_bytes(geometry: &ArrayGeometry, range: &std::ops::Range<u64>) -> u64 {
    if geometry.level == RaidLevel::Raid1 {
        return (range.end - range.start).saturating_mul(geometry.members as u64);
    }
    let columns = geometry.columns_of(range);
    let start = columns.iter().map(|(_, own)| own.start).min().unwrap_or(0);
    let end = columns.iter().map(|(_, own)| own.end).max().unwrap_or(0);
    range.end - range.start + geometry.level.parity_columns() as u64 * (end - start)
}

/// Pieces that one round works on: of different stripes if `is_exclusive`, and of bounded size. `bytes_of` is what a piece counts.
fn round_length(pieces: &[Piece], is_exclusive: bool, bytes_max: u64, bytes_of: impl Fn(&Piece) -> u64) -> usize {
    let (mut stripes, mut bytes) = (BTreeSet::new(), 0);
    for (count, piece) in pieces.iter().enumerate() {
        let is_new = stripes.insert(piece.part.stripe);
        bytes += bytes_of(piece);
        let is_full = bytes > bytes_max || stripes.len() > ROUND_STRIPES_MAX;
        if count > 0 && (is_full || is_exclusive && !is_new) {
            return count;
        }
    }
    pieces.len()
}

impl ArrayStatistics {
    pub(super) fn count(&mut self, method: WriteMethod) {
        *match method {
            WriteMethod::NoParity | WriteMethod::Mirror => &mut self.plain_writes,
            WriteMethod::FullStripe => &mut self.full_stripe_writes,
            WriteMethod::ReadModifyWrite => &mut self.read_modify_writes,
            WriteMethod::ReconstructOverwrite | WriteMethod::ReconstructNonOverwrite => &mut self.reconstruct_writes,
            WriteMethod::Recover => &mut self.recovering_writes,
        } += 1;
    }
}

/// All handles of an array share it. Its end is that of the actors.
pub(super) struct Front {
    pub(super) shared: Arc<Shared>,
    pub(super) maintenance: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_all();
        if let Some(actor) = self.maintenance.get_mut().take() {
            // A panic was reported by its thread.
            let _ = actor.join();
        }
        self.shared.close();
        self.shared.members().iter().flatten().for_each(|member| member.end());
    }
}

/// The array as those above it see it.
pub(super) struct ArrayDevice {
    pub(super) front: Arc<Front>,
}

impl BlockDevice for ArrayDevice {
    fn name(&self) -> &str {
        &self.front.shared.name
    }

    fn geometry(&self) -> &Geometry {
        &self.front.shared.sizes
    }

    fn capabilities(&self) -> &Capabilities {
        &self.front.shared.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.front.shared;
        shared.execute(self, requests, context);
        let mut state = shared.state.lock();
        requests.iter().for_each(|request| state.counters.count_request(request, context));
        drop(state);
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.front.shared;
        let synced = shared.sync(context);
        let mut state = shared.state.lock();
        state.counters.count_sync(&synced);
        synced
    }

    /// Requests as they came; what media wrote and read, and their time, are sums over the members.
    fn counters(&self) -> Counters {
        let shared = &self.front.shared;
        let members = shared.members();
        let mut counters = shared.state.lock().counters.clone();
        for of_member in members.iter().flatten().map(|member| member.device.block.counters()) {
            counters.media_written_bytes += of_member.media_written_bytes;
            counters.media_read_bytes += of_member.media_read_bytes;
            counters.seeks += of_member.seeks;
            counters.cache_hits += of_member.cache_hits;
            counters.time.seek_nanos += of_member.time.seek_nanos;
            counters.time.rotation_nanos += of_member.time.rotation_nanos;
            counters.time.transfer_nanos += of_member.time.transfer_nanos;
            counters.time.overhead_nanos += of_member.time.overhead_nanos;
            counters.time.flush_nanos += of_member.time.flush_nanos;
            counters.time.idle_nanos += of_member.time.idle_nanos;
        }
        counters
    }
}
