//! Stores that break the contract on purpose: what the suites must catch.
//!
//! A canary wraps a sound store and spoils one thing. A suite that does not notice one of them would
//! not notice it in a real store either.

use crate::error::StoreError;
use crate::file_store::{
    CreateOptions, FileEntry, FileStore, Finding, Location, OpenOptions, ReadRange, ReadableFile, Severity, StoreLock,
    StoreProperties, WritableFile,
};
use crate::hint::Hint;
use crate::occupancy::{Occupancy, StoreMeasure};
use crate::record_cache::RecordCache;
use std::sync::Arc;
use varve_media::{Counters, FileMapping, IoContext, Space};

/// What a canary does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Defect {
    /// Against the clauses of the contract.
    SyncDoesNothing,
    FlushDoesNothing,
    ListIsBackwards,
    ListMissesOne,
    CreateKeepsOld,
    RemoveKeepsName,
    RenameKeepsSource,
    RenameRefusesTarget,
    ReadFlipsABit,
    ReadIsShifted,
    ReadPastEndGivesZeros,
    ReadManyForgetsOutcome,
    SizeCountsUnflushed,
    LockIsAlwaysFree,
    NamesAreFolded,
    FinishDropsTheTail,
    SpaceIsConstant,
    CheckFindsDamage,
    SharesWithNowhere,
    /// Against durability.
    NamesAreNotSynced,
    RenameIsNotDurable,
    RenameCopies,
}

impl Defect {
    /// Defects that the suite of the contract must catch.
    pub const OF_CONTRACT: [Defect; 18] = [
        Defect::FlushDoesNothing,
        Defect::ListIsBackwards,
        Defect::ListMissesOne,
        Defect::CreateKeepsOld,
        Defect::RemoveKeepsName,
        Defect::RenameKeepsSource,
        Defect::RenameRefusesTarget,
        Defect::ReadFlipsABit,
        Defect::ReadIsShifted,
        Defect::ReadPastEndGivesZeros,
        Defect::ReadManyForgetsOutcome,
        Defect::SizeCountsUnflushed,
        Defect::LockIsAlwaysFree,
        Defect::NamesAreFolded,
        Defect::FinishDropsTheTail,
        Defect::SpaceIsConstant,
        Defect::CheckFindsDamage,
        Defect::SharesWithNowhere,
    ];

    /// Defects that the suite of power cuts must catch.
    pub const OF_DURABILITY: [Defect; 4] =
        [Defect::SyncDoesNothing, Defect::NamesAreNotSynced, Defect::RenameIsNotDurable, Defect::RenameCopies];
}

/// A store with a defect.
pub struct Canary {
    inner: Arc<dyn FileStore>,
    defect: Defect,
}

impl Canary {
    /// `inner`, spoiled.
    pub fn new(inner: Arc<dyn FileStore>, defect: Defect) -> Self {
        Canary { inner, defect }
    }

    fn name_of(&self, name: &str) -> String {
        if self.defect == Defect::NamesAreFolded { name.to_ascii_lowercase() } else { name.to_owned() }
    }

    /// A rename made of a copy, with everything synced: right in the end, torn in between.
    fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let context = IoContext::default();
        let reader = self.inner.open(from, &OpenOptions::default())?;
        let mut data = vec![0; reader.size_bytes() as usize];
        reader.read_at(0, &mut data, &context)?;
        let mut writer = self.inner.create(to, &CreateOptions::default())?;
        writer.append(&data, &context)?;
        writer.sync(&context)?;
        writer.finish(&context)?;
        if from != to {
            self.inner.remove(from)?;
        }
        self.inner.sync_names()
    }
}

