//! The members of an open array, and one actor for each that does its I/O.

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
    Read(AlignedBuffer),
    Write { bytes: Arc<AlignedBuffer>, is_durable: bool },
    Discard { length_bytes: u64 },
}

impl MemberIo {
    pub(super) fn new(offset_bytes: u64, kind: IoKind) -> MemberIo {
        MemberIo { offset_bytes, kind, outcome: Ok(()) }
    }

    /// The bytes that a read found; none of another I/O.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.kind {
            IoKind::Read(bytes) => bytes,
            _ => &[],
        }
    }
}

/// I/Os with their places in what the caller asked for.
type Numbered = Vec<(usize, MemberIo)>;

struct Job {
    ios: Numbered,
    context: IoContext,
    reply: Sender<Numbered>,
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
    order: Arc<SyncOrder>,
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
                    let _ = job.reply.send(job.ios);
                }
            }
        }
    }
}

/// Does I/Os of a device as one batch.
fn run<'a>(device: &Device, ios: impl Iterator<Item = &'a mut MemberIo>, context: &IoContext) {
    enum Slices<'a> {
        Read([IoSliceMut<'a>; 1]),
        Write([IoSlice<'a>; 1], bool),
        Discard(u64),
    }
    let (mut outcomes, mut slices) = (Vec::new(), Vec::new());
    for io in ios {
        outcomes.push(&mut io.outcome);
        slices.push((
            io.offset_bytes,
            match &mut io.kind {
                IoKind::Read(bytes) => Slices::Read([IoSliceMut::new(bytes)]),
                IoKind::Write { bytes, is_durable } => Slices::Write([IoSlice::new(bytes)], *is_durable),
                IoKind::Discard { length_bytes } => Slices::Discard(*length_bytes),
            },
        ));
    }
    let mut requests: Vec<Request<'_>> = slices
        .iter_mut()
        .map(|(offset_bytes, slices)| match slices {
            Slices::Read(slices) => Request::read(*offset_bytes, slices),
            Slices::Write(slices, true) => Request::write_durable(*offset_bytes, slices),
            Slices::Write(slices, false) => Request::write(*offset_bytes, slices),
            Slices::Discard(length_bytes) => Request::discard(*offset_bytes, *length_bytes),
        })
        .collect();
    let result = device.block.execute(&mut requests, context);
    // A batch that failed as a whole failed in each of its requests.
    let as_a_whole = result.err().filter(|_| requests.iter().all(|request| request.outcome.is_ok()));
    for (outcome, request) in outcomes.into_iter().zip(requests) {
        *outcome = as_a_whole.clone().map_or(request.outcome, Err);
    }
}

/// Does I/Os of several members at once, each with the index of its member in `members`, and returns them in the
/// order they came in. The caller does the part of one member; the actors do the others.
pub(super) fn run_all(
    env: &Env,
    members: &[Option<Arc<Member>>],
    ios: Vec<(usize, MemberIo)>,
    context: &IoContext,
) -> Vec<(usize, MemberIo)> {
    let mut groups: Vec<Numbered> = members.iter().map(|_| Vec::new()).collect();
    let mut done: Vec<(usize, Option<MemberIo>)> = Vec::with_capacity(ios.len());
    // Where an I/O is lost with its actor.
    let mut offsets = Vec::with_capacity(ios.len());
    for (number, (slot, io)) in ios.into_iter().enumerate() {
        offsets.push(io.offset_bytes);
        done.push((slot, None));
        if let Some(group) = groups.get_mut(slot) {
            group.push((number, io));
        }
    }
    let mut shares: Vec<(&Arc<Member>, Numbered)> = members
        .iter()
        .zip(groups)
        .filter_map(|(member, group)| member.as_ref().map(|member| (member, group)))
        .filter(|(_, group)| !group.is_empty())
        .collect();
    let own = shares.pop();
    let mut keep = |group: Numbered| group.into_iter().for_each(|(number, io)| done[number].1 = Some(io));
    let (reply, replies) = channel::bounded(env, "parts of a request", shares.len());
    for (member, ios) in shares {
        let job = Job { ios, context: *context, reply: reply.clone() };
        // One whose actor panicked fails below.
        let _ = member.commands.send(Command::Run(job));
    }
    drop(reply);
    if let Some((member, mut ios)) = own {
        run(&member.device, ios.iter_mut().map(|(_, io)| io), context);
        keep(ios);
    }
    while let Ok(group) = replies.recv() {
        keep(group);
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
