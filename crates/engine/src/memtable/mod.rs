//! Memtables: the newest entries, in memory and in order.

mod arena;
mod key_filter;
mod skip_list;
mod table;

pub(crate) use table::{Found, MemTable};
