//! The superblock of a member. Little-endian.
//!
//! Each member has two copies, in the first two units of 4096 bytes. A change writes the first copy, syncs, and
//! then writes the second one, so a power cut leaves one of them whole.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVERAI` |
//! | 8 | 4 | version: 1; 2 with a journal of stripes on the members; 3 with one on a device of its own |
//! | 12 | 4 | level: 0, 1, 4, 5 or 6 |
//! | 16 | 16 | identity of the array |
//! | 32 | 8 | generation: grows with each change of the members in use |
//! | 40 | 8 | members in use, a bit for each slot, the lowest first |
//! | 48 | 8 | members in use that are being rebuilt |
//! | 56 | 8 | bytes of a chunk |
//! | 64 | 8 | bytes that each member has at least, blocks of tuples included |
//! | 72 | 8 | offset of the data on each member |
//! | 80 | 8 | stripes |
//! | 88 | 8 | stripes to a region of the intent map |
//! | 96 | 4 | members |
//! | 100 | 4 | slot of this member; on a journal's device the number of members |
//! | 104 | 4 | bytes of a sector of the array |
//! | 108 | 4 | protection information of the members: type (0 none, 1 to 3), guard (0 CRC, 1 Internet checksum), binary logarithm of the bytes of an interval, place of the tuples (0 kept by the members, 1 beside the data, [`super::beside`]) |
//! | 112 | 4 | state: 1 being made, 2 made |
//! | 116 | 8 | bytes of each area of the journal of stripes, a multiple of 4096; in version 3 plus 1, plus twice the number of the journal's device: how often it was replaced, modulo 2048; version 1 does not have this field |
//! | 124 | 4 | crc32c of all before it; at 116 in version 1, and here in every later one |
//! | 128 | | zero up to 4096, from 120 on in version 1 |
//!
//! The two areas of the journal end where the data begin, or begin at [`JOURNAL_OFFSET`] of its device ([`super::stripe_journal`]).

use super::beside::{self, TupleLayout};
use super::geometry::{ArrayGeometry, MEMBERS_MAX, RaidLevel};
use super::intent::REGIONS_MAX;
use crate::wire::{u32_at, u64_at};
use std::collections::BTreeSet;
use varve_media::ARRAY_MEMBER_MARK as MAGIC;
use varve_media::{GuardKind, ProtectionFormat, ProtectionType};

/// Bytes of a copy of the superblock, and of a page of the intent map.
pub(super) const UNIT_BYTES: u64 = 4096;
/// Where the two copies lie, in bytes.
pub(super) const COPIES: [u64; 2] = [0, UNIT_BYTES];
/// Where the two pages of the intent map lie, in bytes.
pub(super) const INTENT_PAGES: [u64; 2] = [2 * UNIT_BYTES, 3 * UNIT_BYTES];
/// Smallest offset of the data of a member, in bytes.
pub(super) const DATA_OFFSET_MIN: u64 = 4 * UNIT_BYTES;
/// Largest chunk, in bytes.
pub(super) const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// The newest version. Each is written where an earlier one does not suffice.
pub(super) const VERSION: u32 = 3;
/// Version of a journal of stripes on the members.
const VERSION_MEMBERS: u32 = 2;
/// Offset of the areas of a journal on its own device, in bytes: where a store on it would have its second superblock is nothing.
pub(super) const JOURNAL_OFFSET: u64 = 128 << 10;
/// Devices of a journal are numbered modulo this.
pub(super) const JOURNAL_NUMBERS: u64 = 2048;
/// Bytes before the checksum, of version 1 and of later ones.
const CHECKED_BYTES: [usize; 2] = [116, 124];
/// Binary logarithms of valid intervals (512 to 4096 bytes).
const INTERVAL_LOGARITHMS: std::ops::RangeInclusive<u8> = 9..=12;

