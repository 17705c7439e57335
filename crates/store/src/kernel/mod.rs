//! What every store on a raw device shares.
//!
//! - [`varve_media::SyncOrder`]: the only caller of a device's sync; one sync at a time, none after a failure.
//! - [`Latch`]: after a failed sync or commit nothing is acknowledged until the store is opened again.
//! - [`NameTable`]: names, changes that wait for a commit, files that lost their names and are not free yet;
//!   [`FileMark`]: how much of a file is flushed, written and durable.
//! - [`replay`]: the same from what a journal has.
//! - [`Kernel`] and [`RawStore`]: commits and checkpoints of that in a [journal](crate::journal), the numbers of changes
//!   that are durable, locks, and the steps of names.
//! - [`CommitPolicy`]: how commits reach the medium, how often, and what is written beside them. It sees the changes of
//!   each and which files are gone, and nothing else of a store.
//!
//! A store gives its [state](StoreState), which has the table and what it keeps beside it, and what a file's place is:
//! readers, writers, allocation and rewriting are its own.
//!
//! *The order of locks*: the committer, the state, a device's turn to sync; the state is never locked across I/O.

mod file_mark;
mod latch;
mod locks;
mod names;
mod replay;
mod store;

pub(crate) use file_mark::FileMark;
pub(crate) use latch::Latch;
pub(crate) use locks::NameLocks;
pub(crate) use names::{FoundNames, NameTable, Named, Numbered};
pub(crate) use replay::{Replay, names_of, replay};
pub(crate) use store::{CommitCounts, CommitPolicy, Kernel, RawStore, SingleCommits, StoreState};
