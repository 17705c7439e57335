//! Faults of directories.

use super::unsynced::Unsynced;
use super::{Call, FaultEffect, FaultError, FaultInjector, Strike, elsewhere, flip_bits};
use crate::buffer::AlignedBuffer;
use crate::context::IoContext;
use crate::directory::{
    Directory, DirectoryEntry, DirectoryFile, DirectoryLock, FileMapping, OpenMode, Space, WritableMapping,
};
use crate::error::{MediaError, Operation};
use crate::sparse::PAGE_BYTES;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use varve_env::Mutex;

/// Sector of files: what a torn write leaves whole.
const SECTOR_BYTES: usize = 512;

/// A layer that lets go wrong what its injector's plan says.
///
/// With [`FaultEffect::FailDroppingUnsynced`] in the plan it reads what is about to be overwritten, so
/// the directory below sees more reads than this one gets.
pub struct FaultDirectory {
    injector: FaultInjector,
    inner: Arc<dyn Directory>,
    /// What files had before their unsynced writes, by name.
    unsynced: parking_lot::Mutex<BTreeMap<String, Arc<Mutex<Unsynced>>>>,
}

impl FaultDirectory {
    /// `inner` under the faults of `injector`.
    pub fn new(injector: &FaultInjector, inner: Arc<dyn Directory>) -> Self {
        FaultDirectory { injector: injector.clone(), inner, unsynced: parking_lot::Mutex::default() }
    }

    fn around<T>(
        &self,
        operation: Operation,
        name: Option<&str>,
        perform: impl FnOnce() -> Result<T, MediaError>,
        lost: Option<T>,
    ) -> Result<T, MediaError> {
        let call = Call { operation, range: None, context: None };
        let label = name.map_or_else(|| self.inner.name().to_owned(), |name| format!("{}/{name}", self.inner.name()));
        self.injector.around(&label, call, perform, lost)
    }
}

