//! What a write buffer keeps of itself on its two devices. Little-endian.
//!
//! The *superblock*, at the start of the buffer's device and, with another role, at the start of what is reserved at the end of the disk:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEBUF` |
//! | 8 | 4 | version, 2: version 1 had records with frames of their own, and is refused |
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
//! A *record* of the page map is a payload in the frame of the shared [journal](crate::journal); a checkpoint has every page
//! that holds something, a change those that are otherwise than before:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | bytes of the zone that is copied to the buffer's device and being written back; 0 without one |
//! | 8 | 4 | number of that zone, or zero |
//! | 12 | 4 | zero |
//! | 16 | 16 each | entries |
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
use varve_media::WRITE_BUFFER_MARK as SUPERBLOCK_MAGIC;

/// Bytes of a page of the buffer (Zhang, section 4.4.3).
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes of a superblock.
pub(super) const SUPERBLOCK_BYTES: usize = 4096;

pub(super) const VERSION: u32 = 2;
const SUPERBLOCK_CHECKED_BYTES: usize = 68;
const RECORD_HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;

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

impl Flaw {
    /// The bytes are of something else, and not of a buffer that was damaged.
    pub(super) fn is_foreign(&self) -> bool {
        self.what == MAGIC
    }
}

const MAGIC: &str = "magic";

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
            return Found::Other(flaw(MAGIC, "VARVEBUF", String::from_utf8_lossy(magic)));
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) staged: Option<Staged>,
    pub(super) entries: Vec<Entry>,
}

/// Size of the payload of a record, in bytes, by its number of entries.
pub(super) fn record_bytes(entries: u64) -> u64 {
    RECORD_HEADER_BYTES as u64 + entries.saturating_mul(ENTRY_BYTES as u64)
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(record_bytes(self.entries.len() as u64) as usize);
        bytes.extend_from_slice(&self.staged.map_or(0, |staged| staged.length_bytes).to_le_bytes());
        bytes.extend_from_slice(&self.staged.map_or(0, |staged| staged.zone).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.page.to_le_bytes());
            bytes.extend_from_slice(&entry.slot.to_le_bytes());
            bytes.extend_from_slice(&[entry.sectors, 0, 0, 0]);
        }
        bytes
    }

    /// The record in a payload.
    ///
    /// # Errors
    /// It is none of a buffer with this superblock.
    pub(super) fn decode(bytes: &[u8], superblock: &Superblock) -> Result<Record, Flaw> {
        let Some((header, entries)) = bytes.split_at_checked(RECORD_HEADER_BYTES) else {
            return Err(flaw("length of a record", RECORD_HEADER_BYTES, bytes.len()));
        };
        let count = entries.len() / ENTRY_BYTES;
        if !entries.len().is_multiple_of(ENTRY_BYTES) || count > superblock.page_count as usize {
            let most = record_bytes(superblock.page_count.into());
            return Err(flaw("length of a record", format!("whole entries, {most} bytes at most"), bytes.len()));
        }
        let staged = match (u64_at(header, 0), u32_at(header, 8)) {
            (0, _) => None,
            (length_bytes, zone) if length_bytes <= superblock.staging_bytes => Some(Staged { zone, length_bytes }),
            (length_bytes, _) => {
                return Err(flaw("copy of a zone", format!("at most {}", superblock.staging_bytes), length_bytes));
            }
        };
        let pages = superblock.disk_bytes.div_ceil(PAGE_BYTES);
        let entries = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
            let entry = Entry { page: u64_at(entry, 0), slot: u32_at(entry, 8), sectors: entry[12] };
            let is_one = entry.slot < superblock.page_count && entry.page < pages;
            let expected = || format!("a page of {pages} in one of {}", superblock.page_count);
            if is_one { Ok(entry) } else { Err(flaw("entry", expected(), format!("{entry:?}"))) }
        });
        Ok(Record { staged, entries: entries.collect::<Result<_, Flaw>>()? })
    }
}

