//! Commits, without what they are written to.

#[path = "../../engine/src/commit/gathering.rs"]
mod gathering;
#[path = "../../engine/src/commit/publication.rs"]
#[allow(dead_code, reason = "what the models leave out")]
mod publication;
#[path = "../../engine/src/commit/write_group.rs"]
#[allow(dead_code, reason = "what the models leave out")]
pub(crate) mod write_group;
