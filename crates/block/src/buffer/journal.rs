//! The page map on the buffer's device: two areas used in turn, each a checkpoint and the changes since.

use super::record::{Claimed, Entry, Flaw, PAGE_BYTES, Record, SUPERBLOCK_BYTES, Staged, Superblock, record_bytes};
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
    /// It said nothing: the one before it is known to have been durable.
    is_sealed: bool,
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
        let (next_bytes, place, staged, is_sealed) = (layout.area_bytes, 0, None, false);
        Journal {
            layout: layout.clone(),
            identity,
            generation: 0,
            next_bytes,
            place,
            staged,
            is_sealed,
            alignment_bytes,
        }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// The device's; a flaw where there is no sound checkpoint, where records go on behind one that cannot be read, as each was durable before
    /// the next was begun, or where the last cannot be read and is too short to have been cut short.
    pub(super) fn open(
        device: &Device,
        superblock: &Superblock,
        layout: &Layout,
        context: &IoContext,
    ) -> Result<Result<(Journal, Recovered), Flaw>, MediaError> {
        let alignment_bytes = device.block.capabilities().buffer_alignment_bytes as usize;
        let sector_bytes = device.block.geometry().physical_sector_bytes as usize;
        let mut best: Option<(u64, Area)> = None;
        let mut orphan: Option<u64> = None;
        for number in 0..2 {
            let mut bytes = AlignedBuffer::new(layout.area_bytes as usize, alignment_bytes);
            device.block.read_at(layout.area(number), &mut bytes, context)?;
            let area = Area::of(&bytes, superblock, layout, sector_bytes);
            let Some(generation) = area.records.first().map(|(_, record)| record.generation) else {
                let whole = whole_at(&bytes, superblock, sector_bytes).filter(|whole| whole.place == 0);
                orphan = orphan.max(changes_in(&bytes, superblock, layout)).max(whole.map(|whole| whole.generation));
                continue;
            };
            if generation % 2 == number as u64 && best.as_ref().is_none_or(|(known, _)| generation > *known) {
                best = Some((generation, area));
            }
        }
        let Some((generation, area)) = best.filter(|(generation, _)| orphan.is_none_or(|of| of < *generation)) else {
            return Ok(Err(Flaw {
                what: "page map",
                expected: "a checkpoint".to_owned(),
                found: "none that can be read, or changes since one that cannot".to_owned(),
            }));
        };
        let records = match area {
            Area { flaw: Some(flaw), .. } => return Ok(Err(flaw)),
            Area { records, flaw: None } => records,
        };
        let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
        let (mut next_bytes, mut place, mut staged, mut is_sealed) = (0, 0, None, false);
        for (end_bytes, record) in records {
            is_sealed = !record.is_checkpoint && record.entries.is_empty() && record.staged == staged;
            for entry in record.entries {
                match entry.sectors {
                    0 => entries.remove(&entry.slot),
                    _ => entries.insert(entry.slot, entry),
                };
            }
            (next_bytes, place, staged) = (end_bytes, record.place + 1, record.staged);
        }
        let (layout, identity) = (layout.clone(), superblock.identity);
        let journal = Journal { layout, identity, generation, next_bytes, place, staged, is_sealed, alignment_bytes };
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

    /// Whether a record of so many changes has no room: a checkpoint is due. Room for a seal is left.
    pub(super) fn is_full(&self, changes: usize) -> bool {
        let bytes = record_bytes(changes as u64).next_multiple_of(self.layout.unit_bytes);
        self.next_bytes + bytes + self.layout.unit_bytes > self.layout.area_bytes
    }

    /// Writes a record that says nothing behind the last one, if that is not one: from then on the last that said something, damaged, is not taken for
    /// one that a power cut cut short.
    ///
    /// # Errors
    /// The device's. What was recorded before is there all the same.
    pub(super) fn seal(&mut self, device: &Device, context: &IoContext) -> Result<(), MediaError> {
        if self.is_sealed || self.next_bytes + self.layout.unit_bytes > self.layout.area_bytes {
            return Ok(());
        }
        self.append(device, Vec::new(), self.staged, false, context)?;
        self.is_sealed = true;
        Ok(())
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
        (self.staged, self.is_sealed) = (staged, false);
        Ok(())
    }
}

/// What is in an area.
struct Area {
    /// With where each ends: of one generation, from a checkpoint on, as far as they follow each other.
    records: Vec<(u64, Record)>,
    /// One that was durable does not follow.
    flaw: Option<Flaw>,
}

impl Area {
    fn of(area: &[u8], superblock: &Superblock, layout: &Layout, physical_sector_bytes: usize) -> Area {
        let unit = layout.unit_bytes as usize;
        let read = |at: usize| {
            let record = Record::decode(area.get(at..)?, superblock)?;
            (record.identity == superblock.identity).then_some(record)
        };
        let mut records: Vec<(u64, Record)> = Vec::new();
        let mut at = 0;
        while let Some(record) = read(at) {
            let follows = match records.last() {
                None => record.is_checkpoint && record.place == 0,
                Some((_, last)) => {
                    !record.is_checkpoint
                        && record.generation == last.generation
                        && Some(record.place) == last.place.checked_add(1)
                }
            };
            if !follows {
                break;
            }
            at += (record_bytes(record.entries.len() as u64) as usize).next_multiple_of(unit);
            records.push((at as u64, record));
        }
        let Some((generation, next)) =
            records.last().map(|(_, record)| (record.generation, record.place.saturating_add(1)))
        else {
            return Area { records, flaw: None };
        };
        let flaw = |found: String| {
            let expected = format!("record {next} of generation {generation}");
            Area { records: records.clone(), flaw: Some(Flaw { what: "page map", expected, found }) }
        };
        let whole = area.get(at..).and_then(|bytes| whole_at(bytes, superblock, physical_sector_bytes));
        if whole.is_some_and(|whole| (whole.generation, whole.place) == (generation, next)) {
            return flaw("one that is not sound, and that no power cut can have cut short".to_owned());
        }
        // One that was begun when the power went has none behind it.
        let behind = (at..area.len()).step_by(unit).filter_map(read);
        let later = behind.into_iter().find(|record| record.generation == generation && record.place > next);
        match later {
            Some(record) => flaw(format!("record {}, which is behind it, and none before", record.place)),
            None => Area { records, flaw: None },
        }
    }
}