/// What an array is made of, as one of its members has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) identity: [u8; 16],
    pub(super) generation: u64,
    /// A bit for each slot.
    pub(super) in_use: u64,
    pub(super) rebuilding: u64,
    pub(super) geometry: ArrayGeometry,
    pub(super) member_bytes: u64,
    pub(super) data_offset: u64,
    pub(super) region_stripes: u64,
    pub(super) slot: usize,
    pub(super) sector_bytes: u32,
    /// Format of the protection information of every member.
    pub(super) protection: Option<ProtectionFormat>,
    /// Members keep no protection information themselves: it lies beside their data.
    pub(super) is_beside: bool,
    /// Bytes of each area of the journal of stripes; 0 without one.
    pub(super) journal_area_bytes: u64,
    /// Number of the journal's device; `None` where it lies on the members, or where there is none.
    pub(super) journal_device: Option<u64>,
    /// Every member has a superblock of this array.
    pub(super) is_made: bool,
}

/// Something that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) what: &'static str,
    pub(super) expected: String,
    pub(super) found: String,
}

fn flaw(what: &'static str, expected: impl ToString, found: impl ToString) -> Flaw {
    Flaw { what, expected: expected.to_string(), found: found.to_string() }
}

/// Contents of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Zeros.
    Blank,
    Superblock(Superblock),
    OtherVersion(u32),
    /// It has protection information of this kind, which is not known here.
    OtherProtection(u32),
    /// It begins with another magic.
    Foreign,
    Damaged(Flaw),
}

/// Bytes before the checksum of a version.
fn checked_bytes(version: u32) -> usize {
    CHECKED_BYTES[usize::from(version != 1)]
}

fn encode_protection(format: Option<ProtectionFormat>, is_beside: bool) -> u32 {
    let Some(ProtectionFormat { protection_type, guard, interval_bytes }) = format else { return 0 };
    let guard = match guard {
        GuardKind::Crc => 0,
        GuardKind::IpChecksum => 1,
    };
    u32::from_le_bytes([protection_type.number(), guard, interval_bytes.ilog2() as u8, u8::from(is_beside)])
}

/// # Errors
/// A code that is not known here: the code.
fn decode_protection(code: u32) -> Result<(Option<ProtectionFormat>, bool), u32> {
    let [number, guard, logarithm, place] = code.to_le_bytes();
    if code == 0 {
        return Ok((None, false));
    }
    let guard = match guard {
        0 => GuardKind::Crc,
        1 => GuardKind::IpChecksum,
        _ => return Err(code),
    };
    match ProtectionType::of_number(number.into()) {
        Some(protection_type) if place <= 1 && INTERVAL_LOGARITHMS.contains(&logarithm) => {
            let format = ProtectionFormat { protection_type, guard, interval_bytes: 1 << logarithm };
            match place == 0 || format == beside::format(format.interval_bytes) {
                true => Ok((Some(format), place == 1)),
                false => Err(code),
            }
        }
        _ => Err(code),
    }
}

