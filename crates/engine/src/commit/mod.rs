//! Commits: from a batch to what readers see.
//!
//! Writers queue, and one of them leads ([`WriteGroup`]). The leader writes the batches of all to the log as one record and has it
//! synced if one of them asked for it ([`CommitHead`]). Then the next one leads, while this one puts its batches where readers
//! look. They become visible in the order of the log ([`publication`]): all or nothing of each, in one order for everybody.

mod gathering;
mod publication;
mod write_group;

pub(crate) use write_group::{Commit, Committer, Group, WriteGroup};

use crate::batch::{self, WriteBatch};
use crate::cost;
use crate::error::Error;
use crate::key::{SEQUENCE_MAX, Sequence};
use crate::log_chain::{LogChain, LogHead};
use crate::statistics::Counters;
use std::any::Any;
use varve_env::Env;

/// Why a group was not committed.
#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// Nobody will ever see it.
    Refused(Error),
    /// Whether it is durable is unknown: nothing may be built on it.
    InDoubt(Error),
}

impl CommitFailure {
    /// What the group is told. `ended` becomes why nothing is written any more, if nothing may be.
    pub(crate) fn end(self, ended: &mut Option<Error>) -> Error {
        match self {
            CommitFailure::Refused(error) => error,
            CommitFailure::InDoubt(error) => {
                *ended = Some(Error::Poisoned { cause: error.to_string() });
                error
            }
        }
    }
}

impl Group<'_> {
    /// Its batches, in the order of their sequence numbers.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &WriteBatch> {
        std::iter::once(self.first).chain(self.others)
    }

    /// Some of it is more than deletes.
    pub(crate) fn has_puts(&self) -> bool {
        self.batches().any(WriteBatch::has_puts)
    }

    /// Some of its batches are nothing but deletes, and others are more.
    pub(crate) fn is_mixed(&self) -> bool {
        self.others.iter().any(|batch| batch.has_puts() != self.first.has_puts())
    }

    /// Gives its batches to `add`, each with its first sequence number, which returns the next one.
    pub(crate) fn apply(
        &self,
        env: &Env,
        first_sequence: Sequence,
        mut add: impl FnMut(&WriteBatch, Sequence) -> Sequence,
    ) {
        let mut next = first_sequence;
        for batch in self.batches() {
            next = add(batch, next);
        }
        env.charge((next - first_sequence) * cost::WRITE_ENTRY);
    }
}

/// Where the next commit goes. One leader at a time.
pub(crate) struct CommitHead {
    pub(crate) log: LogHead,
    /// Of the newest entry.
    pub(crate) last_sequence: Sequence,
}

impl CommitHead {
    /// Behind `last_sequence`, without a log: the first write makes one, as after one that broke.
    pub(crate) fn without_log(last_sequence: Sequence) -> CommitHead {
        CommitHead { log: LogHead::new(None), last_sequence }
    }

    /// Writes a group to the log, durably if it asks for that. Its sequence numbers are its own from then on: it has to be
    /// applied.
    pub(crate) fn write_log(
        &mut self,
        env: &Env,
        chain: &LogChain,
        counters: &Counters,
        group: &Group<'_>,
    ) -> Result<Commit, CommitFailure> {
        let count: u64 = group.batches().map(WriteBatch::count).sum();
        if count > SEQUENCE_MAX - self.last_sequence {
            return Err(CommitFailure::Refused(batch::no_sequences_left()));
        }
        env.charge(cost::WRITE_GROUP + cost::of_bytes(cost::WRITE_KIB, group.bytes as u64));
        let first_sequence = self.last_sequence + 1;
        if count > 0 {
            self.append(chain, group, &batch::record_header(first_sequence, count)).map_err(CommitFailure::Refused)?;
        }
        if group.sync {
            self.log.sync(chain).map_err(CommitFailure::InDoubt)?;
        }
        self.last_sequence += count;
        counters.note_group(1 + group.others.len(), count, group.bytes);
        Ok(Commit::Logged { first_sequence, count })
    }

    /// Appends a group as one record.
    fn append(&mut self, chain: &LogChain, group: &Group<'_>, header: &[u8]) -> Result<(), Error> {
        if group.others.is_empty() {
            return self.log.append(chain, &[header, group.first.encoded_entries()]);
        }
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 + group.others.len());
        pieces.push(header);
        pieces.extend(group.batches().map(WriteBatch::encoded_entries));
        self.log.append(chain, &pieces)
    }
}

/// What a thread that panicked said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}

#[cfg(test)]
mod tests;
