//! The array as a device: executes the plans of its requests.

use super::geometry::{ArrayGeometry, Column, RaidLevel, StripePart};
use super::intent::IntentMap;
use super::locks::StripeLocks;
use super::member::{IoKind, Member, MemberIo, bytes_of, run_all};
use super::plan::{ColumnIo, ColumnSet, Damage, ReadPlan, TooManyLost, WriteMethod, WritePlan, plan_read, plan_write};
use super::stripe::{self, Found, NewData};
use super::superblock::Superblock;
use crate::buffer::scatter;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::{Condvar, Env, JoinHandle, Mutex};
use varve_media::{
    AlignedBuffer, BlockDevice, Capabilities, Counters, Geometry, IoCause, IoContext, MediaError, Operation, Request,
    Transfer, check_request,
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
}

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
}

/// A part of a request in one stripe.
struct Piece {
    request: usize,
    part: StripePart,
    /// Offset of the part in the request, in bytes.
    at: u64,
    /// Columns of the stripe that could not be read.
    unreadable: ColumnSet,
    outcome: Result<(), MediaError>,
}

/// A plan whose reads are done, with what they found.
pub(super) struct Gathered<P> {
    pub(super) plan: P,
    found: Vec<MemberIo>,
}

impl<P> Gathered<P> {
    /// What the reads of the plan found.
    pub(super) fn found<'a>(&'a self, reads: &'a [ColumnIo]) -> Vec<Found<'a>> {
        reads.iter().zip(self.found.iter().map(MemberIo::bytes)).collect()
    }
}

/// A stripe that reads are planned for.
pub(super) struct Wanted {
    pub(super) stripe: u64,
    pub(super) damage: Damage,
    /// The last read that failed.
    pub(super) error: Option<MediaError>,
}

