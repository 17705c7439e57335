//! The members of an open array, and one actor for each that does its I/O.

use super::plan::ColumnIo;
use super::stripe_journal::JournaledWrite;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use varve_env::channel::{self, Receiver, Sender};
use varve_env::{Env, JoinHandle, Mutex};
use varve_media::{AlignedBuffer, Device, IoContext, MediaError, Operation, Request, SyncOrder, Transfer};

/// Commands that wait for a member, at most.
const QUEUE_LENGTH: usize = 64;

/// One I/O of a member. Buffers are owned, so that they can go to the member's actor.
#[derive(Debug)]
pub(super) struct MemberIo {
    pub(super) offset_bytes: u64,
    pub(super) kind: IoKind,
    pub(super) outcome: Result<(), MediaError>,
}

#[derive(Debug)]
pub(super) enum IoKind {
    Read { bytes: AlignedBuffer, tuples: Option<Vec<u8>> },
    Write { bytes: Arc<AlignedBuffer>, tuples: Option<Arc<Vec<u8>>>, is_durable: bool },
    Discard { length_bytes: u64 },
}

impl MemberIo {
    pub(super) fn new(offset_bytes: u64, kind: IoKind) -> MemberIo {
        MemberIo { offset_bytes, kind, outcome: Ok(()) }
    }

    /// The bytes that a read found; none of another I/O.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.kind {
            IoKind::Read { bytes, .. } => bytes,
            _ => &[],
        }
    }

    /// The journal's entry for a write or discard of a column.
    pub(super) fn journaled(&self, stripe: u64, write: &ColumnIo) -> JournaledWrite<'_> {
        let data = match &self.kind {
            IoKind::Write { bytes, tuples, .. } => {
                Some((&bytes[..], tuples.as_ref().map_or(&[][..], |tuples| &tuples[..])))
            }
            IoKind::Read { .. } | IoKind::Discard { .. } => None,
        };
        let ColumnIo { column, range } = write;
        JournaledWrite { stripe, column: *column, start: range.start, length: range.end - range.start, data }
    }

    /// The tuples that a read found, if it asked for them.
    pub(super) fn tuples(&self) -> Option<&[u8]> {
        match &self.kind {
            IoKind::Read { tuples, .. } => tuples.as_deref(),
            _ => None,
        }
    }
}

/// I/Os with their places in what the caller asked for.
type Numbered = Vec<(usize, MemberIo)>;

struct Job {
    ios: Numbered,
    context: IoContext,
    slot: usize,
    reply: Sender<(usize, Numbered)>,
}

enum Command {
    Run(Job),
    Sync {
        context: IoContext,
        slot: usize,
        reply: Sender<(usize, Result<(), MediaError>)>,
    },
    /// The last handle went.
    End,
}

/// A member of an open array. Its actor ends with [`Member::end`].
pub(super) struct Member {
    pub(super) device: Device,
    pub(super) order: Arc<SyncOrder>,
    commands: Sender<Command>,
    actor: Mutex<Option<JoinHandle<()>>>,
}

impl Member {
    pub(super) fn new(env: &Env, device: &Device) -> Arc<Member> {
        let order = SyncOrder::shared(env, device.block.clone());
        let (commands, received) = channel::bounded(env, "member of an array", QUEUE_LENGTH);
        let (of_actor, order_of_actor) = (device.clone(), Arc::clone(&order));
        let actor = env.spawn("member", move || serve(&of_actor, &order_of_actor, &received));
        let actor = Mutex::new(env, "member's thread", Some(actor));
        Arc::new(Member { device: device.clone(), order, commands, actor })
    }

    /// Ends the actor and waits for it.
    pub(super) fn end(&self) {
        let _ = self.commands.send(Command::End);
        if let Some(actor) = self.actor.lock().take() {
            // A panic was reported by its thread.
            let _ = actor.join();
        }
    }

    /// Error of an I/O whose actor did not answer.
    fn has_gone(&self, offset_bytes: u64) -> MediaError {
        let error = std::io::Error::other("the actor of the member ended early");
        MediaError::io(self.device.block.name(), Operation::Write, offset_bytes, error)
    }
}