/// Decodes any bytes as a superblock and as a record.
pub(crate) fn fuzz(data: &[u8]) {
    let Some((&pages, data)) = data.split_first() else { return };
    let _ = Superblock::decode(data, Role::Buffer);
    let mut sealed = data.to_vec();
    sealed.resize(SUPERBLOCK_BYTES, 0);
    sealed[..8].copy_from_slice(SUPERBLOCK_MAGIC);
    sealed[8..16].copy_from_slice(&[2, 0, 0, 0, 2, 0, 0, 0]);
    sealed[SUPERBLOCK_CHECKED_BYTES..].fill(0);
    let checksum = crc32c::crc32c(&sealed[..SUPERBLOCK_CHECKED_BYTES]).to_le_bytes();
    sealed[SUPERBLOCK_CHECKED_BYTES..SUPERBLOCK_CHECKED_BYTES + 4].copy_from_slice(&checksum);
    let Found::Superblock(superblock) = Superblock::decode(&sealed, Role::Disk) else {
        panic!("a sealed superblock is one");
    };
    assert_eq!(superblock.encode(Role::Disk), sealed);
    let superblock = Superblock { page_count: pages.into(), ..superblock };
    let owner = crate::journal::Owner { layer: super::journal::LAYER, identity: superblock.identity };
    crate::journal::fuzz(&owner, data);
    let mut record = data.to_vec();
    let entries = record.len().saturating_sub(RECORD_HEADER_BYTES) / ENTRY_BYTES % (usize::from(pages) + 1);
    record.resize(record_bytes(entries as u64) as usize, 0);
    record[6..8].fill(0);
    for bytes in [data, &record] {
        let Ok(record) = Record::decode(bytes, &superblock) else { continue };
        assert!(record.entries.len() <= superblock.page_count as usize);
        assert!(record.entries.iter().all(|entry| entry.slot < superblock.page_count));
        assert!(record.staged.is_none_or(|staged| staged.length_bytes <= superblock.staging_bytes));
        assert_eq!(Record::decode(&record.encode(), &superblock), Ok(record));
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
        let bytes = record().encode();
        assert_eq!(bytes.len() as u64, record_bytes(2));
        assert_eq!(Record::decode(&bytes, &superblock()), Ok(record()));
    }

    /// The bytes are what they were: what is written today is read by later versions.
    #[test]
    fn the_bytes_stay_as_they_are() {
        let superblock = superblock().encode(Role::Disk);
        assert_eq!(&superblock[..16], b"VARVEBUF\x02\0\0\0\x02\0\0\0");
        let golden = crc32c::crc32c(&[superblock, record().encode()].concat());
        assert_eq!(golden, GOLDEN, "{golden:#x}");
    }

    const GOLDEN: u32 = 0x6348_e083;

    #[test]
    fn any_bytes_are_taken() {
        let mut random = varve_env::Random::named(1, "write buffer");
        let good = [record().encode(), superblock().encode(Role::Disk)];
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
        let good = record().encode();
        for at in (0..good.len()).filter(|at| at % ENTRY_BYTES != 0) {
            assert!(Record::decode(&good[..at], &superblock()).is_err(), "{at}");
        }
        let mut other = superblock().encode(Role::Buffer);
        other[8] = 3;
        let checksum = crc32c::crc32c(&other[..SUPERBLOCK_CHECKED_BYTES]).to_le_bytes();
        other[SUPERBLOCK_CHECKED_BYTES..SUPERBLOCK_CHECKED_BYTES + 4].copy_from_slice(&checksum);
        assert_eq!(Superblock::decode(&other, Role::Buffer), Found::OtherVersion(3));
        // Entries that cannot be.
        for entry in
            [Entry { slot: 16_384, page: 0, sectors: 1 }, Entry { slot: 0, page: (8 << 30) / PAGE_BYTES, sectors: 1 }]
        {
            let record = Record { entries: vec![entry], ..record() };
            assert!(Record::decode(&record.encode(), &superblock()).is_err());
        }
        let staged = Some(Staged { zone: 1, length_bytes: (256 << 20) + 1 });
        assert!(Record::decode(&Record { staged, ..record() }.encode(), &superblock()).is_err());
        let entries = vec![Entry { slot: 1, page: 1, sectors: 1 }; 16_385];
        assert!(Record::decode(&Record { staged: None, entries }.encode(), &superblock()).is_err());
    }
}
