//! The bytes of a record of a media cache: cache and map as they were when it was made, and then what changed.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEMAP` |
//! | 8 | 4 | version, 2; 1 has no entries of kind 6, and counts pieces where 2 has positions in the log |
//! | 12 | 4 | number of zones of the drive |
//! | 16 | 8 | bytes of a zone |
//! | 24 | 8 | bytes of the cache |
//! | 32 | 4 | most extents |
//! | 36 | 4 | conventional zones at the start |
//! | 40 | 4 | zones in the cache |
//! | 44 | 4 | extents |
//! | 48 | 8 | where the next byte of the log of the cache goes |
//! | 56 | 8 | position in the log of the next piece: bytes appended so far |
//! | 64 | 32 | what is under way, as in an entry of kind 4 from its offset 4 on |
//! | 96 | 4 | crc32c of zones and extents |
//! | 100 | 4 | crc32c of bytes 0 to 100 |
//! | 104 | 408 | zero |
//! | 512 | 24 each | zones in the cache, ascending: number (4), zero (4), bytes in the cache, written over or not (8), position in the log of its first piece (8) |
//! | | 24 each | extents, ascending: first byte of the address space (8), the byte behind the last (8), first byte in the cache (8) |
//! | | | zeros up to a multiple of 512 |
//! | | 64 each | entries of what changed, in order |
//!
//! An entry:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | its number, from 0 |
//! | 4 | 1 | kind: 1 appended, 2 forgotten, 3 released, 4 under way, 5 mark, 6 kept the rest of a zone |
//! | 5 | 1 | of kind 4: 1 a zone is being cleaned, 2 requests wait for space, 3 both, or else 0 |
//! | 6 | 2 | zero |
//! | 8 | 4 | zone (kinds 1, 3, 6; 4 if one is being cleaned), or else 0 |
//! | 12 | 8 | first byte of the address space: of the piece (kind 1), of the part (2), of what is left of the zone (4), or else 0 |
//! | 20 | 8 | the byte behind it |
//! | 28 | 8 | where the pointer of the zone stood (kind 4), or else 0 |
//! | 36 | 24 | zero |
//! | 60 | 4 | crc32c of bytes 0 to 60 |
//!
//! Where a piece goes in the cache follows from the entries before. Entries do not cross sectors of 512 bytes. A mark says that
//! all before it was durable when it was written: what is unsound before a mark is damage, and behind the last one the end.

use super::super::cache::{Cache, CachedZone, EXTENTS_MIN, SECTOR_BYTES};
use super::super::extents::ExtentMap;
use super::super::lasting::{Change, Lasting, Progress, UnderWay};
use crate::zones::{MediaCache, ZoneGeometry, ZoneId, ZoneType};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::{Range, RangeInclusive};

pub(super) const MAGIC: &[u8; 8] = b"VARVEMAP";
pub(super) const VERSION: u32 = 2;
const VERSIONS: RangeInclusive<u32> = 1..=VERSION;
pub(super) const HEADER_BYTES: usize = 512;
pub(super) const HEADER_CHECKED_BYTES: usize = 100;
pub(super) const ENTRY_BYTES: usize = 64;
const ENTRY_CHECKED_BYTES: usize = 60;
const ITEM_BYTES: usize = 24;
/// Of an entry, what says what is under way; in the header it lies at 64.
const UNDER_WAY: Range<usize> = 4..36;
const UNDER_WAY_AT: usize = 64;

/// Why bytes are no record.
#[derive(Debug)]
pub(super) enum Unsound {
    /// The file cannot be read.
    Io(std::io::Error),
    /// Sound, of another version.
    Version(u32),
    /// Where, what, expected, found.
    Flaw(u64, String, String, String),
}

