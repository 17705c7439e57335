//! Relocation of zones: a host-aware shingled disk is cleaned from the host, in steps so small that requests hardly notice.
//!
//! What is not written in order on such a disk goes to its media cache, and the disk cleans when nobody asks anything of it for some
//! hundred milliseconds, or when the cache is full, while requests wait for seconds. [`RelocatingDevice`] leaves it nothing to clean:
//! a zone that has much in the cache is read piece by piece while no request is outstanding, and written in order to an empty zone,
//! which takes nothing of the cache. Then the two change places, durably, and the old one is reset, which gives its part of the cache back.
//! No read is held back for it. Writes that fill the cache are, for a bounded time, when it is about to be full: those of compactions first, then
//! all. Nothing is written in place, and at each moment one of the two zones has all that was synced.
//!
//! The [policy](RelocationParameters) is a function of what is known: which zone is next, and when a step of it is taken. How full the cache
//! is comes from a [ghost](crate::idler::GhostCache), by logical zone.
//!
//! While the first zone of a disk without conventional zones is a spare, its first sector carries a mark. An opening without this
//! layer finds it.
//!
//! Costs: each zone that is moved is read and written once, as the disk would; neighbours in logical zones need not be neighbours on the
//! disk any more, which costs a seek where one is read into the next; spares and two zones for the journal.

mod admission;
mod cleaner;
mod core;
mod device;
mod journal;
mod map;
mod mark;
mod moving;
mod policy;
mod record;
mod split;
mod zones;

pub use self::core::RelocationStatistics;
pub use device::RelocatingDevice;
pub use journal::Formatting;
pub use policy::RelocationParameters;

pub(crate) use record::fuzz as fuzz_journal;

#[cfg(test)]
mod tests;