/// Does what callers send, until the end. Jobs that wait are done as one batch, as far as the member works on so much at
/// once: they are of different stripes, or reads.
fn serve(device: &Device, order: &SyncOrder, commands: &Receiver<Command>) {
    let depth = device.block.capabilities().queue_depth as usize;
    let mut next = None;
    loop {
        match next.take().map_or_else(|| commands.recv(), Ok) {
            Err(_) | Ok(Command::End) => return,
            Ok(Command::Sync { context, slot, reply }) => _ = reply.send((slot, order.sync(&context))),
            Ok(Command::Run(first)) => {
                let context = first.context;
                let mut count = first.ios.len();
                let mut jobs = vec![first];
                while count < depth && next.is_none() {
                    match commands.try_recv() {
                        Ok(Command::Run(job)) if job.context == context => {
                            count += job.ios.len();
                            jobs.push(job);
                        }
                        Ok(other) => next = Some(other),
                        Err(_) => break,
                    }
                }
                run(device, jobs.iter_mut().flat_map(|job| &mut job.ios).map(|(_, io)| io), &context);
                for job in jobs {
                    // A caller that panicked does not listen.
                    let _ = job.reply.send((job.slot, job.ios));
                }
            }
        }
    }
}

/// Does I/Os of a device as one batch.
fn run<'a>(device: &Device, ios: impl Iterator<Item = &'a mut MemberIo>, context: &IoContext) {
    enum Slices<'a> {
        Read([IoSliceMut<'a>; 1], Option<&'a mut [u8]>),
        Write([IoSlice<'a>; 1], Option<&'a [u8]>, bool),
        Discard(u64),
    }
    let (mut outcomes, mut slices) = (Vec::new(), Vec::new());
    for io in ios {
        outcomes.push(&mut io.outcome);
        slices.push((
            io.offset_bytes,
            match &mut io.kind {
                IoKind::Read { bytes, tuples } => Slices::Read([IoSliceMut::new(bytes)], tuples.as_deref_mut()),
                IoKind::Write { bytes, tuples, is_durable } => {
                    Slices::Write([IoSlice::new(bytes)], tuples.as_ref().map(|tuples| &tuples[..]), *is_durable)
                }
                IoKind::Discard { length_bytes } => Slices::Discard(*length_bytes),
            },
        ));
    }
    let requests: Vec<Request<'_>> = slices
        .iter_mut()
        .map(|(offset_bytes, slices)| {
            let transfer = match slices {
                Slices::Read(data, tuples) => Transfer::Read { data, protection: tuples.as_deref_mut() },
                Slices::Write(data, tuples, durable) => {
                    Transfer::Write { data, protection: *tuples, durable: *durable }
                }
                Slices::Discard(length_bytes) => Transfer::Discard { length_bytes: *length_bytes },
            };
            Request { offset_bytes: *offset_bytes, transfer, outcome: Ok(()) }
        })
        .collect();
    for (outcome, done) in outcomes.into_iter().zip(execute_all(device, requests, context)) {
        *outcome = done;
    }
}

/// Does requests of a device as one batch, and returns the outcome of each.
pub(super) fn execute_all(
    device: &Device,
    mut requests: Vec<Request<'_>>,
    context: &IoContext,
) -> Vec<Result<(), MediaError>> {
    let result = device.block.execute(&mut requests, context);
    // A batch that failed as a whole failed in each of its requests.
    let as_a_whole = result.err().filter(|_| requests.iter().all(|request| request.outcome.is_ok()));
    requests.into_iter().map(|request| as_a_whole.clone().map_or(request.outcome, Err)).collect()
}

/// Work of the caller while members do I/O. Both functions get the index of the I/O, the slot of its member, and the I/O,
/// whose outcome they may set.
pub(super) struct PartWork<'a> {
    /// Called before an I/O is sent; one that it fails is not sent.
    pub(super) before: &'a mut dyn FnMut(usize, usize, &mut MemberIo),
    /// Called when an I/O has succeeded.
    pub(super) arrived: &'a mut dyn FnMut(usize, usize, &mut MemberIo),
    /// The caller calls `arrived` while members work, and leaves every member's part to the member's actor.
    pub(super) overlaps: bool,
}

/// Parts of a member from this size on take longer than two hand-overs to and from its actor, in bytes.
const OVERLAP_BYTES_MIN: u64 = 64 << 10;

