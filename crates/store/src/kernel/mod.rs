//! What every store on a raw device shares.
//!
//! - [`SyncOrder`]: the syncs of a device, one after the other. The only call of a device's sync is there.
//! - [`Latch`]: after a failed sync or commit nothing is acknowledged until the store is opened again.

mod latch;
mod sync_order;

pub(crate) use latch::Latch;
pub(crate) use sync_order::SyncOrder;
