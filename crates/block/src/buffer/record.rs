//! What a write buffer keeps of itself on its two devices. Little-endian.
//!
//! The *superblock*, at the start of the buffer's device and, with another role, at the start of what is reserved at the end of the disk:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEBUF` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | 1 on the buffer's device, 2 on the disk |
//! | 16 | 16 | identity of the two |
//! | 32 | 8 | bytes of the disk |
//! | 40 | 8 | bytes for the copy of a zone |
//! | 48 | 8 | bytes of an area of the map |
//! | 56 | 4 | pages of the buffer |
//! | 60 | 4 | bytes of a sector of the disk |
//! | 64 | 4 | bytes of a unit: what structures are aligned to |
//! | 68 | 4 | crc32c of bytes 0 to 68 |
//! | 72 | 4024 | zero |
//!
//! A *record* of the page map, in one of two areas, at a whole number of units; a checkpoint is the first of an area and has every page that
//! holds something, one of changes has those that are otherwise than before:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEBFR` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | 1 checkpoint, 2 changes |
//! | 16 | 16 | identity, as in the superblock |
//! | 32 | 8 | generation: of the higher one counts what is there |
//! | 40 | 4 | place in the generation, from 0 |
//! | 44 | 4 | number of entries |
//! | 48 | 8 | bytes of the zone that is copied to the buffer's device and being written back; 0 without one |
//! | 56 | 4 | number of that zone, or zero |
//! | 60 | 4 | zero |
//! | 64 | 16 each | entries |
//! | then | 4 | crc32c of all before |
//!
//! An entry:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | page of the disk, in 4 KiB; zero of a free one |
//! | 8 | 4 | page of the buffer |
//! | 12 | 1 | sectors that it holds, a bit for each, the lowest first; 0 of a free one |
//! | 13 | 3 | zero |

use crate::wire::{u32_at, u64_at};

/// Bytes of a page of the buffer (Zhang, section 4.4.3).
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes of a superblock.
pub(super) const SUPERBLOCK_BYTES: usize = 4096;

const SUPERBLOCK_MAGIC: &[u8; 8] = b"VARVEBUF";
const RECORD_MAGIC: &[u8; 8] = b"VARVEBFR";
const VERSION: u32 = 1;
const SUPERBLOCK_CHECKED_BYTES: usize = 68;
pub(super) const RECORD_HEADER_BYTES: usize = 64;
pub(super) const ENTRY_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;

/// Which of the two devices a superblock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Buffer,
    Disk,
}

impl Role {
    fn code(self) -> u32 {
        match self {
            Role::Buffer => 1,
            Role::Disk => 2,
        }
    }
}

/// What a buffer and its disk were made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) identity: [u8; 16],
    pub(super) disk_bytes: u64,
    pub(super) staging_bytes: u64,
    pub(super) area_bytes: u64,
    pub(super) page_count: u32,
    pub(super) sector_bytes: u32,
    pub(super) unit_bytes: u32,
}

/// What is wrong with bytes: what, expected, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) what: &'static str,
    pub(super) expected: String,
    pub(super) found: String,
}

fn flaw(what: &'static str, expected: impl ToString, found: impl ToString) -> Flaw {
    Flaw { what, expected: expected.to_string(), found: found.to_string() }
}

/// What the start of a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Zeros.
    Blank,
    Superblock(Superblock),
    OtherVersion(u32),
    /// Of something else, or damaged.
    Other(Flaw),
}