fn flaw<T>(at: u64, what: &str, expected: impl ToString, found: impl ToString) -> Result<T, Unsound> {
    Err(Unsound::Flaw(at, what.to_owned(), expected.to_string(), found.to_string()))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Most extents of a map: a cleaning may divide one when the map is full.
fn extents_limit(zones: &ZoneGeometry) -> u64 {
    u64::from(limits(zones).extents_max.max(EXTENTS_MIN)) + 1
}

/// Those of a drive with these zones.
pub(super) fn limits(zones: &ZoneGeometry) -> MediaCache {
    zones.media_cache.unwrap_or(MediaCache { bytes: 0, extents_max: 0 })
}

/// The kinds of entries beside marks, as bytes, and what they say.
fn fields(change: &Change) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let mut put = |kind: u8, zone: u32, range: &Range<u64>, pointer: u64| {
        bytes[4] = kind;
        bytes[8..12].copy_from_slice(&zone.to_le_bytes());
        bytes[12..20].copy_from_slice(&range.start.to_le_bytes());
        bytes[20..28].copy_from_slice(&range.end.to_le_bytes());
        bytes[28..36].copy_from_slice(&pointer.to_le_bytes());
    };
    match change {
        Change::Appended { zone, range } => put(1, zone.0, range, 0),
        Change::Forgotten { range } => put(2, 0, range, 0),
        Change::Released { zone } => put(3, zone.0, &(0..0), 0),
        Change::KeptRest { zone } => put(6, zone.0, &(0..0), 0),
        Change::UnderWay(UnderWay { cleaning, is_blocking }) => {
            match cleaning {
                Some(Progress { zone, pointer, rest }) => put(4, zone.0, rest, *pointer),
                None => put(4, 0, &(0..0), 0),
            }
            bytes[5] = u8::from(cleaning.is_some()) | u8::from(*is_blocking) << 1;
        }
    }
    bytes
}

fn sealed(mut bytes: [u8; ENTRY_BYTES], number: u32) -> [u8; ENTRY_BYTES] {
    bytes[0..4].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..ENTRY_CHECKED_BYTES]);
    bytes[ENTRY_CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The entry of a change.
pub(super) fn entry(change: &Change, number: u32) -> [u8; ENTRY_BYTES] {
    sealed(fields(change), number)
}

/// The entry that says that those before it are durable.
pub(super) fn mark(number: u32) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[4] = 5;
    sealed(bytes, number)
}

/// All that lasts, without changes: header, zones and extents. 24 bytes for each of them.
pub(super) fn whole(lasting: &Lasting, zones: &ZoneGeometry) -> Vec<u8> {
    let (cache, MediaCache { bytes: cache_bytes, extents_max }) = (&lasting.cache, limits(zones));
    let items = cache.zones().len() + cache.map().len();
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.reserve((items * ITEM_BYTES).next_multiple_of(512));
    for (zone, &CachedZone { bytes: held, since }) in cache.zones() {
        bytes.extend_from_slice(&u64::from(zone.0).to_le_bytes());
        bytes.extend_from_slice(&held.to_le_bytes());
        bytes.extend_from_slice(&since.to_le_bytes());
    }
    for (range, at) in cache.map().iter() {
        [range.start, range.end, at].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
    }
    let body_checksum = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let (head_bytes, log_bytes) = cache.next();
    bytes[0..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&zones.zone_count.to_le_bytes());
    bytes[16..24].copy_from_slice(&zones.zone_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&cache_bytes.to_le_bytes());
    bytes[32..36].copy_from_slice(&extents_max.to_le_bytes());
    bytes[36..40].copy_from_slice(&zones.conventional_zones.to_le_bytes());
    // Fewer than zones and extents can be.
    bytes[40..44].copy_from_slice(&(cache.zones().len() as u32).to_le_bytes());
    bytes[44..48].copy_from_slice(&(cache.map().len() as u32).to_le_bytes());
    bytes[48..56].copy_from_slice(&head_bytes.to_le_bytes());
    bytes[56..64].copy_from_slice(&log_bytes.to_le_bytes());
    let under_way = fields(&Change::UnderWay(lasting.under_way.clone()));
    bytes[UNDER_WAY_AT..UNDER_WAY_AT + UNDER_WAY.len()].copy_from_slice(&under_way[UNDER_WAY]);
    bytes[96..100].copy_from_slice(&body_checksum.to_le_bytes());
    seal_header(&mut bytes);
    bytes
}

/// Gives a header its checksum.
pub(super) fn seal_header(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKED_BYTES]);
    bytes[HEADER_CHECKED_BYTES..HEADER_CHECKED_BYTES + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// As many bytes as there are, up to the length of `bytes`.
fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<usize, Unsound> {
    let mut done = 0;
    while done < bytes.len() {
        match source.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(length) => done += length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unsound::Io(error)),
        }
    }
    Ok(done)
}