impl FileStore for Canary {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn properties(&self) -> &StoreProperties {
        self.inner.properties()
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let name = self.name_of(name);
        if self.defect == Defect::CreateKeepsOld
            && let Ok(old) = self.inner.open(&name, &OpenOptions::default())
            && old.size_bytes() > 0
        {
            let mut data = vec![0; old.size_bytes() as usize];
            old.read_at(0, &mut data, &IoContext::default())?;
            let mut inner = self.inner.create(&name, options)?;
            inner.append(&data, &IoContext::default())?;
            inner.flush(&IoContext::default())?;
            return Ok(Box::new(CanaryWriter { inner, defect: self.defect, held: Vec::new() }));
        }
        let inner = self.inner.create(&name, options)?;
        Ok(Box::new(CanaryWriter { inner, defect: self.defect, held: Vec::new() }))
    }

    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let inner = self.inner.open(&self.name_of(name), options)?;
        Ok(Arc::new(CanaryReader { inner, defect: self.defect }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (from, to) = (self.name_of(from), self.name_of(to));
        match self.defect {
            Defect::RenameCopies => self.copy(&from, &to),
            Defect::RenameRefusesTarget if from != to && self.inner.open(&to, &OpenOptions::default()).is_ok() => {
                Err(StoreError::InvalidRequest { store: self.name().to_owned(), reason: "canary".to_owned() })
            }
            // The old name comes back as an empty file.
            Defect::RenameKeepsSource if from != to => {
                self.inner.rename(&from, &to)?;
                self.inner.create(&from, &CreateOptions::default())?.finish(&IoContext::default())
            }
            // Claims success and does it only when something else is made durable.
            Defect::RenameIsNotDurable => Ok(()),
            _ => self.inner.rename(&from, &to),
        }
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let name = self.name_of(name);
        if self.defect == Defect::RemoveKeepsName {
            return self.inner.open(&name, &OpenOptions::default()).map(|_| ());
        }
        self.inner.remove(&name)
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        if self.defect == Defect::NamesAreNotSynced { Ok(()) } else { self.inner.sync_names() }
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        let mut entries = self.inner.list()?;
        match self.defect {
            Defect::ListIsBackwards => entries.reverse(),
            Defect::ListMissesOne if entries.len() > 20 => {
                entries.remove(7);
            }
            _ => {}
        }
        Ok(entries)
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        match self.inner.lock(name) {
            Err(StoreError::Locked { .. }) if self.defect == Defect::LockIsAlwaysFree => Ok(Box::new(NoLock)),
            outcome => outcome,
        }
    }

    fn share(&self, name: &str, target: &Location, target_name: &str) -> Result<bool, StoreError> {
        let shared = self.inner.share(name, target, target_name)?;
        Ok(shared || self.defect == Defect::SharesWithNowhere)
    }

    fn space(&self) -> Result<Space, StoreError> {
        let space = self.inner.space()?;
        Ok(match self.defect {
            Defect::SpaceIsConstant => Space { available_bytes: space.total_bytes / 2, ..space },
            _ => space,
        })
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        self.inner.reclaim_space()
    }

    fn hint(&self, hint: &Hint<'_>) {
        self.inner.hint(hint);
    }

    fn counters(&self) -> Vec<(String, Counters)> {
        self.inner.counters()
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        self.inner.statistics()
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        self.inner.layout()
    }

    fn occupancy(&self) -> Occupancy {
        self.inner.occupancy()
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let mut findings = self.inner.check()?;
        if self.defect == Defect::CheckFindsDamage {
            findings.push(Finding { severity: Severity::Error, code: "canary", message: "damage".to_owned() });
        }
        Ok(findings)
    }
}

struct NoLock;

impl StoreLock for NoLock {}

struct CanaryWriter {
    inner: Box<dyn WritableFile>,
    defect: Defect,
    /// The last byte appended, where it is kept back.
    held: Vec<u8>,
}

impl WritableFile for CanaryWriter {
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        if self.defect != Defect::FinishDropsTheTail {
            return self.inner.append(data, context);
        }
        let Some((last, rest)) = data.split_last() else { return Ok(()) };
        let held = std::mem::take(&mut self.held);
        self.inner.append(&held, context)?;
        self.inner.append(rest, context)?;
        self.held.push(*last);
        Ok(())
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        let held = std::mem::take(&mut self.held);
        self.inner.append(&held, context)?;
        if self.defect == Defect::FlushDoesNothing { Ok(()) } else { self.inner.flush(context) }
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.inner.write_back(context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        let held = std::mem::take(&mut self.held);
        self.inner.append(&held, context)?;
        if self.defect == Defect::SyncDoesNothing { self.inner.flush(context) } else { self.inner.sync(context) }
    }

    fn set_level(&mut self, level: u8) {
        self.inner.set_level(level);
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes() + self.held.len() as u64
    }

    fn finish(self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.inner.finish(context)
    }
}

struct CanaryReader {
    inner: Arc<dyn ReadableFile>,
    defect: Defect,
}

impl ReadableFile for CanaryReader {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes() + u64::from(self.defect == Defect::SizeCountsUnflushed)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let size_bytes = self.inner.size_bytes();
        match self.defect {
            Defect::ReadIsShifted
                if offset_bytes % 2 == 1 && offset_bytes < size_bytes.saturating_sub(data.len() as u64) =>
            {
                self.inner.read_at(offset_bytes + 1, data, context)
            }
            Defect::ReadPastEndGivesZeros if offset_bytes >= size_bytes => {
                data.fill(0);
                Ok(())
            }
            Defect::ReadFlipsABit => {
                self.inner.read_at(offset_bytes, data, context)?;
                if let Some(byte) = data.get_mut(5000) {
                    *byte ^= 1;
                }
                Ok(())
            }
            _ => self.inner.read_at(offset_bytes, data, context),
        }
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let result = self.inner.read_many(ranges, context);
        if self.defect == Defect::ReadManyForgetsOutcome {
            ranges.iter_mut().for_each(|range| range.outcome = Ok(()));
        }
        result
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64, context: &IoContext) {
        self.inner.prefetch(offset_bytes, length_bytes, context);
    }

    fn map(&self) -> Option<FileMapping> {
        self.inner.map()
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}