impl Superblock {
    pub(super) fn encode(&self, role: Role) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES);
        bytes.extend_from_slice(SUPERBLOCK_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&role.code().to_le_bytes());
        bytes.extend_from_slice(&self.identity);
        for field in [self.disk_bytes, self.staging_bytes, self.area_bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.page_count, self.sector_bytes, self.unit_bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.resize(SUPERBLOCK_BYTES, 0);
        bytes
    }

    pub(super) fn decode(bytes: &[u8], role: Role) -> Found {
        if bytes.iter().all(|&byte| byte == 0) {
            return Found::Blank;
        }
        let (Some(magic), true) = (bytes.get(..8), bytes.len() == SUPERBLOCK_BYTES) else {
            return Found::Other(flaw("length of the superblock", SUPERBLOCK_BYTES, bytes.len()));
        };
        if magic != SUPERBLOCK_MAGIC {
            return Found::Other(flaw("magic", "VARVEBUF", String::from_utf8_lossy(magic)));
        }
        let checksum = crc32c::crc32c(&bytes[..SUPERBLOCK_CHECKED_BYTES]);
        if checksum != u32_at(bytes, SUPERBLOCK_CHECKED_BYTES) {
            let found = format!("{:#x}", u32_at(bytes, SUPERBLOCK_CHECKED_BYTES));
            return Found::Other(flaw("checksum of the superblock", format!("{checksum:#x}"), found));
        }
        if u32_at(bytes, 8) != VERSION {
            return Found::OtherVersion(u32_at(bytes, 8));
        }
        if u32_at(bytes, 12) != role.code() {
            return Found::Other(flaw("device (1 buffer, 2 disk)", role.code(), u32_at(bytes, 12)));
        }
        if bytes[SUPERBLOCK_CHECKED_BYTES + 4..].iter().any(|&byte| byte != 0) {
            return Found::Other(flaw("rest of the superblock", "zeros", "others"));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[16..32]);
        Found::Superblock(Superblock {
            identity,
            disk_bytes: u64_at(bytes, 32),
            staging_bytes: u64_at(bytes, 40),
            area_bytes: u64_at(bytes, 48),
            page_count: u32_at(bytes, 56),
            sector_bytes: u32_at(bytes, 60),
            unit_bytes: u32_at(bytes, 64),
        })
    }
}

/// What a page of the buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) page: u64,
    /// Sectors, the lowest first; 0 is a free page.
    pub(super) sectors: u8,
}

/// The zone that is copied to the buffer's device, and being written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) zone: u32,
    pub(super) length_bytes: u64,
}

/// A record of the page map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) is_checkpoint: bool,
    pub(super) identity: [u8; 16],
    pub(super) generation: u64,
    pub(super) place: u32,
    pub(super) staged: Option<Staged>,
    pub(super) entries: Vec<Entry>,
}

/// Bytes of a record of so many entries, before it is rounded up to units.
pub(super) fn record_bytes(entries: u64) -> u64 {
    (RECORD_HEADER_BYTES + CHECKSUM_BYTES) as u64 + entries.saturating_mul(ENTRY_BYTES as u64)
}

impl Record {
    pub(super) fn encode(&self, unit_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(record_bytes(self.entries.len() as u64) as usize + unit_bytes);
        bytes.extend_from_slice(RECORD_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(if self.is_checkpoint { 1u32 } else { 2 }).to_le_bytes());
        bytes.extend_from_slice(&self.identity);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.place.to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.staged.map_or(0, |staged| staged.length_bytes).to_le_bytes());
        bytes.extend_from_slice(&self.staged.map_or(0, |staged| staged.zone).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.page.to_le_bytes());
            bytes.extend_from_slice(&entry.slot.to_le_bytes());
            bytes.extend_from_slice(&[entry.sectors, 0, 0, 0]);
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(unit_bytes.max(1)), 0);
        bytes
    }

    /// The number of entries that a header says, if it can be one of a record of at most `page_count` entries; `None` of anything else.
    pub(super) fn entries_of(header: &[u8], page_count: u32) -> Option<u32> {
        let is_one = header.get(..8)? == RECORD_MAGIC && u32_at(header, 8) == VERSION;
        let entries = u32_at(header, 44);
        (is_one && entries <= page_count).then_some(entries)
    }

    /// A record from at least as many bytes as its header says; `None` of what is none, is torn, or is of another version.
    pub(super) fn decode(bytes: &[u8], superblock: &Superblock) -> Option<Record> {
        let count = Record::entries_of(bytes, superblock.page_count)? as usize;
        let checked = RECORD_HEADER_BYTES + count * ENTRY_BYTES;
        let body = bytes.get(..checked)?;
        if u32_at(bytes.get(..checked + CHECKSUM_BYTES)?, checked) != crc32c::crc32c(body) {
            return None;
        }
        let is_checkpoint = match u32_at(body, 12) {
            1 => true,
            2 => false,
            _ => return None,
        };
        let identity: [u8; 16] = body.get(16..32)?.try_into().ok()?;
        let staged = match u64_at(body, 48) {
            0 => None,
            length_bytes if length_bytes <= superblock.staging_bytes => {
                Some(Staged { zone: u32_at(body, 56), length_bytes })
            }
            _ => return None,
        };
        // There is one after it.
        if u64_at(body, 32) == u64::MAX {
            return None;
        }
        let entries = body[RECORD_HEADER_BYTES..].chunks_exact(ENTRY_BYTES).map(|entry| {
            let (page, slot, sectors) = (u64_at(entry, 0), u32_at(entry, 8), entry[12]);
            let is_on_disk = page < superblock.disk_bytes.div_ceil(PAGE_BYTES);
            (slot < superblock.page_count && is_on_disk).then_some(Entry { slot, page, sectors })
        });
        Some(Record {
            is_checkpoint,
            identity,
            generation: u64_at(body, 32),
            place: u32_at(body, 40),
            staged,
            entries: entries.collect::<Option<_>>()?,
        })
    }
}

