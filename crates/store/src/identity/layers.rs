//! Marks of the layers below stores: relocation of zones, and the write buffer of a disk with zones.
//!
//! Both lie at the start of one of the last zones of a disk, so their place depends on the size of a zone. Where the device
//! reports no zones, or others than it was made with, the sizes that disks have are tried, then the end of the device is
//! searched. Relocation marks the first sector as well while no logical zone lies there.

use varve_media::{
    ARRAY_MEMBER_MARK, AlignedBuffer, LAYER_JOURNAL_MARK, LAYER_NAME_OFFSET, RELOCATION_LAYER,
    RELOCATION_MARK_VERSION_1, RELOCATION_UNIT_BYTES, WRITE_BUFFER_MARK, ZoneGeometry,
};

pub(super) const BUFFER_NAME: &str = "the write buffer of a disk (Varve)";
pub(super) const BUFFERED_DISK_NAME: &str = "a disk with a write buffer (Varve)";
pub(super) const ARRAY_MEMBER_NAME: &str = "a member of an array (Varve)";
const RELOCATED_DISK_NAME: &str = "a disk with relocated zones (relocate=on)";

pub(super) const ADVICE_OF_OTHERS: &str =
    "choose another device, or format this one with overwrite and lose what it holds";

/// Zones at the end of a disk that may hold a mark.
const MARKED_ZONES: u64 = 2;
/// Bytes read at the start of a zone, at most. The second copy of the first record of relocation lies in the first
/// MiB on disks of up to 200,000 zones.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Bytes read where the zones of the disk are not known.
const READ_BYTES: u64 = 64 << 10;
/// Sizes of zones that are tried: these multiples of the powers of two from 8 KiB to 16 GiB. With
/// less the mark in the last 4 KiB of a buffer's device would be taken for that of a disk.
const MULTIPLES: [u64; 2] = [1, 3];
const POWERS: std::ops::RangeInclusive<u32> = 13..=34;

/// Bytes at the end of a device that are searched whole: those of the last zones of up to a third of it, whatever their size.
const SEARCHED_BYTES: u64 = 64 << 20;
/// Bytes read at once in that search.
const SEARCH_STEP_BYTES: u64 = 1 << 20;
/// Bytes at the end of a device of which each whole MiB is looked at: those of the last zones of up to 256 MiB.
const SAMPLED_BYTES: u64 = 768 << 20;
/// Bytes looked at in each of them.
const SAMPLE_BYTES: u64 = 16 << 10;

/// A mark of a layer on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerMark {
    /// Role of the device.
    pub name: &'static str,
    /// Option of a spec that opens the device with this layer: `relocate`, or `buffer`.
    pub option: &'static str,
    /// How it is opened.
    pub advice: &'static str,
    /// Where the mark is.
    pub offset_bytes: u64,
}

/// Says how to open what has this name.
pub(super) fn advice(name: &str) -> &'static str {
    match name {
        BUFFER_NAME => {
            "open the disk it belongs to, and name it there with the option buffer=; or format it with overwrite and \
             lose the newest writes to that disk"
        }
        BUFFERED_DISK_NAME => {
            "open it together with its buffer, with the option buffer=; or format it with overwrite and lose what it holds"
        }
        ARRAY_MEMBER_NAME => {
            "open the array with all its members, as in raid5:(dev:/dev/sdb+dev:/dev/sdc+dev:/dev/sdd); or format it with \
             overwrite and lose its part of that array"
        }
        RELOCATED_DISK_NAME => {
            "open it as a disk with these zones, with the option relocate=on; or format it with overwrite and lose what \
             it holds"
        }
        _ => ADVICE_OF_OTHERS,
    }
}

/// The name of the layer whose mark is in the bytes at the start of a zone.
fn named(bytes: &[u8], is_last_zone: bool) -> Option<(&'static str, u64)> {
    if is_last_zone && bytes.starts_with(WRITE_BUFFER_MARK) {
        return Some((BUFFERED_DISK_NAME, 0));
    }
    // One copy of a record may be damaged: the other one is behind it.
    let mut units = bytes.chunks(RELOCATION_UNIT_BYTES as usize);
    let position = units.position(|unit| {
        let is_record = unit.starts_with(LAYER_JOURNAL_MARK)
            && unit.get(LAYER_NAME_OFFSET..).is_some_and(|layer| layer.starts_with(RELOCATION_LAYER));
        is_record || unit.starts_with(RELOCATION_MARK_VERSION_1)
    })?;
    Some((RELOCATED_DISK_NAME, position as u64 * RELOCATION_UNIT_BYTES))
}

/// The name of a layer whose mark begins a device.
pub(super) fn at_start(first_bytes: &[u8]) -> Option<&'static str> {
    named(first_bytes.get(..RELOCATION_UNIT_BYTES as usize)?, false).map(|(name, _)| name)
}

/// Reads the bytes at an offset of a device; false where that is not possible.
pub(super) type Read<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> bool;