/// Does I/Os of several members at once, each with the index of its member in `members`, and returns them in the
/// order they came in. The caller does the part of one member, unless its work overlaps; the actors do the others.
pub(super) fn run_all(
    env: &Env,
    members: &[Option<Arc<Member>>],
    ios: Vec<(usize, MemberIo)>,
    work: PartWork<'_>,
    context: &IoContext,
) -> Vec<(usize, MemberIo)> {
    let PartWork { before, arrived, overlaps } = work;
    let mut groups: Vec<Numbered> = members.iter().map(|_| Vec::new()).collect();
    let mut done: Vec<(usize, Option<MemberIo>)> = Vec::with_capacity(ios.len());
    // Where an I/O is lost with its actor.
    let mut offsets = Vec::with_capacity(ios.len());
    let mut bytes = 0;
    for (number, (slot, io)) in ios.into_iter().enumerate() {
        offsets.push(io.offset_bytes);
        done.push((slot, None));
        bytes += io.bytes().len() as u64;
        if let Some(group) = groups.get_mut(slot) {
            group.push((number, io));
        }
    }
    let mut shares: Vec<(usize, &Arc<Member>, Numbered)> = members
        .iter()
        .zip(groups)
        .enumerate()
        .filter_map(|(slot, (member, group))| member.as_ref().map(|member| (slot, member, group)))
        .filter(|(.., group)| !group.is_empty())
        .collect();
    let own = match overlaps && bytes >= OVERLAP_BYTES_MIN && shares.len() > 1 {
        true => None,
        false => shares.pop(),
    };
    let mut keep = |slot: usize, group: Numbered| {
        for (number, mut io) in group {
            if io.outcome.is_ok() {
                arrived(number, slot, &mut io);
            }
            done[number].1 = Some(io);
        }
    };
    let mut verified = |slot: usize, group: Numbered| -> (Numbered, Numbered) {
        let check = |(number, mut io): (usize, MemberIo)| {
            before(number, slot, &mut io);
            (number, io)
        };
        group.into_iter().map(check).partition(|(_, io)| io.outcome.is_ok())
    };
    let (reply, replies) = channel::bounded(env, "parts of a request", shares.len());
    for (slot, member, ios) in shares {
        let (ios, refused) = verified(slot, ios);
        keep(slot, refused);
        if !ios.is_empty() {
            let job = Job { ios, context: *context, slot, reply: reply.clone() };
            // One whose actor panicked fails below.
            let _ = member.commands.send(Command::Run(job));
        }
    }
    drop(reply);
    if let Some((slot, member, ios)) = own {
        let (mut ios, refused) = verified(slot, ios);
        keep(slot, refused);
        if !ios.is_empty() {
            run(&member.device, ios.iter_mut().map(|(_, io)| io), context);
            keep(slot, ios);
        }
    }
    while let Ok((slot, group)) = replies.recv() {
        keep(slot, group);
    }
    let finish = |((slot, io), offset_bytes): ((usize, Option<MemberIo>), u64)| {
        let io = io.unwrap_or_else(|| {
            let member = members.get(slot).and_then(Option::as_ref);
            let error = match member {
                Some(member) => member.has_gone(offset_bytes),
                None => MediaError::Unreadable { device: format!("member {slot}"), offset_bytes },
            };
            let kind = IoKind::Discard { length_bytes: 0 };
            MemberIo { offset_bytes, kind, outcome: Err(error) }
        });
        (slot, io)
    };
    done.into_iter().zip(offsets).map(finish).collect()
}

/// Syncs all members at once. Returns those that failed.
pub(super) fn sync_all(env: &Env, members: &[Option<Arc<Member>>], context: &IoContext) -> Vec<(usize, MediaError)> {
    let mut present: Vec<(usize, &Arc<Member>)> =
        members.iter().enumerate().filter_map(|(slot, member)| member.as_ref().map(|member| (slot, member))).collect();
    let own = present.pop();
    let (reply, replies) = channel::bounded(env, "syncs of members", present.len());
    for (slot, member) in &present {
        let _ = member.commands.send(Command::Sync { context: *context, slot: *slot, reply: reply.clone() });
    }
    drop(reply);
    let mut outcomes: Vec<(usize, Result<(), MediaError>)> = Vec::new();
    outcomes.extend(own.map(|(slot, member)| (slot, member.order.sync(context))));
    while let Ok(outcome) = replies.recv() {
        outcomes.push(outcome);
    }
    for (slot, member) in present {
        if outcomes.iter().all(|(other, _)| *other != slot) {
            outcomes.push((slot, Err(member.has_gone(0))));
        }
    }
    outcomes.sort_by_key(|(slot, _)| *slot);
    outcomes.into_iter().filter_map(|(slot, outcome)| outcome.err().map(|error| (slot, error))).collect()
}

/// Copies out of the buffers of a write, from `at` on; zeros for a discard.
pub(super) fn bytes_of(request: &Request<'_>, at: u64, length_bytes: u64, alignment_bytes: usize) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::new(length_bytes as usize, alignment_bytes);
    if matches!(request.transfer, Transfer::Write { .. }) {
        crate::buffer::gather(request, at, &mut bytes);
    }
    bytes
}