impl Directory for FaultDirectory {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, MediaError> {
        let inner = self.around(Operation::Open, Some(name), || self.inner.open(name, mode), None)?;
        let unsynced = {
            let fresh = || Arc::new(Mutex::new(&self.injector.env, "fault layer unsynced", Unsynced::default()));
            let mut unsynced = self.unsynced.lock();
            if mode.truncate {
                // What a truncating open took away does not come back.
                unsynced.remove(name);
            }
            unsynced.entry(name.to_owned()).or_insert_with(fresh).clone()
        };
        let label = format!("{}/{name}", self.inner.name());
        Ok(Arc::new(FaultFile { injector: self.injector.clone(), inner, label, unsynced }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediaError> {
        let perform = || {
            self.inner.rename(from, to)?;
            let mut unsynced = self.unsynced.lock();
            if let Some(moved) = unsynced.remove(from) {
                unsynced.insert(to.to_owned(), moved);
            }
            Ok(())
        };
        self.around(Operation::Rename, Some(from), perform, Some(()))
    }

    fn remove(&self, name: &str) -> Result<(), MediaError> {
        let perform = || {
            self.inner.remove(name)?;
            self.unsynced.lock().remove(name);
            Ok(())
        };
        self.around(Operation::Remove, Some(name), perform, Some(()))
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>, MediaError> {
        self.around(Operation::List, None, || self.inner.list(), None)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.around(Operation::SyncDirectory, None, || self.inner.sync(), Some(()))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>, MediaError> {
        self.around(Operation::Lock, Some(name), || self.inner.lock(name), None)
    }

    fn space(&self) -> Result<Space, MediaError> {
        self.around(Operation::List, None, || self.inner.space(), None)
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn link(&self, name: &str, target: &Path, target_name: &str) -> Result<bool, MediaError> {
        self.around(Operation::Rename, Some(name), || self.inner.link(name, target, target_name), None)
    }
}

struct FaultFile {
    injector: FaultInjector,
    inner: Arc<dyn DirectoryFile>,
    label: String,
    unsynced: Arc<Mutex<Unsynced>>,
}

impl FaultFile {
    fn unit_bytes(&self) -> usize {
        SECTOR_BYTES.max(self.inner.alignment_bytes() as usize)
    }

    fn aligned(&self, data: &[u8]) -> AlignedBuffer {
        AlignedBuffer::copy_of(data, self.inner.alignment_bytes() as usize)
    }

    /// Remembers length and content before a change, where the plan will need them.
    fn remember(&self, range: Range<u64>, context: &IoContext) -> Result<(), MediaError> {
        if !self.injector.drops_unsynced() {
            return Ok(());
        }
        let mut unsynced = self.unsynced.lock();
        let size_bytes = self.inner.size_bytes()?;
        let size_bytes = *unsynced.size_bytes.get_or_insert(size_bytes);
        unsynced.save(range.start..range.end.min(size_bytes), |at| {
            let mut buffer = AlignedBuffer::new(PAGE_BYTES as usize, self.inner.alignment_bytes() as usize);
            let count = self.inner.read_at(at, &mut buffer, context)?;
            Ok(buffer[..count].to_vec().into())
        })
    }

    /// Puts back what was there at the last good sync.
    fn drop_unsynced(&self, context: &IoContext) -> Result<(), MediaError> {
        let mut unsynced = self.unsynced.lock();
        let Some(size_bytes) = unsynced.size_bytes else { return Ok(()) };
        for (at, page) in unsynced.take() {
            self.inner.write_at(at, &[IoSlice::new(&self.aligned(page.as_slice().data))], context)?;
        }
        unsynced.clear();
        self.inner.truncate(size_bytes)
    }

    fn write_struck(
        &self,
        offset_bytes: u64,
        data: &[IoSlice<'_>],
        context: &IoContext,
        strike: Strike,
    ) -> Result<(), MediaError> {
        let Strike { effect, mut random } = strike;
        let mut bytes = data.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
        let failed = |error: FaultError| Err(error.at(&self.label, Operation::Write, offset_bytes, bytes.len() as u64));
        match effect {
            FaultEffect::Fail(error) | FaultEffect::FailDroppingUnsynced(error) => failed(error),
            FaultEffect::FailAfter(error) => {
                self.inner.write_at(offset_bytes, data, context)?;
                failed(error)
            }
            FaultEffect::FailPartly(error) => {
                for (index, piece) in bytes.chunks(self.unit_bytes()).enumerate() {
                    if random.chance(1, 2) {
                        let at = offset_bytes + (index * self.unit_bytes()) as u64;
                        self.inner.write_at(at, &[IoSlice::new(&self.aligned(piece))], context)?;
                    }
                }
                failed(error)
            }
            FaultEffect::FlipBits(count) => {
                flip_bits(&mut random, count, bytes.len(), |at, mask| bytes[at] ^= mask);
                self.inner.write_at(offset_bytes, &[IoSlice::new(&self.aligned(&bytes))], context)
            }
            FaultEffect::Misdirect => {
                let length_bytes = bytes.len() as u64;
                let end_bytes = self.inner.size_bytes()?.max(offset_bytes + length_bytes);
                let unit_bytes = u64::from(self.inner.alignment_bytes());
                let at = elsewhere(&mut random, offset_bytes, length_bytes, end_bytes, unit_bytes);
                self.inner.write_at(at, data, context)
            }
            FaultEffect::Lose => Ok(()),
            FaultEffect::ShortRead
            | FaultEffect::Stall(_)
            | FaultEffect::FailLate(..)
            | FaultEffect::FailLateDroppingUnsynced(..)
            | FaultEffect::ZoneReadOnly
            | FaultEffect::ZoneOffline => self.inner.write_at(offset_bytes, data, context),
        }
    }
}

impl DirectoryFile for FaultFile {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<usize, MediaError> {
        let length_bytes = data.len() as u64;
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        let strike =
            self.injector.strike(Call { operation: Operation::Read, range: Some(range), context: Some(context) });
        let Some(Strike { effect, mut random }) = strike else {
            return self.inner.read_at(offset_bytes, data, context);
        };
        match effect {
            FaultEffect::Fail(error) | FaultEffect::FailDroppingUnsynced(error) => {
                Err(error.at(&self.label, Operation::Read, offset_bytes, length_bytes))
            }
            FaultEffect::FailAfter(error) | FaultEffect::FailPartly(error) => {
                self.inner.read_at(offset_bytes, data, context)?;
                Err(error.at(&self.label, Operation::Read, offset_bytes, length_bytes))
            }
            FaultEffect::ShortRead => {
                let count = self.inner.read_at(offset_bytes, data, context)?;
                let short = random.index(count);
                data[short..].fill(0xEE);
                Ok(short)
            }
            FaultEffect::FlipBits(bits) => {
                let count = self.inner.read_at(offset_bytes, data, context)?;
                flip_bits(&mut random, bits, count, |at, mask| data[at] ^= mask);
                Ok(count)
            }
            FaultEffect::Misdirect => {
                let size_bytes = self.inner.size_bytes()?;
                let unit_bytes = u64::from(self.inner.alignment_bytes());
                let at = elsewhere(&mut random, offset_bytes, length_bytes, size_bytes, unit_bytes);
                self.inner.read_at(at, data, context)
            }
            FaultEffect::Lose
            | FaultEffect::Stall(_)
            | FaultEffect::FailLate(..)
            | FaultEffect::FailLateDroppingUnsynced(..)
            | FaultEffect::ZoneReadOnly
            | FaultEffect::ZoneOffline => self.inner.read_at(offset_bytes, data, context),
        }
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>], context: &IoContext) -> Result<(), MediaError> {
        let length_bytes = data.iter().map(|slice| slice.len() as u64).sum();
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        let strike = self.injector.strike(Call {
            operation: Operation::Write,
            range: Some(range.clone()),
            context: Some(context),
        });
        self.remember(range, context)?;
        match strike {
            Some(strike) => self.write_struck(offset_bytes, data, context, strike),
            None => self.inner.write_at(offset_bytes, data, context),
        }
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let strike = self.injector.strike(Call { operation: Operation::Sync, range: None, context: Some(context) });
        let failed = |error: FaultError| Err(error.at(&self.label, Operation::Sync, 0, 0));
        match strike.map(|strike| strike.effect) {
            Some(FaultEffect::Fail(error) | FaultEffect::FailPartly(error)) => failed(error),
            Some(FaultEffect::FailAfter(error)) => {
                self.inner.sync(context)?;
                self.unsynced.lock().clear();
                failed(error)
            }
            Some(FaultEffect::FailDroppingUnsynced(error)) => {
                self.drop_unsynced(context)?;
                failed(error)
            }
            Some(FaultEffect::FailLateDroppingUnsynced(duration, error)) => {
                self.drop_unsynced(context)?;
                self.injector.env.sleep(duration);
                failed(error)
            }
            Some(FaultEffect::Lose) => Ok(()),
            _ => {
                self.inner.sync(context)?;
                self.unsynced.lock().clear();
                Ok(())
            }
        }
    }

    fn size_bytes(&self) -> Result<u64, MediaError> {
        let call = Call { operation: Operation::List, range: None, context: None };
        self.injector.around(&self.label, call, || self.inner.size_bytes(), None)
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), MediaError> {
        let call = Call { operation: Operation::Truncate, range: None, context: None };
        let perform = || {
            self.remember(size_bytes..self.inner.size_bytes()?, &IoContext::default())?;
            self.inner.truncate(size_bytes)
        };
        self.injector.around(&self.label, call, perform, Some(()))
    }

    fn allocate(&self, size_bytes: u64) -> Result<(), MediaError> {
        let call = Call { operation: Operation::Truncate, range: None, context: None };
        self.injector.around(&self.label, call, || self.inner.allocate(size_bytes), Some(()))
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64) {
        self.inner.prefetch(offset_bytes, length_bytes);
    }

    fn map(&self) -> Option<FileMapping> {
        // Reads of a mapping would pass by unseen.
        None
    }

    fn map_for_writing(&self, _range: Range<u64>) -> Option<WritableMapping> {
        // Writes to it would pass by unseen.
        None
    }

    fn alignment_bytes(&self) -> u32 {
        self.inner.alignment_bytes()
    }
}