/// A device that is searched for marks.
struct Search<'a> {
    capacity_bytes: u64,
    alignment_bytes: u32,
    read: Read<'a>,
}

impl Search<'_> {
    fn bytes(&mut self, at: u64, length: u64) -> Option<AlignedBuffer> {
        // Whole units, so that they are whole sectors.
        let length = length.min(self.capacity_bytes.saturating_sub(at)) / RELOCATION_UNIT_BYTES * RELOCATION_UNIT_BYTES;
        let mut bytes = AlignedBuffer::new(length as usize, self.alignment_bytes.max(1) as usize);
        (length > 0 && (self.read)(at, &mut bytes)).then_some(bytes)
    }

    fn mark(name: &'static str, offset_bytes: u64) -> LayerMark {
        let option = if name == RELOCATED_DISK_NAME { "relocate" } else { "buffer" };
        LayerMark { name, option, advice: advice(name), offset_bytes }
    }

    fn is_array_member(&mut self) -> bool {
        self.bytes(0, RELOCATION_UNIT_BYTES).is_some_and(|bytes| bytes.starts_with(ARRAY_MEMBER_MARK))
    }

    fn first_sector(&mut self) -> Option<LayerMark> {
        let bytes = self.bytes(0, RELOCATION_UNIT_BYTES)?;
        at_start(&bytes).map(|name| Search::mark(name, 0))
    }

    /// Looks at the start of the last zones.
    fn last_zones(&mut self, zone_bytes: u64, count: u64, read_bytes: u64) -> Option<LayerMark> {
        for before in 1..=MARKED_ZONES.min(count) {
            let at = (count - before) * zone_bytes;
            // The start of a device is not the end of a disk: a buffer's device begins with its own mark.
            let found = if at == 0 { None } else { self.bytes(at, read_bytes.min(zone_bytes)) };
            if let Some((name, within)) = found.and_then(|bytes| named(&bytes, before == 1)) {
                return Some(Search::mark(name, at + within));
            }
        }
        None
    }

    /// Looks for marks in whole units of a part of the device. The last unit of a buffer's device has the mark of that.
    fn part(&mut self, at: u64, length: u64) -> Option<LayerMark> {
        let last_unit = (self.capacity_bytes / RELOCATION_UNIT_BYTES).saturating_sub(1) * RELOCATION_UNIT_BYTES;
        let bytes = self.bytes(at, length)?;
        let units = (at..).step_by(RELOCATION_UNIT_BYTES as usize).zip(bytes.chunks(RELOCATION_UNIT_BYTES as usize));
        let mut inner = units.filter(|(at, _)| *at > 0 && *at < last_unit);
        inner.find_map(|(at, unit)| named(unit, true).map(|(name, _)| Search::mark(name, at)))
    }

    /// Searches the end of the device. The last mark is that of the disk: others may be data.
    fn end(&mut self) -> Option<LayerMark> {
        let whole = self.capacity_bytes.saturating_sub(SEARCHED_BYTES) / SEARCH_STEP_BYTES * SEARCH_STEP_BYTES;
        let sampled = self.capacity_bytes.saturating_sub(SAMPLED_BYTES) / SEARCH_STEP_BYTES * SEARCH_STEP_BYTES;
        let steps = |places: std::ops::Range<u64>| places.step_by(SEARCH_STEP_BYTES as usize);
        let mut places: Vec<(u64, u64)> = steps(sampled..whole).map(|at| (at, SAMPLE_BYTES)).collect();
        places.extend(steps(whole..self.capacity_bytes).map(|at| (at, SEARCH_STEP_BYTES)));
        places.reverse();
        places.into_iter().find_map(|(at, length)| self.part(at, length))
    }
}

/// The mark of a layer on a device; `read` fills a buffer and says whether that was possible. With `searches_end` the end of
/// the device is searched where no size of a zone leads to a mark: up to 64 MiB are read, and 16 KiB of each MiB of as many
/// as 704 before them.
pub(super) fn find(
    capacity_bytes: u64,
    zones: Option<&ZoneGeometry>,
    alignment_bytes: u32,
    searches_end: bool,
    read: Read<'_>,
) -> Option<LayerMark> {
    let mut search = Search { capacity_bytes, alignment_bytes, read };
    if search.is_array_member() {
        // Marks on it are those of layers over the array.
        return None;
    }
    if let Some(zones) = zones
        && let Some(found) = search.last_zones(zones.zone_bytes, zones.zone_count.into(), READ_BYTES_MAX)
    {
        return Some(found);
    }
    let sizes = POWERS.flat_map(|power| MULTIPLES.map(|multiple| multiple << power));
    let mut counted = sizes.map(|zone_bytes| (zone_bytes, capacity_bytes / zone_bytes));
    search
        .first_sector()
        .or_else(|| counted.find_map(|(zone_bytes, count)| search.last_zones(zone_bytes, count, READ_BYTES)))
        .or_else(|| if searches_end { search.end() } else { None })
}