/// Reads what lasts of a drive with these zones. Memory: what the map takes that is read, of at most as many zones and extents as
/// the drive can have.
pub(super) fn read(source: &mut impl Read, zones: &ZoneGeometry) -> Result<Lasting, Unsound> {
    let mut header = [0; HEADER_BYTES];
    let length = fill(source, &mut header)?;
    check_header(&header[..length], zones)?;
    let mut at = HEADER_BYTES as u64;
    let mut checksum = 0;
    let mut item = |what: &str| -> Result<(u64, [u64; 3]), Unsound> {
        let mut bytes = [0; ITEM_BYTES];
        if fill(source, &mut bytes)? < ITEM_BYTES {
            return flaw(at, what, "24 bytes", "the end of the file");
        }
        checksum = crc32c::crc32c_append(checksum, &bytes);
        at += ITEM_BYTES as u64;
        Ok((at - ITEM_BYTES as u64, [u64_at(&bytes, 0), u64_at(&bytes, 8), u64_at(&bytes, 16)]))
    };
    let (cache_bytes, head, log_bytes) = (limits(zones).bytes, u64_at(&header, 48), u64_at(&header, 56));
    let (mut held, mut used, mut behind) = (BTreeMap::new(), 0u64, 0u64);
    for _ in 0..u32_at(&header, 40) {
        let (at, [number, bytes, since]) = item("zone in the cache")?;
        let zone = check_zone(at, number, zones)?;
        if number < behind {
            return flaw(at, "zones in the cache", "ascending numbers", format!("{number} behind {}", behind - 1));
        }
        if bytes == 0 || bytes > cache_bytes - used {
            return flaw(at, "bytes of a zone in the cache", format!("1 to {}", cache_bytes - used), bytes);
        }
        if since >= log_bytes {
            return flaw(at, "position of a zone in the log", format!("below {log_bytes}"), since);
        }
        held.insert(zone, CachedZone { bytes, since });
        (used, behind) = (used + bytes, number + 1);
    }
    let (mut map, mut behind) = (ExtentMap::default(), 0);
    for _ in 0..u32_at(&header, 44) {
        let (at, [start, end, cached_at]) = item("extent")?;
        if start < behind || end <= start || end > zones.address_bytes() {
            let expected = format!("a part of {behind}..{}", zones.address_bytes());
            return flaw(at, "bytes of an extent", expected, format!("{start}..{end}"));
        }
        if cached_at.checked_add(end - start).is_none_or(|end| end > cache_bytes) {
            return flaw(at, "place of an extent", format!("within the cache of {cache_bytes} bytes"), cached_at);
        }
        if let Some(zone) = zones.zones_in(&(start..end)).find(|zone| !held.contains_key(zone)) {
            return flaw(at, "zone of an extent", "one in the cache", zone);
        }
        map.push(start..end, cached_at);
        behind = end;
    }
    if checksum != u32_at(&header, 96) {
        return flaw(
            96,
            "checksum of zones and extents",
            format!("{checksum:#x}"),
            format!("{:#x}", u32_at(&header, 96)),
        );
    }
    let mut under_way = [0; ENTRY_BYTES];
    under_way[UNDER_WAY].copy_from_slice(&header[UNDER_WAY_AT..UNDER_WAY_AT + UNDER_WAY.len()]);
    let under_way = match decode(&under_way, UNDER_WAY_AT as u64, zones)? {
        Change::UnderWay(under_way) => under_way,
        _ => return flaw(UNDER_WAY_AT as u64, "what is under way", "kind 4", under_way[4]),
    };
    let cache = Cache::new(limits(zones), false).with(held, map, (head, log_bytes));
    let mut lasting = Lasting { cache, under_way };
    let padding = at.next_multiple_of(512) - at;
    let mut bytes = [0; 512];
    let length = fill(source, &mut bytes[..padding as usize])?;
    if length < padding as usize || bytes.iter().any(|&byte| byte != 0) {
        return flaw(at, "bytes behind the extents", format!("{padding} zeros"), "others");
    }
    follow(source, at + padding, &mut lasting, zones)?;
    Ok(lasting)
}