/// The header of a record that fits in a physical sector, which a power cut leaves as it was or as it is: that record was there as a whole.
fn whole_at(bytes: &[u8], superblock: &Superblock, physical_sector_bytes: usize) -> Option<Claimed> {
    Claimed::of(bytes, superblock).filter(|claimed| claimed.length_bytes <= physical_sector_bytes)
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

    /// A journal whose records have so many entries each, the first of them a checkpoint; and what opens it with a byte of a record damaged.
    struct Damaged {
        device: Device,
        journal: Journal,
        layout: Layout,
        superblock: Superblock,
        starts: Vec<u64>,
    }

    impl Damaged {
        fn new(lengths: &[u32]) -> Damaged {
            let device = device(&Env::real());
            let layout = Layout::new(1000, 0, 4096);
            let superblock = superblock(&layout);
            let journal = Journal::blank(&layout, superblock.identity, 1);
            let mut made = Damaged { device, journal, layout, superblock, starts: Vec::new() };
            lengths.iter().enumerate().for_each(|(number, &length)| made.append(length, number == 0));
            made
        }

        fn append(&mut self, length: u32, is_checkpoint: bool) {
            let entries = (0..length).map(|slot| Entry { slot, page: 1 + u64::from(slot), sectors: 1 }).collect();
            let context = IoContext::default();
            self.journal.append(&self.device, entries, None, is_checkpoint, &context).unwrap();
            let bytes = record_bytes(length.into()).next_multiple_of(self.layout.unit_bytes);
            let area = self.layout.area((self.journal.generation % 2) as usize);
            self.starts.push(area + self.journal.next_bytes - bytes);
        }

        /// How many entries are found, or what is wrong, where `at` bytes from the start of a record something was changed.
        fn open(&self, record: usize, at: u64) -> Result<usize, Flaw> {
            let context = IoContext::default();
            let (place, mut byte) = (self.starts[record] + at, [0; 4096]);
            let sector = place / 4096 * 4096;
            self.device.block.read_at(sector, &mut byte, &context).unwrap();
            let before = byte;
            byte[(place % 4096) as usize] ^= 4;
            self.device.block.write_at(sector, &byte, &context).unwrap();
            let opened = Journal::open(&self.device, &self.superblock, &self.layout, &context).unwrap();
            self.device.block.write_at(sector, &before, &context).unwrap();
            opened.map(|(_, found)| found.entries.len())
        }
    }

    #[test]
    fn what_is_damaged_is_not_taken_for_the_end() {
        let damaged = Damaged::new(&[1, 2, 3]);
        for record in 0..3 {
            // The last fits in a sector, so it was not cut short.
            assert_eq!(damaged.open(record, 70).unwrap_err().what, "page map", "{record}");
        }
        // Nor is it where it is the only one, or a checkpoint behind an older generation.
        assert!(Damaged::new(&[1]).open(0, 70).is_err());
        let mut damaged = Damaged::new(&[1, 2]);
        damaged.append(2, true);
        assert!(damaged.open(2, 70).is_err());
        // What an older generation said is of no interest any more.
        assert_eq!(damaged.open(0, 70), Ok(2));
        assert_eq!(damaged.open(1, 70), Ok(2));
    }

    #[test]
    fn behind_a_seal_no_damage_is_taken_for_the_end() {
        for lengths in [&[1, 2, 900][..], &[900], &[1, 900, 3]] {
            let mut damaged = Damaged::new(lengths);
            let last = lengths.len() - 1;
            if lengths[last] > 300 && last > 0 {
                // This may be one that a power cut cut short.
                assert_eq!(damaged.open(last, 5000), Ok(2));
            }
            damaged.journal.seal(&damaged.device, &IoContext::default()).unwrap();
            let sealed = damaged.journal.next_bytes;
            for at in [1, 33, 70] {
                assert!(damaged.open(last, at).is_err(), "{lengths:?}, {at}");
            }
            // One is enough, also when it is opened.
            damaged.journal.seal(&damaged.device, &IoContext::default()).unwrap();
            let opened = Journal::open(&damaged.device, &damaged.superblock, &damaged.layout, &IoContext::default());
            let (mut again, _) = opened.unwrap().unwrap();
            again.seal(&damaged.device, &IoContext::default()).unwrap();
            assert_eq!((damaged.journal.next_bytes, again.next_bytes), (sealed, sealed));
        }
        // A checkpoint of a new generation is not taken for none either.
        let mut damaged = Damaged::new(&[1, 2]);
        damaged.append(900, true);
        assert_eq!(damaged.open(2, 5000), Ok(2));
        damaged.journal.seal(&damaged.device, &IoContext::default()).unwrap();
        assert!(damaged.open(2, 5000).is_err());
    }

    #[test]
    fn there_is_always_room_for_a_seal() {
        let mut damaged = Damaged::new(&[900]);
        while !damaged.journal.is_full(1) {
            damaged.append(1, false);
        }
        let before = damaged.journal.next_bytes;
        damaged.journal.seal(&damaged.device, &IoContext::default()).unwrap();
        assert!(damaged.journal.next_bytes > before && damaged.journal.is_full(0));
    }
}