/// Finds the mark of a layer on a device whose zones are not known. `read` fills a buffer with the bytes at an offset
/// and says whether that was possible. Reads a hundred places at most. With `searches_end`, and where the first sector is
/// blank, the end of the device is searched too if no mark is in these places: up to 64 MiB, and 16 KiB of each MiB of as
/// many as 704 before them.
pub fn find_layer_mark(
    capacity_bytes: u64,
    searches_end: bool,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<LayerMark> {
    let mut first = [0; RELOCATION_UNIT_BYTES as usize];
    let is_blank = read(0, &mut first) && varve_media::is_zero(&first);
    find(capacity_bytes, None, 1, searches_end || is_blank, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Vec<u8> {
        let mut record = LAYER_JOURNAL_MARK.to_vec();
        record.resize(LAYER_NAME_OFFSET, 0);
        record.extend_from_slice(RELOCATION_LAYER);
        record
    }

    fn found(image: &[u8], zones: Option<&ZoneGeometry>) -> Option<(&'static str, u64)> {
        let mut read = |at: u64, bytes: &mut [u8]| {
            bytes.copy_from_slice(&image[at as usize..][..bytes.len()]);
            true
        };
        find(image.len() as u64, zones, 512, true, &mut read).map(|mark| (mark.name, mark.offset_bytes))
    }

    /// In either of the last two zones, in either copy, and with a rest behind the last whole zone.
    #[test]
    fn finds_marks_at_the_start_of_the_last_zones() {
        for (capacity_bytes, zone_bytes) in [(16 << 20, 1 << 20), (48 << 20, 4 << 20), ((48 << 20) + 4096, 3 << 20)] {
            let zones = ZoneGeometry::fit(capacity_bytes, zone_bytes).unwrap();
            let last = zones.start_bytes(varve_media::ZoneId(zones.zone_count - 1));
            let mut image = vec![0; capacity_bytes as usize];
            for known in [None, Some(&zones)] {
                assert_eq!(found(&image, known), None);
                for at in [last, last - zone_bytes, last + 4096] {
                    let mark = record();
                    image[at as usize..][..mark.len()].copy_from_slice(&mark);
                    assert_eq!(found(&image, known), Some((RELOCATED_DISK_NAME, at)), "{capacity_bytes} {known:?}");
                    // Another layer's journal is none of relocation.
                    image[at as usize + LAYER_NAME_OFFSET] = b'W';
                    assert_eq!(found(&image, known), None);
                    image[at as usize..][..mark.len()].fill(0);
                }
                image[last as usize..][..8].copy_from_slice(WRITE_BUFFER_MARK);
                assert_eq!(found(&image, known), Some((BUFFERED_DISK_NAME, last)));
                image[last as usize..][..8].fill(0);
            }
        }
    }

    /// Zones of other sizes are found by a search of the end, of whole units in its last 64 MiB and of whole MiB before it.
    #[test]
    fn finds_marks_of_zones_of_other_sizes() {
        let unit = RELOCATION_UNIT_BYTES;
        for (zone_bytes, count) in [(5 << 18, 24), ((1 << 20) + unit, 20), (21 << 20, 5), (37 << 20, 4), (100 << 20, 3)]
        {
            let capacity_bytes = zone_bytes * count;
            for (before, mark, name) in [
                (1, record(), RELOCATED_DISK_NAME),
                (2, record(), RELOCATED_DISK_NAME),
                (1, WRITE_BUFFER_MARK.to_vec(), BUFFERED_DISK_NAME),
            ] {
                let at = (count - before) * zone_bytes;
                let mut read = |from: u64, bytes: &mut [u8]| {
                    bytes.fill(0);
                    let end = from + bytes.len() as u64;
                    if (from..end).contains(&at) {
                        bytes[(at - from) as usize..][..mark.len()].copy_from_slice(&mark);
                    }
                    true
                };
                let found = find(capacity_bytes, None, 512, true, &mut read);
                let found = found.map(|mark| (mark.name, mark.offset_bytes));
                assert_eq!(found, Some((name, at)), "{zone_bytes} {before}");
            }
        }
    }

    #[test]
    fn finds_the_mark_in_the_first_sector() {
        let mut image = vec![0; 4 << 20];
        image[..record().len()].copy_from_slice(&record());
        assert_eq!(found(&image, None), Some((RELOCATED_DISK_NAME, 0)));
        // What lies on a member of an array is the array's.
        let last = image.len() - (1 << 20);
        image[last..][..record().len()].copy_from_slice(&record());
        assert_eq!(found(&image, None), Some((RELOCATED_DISK_NAME, 0)));
        image[..ARRAY_MEMBER_MARK.len()].copy_from_slice(ARRAY_MEMBER_MARK);
        assert_eq!(found(&image, None), None);
        image[last..].fill(0);
        // A write buffer's device begins with its own mark.
        image[..WRITE_BUFFER_MARK.len()].copy_from_slice(WRITE_BUFFER_MARK);
        assert_eq!(found(&image, None), None);
    }
}
