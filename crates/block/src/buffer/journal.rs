//! The page map on the buffer's device: two areas used in turn, each a checkpoint and the changes since.

use super::record::{
    ENTRY_BYTES, Entry, Flaw, PAGE_BYTES, RECORD_HEADER_BYTES, Record, SUPERBLOCK_BYTES, Staged, Superblock,
    record_bytes,
};
use std::collections::BTreeMap;
use varve_media::{AlignedBuffer, BlockDeviceExt, Device, IoContext, MediaError};

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
        let checkpoint = record_bytes(page_count.into()).next_multiple_of(unit_bytes);
        let area_bytes = checkpoint * 5 + 16 * unit_bytes;
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
#[derive(Debug)]
pub(super) struct Journal {
    layout: Layout,
    identity: [u8; 16],
    generation: u64,
    /// Where the next record goes, from the start of the area of this generation, and its place.
    next_bytes: u64,
    place: u32,
    /// What the last one said.
    staged: Option<Staged>,
    alignment_bytes: usize,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) entries: Vec<Entry>,
    pub(super) staged: Option<Staged>,
}

impl Journal {
    /// The journal of a device that has none: `append` begins with a checkpoint.
    pub(super) fn blank(layout: &Layout, identity: [u8; 16], alignment_bytes: usize) -> Self {
        let (next_bytes, place, staged) = (layout.area_bytes, 0, None);
        Journal { layout: layout.clone(), identity, generation: 0, next_bytes, place, staged, alignment_bytes }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// The device's; a flaw where there is no sound checkpoint, or records go on behind one that cannot be read: each was durable before
    /// the next was begun.
    pub(super) fn open(
        device: &Device,
        superblock: &Superblock,
        layout: &Layout,
        context: &IoContext,
    ) -> Result<Result<(Journal, Recovered), Flaw>, MediaError> {
        let alignment_bytes = device.block.capabilities().buffer_alignment_bytes as usize;
        let mut best: Option<(u64, Vec<(u64, Record)>)> = None;
        let mut orphan: Option<u64> = None;
        for area in 0..2 {
            let mut bytes = AlignedBuffer::new(layout.area_bytes as usize, alignment_bytes);
            device.block.read_at(layout.area(area), &mut bytes, context)?;
            let records = match records(&bytes, superblock, layout) {
                Ok(records) => records,
                Err(flaw) => return Ok(Err(flaw)),
            };
            let Some(generation) = records.first().map(|(_, record)| record.generation) else {
                orphan = orphan.max(changes_in(&bytes, superblock, layout));
                continue;
            };
            if generation % 2 == area as u64 && best.as_ref().is_none_or(|(known, _)| generation > *known) {
                best = Some((generation, records));
            }
        }
        let Some((generation, records)) = best.filter(|(generation, _)| orphan.is_none_or(|of| of < *generation))
        else {
            return Ok(Err(Flaw {
                what: "page map",
                expected: "a checkpoint".to_owned(),
                found: "none that can be read, or changes since one that cannot".to_owned(),
            }));
        };
        let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
        let (mut next_bytes, mut place, mut staged) = (0, 0, None);
        for (end_bytes, record) in records {
            for entry in record.entries {
                match entry.sectors {
                    0 => entries.remove(&entry.slot),
                    _ => entries.insert(entry.slot, entry),
                };
            }
            (next_bytes, place, staged) = (end_bytes, record.place + 1, record.staged);
        }
        let (layout, identity) = (layout.clone(), superblock.identity);
        let journal = Journal { layout, identity, generation, next_bytes, place, staged, alignment_bytes };
        Ok(Ok((journal, Recovered { entries: entries.into_values().collect(), staged })))
    }

    /// Whether the last record says something else of the copy of a zone.
    pub(super) fn says_otherwise(&self, staged: Option<Staged>) -> bool {
        self.staged != staged
    }

    /// Whether nothing was recorded but that nothing is held.
    pub(super) fn is_fresh(&self) -> bool {
        (self.generation, self.place) == (1, 1)
    }

    /// Whether a record of so many changes has no room: a checkpoint is due.
    pub(super) fn is_full(&self, changes: usize) -> bool {
        let bytes = record_bytes(changes as u64).next_multiple_of(self.layout.unit_bytes);
        self.next_bytes + bytes > self.layout.area_bytes
    }

    /// Writes a record and makes it durable: of changes, or of everything where `is_full` says so.
    ///
    /// # Errors
    /// The device's. Then nothing is known of it.
    pub(super) fn append(
        &mut self,
        device: &Device,
        entries: Vec<Entry>,
        staged: Option<Staged>,
        is_checkpoint: bool,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        if is_checkpoint {
            (self.generation, self.next_bytes, self.place) = (self.generation + 1, 0, 0);
        }
        let record = Record {
            is_checkpoint,
            identity: self.identity,
            generation: self.generation,
            place: self.place,
            staged,
            entries,
        };
        let bytes = AlignedBuffer::copy_of(&record.encode(self.layout.unit_bytes as usize), self.alignment_bytes);
        let at = self.layout.area((self.generation % 2) as usize) + self.next_bytes;
        device.block.write_at(at, &bytes, context)?;
        device.block.sync(context)?;
        self.next_bytes += bytes.len() as u64;
        self.place += 1;
        self.staged = staged;
        Ok(())
    }
}

/// The records of an area with where each ends: of one generation, from a checkpoint on, as far as they follow each other.
fn records(area: &[u8], superblock: &Superblock, layout: &Layout) -> Result<Vec<(u64, Record)>, Flaw> {
    let unit = layout.unit_bytes as usize;
    let read = |at: usize| {
        let record = Record::decode(area.get(at..)?, superblock)?;
        (record.identity == superblock.identity).then_some(record)
    };
    let mut found: Vec<(u64, Record)> = Vec::new();
    let mut at = 0;
    while let Some(record) = read(at) {
        let follows = match found.last() {
            None => record.is_checkpoint && record.place == 0,
            Some((_, last)) => {
                !record.is_checkpoint && record.generation == last.generation && record.place == last.place + 1
            }
        };
        if !follows {
            break;
        }
        at += (RECORD_HEADER_BYTES + record.entries.len() * ENTRY_BYTES + 4).next_multiple_of(unit);
        found.push((at as u64, record));
    }
    let Some(last) = found.last().map(|(_, record)| (record.generation, record.place)) else { return Ok(found) };
    // One that was begun when the power went has none behind it.
    let mut behind = at;
    while behind < area.len() {
        if let Some(record) = read(behind)
            && record.generation == last.0
            && record.place > last.1 + 1
        {
            return Err(Flaw {
                what: "page map",
                expected: format!("record {} of generation {}", last.1 + 1, last.0),
                found: format!("record {}, which is behind it, and none before", record.place),
            });
        }
        behind += unit;
    }
    Ok(found)
}

/// The newest generation of which an area without a checkpoint has changes: its checkpoint was durable before they were begun.
fn changes_in(area: &[u8], superblock: &Superblock, layout: &Layout) -> Option<u64> {
    let units = area.chunks(layout.unit_bytes as usize).enumerate();
    let changes = units.filter_map(|(unit, _)| {
        let record = Record::decode(&area[unit * layout.unit_bytes as usize..], superblock)?;
        (record.identity == superblock.identity && record.place > 0).then_some(record.generation)
    });
    changes.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use varve_env::Env;
    use varve_media::presets::Preset;
    use varve_media::{Pacing, RamBacking};

    fn superblock(layout: &Layout) -> Superblock {
        Superblock {
            identity: *b"0123456789abcdef",
            disk_bytes: 1 << 30,
            staging_bytes: layout.staging_bytes,
            area_bytes: layout.area_bytes,
            page_count: layout.page_count,
            sector_bytes: 512,
            unit_bytes: layout.unit_bytes as u32,
        }
    }

    fn device(env: &Env) -> Device {
        let preset = Preset::find("zn540").or_else(|| Preset::find("nvme-ssd")).unwrap();
        let backing = Box::new(RamBacking::new());
        Device::of_blocks(Arc::new(preset.with_capacity(64 << 20).build(env, "fast", backing, Pacing::Account)))
    }

    #[test]
    fn records_are_found_again_over_many_generations() {
        let env = Env::real();
        let device = device(&env);
        let layout = Layout::new(200, 0, 4096);
        let (superblock, context) = (superblock(&layout), IoContext::default());
        let mut journal = Journal::blank(&layout, superblock.identity, 1);
        let mut random = env.random("journal");
        let mut held: BTreeMap<u32, Entry> = BTreeMap::new();
        for round in 0..300u32 {
            let changes: Vec<Entry> = (0..random.below(20))
                .map(|_| Entry {
                    slot: random.below(200) as u32,
                    page: random.below(1 << 18),
                    sectors: random.below(256) as u8,
                })
                .collect();
            for entry in &changes {
                match entry.sectors {
                    0 => held.remove(&entry.slot),
                    _ => held.insert(entry.slot, *entry),
                };
            }
            let staged = (round % 3 == 0).then_some(Staged { zone: round, length_bytes: 0 }).filter(|_| false);
            match journal.is_full(changes.len()) {
                true => journal.append(&device, held.values().copied().collect(), staged, true, &context).unwrap(),
                false => journal.append(&device, changes, staged, false, &context).unwrap(),
            }
            let (again, found) = Journal::open(&device, &superblock, &layout, &context).unwrap().unwrap();
            assert_eq!(found.entries, held.values().copied().collect::<Vec<_>>(), "{round}");
            assert_eq!(
                (again.generation, again.next_bytes, again.place),
                (journal.generation, journal.next_bytes, journal.place)
            );
        }
        assert!(journal.generation > 5);
    }

    #[test]
    fn what_is_damaged_is_not_taken_for_the_end() {
        let device = device(&Env::real());
        let layout = Layout::new(200, 0, 4096);
        let (superblock, context) = (superblock(&layout), IoContext::default());
        let mut journal = Journal::blank(&layout, superblock.identity, 1);
        let entry = |slot| vec![Entry { slot, page: 1 + u64::from(slot), sectors: 1 }];
        journal.append(&device, entry(0), None, true, &context).unwrap();
        journal.append(&device, entry(1), None, false, &context).unwrap();
        journal.append(&device, entry(2), None, false, &context).unwrap();
        let open = || Journal::open(&device, &superblock, &layout, &context).unwrap();
        assert_eq!(open().unwrap().1.entries.len(), 3);
        let at = layout.area(1);
        let mut bytes = vec![0; 3 << 12];
        device.block.read_at(at, &mut bytes, &context).unwrap();
        let damage = |unit: usize| {
            let mut damaged = bytes.clone();
            damaged[unit << 12 | 70] ^= 4;
            device.block.write_at(at, &damaged, &context).unwrap();
        };
        // The last: it was never durable.
        damage(2);
        assert_eq!(open().unwrap().1.entries.len(), 2);
        damage(1);
        assert_eq!(open().unwrap_err().what, "page map");
        damage(0);
        assert_eq!(open().unwrap_err().what, "page map");
    }
}
