//! The shape of a tree of tables: which tables there are, what a compaction of them is, and what whoever decides about
//! compactions answers ([`CompactionPolicy`]). Values and pure functions; nothing here does I/O or knows a tree.

mod file;
mod garbage;
mod level;
mod plan;
mod policy;
mod shortage;
mod version;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use file::FileMeta;
pub(crate) use garbage::Garbage;
pub(crate) use level::{Run, runs};
pub(crate) use plan::{Busy, CompactionPlan, JobClaim, Reason, in_place, subcompaction_boundaries};
pub(crate) use policy::CompactionPolicy;
pub(crate) use shortage::{Shortage, deleted_bytes, filled_bytes, fitting_bytes, taking_bytes};
pub(crate) use version::Version;