fn check_header(bytes: &[u8], zones: &ZoneGeometry) -> Result<(), Unsound> {
    if bytes.len() < HEADER_BYTES {
        return flaw(0, "length of the header", HEADER_BYTES, bytes.len());
    }
    if &bytes[0..8] != MAGIC {
        return flaw(0, "magic", "VARVEMAP", String::from_utf8_lossy(&bytes[0..8]));
    }
    let (found, computed) = (u32_at(bytes, HEADER_CHECKED_BYTES), crc32c::crc32c(&bytes[..HEADER_CHECKED_BYTES]));
    if found != computed {
        return flaw(100, "checksum of the header", format!("{computed:#x}"), format!("{found:#x}"));
    }
    if !VERSIONS.contains(&u32_at(bytes, 8)) {
        return Err(Unsound::Version(u32_at(bytes, 8)));
    }
    if !crate::is_zero(&bytes[HEADER_CHECKED_BYTES + 4..]) {
        return flaw(104, "reserved bytes of the header", "zeros", "others");
    }
    let MediaCache { bytes: cache_bytes, extents_max } = limits(zones);
    for (at, what, expected, found) in [
        (12, "number of zones", zones.zone_count.into(), u32_at(bytes, 12).into()),
        (16, "bytes of a zone", zones.zone_bytes, u64_at(bytes, 16)),
        (24, "bytes of the media cache", cache_bytes, u64_at(bytes, 24)),
        (32, "most extents of the media cache", extents_max.into(), u32_at(bytes, 32).into()),
        (36, "conventional zones", zones.conventional_zones.into(), u32_at(bytes, 36).into()),
    ] {
        if expected != found {
            return flaw(at, what, expected, found);
        }
    }
    let most = extents_limit(zones);
    for (at, what, most, found) in [
        (40, "zones in the cache", u64::from(zones.zone_count), u64::from(u32_at(bytes, 40))),
        (44, "extents", most, u64::from(u32_at(bytes, 44))),
        (48, "next byte of the cache", cache_bytes.saturating_add(SECTOR_BYTES), u64_at(bytes, 48)),
    ] {
        if found > most {
            return flaw(at, what, format!("at most {most}"), found);
        }
    }
    Ok(())
}

/// A zone that can be in the cache.
fn check_zone(at: u64, number: u64, zones: &ZoneGeometry) -> Result<ZoneId, Unsound> {
    match u32::try_from(number).map(ZoneId) {
        Ok(zone) if zones.contains(zone) && zones.zone_type(zone) == ZoneType::SequentialWritePreferred => Ok(zone),
        _ => flaw(at, "zone", "one of preferred type", number),
    }
}

/// Follows the changes from byte `at` on, up to what is no entry any more.
fn follow(source: &mut impl Read, at: u64, lasting: &mut Lasting, zones: &ZoneGeometry) -> Result<(), Unsound> {
    let mut bytes = [0; ENTRY_BYTES];
    let mut unsound_at = None;
    for number in 0u32.. {
        let at = at + u64::from(number) * ENTRY_BYTES as u64;
        if fill(source, &mut bytes)? < ENTRY_BYTES {
            break;
        }
        let checksum = crc32c::crc32c(&bytes[..ENTRY_CHECKED_BYTES]);
        let is_sound = u32_at(&bytes, ENTRY_CHECKED_BYTES) == checksum && u32_at(&bytes, 0) == number;
        match (unsound_at, is_sound) {
            (None, true) if bytes[..] == mark(number) => {}
            (None, true) => {
                let change = decode(&bytes, at, zones)?;
                check_change(&change, at, lasting, zones)?;
                lasting.apply(&change, zones);
                let (found, most) = (lasting.cache.map().len() as u64, extents_limit(zones));
                if found > most {
                    return flaw(at, "extents", format!("at most {most}"), found);
                }
            }
            (None, false) => unsound_at = Some(at),
            (Some(unsound_at), true) if bytes[4] == 5 => {
                return flaw(unsound_at, "entry", "one that was durable", "none");
            }
            (Some(_), _) => {}
        }
    }
    Ok(())
}

