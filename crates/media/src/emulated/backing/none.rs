//! No bytes at all: for runs that only ask how long things take.

use super::Backing;

/// Forgets what is written and reads zeros. A device on it keeps time but breaks the visibility
/// contract of [`crate::BlockDevice`] on purpose; nothing that reads its data back can run on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBacking;

impl Backing for NoBacking {
    fn read_at(&self, _offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()> {
        data.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset_bytes: u64, _data: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset_bytes: u64, _length_bytes: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        0
    }
}