impl Superblock {
    pub(super) fn encode(&self) -> Vec<u8> {
        let geometry = &self.geometry;
        let mut bytes = Vec::with_capacity(UNIT_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        let version = match (self.journal_area_bytes, self.journal_device) {
            (0, _) => 1,
            (_, None) => VERSION_MEMBERS,
            (_, Some(_)) => VERSION,
        };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&geometry.level.number().to_le_bytes());
        bytes.extend_from_slice(&self.identity);
        for field in [
            self.generation,
            self.in_use,
            self.rebuilding,
            geometry.chunk_bytes,
            self.member_bytes,
            self.data_offset,
            geometry.stripes,
            self.region_stripes,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let state = if self.is_made { 2 } else { 1 };
        for field in [
            geometry.members as u32,
            self.slot as u32,
            self.sector_bytes,
            encode_protection(self.protection, self.is_beside),
            state,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        if self.journal_area_bytes > 0 {
            let place = self.journal_device.map_or(0, |number| 2 * (number % JOURNAL_NUMBERS) + 1);
            bytes.extend_from_slice(&(self.journal_area_bytes + place).to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.resize(UNIT_BYTES as usize, 0);
        bytes
    }

    /// Reads one copy. Every field is checked against the others.
    pub(super) fn decode(bytes: &[u8]) -> Found {
        if bytes.len() != UNIT_BYTES as usize {
            return Found::Damaged(flaw("length of the superblock", UNIT_BYTES, bytes.len()));
        }
        if varve_media::is_zero(bytes) {
            return Found::Blank;
        }
        if !bytes.starts_with(MAGIC) {
            return Found::Foreign;
        }
        let checked_bytes = checked_bytes(u32_at(bytes, 8));
        let (checksum, found) = (crc32c::crc32c(&bytes[..checked_bytes]), u32_at(bytes, checked_bytes));
        if checksum != found {
            return Found::Damaged(flaw("checksum of the superblock", format!("{checksum:#x}"), format!("{found:#x}")));
        }
        let protection = match (u32_at(bytes, 8), decode_protection(u32_at(bytes, 108))) {
            (1..=VERSION, Ok(protection)) => protection,
            (1..=VERSION, Err(code)) => return Found::OtherProtection(code),
            (version, _) => return Found::OtherVersion(version),
        };
        match Superblock::checked(bytes, protection) {
            Ok(superblock) => Found::Superblock(superblock),
            Err(flaw) => Found::Damaged(flaw),
        }
    }

    fn checked(bytes: &[u8], (protection, is_beside): (Option<ProtectionFormat>, bool)) -> Result<Superblock, Flaw> {
        let number = u32_at(bytes, 12);
        let level = RaidLevel::of_number(number).ok_or_else(|| flaw("level", "0, 1, 4, 5 or 6", number))?;
        let members = u32_at(bytes, 96) as usize;
        if !(level.members_min()..=MEMBERS_MAX).contains(&members) {
            return Err(flaw("members", format!("{} to {MEMBERS_MAX}", level.members_min()), members));
        }
        let geometry = ArrayGeometry { level, members, chunk_bytes: u64_at(bytes, 56), stripes: u64_at(bytes, 80) };
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[16..32]);
        let version = u32_at(bytes, 8);
        let journal = if version == 1 { 0 } else { u64_at(bytes, 116) };
        let (journal_area_bytes, journal_device) = match (version, journal % UNIT_BYTES) {
            (VERSION, place) if place % 2 == 1 => (journal - place, Some(place / 2)),
            (VERSION, place) => return Err(flaw("device of the journal", "a number", place)),
            _ => (journal, None),
        };
        let superblock = Superblock {
            identity,
            generation: u64_at(bytes, 32),
            in_use: u64_at(bytes, 40),
            rebuilding: u64_at(bytes, 48),
            member_bytes: u64_at(bytes, 64),
            data_offset: u64_at(bytes, 72),
            region_stripes: u64_at(bytes, 88),
            slot: u32_at(bytes, 100) as usize,
            sector_bytes: u32_at(bytes, 104),
            protection,
            is_beside,
            journal_area_bytes,
            journal_device,
            is_made: match u32_at(bytes, 112) {
                1 => false,
                2 => true,
                state => return Err(flaw("state", "1 or 2", state)),
            },
            geometry,
        };
        superblock.check()?;
        if version != 1 && superblock.journal_area_bytes == 0 {
            return Err(flaw("area of the journal", "some bytes from version 2 on", 0));
        }
        match varve_media::is_zero(&bytes[checked_bytes(u32_at(bytes, 8)) + 4..]) {
            true => Ok(superblock),
            false => Err(flaw("rest of the superblock", "zeros", "others")),
        }
    }

    /// The fields fit each other.
    pub(super) fn check(&self) -> Result<(), Flaw> {
        let ArrayGeometry { members, chunk_bytes, stripes, .. } = self.geometry;
        let sector = u64::from(self.sector_bytes);
        if !self.sector_bytes.is_power_of_two() || !(512..=UNIT_BYTES).contains(&sector) {
            return Err(flaw("sector", "512 to 4096 bytes, a power of two", sector));
        }
        if let Some(format) = self.protection
            && !sector.is_multiple_of(u64::from(format.interval_bytes))
        {
            let expected = format!("a whole fraction of a sector of {sector} bytes");
            return Err(flaw("interval of protection information", expected, format.interval_bytes));
        }
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(UNIT_BYTES) || chunk_bytes > CHUNK_BYTES_MAX {
            return Err(flaw("chunk", format!("a multiple of 4096 bytes up to {CHUNK_BYTES_MAX}"), chunk_bytes));
        }
        if self.data_offset < DATA_OFFSET_MIN || !self.data_offset.is_multiple_of(UNIT_BYTES) {
            return Err(flaw("data offset", format!("a multiple of 4096 from {DATA_OFFSET_MIN} on"), self.data_offset));
        }
        let journal = match self.journal_device {
            None => self.journal_area_bytes.checked_mul(2),
            Some(_) => Some(0),
        };
        let is_before_data = journal.is_some_and(|bytes| bytes <= self.data_offset - DATA_OFFSET_MIN);
        if !self.journal_area_bytes.is_multiple_of(UNIT_BYTES) || !is_before_data {
            let expected = format!("a multiple of 4096 bytes, twice before the data at {}", self.data_offset);
            return Err(flaw("area of the journal", expected, self.journal_area_bytes));
        }
        let end = stripes.checked_mul(chunk_bytes).and_then(|bytes| bytes.checked_add(self.data_offset));
        let usable_bytes = self.tuple_layout().map_or(self.member_bytes, |layout| layout.usable_bytes());
        if stripes == 0 || end.is_none_or(|end| end > usable_bytes) {
            return Err(flaw("stripes", format!("1 or more in {usable_bytes} bytes"), stripes));
        }
        if self.is_beside && self.journal_area_bytes == 0 {
            return Err(flaw("area of the journal", "some bytes, as tuples lie beside the data", 0));
        }
        if stripes.checked_mul(members as u64 * chunk_bytes).is_none() {
            return Err(flaw("stripes", "less than 2^64 bytes together", stripes));
        }
        if self.region_stripes == 0 || stripes.div_ceil(self.region_stripes) > REGIONS_MAX {
            return Err(flaw("stripes of a region", format!("at most {REGIONS_MAX} regions"), self.region_stripes));
        }
        let all = u64::MAX >> (64 - members);
        if self.in_use & !all != 0 || self.rebuilding & !self.in_use != 0 {
            let expected = format!("slots below {members}, those being rebuilt among those in use");
            return Err(flaw("members in use", expected, format!("{:#x}, {:#x}", self.in_use, self.rebuilding)));
        }
        if self.slot > members || self.slot == members && self.journal_device.is_none() {
            return Err(flaw("slot", format!("below {members}"), self.slot));
        }
        Ok(())
    }

    /// The same array as another member has it, whatever the slot.
    pub(super) fn for_slot(&self, slot: usize) -> Superblock {
        Superblock { slot, ..self.clone() }
    }

    /// Where tuples lie, if they lie beside the data.
    pub(super) fn tuple_layout(&self) -> Option<TupleLayout> {
        let interval_bytes = u64::from(self.protection.filter(|_| self.is_beside)?.interval_bytes);
        Some(TupleLayout { data_offset: self.data_offset, interval_bytes, member_bytes: self.member_bytes })
    }

    /// Format of the protection information that the members keep themselves.
    pub(super) fn kept_protection(&self) -> Option<ProtectionFormat> {
        self.protection.filter(|_| !self.is_beside)
    }

    /// This is the superblock of a journal's device.
    pub(super) fn is_of_journal(&self) -> bool {
        self.slot == self.geometry.members
    }

    /// Has a journal of stripes.
    pub(super) fn has_journal(&self) -> bool {
        self.journal_area_bytes > 0
    }

    pub(super) fn is_in_use(&self, slot: usize) -> bool {
        self.in_use >> slot & 1 == 1
    }

    pub(super) fn is_rebuilding(&self, slot: usize) -> bool {
        self.rebuilding >> slot & 1 == 1
    }

    /// Takes members out of use, as a new generation.
    pub(super) fn leave_out(&mut self, slots: &BTreeSet<usize>) {
        let bits = slots.iter().fold(0_u64, |bits, slot| bits | 1 << slot);
        self.in_use &= !bits;
        self.rebuilding &= !bits;
        self.generation += 1;
    }

    pub(super) fn regions(&self) -> u64 {
        self.geometry.stripes.div_ceil(self.region_stripes)
    }
}

/// Decodes any bytes as a superblock, as they are and with the magic and checksum that random bytes do not have.
pub(super) fn fuzz(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.resize(UNIT_BYTES as usize, 0);
    sealed[..8].copy_from_slice(MAGIC);
    let version = 1 + u32_at(&sealed, 8) % VERSION;
    sealed[8..12].copy_from_slice(&version.to_le_bytes());
    if decode_protection(u32_at(&sealed, 108)).is_err() {
        sealed[108..112].fill(0);
    }
    let checked_bytes = checked_bytes(version);
    let checksum = crc32c::crc32c(&sealed[..checked_bytes]).to_le_bytes();
    sealed[checked_bytes..checked_bytes + 4].copy_from_slice(&checksum);
    for bytes in [data, &sealed] {
        let Found::Superblock(superblock) = Superblock::decode(bytes) else { continue };
        assert!(superblock.check().is_ok());
        assert!(superblock.geometry.capacity_bytes() >= superblock.geometry.chunk_bytes);
        assert_eq!(superblock.encode(), bytes);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::raid) fn superblock() -> Superblock {
        Superblock {
            identity: *b"0123456789abcdef",
            generation: 7,
            in_use: 0b1_1101,
            rebuilding: 0b1_0000,
            geometry: ArrayGeometry { level: RaidLevel::Raid6, members: 5, chunk_bytes: 64 << 10, stripes: 1000 },
            member_bytes: 65 << 20,
            data_offset: 1 << 20,
            region_stripes: 8,
            slot: 3,
            sector_bytes: 512,
            protection: None,
            is_beside: false,
            journal_area_bytes: 0,
            journal_device: None,
            is_made: true,
        }
    }

    #[test]
    fn decodes_what_it_encodes() {
        for is_made in [true, false] {
            for journal_area_bytes in [0, 256 << 10] {
                let superblock = Superblock { is_made, journal_area_bytes, ..superblock() };
                assert_eq!(Superblock::decode(&superblock.encode()), Found::Superblock(superblock));
            }
        }
        for number in 1..=3 {
            for guard in [GuardKind::Crc, GuardKind::IpChecksum] {
                let protection_type = ProtectionType::of_number(number).unwrap();
                let protection = Some(ProtectionFormat { protection_type, guard, interval_bytes: 512 });
                let superblock = Superblock { protection, ..superblock() };
                assert_eq!(Superblock::decode(&superblock.encode()), Found::Superblock(superblock));
            }
        }
        let beside = Superblock {
            protection: Some(beside::format(512)),
            is_beside: true,
            journal_area_bytes: 256 << 10,
            member_bytes: 80 << 20,
            ..superblock()
        };
        assert_eq!(Superblock::decode(&beside.encode()), Found::Superblock(beside));
        for (number, slot) in [(0, 3), (7, 5), (JOURNAL_NUMBERS - 1, 5)] {
            let journal_device = Some(number);
            let superblock = Superblock { slot, journal_device, journal_area_bytes: 16 << 20, ..superblock() };
            assert_eq!(Superblock::decode(&superblock.encode()), Found::Superblock(superblock));
        }
        assert_eq!(Superblock::decode(&[0; UNIT_BYTES as usize]), Found::Blank);
        assert_eq!(Superblock::decode(&[7; UNIT_BYTES as usize]), Found::Foreign);
    }

    /// Bytes written by version 1 are read by later versions.
    #[test]
    fn bytes_are_those_of_the_golden_file() {
        let golden = include_bytes!("golden/superblock.bin");
        assert_eq!(superblock().encode()[..golden.len()], golden[..]);
        let mut whole = golden.to_vec();
        whole.resize(UNIT_BYTES as usize, 0);
        assert_eq!(Superblock::decode(&whole), Found::Superblock(superblock()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = superblock().encode();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&bytes), Found::Superblock(_) | Found::Blank), "bit {bit}");
        }
        assert!(matches!(Superblock::decode(&good[..100]), Found::Damaged(_)));
    }

    #[test]
    fn refuses_fields_that_do_not_fit() {
        let geometry = superblock().geometry;
        let with = |geometry: ArrayGeometry| Superblock { geometry, ..superblock() };
        for (what, bad) in [
            ("chunk", with(ArrayGeometry { chunk_bytes: 0, ..geometry.clone() })),
            ("chunk", with(ArrayGeometry { chunk_bytes: 6000, ..geometry.clone() })),
            ("chunk", with(ArrayGeometry { chunk_bytes: 128 << 20, ..geometry.clone() })),
            ("stripes", with(ArrayGeometry { stripes: 0, ..geometry.clone() })),
            ("stripes", with(ArrayGeometry { stripes: 1025, ..geometry.clone() })),
            ("stripes", with(ArrayGeometry { stripes: u64::MAX, ..geometry.clone() })),
            ("members", with(ArrayGeometry { members: 3, ..geometry.clone() })),
            ("members", with(ArrayGeometry { members: 65, ..geometry.clone() })),
            ("sector", Superblock { sector_bytes: 520, ..superblock() }),
            ("data offset", Superblock { data_offset: 4096, ..superblock() }),
            ("stripes of a region", Superblock { region_stripes: 0, ..superblock() }),
            ("members in use", Superblock { in_use: 0b10_0000, ..superblock() }),
            ("members in use", Superblock { rebuilding: 0b10, ..superblock() }),
            ("slot", Superblock { slot: 5, ..superblock() }),
            ("area of the journal", Superblock { journal_area_bytes: 512 << 10, ..superblock() }),
            ("area of the journal", Superblock { journal_area_bytes: 6000, ..superblock() }),
            // The blocks of tuples have no place.
            (
                "stripes",
                Superblock {
                    protection: Some(beside::format(512)),
                    is_beside: true,
                    journal_area_bytes: 256 << 10,
                    member_bytes: (1 << 20) + ((1000 * 64) << 10),
                    ..superblock()
                },
            ),
        ] {
            match Superblock::decode(&bad.encode()) {
                Found::Damaged(flaw) => assert_eq!(flaw.what, what, "{flaw:?}"),
                found => panic!("{what}: {found:?}"),
            }
        }
        let sealed = |at: usize, value: u32| {
            let mut bytes = superblock().encode();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let checked_bytes = checked_bytes(u32_at(&bytes, 8));
            let checksum = crc32c::crc32c(&bytes[..checked_bytes]).to_le_bytes();
            bytes[checked_bytes..checked_bytes + 4].copy_from_slice(&checksum);
            Superblock::decode(&bytes)
        };
        assert_eq!(sealed(8, 4), Found::OtherVersion(4));
        assert!(matches!(sealed(8, 2), Found::Damaged(_)), "version 2 without a journal");
        for unknown in [
            1,
            4 | 9 << 16,
            1 | 2 << 8 | 9 << 16,
            1 | 8 << 16,
            1 | 13 << 16,
            1 | 9 << 16 | 2 << 24,
            2 | 9 << 16 | 1 << 24,
        ] {
            assert_eq!(sealed(108, unknown), Found::OtherProtection(unknown));
        }
        assert!(
            matches!(sealed(108, 1 | 9 << 16 | 1 << 24), Found::Damaged(_)),
            "tuples beside data without a journal"
        );
        assert!(matches!(sealed(108, 1 | 12 << 16), Found::Damaged(_)), "an interval of several sectors");
        assert!(matches!(sealed(12, 3), Found::Damaged(_)) && matches!(sealed(112, 0), Found::Damaged(_)));
    }

    #[test]
    fn takes_any_bytes() {
        let mut random = varve_env::Random::named(1, "array superblock");
        for _ in 0..2000 {
            let mut bytes = superblock().encode();
            for _ in 0..random.below(20) {
                let at = random.index(140);
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(random.index(bytes.len() + 1));
            fuzz(&bytes);
        }
    }
}
