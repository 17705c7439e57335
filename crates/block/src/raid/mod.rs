//! Arrays: one device of several, with redundancy and protection information (Zhang, chapter 5).
//!
//! [`Array`] makes one device of its members. Where bytes lie is in `geometry`, which I/Os a request needs in `plan`,
//! what new parity and lost data are in `stripe` and `parity`, which array the members are in `assembly`: all of them
//! pure. `reading` and `writing` do what the plans say, with one actor per member (`member`) and a lock per stripe (`locks`);
//! `answers` computes other answers for a reader that found one wrong; `protection` is what becomes of tuples on their way, `beside` where
//! they lie on members that keep none, `cost` what that takes in a simulation, `device` what callers see. `superblock` and `intent`
//! are what members hold besides data, `membership` writes it, `maintenance` resyncs, rebuilds and scrubs.
//!
//! A power cut may leave a stripe whose parity does not fit its data. With all members there its data are what each
//! member has, and a resync makes the parity fit. With a member missing, data of that member in such a stripe may be
//! wrong (the write hole); opening refuses that. With `stripe_journal` there is no such stripe.

mod answers;
mod assembly;
mod beside;
pub mod cost;
mod device;
mod error;
mod geometry;
mod intent;
mod locks;
mod maintenance;
mod member;
mod membership;
mod opening;
pub mod parity;
mod plan;
mod protection;
mod reading;
mod stripe;
mod stripe_journal;
mod superblock;
mod writing;

pub use device::{ArrayStatistics, BufferFaults, Incident, MemberState};
pub use error::ArrayError;
pub use geometry::{MEMBERS_MAX, RaidLevel};
pub use maintenance::ScrubReport;
pub use opening::{Array, ArrayOpening, ArrayParameters, ArrayStatus, DEFAULT_CHUNK_BYTES, ProtectionPlace};
pub use protection::Dix;
pub use stripe_journal::StripeJournal;

/// Decodes any bytes as a superblock and as a page of the intent map.
pub(crate) fn fuzz(data: &[u8]) {
    superblock::fuzz(data);
    stripe_journal::fuzz(data);
    intent::fuzz(data);
}

#[cfg(test)]
mod tests;
