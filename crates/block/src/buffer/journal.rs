//! The page map on the buffer's device: the shared [journal](crate::journal) in two regions of it.

use super::record::{Entry, PAGE_BYTES, Record, SUPERBLOCK_BYTES, Staged, Superblock, record_bytes};
use crate::journal::{self, Areas, BeginError, Flaw, Journal, JournalError, Owner};
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_media::{Device, IoContext, MediaError, SyncOrder};

pub(super) const LAYER: [u8; 4] = *b"WBUF";

/// Where what lies on the buffer's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) unit_bytes: u64,
    pub(super) area_bytes: u64,
    pub(super) staging_bytes: u64,
    pub(super) page_count: u32,
}

impl Layout {
    /// For so many pages, and a copy of so many bytes, on a device with such units.
    pub(super) fn new(page_count: u32, staging_bytes: u64, physical_sector_bytes: u32) -> Self {
        let unit_bytes = (SUPERBLOCK_BYTES as u64).max(u64::from(physical_sector_bytes));
        // A checkpoint, and as many changes again four times over: a checkpoint is then a fifth of what is written.
        let checkpoint = record_bytes(page_count.into());
        let area_bytes = journal::area_bytes(checkpoint, 4, checkpoint, unit_bytes) + 16 * unit_bytes;
        Layout { unit_bytes, area_bytes, staging_bytes: staging_bytes.next_multiple_of(unit_bytes), page_count }
    }

    pub(super) fn area(&self, area: usize) -> u64 {
        self.unit_bytes + area as u64 * self.area_bytes
    }

    pub(super) fn staging(&self) -> u64 {
        self.area(2)
    }

    /// First byte of a page.
    pub(super) fn page(&self, slot: u32) -> u64 {
        self.staging() + self.staging_bytes + u64::from(slot) * PAGE_BYTES
    }

    /// All of it.
    pub(super) fn end(&self) -> u64 {
        self.page(self.page_count)
    }
}

/// Appends records, each durable when that returns. One at a time.
pub(super) struct MapJournal {
    journal: Journal,
    /// State of a zone's copy by the last record.
    staged: Option<Staged>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) entries: Vec<Entry>,
    pub(super) staged: Option<Staged>,
}

fn areas((device, order): (&Device, &Arc<SyncOrder>), layout: &Layout) -> Areas {
    Areas {
        device: device.clone(),
        order: Arc::clone(order),
        unit_bytes: layout.unit_bytes,
        offsets: [layout.area(0), layout.area(1)],
        area_bytes: layout.area_bytes,
        zones: None,
    }
}

impl MapJournal {
    /// The journal of a device that has none: `append` begins with a checkpoint.
    pub(super) fn blank(device: (&Device, &Arc<SyncOrder>), layout: &Layout, identity: [u8; 16]) -> Self {
        let journal = Journal::blank(areas(device, layout), Owner { layer: LAYER, identity });
        MapJournal { journal, staged: None }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// The device's; damage, also where there is no checkpoint; another version.
    pub(super) fn open(
        device: (&Device, &Arc<SyncOrder>),
        superblock: &Superblock,
        layout: &Layout,
        context: &IoContext,
    ) -> Result<(MapJournal, Recovered), JournalError> {
        let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
        let mut staged = None;
        let owner = Owner { layer: LAYER, identity: superblock.identity };
        let journal = Journal::open(areas(device, layout), owner, context, &mut |replayed| {
            let record = Record::decode(replayed.payload, superblock).map_err(|flaw| Flaw {
                what: flaw.what,
                offset_bytes: replayed.offset_bytes,
                expected: flaw.expected,
                found: flaw.found,
            })?;
            for entry in record.entries {
                match entry.sectors {
                    0 => entries.remove(&entry.slot),
                    _ => entries.insert(entry.slot, entry),
                };
            }
            staged = record.staged;
            Ok(())
        })?;
        let Some(journal) = journal else {
            return Err(JournalError::Damaged(Flaw {
                what: "checkpoint",
                offset_bytes: layout.area(0),
                expected: "one in either area".to_owned(),
                found: "none".to_owned(),
            }));
        };
        Ok((MapJournal { journal, staged }, Recovered { entries: entries.into_values().collect(), staged }))
    }

    /// Whether the last record says something else of the copy of a zone.
    pub(super) fn says_otherwise(&self, staged: Option<Staged>) -> bool {
        self.staged != staged
    }

    /// Whether nothing was recorded but that nothing is held.
    pub(super) fn is_fresh(&self) -> bool {
        self.journal.position() == (1, 1)
    }

    /// True if a record of `changes` does not fit: a checkpoint is due.
    pub(super) fn is_full(&self, changes: usize) -> bool {
        !self.journal.has_room(record_bytes(changes as u64))
    }

    /// Writes a seal behind the last record, so that damage to both copies of it is noticed.
    ///
    /// # Errors
    /// The device's. What was recorded before is there all the same.
    pub(super) fn seal(&mut self, context: &IoContext) -> Result<(), MediaError> {
        self.journal.seal(context)
    }

    /// Writes a record and makes it durable: of changes, or of everything where `is_full` says so.
    ///
    /// # Errors
    /// The device's. Then nothing is known of it.
    pub(super) fn append(
        &mut self,
        entries: Vec<Entry>,
        staged: Option<Staged>,
        is_checkpoint: bool,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let payload = Record { staged, entries }.encode();
        match is_checkpoint {
            true => self.journal.begin(&payload, context).map_err(BeginError::into_inner)?,
            false => self.journal.append(&payload, context)?,
        }
        self.staged = staged;
        Ok(())
    }
}
