//! Where the bytes of an emulated device are.

mod compressed;
mod file;
mod none;
mod pieces;
mod ram;

pub use compressed::CompressedBacking;
pub use file::FileBacking;
pub use none::NoBacking;
pub use ram::RamBacking;

use std::sync::Arc;

/// Bytes of an emulated device, without rules and without time.
///
/// Ranges never written, or discarded, read as zeros. Callers have checked that a range lies
/// within the device. Any thread may call any method at any time; overlapping calls in flight
/// give either result per sector.
pub trait Backing: Send + Sync {
    /// Fills `data` from `offset_bytes`.
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()>;

    /// Stores `data` at `offset_bytes`.
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()>;

    /// Stores `data` at `offset_bytes` as [`sync`](Backing::sync) would: it survives when this returns. Nothing else need.
    fn write_durably_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.write_at(offset_bytes, data)?;
        self.sync()
    }

    /// Makes a range read as zeros and gives back what it occupied.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()>;

    /// Makes everything written survive a failure of the machine the emulation runs on, as far
    /// as the backing can.
    fn sync(&self) -> std::io::Result<()>;

    /// Bytes of memory or disk the backing occupies now.
    fn stored_bytes(&self) -> u64;
}

impl<B: Backing + ?Sized> Backing for Arc<B> {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()> {
        (**self).read_at(offset_bytes, data)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        (**self).write_at(offset_bytes, data)
    }

    fn write_durably_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        (**self).write_durably_at(offset_bytes, data)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        (**self).discard(offset_bytes, length_bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        (**self).sync()
    }

    fn stored_bytes(&self) -> u64 {
        (**self).stored_bytes()
    }
}