impl Shared {
    pub(super) fn new(
        env: &Env,
        name: String,
        (sizes, capabilities): (Geometry, Capabilities),
        superblock: Superblock,
        slots: Vec<Slot>,
        intents: IntentMap,
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
            counters: Counters::default(),
        };
        Shared {
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

    fn check_writable(&self) -> Result<(), MediaError> {
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

    fn target(&self, stripe: u64, io: &ColumnIo, kind: IoKind) -> (usize, MemberIo) {
        let offset_bytes = self.data_offset + stripe * self.geometry.chunk_bytes + io.range.start;
        (self.geometry.member_of(stripe, io.column), MemberIo::new(offset_bytes, kind))
    }

    /// Plans reads of stripes and does them, all at once. Where some fail, plans again without these columns. `error`
    /// says of a stripe what failed when no plan is left.
    pub(super) fn gather<P>(
        &self,
        wanted: &mut [Wanted],
        plan: impl Fn(usize, Damage) -> Result<P, TooManyLost>,
        reads: impl Fn(&P) -> &[ColumnIo],
        context: &IoContext,
    ) -> Vec<Option<Gathered<P>>> {
        let mut gathered: Vec<Option<Gathered<P>>> = wanted.iter().map(|_| None).collect();
        let mut pending: Vec<usize> = (0..wanted.len()).collect();
        while !pending.is_empty() {
            let planned =
                pending.drain(..).filter_map(|number| Some((number, plan(number, wanted[number].damage).ok()?)));
            let planned: Vec<(usize, P)> = planned.collect();
            let ios = planned.iter().flat_map(|(number, plan)| {
                let stripe = wanted[*number].stripe;
                reads(plan).iter().map(move |read| {
                    let length = (read.range.end - read.range.start) as usize;
                    self.target(stripe, read, IoKind::Read(AlignedBuffer::new(length, self.alignment_bytes)))
                })
            });
            let mut done = run_all(&self.env, &self.members(), ios.collect(), context).into_iter();
            for (number, plan) in planned {
                let found: Vec<MemberIo> = done.by_ref().take(reads(&plan).len()).map(|(_, io)| io).collect();
                let failed =
                    reads(&plan).iter().zip(&found).filter_map(|(read, io)| Some((read, io.outcome.as_ref().err()?)));
                let mut has_failed = false;
                for (read, error) in failed {
                    wanted[number].damage.unreadable.insert(read.column);
                    wanted[number].error = Some(error.clone());
                    has_failed = true;
                }
                match has_failed {
                    true => pending.push(number),
                    false => gathered[number] = Some(Gathered { plan, found }),
                }
            }
        }
        gathered
    }

    /// Writes columns of stripes.
    ///
    /// # Errors
    /// Of each its own: a member failed that the array cannot lose.
    pub(super) fn write_columns(
        &self,
        writes: Vec<(u64, ColumnIo, IoKind)>,
        context: &IoContext,
    ) -> Vec<Result<(), MediaError>> {
        let ios = writes.into_iter().map(|(stripe, write, kind)| self.target(stripe, &write, kind)).collect();
        let done = run_all(&self.env, &self.members(), ios, context);
        done.into_iter().map(|(slot, io)| io.outcome.or_else(|error| self.write_failed(slot, error))).collect()
    }

    /// The error of a stripe for which nothing could be planned.
    pub(super) fn lost(&self, stripe: u64, wanted: &Wanted) -> MediaError {
        let stopped = || self.state.lock().stopped.clone();
        let offset_bytes = stripe * self.geometry.stripe_bytes();
        let lost = || MediaError::Unreadable { device: self.name.clone(), offset_bytes };
        wanted.error.clone().or_else(stopped).unwrap_or_else(lost)
    }

    pub(super) fn regions<'a>(&self, stripes: impl Iterator<Item = &'a u64>) -> BTreeSet<u64> {
        stripes.map(|stripe| stripe / self.region_stripes).collect()
    }

    fn wanted(&self, pieces: &[&mut Piece]) -> Vec<Wanted> {
        let wanted = |piece: &&mut Piece| Wanted {
            stripe: piece.part.stripe,
            damage: Damage { unreadable: piece.unreadable, ..self.damage(piece.part.stripe) },
            error: None,
        };
        pieces.iter().map(wanted).collect()
    }

    /// Reads pieces. What needs no redundancy is read without locks.
    fn read_round(&self, pieces: &mut [Piece], requests: &mut [Request<'_>], context: &IoContext) {
        let mut rest: Vec<&mut Piece> = pieces.iter_mut().collect();
        for is_locked in [false, true] {
            let stripes = || rest.iter().map(|piece| piece.part.stripe).collect();
            let _locked = is_locked.then(|| self.locks.lock(stripes()));
            let mut wanted = self.wanted(&rest);
            let plan = |number: usize, damage: Damage| {
                let StripePart { stripe, range } = &rest[number].part;
                let plan = plan_read(&self.geometry, *stripe, range, damage)?;
                if is_locked || plan.recovery.is_none() && damage.unreadable.is_empty() {
                    Ok(plan)
                } else {
                    Err(TooManyLost)
                }
            };
            let cause = if is_locked { IoCause::Parity } else { context.cause };
            let context = IoContext { cause, ..*context };
            let gathered = self.gather(&mut wanted, plan, |plan: &ReadPlan| &plan.reads, &context);
            let mut left = Vec::new();
            for ((piece, wanted), gathered) in rest.into_iter().zip(wanted).zip(gathered) {
                let stripe = piece.part.stripe;
                let running = || if is_locked { self.check_running() } else { Ok(()) };
                match gathered {
                    Some(gathered) => {
                        let plan = &gathered.plan;
                        let bytes =
                            stripe::answer(&self.geometry, &piece.part.range, plan, &gathered.found(&plan.reads));
                        // Redundancy of a stripe whose write was cut short says nothing.
                        piece.outcome = running().and(bytes.map_err(|_| self.lost(stripe, &wanted)).map(|bytes| {
                            scatter(&mut requests[piece.request], piece.at, &bytes);
                        }));
                        self.state.lock().statistics.recovered_reads += u64::from(plan.recovery.is_some());
                    }
                    None if is_locked => piece.outcome = Err(self.lost(stripe, &wanted)),
                    None => {
                        piece.unreadable = wanted.damage.unreadable;
                        left.push(piece);
                    }
                }
            }
            rest = left;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Writes and discards pieces of different stripes.
    fn write_round(&self, pieces: &mut [Piece], requests: &[Request<'_>], context: &IoContext) {
        let stripes: BTreeSet<u64> = pieces.iter().map(|piece| piece.part.stripe).collect();
        let has_redundancy = self.geometry.level != RaidLevel::Raid0;
        let _locked = has_redundancy.then(|| self.locks.lock(stripes.clone()));
        let regions = self.regions(stripes.iter());
        let begun = self.check_writable().and_then(|()| match has_redundancy {
            true => self.begin_intents(&regions, context),
            false => Ok(()),
        });
        if let Err(error) = begun {
            pieces.iter_mut().for_each(|piece| piece.outcome = Err(error.clone()));
            return;
        }
        self.write_locked(pieces, requests, context);
        if has_redundancy {
            let has_failed = pieces.iter().any(|piece| piece.outcome.is_err());
            self.intents.lock().end(&regions, has_failed);
            if let Err(error) = self.settle() {
                pieces
                    .iter_mut()
                    .filter(|piece| piece.outcome.is_ok())
                    .for_each(|piece| piece.outcome = Err(error.clone()));
            }
        }
    }

    fn write_locked(&self, pieces: &mut [Piece], requests: &[Request<'_>], context: &IoContext) {
        let discards = |piece: &Piece| {
            let is_discard = matches!(requests[piece.request].transfer, Transfer::Discard { .. });
            let is_whole = piece.part.range == (0..self.geometry.stripe_bytes());
            is_discard && (is_whole || self.geometry.level.parity_columns() == 0)
        };
        let mut rest: Vec<&mut Piece> = pieces.iter_mut().collect();
        let mut wanted = self.wanted(&rest);
        let plan = |number: usize, damage: Damage| plan_write(&self.geometry, &rest[number].part.range, damage);
        let of_parity = IoContext { cause: IoCause::Parity, ..*context };
        let gathered = self.gather(&mut wanted, plan, |plan: &WritePlan| &plan.reads, &of_parity);
        let (mut writes, mut owners) = (Vec::new(), Vec::new());
        for (number, ((piece, wanted), gathered)) in rest.iter_mut().zip(&wanted).zip(&gathered).enumerate() {
            let stripe = piece.part.stripe;
            let request = &requests[piece.request];
            let planned = match gathered {
                Some(gathered) if discards(piece) => {
                    // Zeros have the parity zero.
                    let discard = |write: &ColumnIo| {
                        let length_bytes = write.range.end - write.range.start;
                        (stripe, write.clone(), IoKind::Discard { length_bytes })
                    };
                    Ok(gathered.plan.writes.iter().map(discard).collect())
                }
                Some(gathered) => self.writes_of(piece, request, gathered).ok_or_else(|| self.lost(stripe, wanted)),
                None => Err(self.lost(stripe, wanted)),
            };
            match planned {
                Ok(of_stripe) => {
                    owners.extend(std::iter::repeat_n(number, of_stripe.len()));
                    writes.extend(of_stripe);
                }
                Err(error) => piece.outcome = Err(error),
            }
            if let Some(gathered) = gathered {
                self.state.lock().statistics.count(gathered.plan.method);
            }
        }
        for (number, outcome) in owners.into_iter().zip(self.write_columns(writes, context)) {
            let piece = &mut rest[number];
            if piece.outcome.is_ok() {
                piece.outcome = outcome;
            }
        }
    }

    /// The I/Os of a planned write, with their bytes.
    fn writes_of(
        &self,
        piece: &Piece,
        request: &Request<'_>,
        gathered: &Gathered<WritePlan>,
    ) -> Option<Vec<(u64, ColumnIo, IoKind)>> {
        let (plan, stripe) = (&gathered.plan, piece.part.stripe);
        let is_durable = matches!(request.transfer, Transfer::Write { durable: true, .. });
        let chunk = self.geometry.chunk_bytes;
        let new = self.geometry.columns_of(&piece.part.range).into_iter().map(|(place, range)| {
            let at = piece.at + place as u64 * chunk + range.start - piece.part.range.start;
            let bytes = bytes_of(request, at, range.end - range.start, self.alignment_bytes);
            NewData { place, range, bytes }
        });
        let new: Vec<NewData> = new.collect();
        let found = gathered.found(&plan.reads);
        let parity = stripe::new_parity(&self.geometry, plan, &new, &found, self.alignment_bytes).ok()?;
        let data = new.into_iter().map(|data| (Column::Data(data.place), Arc::new(data.bytes)));
        let parity = parity.into_iter().map(|(column, bytes)| (column, Arc::new(bytes)));
        let all: Vec<(Column, Arc<AlignedBuffer>)> = data.chain(parity).collect();
        let io = |write: &ColumnIo| {
            let source = if matches!(write.column, Column::Copy(_)) { Column::Data(0) } else { write.column };
            let (_, bytes) = all.iter().find(|(column, _)| *column == source)?;
            Some((stripe, write.clone(), IoKind::Write { bytes: Arc::clone(bytes), is_durable }))
        };
        plan.writes.iter().map(io).collect()
    }

    /// Marks regions on all members before stripes of them are written.
    fn begin_intents(&self, regions: &BTreeSet<u64>, context: &IoContext) -> Result<(), MediaError> {
        let mut intents = self.intents.lock();
        let Some(page) = intents.begin(regions) else { return Ok(()) };
        match self.write_intents(&mut intents, page, context) {
            Ok(()) => Ok(()),
            Err(error) => {
                intents.end(regions, true);
                Err(error)
            }
        }
    }

    /// The pieces of requests that can be done. Sets the outcomes of the others.
    fn pieces(&self, device: &dyn BlockDevice, requests: &mut [Request<'_>]) -> [Vec<Piece>; 2] {
        let mut pieces = [Vec::new(), Vec::new()];
        for (number, request) in requests.iter_mut().enumerate() {
            request.outcome = check_request(device, request);
            if request.outcome.is_err() {
                continue;
            }
            let start = request.offset_bytes;
            let kind = usize::from(!matches!(request.transfer, Transfer::Read { .. }));
            for part in self.geometry.parts(start..start + request.length_bytes()) {
                let at = part.stripe * self.geometry.stripe_bytes() + part.range.start - start;
                pieces[kind].push(Piece {
                    request: number,
                    part,
                    at,
                    unreadable: ColumnSet::default(),
                    outcome: Ok(()),
                });
            }
        }
        pieces
    }
}

/// Pieces that one round works on: of different stripes if `is_exclusive`, and of bounded size.
fn round_length(pieces: &[Piece], is_exclusive: bool) -> usize {
    let (mut stripes, mut bytes) = (BTreeSet::new(), 0);
    for (count, piece) in pieces.iter().enumerate() {
        let is_new = stripes.insert(piece.part.stripe);
        bytes += piece.part.range.end - piece.part.range.start;
        let is_full = bytes > ROUND_BYTES_MAX || stripes.len() > ROUND_STRIPES_MAX;
        if count > 0 && (is_full || is_exclusive && !is_new) {
            return count;
        }
    }
    pieces.len()
}

impl ArrayStatistics {
    fn count(&mut self, method: WriteMethod) {
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
        for (is_write, mut pieces) in [false, true].into_iter().zip(shared.pieces(self, requests)) {
            let mut rest = &mut pieces[..];
            while !rest.is_empty() {
                let (round, later) = rest.split_at_mut(round_length(rest, is_write));
                match is_write {
                    true => shared.write_round(round, requests, context),
                    false => shared.read_round(round, requests, context),
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
        let mut state = shared.state.lock();
        requests.iter().for_each(|request| state.counters.count_request(request, context));
        drop(state);
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.front.shared;
        let synced = shared.sync(context);
        let mut state = shared.state.lock();
        match synced {
            Ok(()) => state.counters.syncs += 1,
            Err(_) => state.counters.errors += 1,
        }
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