/// Whether what lasts can change so.
fn check_change(change: &Change, at: u64, lasting: &Lasting, zones: &ZoneGeometry) -> Result<(), Unsound> {
    let free = limits(zones).bytes - lasting.cache.used_bytes();
    match change {
        Change::Appended { range, .. } if range.end - range.start > free => {
            flaw(at, "bytes to the cache", format!("at most {free}"), range.end - range.start)
        }
        Change::Released { zone } if !lasting.cache.holds(*zone) => {
            flaw(at, "zone that was released", "one in the cache", zone)
        }
        Change::KeptRest { zone } if !lasting.cache.holds(*zone) => {
            flaw(at, "zone whose rest was kept", "one in the cache", zone)
        }
        _ => Ok(()),
    }
}

/// The change of an entry whose number and checksum are right.
fn decode(bytes: &[u8; ENTRY_BYTES], at: u64, zones: &ZoneGeometry) -> Result<Change, Unsound> {
    let (zone, range) = (u64::from(u32_at(bytes, 8)), u64_at(bytes, 12)..u64_at(bytes, 20));
    let pointer = u64_at(bytes, 28);
    let within = |outer: &Range<u64>| outer.start <= range.start && range.start <= range.end && range.end <= outer.end;
    let change = match bytes[4] {
        1 => Change::Appended { zone: check_zone(at, zone, zones)?, range: range.clone() },
        2 => Change::Forgotten { range: range.clone() },
        3 => Change::Released { zone: check_zone(at, zone, zones)? },
        6 => Change::KeptRest { zone: check_zone(at, zone, zones)? },
        4 => {
            let cleaning = match bytes[5] & 1 {
                0 => None,
                _ => Some(Progress { zone: check_zone(at, zone, zones)?, pointer, rest: range.clone() }),
            };
            Change::UnderWay(UnderWay { cleaning, is_blocking: bytes[5] & 2 != 0 })
        }
        kind => return flaw(at, "kind of the entry", "1 to 4, 6, or a mark", kind),
    };
    let (outer, is_inside) = match &change {
        Change::Appended { zone, .. } => (zones.range(*zone), !range.is_empty()),
        Change::Forgotten { .. } => (0..zones.address_bytes(), !range.is_empty()),
        Change::UnderWay(UnderWay { cleaning: Some(Progress { zone, pointer, .. }), .. }) => {
            let own = zones.range(*zone);
            (own.clone(), (own.start..=own.end).contains(pointer))
        }
        Change::Released { .. } | Change::KeptRest { .. } | Change::UnderWay(_) => (0..0, true),
    };
    if !is_inside || !within(&outer) {
        return flaw(at, "bytes of the entry", format!("a part of {outer:?}"), format!("{range:?}"));
    }
    let expected = fields(&change);
    if bytes[4..ENTRY_CHECKED_BYTES] != expected[4..ENTRY_CHECKED_BYTES] {
        return flaw(at, "reserved bytes of the entry", "zeros", "others");
    }
    Ok(change)
}

/// A record of these bytes with the sizes of these zones, and with every checksum right: for fuzzing.
pub(super) fn repaired(bytes: &[u8], zones: &ZoneGeometry) -> Vec<u8> {
    let mut repaired = bytes.to_vec();
    if bytes.len() < HEADER_BYTES {
        return repaired;
    }
    let right = whole(&Lasting::new(limits(zones)), zones);
    repaired[..40].copy_from_slice(&right[..40]);
    repaired[HEADER_CHECKED_BYTES + 4..HEADER_BYTES].fill(0);
    let (held, extents) = (u64::from(u32_at(bytes, 40)), u64::from(u32_at(bytes, 44)));
    let end = usize::try_from(HEADER_BYTES as u64 + (held + extents) * ITEM_BYTES as u64).unwrap_or(usize::MAX);
    if let Some(body) = repaired.get(HEADER_BYTES..end) {
        let checksum = crc32c::crc32c(body);
        repaired[96..100].copy_from_slice(&checksum.to_le_bytes());
        let entries = end.next_multiple_of(512);
        if let Some(padding) = repaired.get_mut(end..entries) {
            padding.fill(0);
            for (number, entry) in repaired[entries..].chunks_exact_mut(ENTRY_BYTES).enumerate() {
                let mut bytes = [0; ENTRY_BYTES];
                bytes.copy_from_slice(entry);
                entry.copy_from_slice(&sealed(bytes, number as u32));
            }
        }
    }
    seal_header(&mut repaired);
    repaired
}
