//! Memtables: the newest entries, in memory and in order.

mod arena;
mod key_filter;
mod live;
mod partition;
mod skip_list;
mod table;

pub(crate) use partition::Partition;
pub(crate) use table::{Found, MemTable};