/// What the header of a record says, which may be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) generation: u64,
    pub(super) place: u32,
    /// Of header, entries and checksum.
    pub(super) length_bytes: usize,
}

impl Claimed {
    /// Of the header of a record of this buffer; `None` of anything else.
    pub(super) fn of(bytes: &[u8], superblock: &Superblock) -> Option<Claimed> {
        let header = bytes.get(..RECORD_HEADER_BYTES)?;
        let entries = Record::entries_of(header, superblock.page_count)?;
        let length_bytes = record_bytes(entries.into()) as usize;
        let is_of_this = header[16..32] == superblock.identity;
        is_of_this.then(|| Claimed { generation: u64_at(header, 32), place: u32_at(header, 40), length_bytes })
    }
}

/// Decodes any bytes as a superblock and as a record.
pub(crate) fn fuzz(data: &[u8]) {
    let Some((&pages, data)) = data.split_first() else { return };
    let _ = Superblock::decode(data, Role::Buffer);
    let mut sealed = data.to_vec();
    sealed.resize(SUPERBLOCK_BYTES, 0);
    sealed[..8].copy_from_slice(SUPERBLOCK_MAGIC);
    sealed[8..16].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    sealed[SUPERBLOCK_CHECKED_BYTES..].fill(0);
    let checksum = crc32c::crc32c(&sealed[..SUPERBLOCK_CHECKED_BYTES]).to_le_bytes();
    sealed[SUPERBLOCK_CHECKED_BYTES..SUPERBLOCK_CHECKED_BYTES + 4].copy_from_slice(&checksum);
    let Found::Superblock(superblock) = Superblock::decode(&sealed, Role::Disk) else {
        panic!("a sealed superblock is one");
    };
    assert_eq!(superblock.encode(Role::Disk), sealed);
    let superblock = Superblock { page_count: pages.into(), ..superblock };
    let mut record = data.to_vec();
    if record.len() >= RECORD_HEADER_BYTES + CHECKSUM_BYTES {
        record[..8].copy_from_slice(RECORD_MAGIC);
        record[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let room = (record.len() - RECORD_HEADER_BYTES - CHECKSUM_BYTES) / ENTRY_BYTES;
        let entries = (u32_at(&record, 44) as usize % (room + 1)) as u32;
        record[44..48].copy_from_slice(&entries.to_le_bytes());
        let checked = RECORD_HEADER_BYTES + entries as usize * ENTRY_BYTES;
        let checksum = crc32c::crc32c(&record[..checked]).to_le_bytes();
        record[checked..checked + CHECKSUM_BYTES].copy_from_slice(&checksum);
    }
    for bytes in [data, &record] {
        let claimed = Claimed::of(bytes, &superblock);
        assert!(claimed.is_none_or(|claimed| claimed.length_bytes as u64 <= record_bytes(pages.into())));
        let Some(record) = Record::decode(bytes, &superblock) else { continue };
        assert!(record.entries.len() <= superblock.page_count as usize);
        assert!(record.entries.iter().all(|entry| entry.slot < superblock.page_count));
        assert!(record.staged.is_none_or(|staged| staged.length_bytes <= superblock.staging_bytes));
        let again = Record::decode(&record.encode(512), &superblock);
        assert_eq!(again, Some(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn superblock() -> Superblock {
        Superblock {
            identity: *b"0123456789abcdef",
            disk_bytes: 8 << 30,
            staging_bytes: 256 << 20,
            area_bytes: 1 << 20,
            page_count: 16_384,
            sector_bytes: 512,
            unit_bytes: 4096,
        }
    }

    fn record() -> Record {
        Record {
            is_checkpoint: true,
            identity: *b"0123456789abcdef",
            generation: 7,
            place: 0,
            staged: Some(Staged { zone: 3, length_bytes: 9 << 12 }),
            entries: vec![Entry { slot: 5, page: 77, sectors: 0xff }, Entry { slot: 9, page: 0, sectors: 0 }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for role in [Role::Buffer, Role::Disk] {
            assert_eq!(Superblock::decode(&superblock().encode(role), role), Found::Superblock(superblock()));
        }
        assert!(matches!(Superblock::decode(&superblock().encode(Role::Disk), Role::Buffer), Found::Other(_)));
        assert_eq!(Superblock::decode(&[0; SUPERBLOCK_BYTES], Role::Disk), Found::Blank);
        let bytes = record().encode(4096);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(Record::decode(&bytes, &superblock()), Some(record()));
    }

    /// The bytes are what they were: what is written today is read by later versions.
    #[test]
    fn the_bytes_stay_as_they_are() {
        let superblock = superblock().encode(Role::Disk);
        assert_eq!(&superblock[..16], b"VARVEBUF\x01\0\0\0\x02\0\0\0");
        let golden = crc32c::crc32c(&[superblock, record().encode(512)].concat());
        assert_eq!(golden, GOLDEN, "{golden:#x}");
    }

    const GOLDEN: u32 = 0x0268_3cd7;

    #[test]
    fn any_bytes_are_taken() {
        let mut random = varve_env::Random::named(1, "write buffer");
        let good = [record().encode(1), superblock().encode(Role::Disk)];
        for round in 0..3000 {
            let mut bytes = good[round % 2].clone();
            for _ in 0..random.below(20) {
                let at = random.index(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(random.index(bytes.len() + 1));
            bytes.insert(0, random.below(256) as u8);
            fuzz(&bytes);
        }
    }

    #[test]
    fn flips_and_cuts_are_noticed() {
        let good = superblock().encode(Role::Buffer);
        for at in 0..SUPERBLOCK_BYTES {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            assert!(!matches!(Superblock::decode(&bytes, Role::Buffer), Found::Superblock(_) | Found::Blank), "{at}");
        }
        let good = record().encode(1);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert_eq!(Record::decode(&bytes, &superblock()), None, "{at}");
            assert_eq!(Record::decode(&good[..at], &superblock()), None, "{at}");
        }
        let mut other = superblock().encode(Role::Buffer);
        other[8] = 2;
        let checksum = crc32c::crc32c(&other[..SUPERBLOCK_CHECKED_BYTES]).to_le_bytes();
        other[SUPERBLOCK_CHECKED_BYTES..SUPERBLOCK_CHECKED_BYTES + 4].copy_from_slice(&checksum);
        assert_eq!(Superblock::decode(&other, Role::Buffer), Found::OtherVersion(2));
        // Entries that cannot be.
        for entry in
            [Entry { slot: 16_384, page: 0, sectors: 1 }, Entry { slot: 0, page: (8 << 30) / PAGE_BYTES, sectors: 1 }]
        {
            let record = Record { entries: vec![entry], ..record() };
            assert_eq!(Record::decode(&record.encode(512), &superblock()), None);
        }
    }
}
