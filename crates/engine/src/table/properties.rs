//! What a table says about itself.
//!
//! Contents of the properties block: fields to the end, each
//!
//! | bytes | field |
//! |---|---|
//! | varint | `tag << 1 | required` |
//! | string | the value: varint length, bytes |
//!
//! in ascending order of tags. A reader skips a tag it does not know unless it is marked required.
//! Numbers are varints within their value.
//!
//! | tag | required | value |
//! |---|---|---|
//! | 1 | yes | number of entries |
//! | 2 | yes | number of data blocks |
//! | 3 | yes | largest data block before compression, trailer included, in bytes |
//! | 4 | yes | smallest internal key |
//! | 5 | yes | largest internal key |
//! | 6 | no | deletions among the entries |
//! | 7 | no | bytes of user keys with their 8-byte trailers |
//! | 8 | no | bytes of values |
//! | 9 | no | oldest sequence number |
//! | 10 | no | newest sequence number |
//! | 11 | no | bytes of data blocks |
//! | 12 | no | bytes of the index block |
//! | 13 | no | bytes of the filter block |
//! | 14 | no | multiple at which blocks begin and end; absent when they are not aligned |
//! | 15 | no | compression of data blocks, as in block trailers |
//! | 16 | no | number of the job that wrote it |
//! | 17 | no | level it was written for |
//! | 18 | no | distinct user keys |
//! | 19 | no | histogram of bytes over keys ([`super::histogram`]); absent when the tree needs none |
//! | 20, 21 | yes | kept for the block of range deletes, and the number of a key space; the footer's features say them first |

use super::histogram::Histogram;
use crate::encoding::{Damage, Decoder, append_string, append_varint};
use crate::key::{KEY_BYTES_MAX, Sequence, TRAILER_BYTES};

/// What a table says about itself. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableProperties {
    pub(crate) entries: u64,
    pub(crate) data_blocks: u64,
    pub(crate) largest_block_bytes: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    pub(crate) deletions: u64,
    pub(crate) raw_key_bytes: u64,
    pub(crate) raw_value_bytes: u64,
    pub(crate) oldest_sequence: Sequence,
    pub(crate) newest_sequence: Sequence,
    pub(crate) data_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) filter_bytes: u64,
    /// 1 when blocks are not aligned.
    pub(crate) block_align: u64,
    /// As in block trailers.
    pub(crate) compression: u64,
    pub(crate) job: Option<u64>,
    pub(crate) level: Option<u64>,
    pub(crate) distinct_keys: u64,
    /// Empty when the table has none.
    pub(crate) histogram: Histogram,
    /// Why the table has no histogram although there is one. Everything else of it is as good as ever.
    pub(crate) histogram_damage: Option<Damage>,
}

const TAG_ENTRIES: u64 = 1;
const TAG_DATA_BLOCKS: u64 = 2;
const TAG_LARGEST_BLOCK_BYTES: u64 = 3;
const TAG_SMALLEST: u64 = 4;
const TAG_LARGEST: u64 = 5;
const TAG_DELETIONS: u64 = 6;
const TAG_RAW_KEY_BYTES: u64 = 7;
const TAG_RAW_VALUE_BYTES: u64 = 8;
const TAG_OLDEST_SEQUENCE: u64 = 9;
const TAG_NEWEST_SEQUENCE: u64 = 10;
const TAG_DATA_BYTES: u64 = 11;
const TAG_INDEX_BYTES: u64 = 12;
const TAG_FILTER_BYTES: u64 = 13;
const TAG_BLOCK_ALIGN: u64 = 14;
const TAG_COMPRESSION: u64 = 15;
const TAG_JOB: u64 = 16;
const TAG_LEVEL: u64 = 17;
const TAG_DISTINCT_KEYS: u64 = 18;
const TAG_HISTOGRAM: u64 = 19;

fn append_field(out: &mut Vec<u8>, tag: u64, required: bool, value: &[u8]) {
    append_varint(out, tag << 1 | u64::from(required));
    append_string(out, value);
}

fn append_number(out: &mut Vec<u8>, tag: u64, required: bool, value: u64) {
    let mut bytes = Vec::new();
    append_varint(&mut bytes, value);
    append_field(out, tag, required, &bytes);
}

impl TableProperties {
    /// Contents of the properties block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        append_number(&mut out, TAG_ENTRIES, true, self.entries);
        append_number(&mut out, TAG_DATA_BLOCKS, true, self.data_blocks);
        append_number(&mut out, TAG_LARGEST_BLOCK_BYTES, true, self.largest_block_bytes);
        append_field(&mut out, TAG_SMALLEST, true, &self.smallest);
        append_field(&mut out, TAG_LARGEST, true, &self.largest);
        for (tag, value) in [
            (TAG_DELETIONS, self.deletions),
            (TAG_RAW_KEY_BYTES, self.raw_key_bytes),
            (TAG_RAW_VALUE_BYTES, self.raw_value_bytes),
            (TAG_OLDEST_SEQUENCE, self.oldest_sequence),
            (TAG_NEWEST_SEQUENCE, self.newest_sequence),
            (TAG_DATA_BYTES, self.data_bytes),
            (TAG_INDEX_BYTES, self.index_bytes),
            (TAG_FILTER_BYTES, self.filter_bytes),
        ] {
            append_number(&mut out, tag, false, value);
        }
        if self.block_align > 1 {
            append_number(&mut out, TAG_BLOCK_ALIGN, false, self.block_align);
        }
        append_number(&mut out, TAG_COMPRESSION, false, self.compression);
        if let Some(job) = self.job {
            append_number(&mut out, TAG_JOB, false, job);
        }
        if let Some(level) = self.level {
            append_number(&mut out, TAG_LEVEL, false, level);
        }
        append_number(&mut out, TAG_DISTINCT_KEYS, false, self.distinct_keys);
        if !self.histogram.is_empty() {
            append_field(&mut out, TAG_HISTOGRAM, false, &self.histogram.encode());
        }
        out
    }

    /// Decodes the contents of a properties block.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut properties = TableProperties { block_align: 1, ..TableProperties::default() };
        let mut decoder = Decoder::new(bytes);
        let mut seen = 0u64;
        let mut last_tag = None;
        while !decoder.is_empty() {
            let start = decoder.position();
            let tagged = decoder.varint("property tag")?;
            let tag = tagged >> 1;
            if last_tag.is_some_and(|last| tag <= last) {
                return Err(Decoder::damage(start, "property tags in ascending order", format!("tag {tag}")));
            }
            last_tag = Some(tag);
            let value_at = decoder.position();
            let value = decoder.string(bytes.len(), "property")?;
            let number = || {
                let mut inner = Decoder::new(value);
                let number = inner.varint("property").ok().filter(|_| inner.is_empty());
                number.ok_or_else(|| {
                    Decoder::damage(value_at, format!("a number as property {tag}"), value.escape_ascii().to_string())
                })
            };
            match tag {
                TAG_ENTRIES => properties.entries = number()?,
                TAG_DATA_BLOCKS => properties.data_blocks = number()?,
                TAG_LARGEST_BLOCK_BYTES => properties.largest_block_bytes = number()?,
                TAG_SMALLEST => properties.smallest = internal_key(value, value_at)?,
                TAG_LARGEST => properties.largest = internal_key(value, value_at)?,
                TAG_DELETIONS => properties.deletions = number()?,
                TAG_RAW_KEY_BYTES => properties.raw_key_bytes = number()?,
                TAG_RAW_VALUE_BYTES => properties.raw_value_bytes = number()?,
                TAG_OLDEST_SEQUENCE => properties.oldest_sequence = number()?,
                TAG_NEWEST_SEQUENCE => properties.newest_sequence = number()?,
                TAG_DATA_BYTES => properties.data_bytes = number()?,
                TAG_INDEX_BYTES => properties.index_bytes = number()?,
                TAG_FILTER_BYTES => properties.filter_bytes = number()?,
                TAG_BLOCK_ALIGN => properties.block_align = number()?,
                TAG_COMPRESSION => properties.compression = number()?,
                TAG_JOB => properties.job = Some(number()?),
                TAG_LEVEL => properties.level = Some(number()?),
                TAG_DISTINCT_KEYS => properties.distinct_keys = number()?,
                TAG_HISTOGRAM => match Histogram::decode(value) {
                    Ok(histogram) => properties.histogram = histogram,
                    Err(damage) => {
                        let offset_bytes = damage.offset_bytes + value_at as u64;
                        properties.histogram_damage = Some(Damage { offset_bytes, ..damage });
                    }
                },
                _ if tagged & 1 == 0 => {}
                _ => {
                    let mut damage =
                        Decoder::damage(start, "properties this version knows", format!("required property {tag}"));
                    damage.newer = true;
                    return Err(damage);
                }
            }
            if tag < 64 {
                seen |= 1 << tag;
            }
        }
        for tag in [TAG_ENTRIES, TAG_DATA_BLOCKS, TAG_LARGEST_BLOCK_BYTES, TAG_SMALLEST, TAG_LARGEST] {
            if seen & (1 << tag) == 0 {
                return Err(Decoder::damage(bytes.len(), format!("property {tag}"), "the end"));
            }
        }
        Ok(properties)
    }
}

fn internal_key(value: &[u8], at: usize) -> Result<Vec<u8>, Damage> {
    if (TRAILER_BYTES..=KEY_BYTES_MAX + TRAILER_BYTES).contains(&value.len()) {
        return Ok(value.to_vec());
    }
    Err(Decoder::damage(at, "an internal key of 8 to 65,544 bytes", format!("{} bytes", value.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn sample() -> TableProperties {
        TableProperties {
            entries: 300,
            data_blocks: 5,
            largest_block_bytes: 4197,
            smallest: b"a\x01\x05\0\0\0\0\0\0".to_vec(),
            largest: b"z\x01\x06\0\0\0\0\0\0".to_vec(),
            deletions: 2,
            raw_key_bytes: 2700,
            raw_value_bytes: 9000,
            oldest_sequence: 5,
            newest_sequence: 304,
            data_bytes: 9999,
            index_bytes: 40,
            filter_bytes: 461,
            block_align: 4096,
            compression: 1,
            job: Some(7),
            level: Some(0),
            distinct_keys: 299,
            histogram: Histogram::default(),
            histogram_damage: None,
        }
    }

    #[test]
    fn properties_are_these_bytes() {
        let bytes = sample().encode();
        assert_eq!(bytes[..12], [3, 2, 0xac, 0x02, 5, 1, 5, 7, 2, 0xe5, 0x20, 9]);
        assert_eq!(bytes[12..22], *b"\x09a\x01\x05\0\0\0\0\0\0");
        assert_eq!(crate::checksum::crc32c(&bytes), GOLDEN_CHECKSUM, "{bytes:?}");
        assert_eq!(TableProperties::decode(&bytes).expect("sound"), sample());
    }

    /// Once it made the whole table unreadable.
    #[test]
    fn a_histogram_that_cannot_be_decoded_leaves_the_rest_readable() {
        let mut bytes = sample().encode();
        let at = bytes.len() as u64;
        append_field(&mut bytes, TAG_HISTOGRAM, false, &[10, 7, 1, b'a']);
        let found = TableProperties::decode(&bytes).expect("the rest is sound");
        let damage = found.histogram_damage.clone().expect("damage");
        assert!(damage.offset_bytes > at, "{damage:?}");
        assert_eq!(TableProperties { histogram_damage: None, ..found }, sample());
    }

    const GOLDEN_CHECKSUM: u32 = 3_229_314_411;

    #[test]
    fn unknown_properties_are_skipped_unless_required() {
        let mut bytes = sample().encode();
        append_field(&mut bytes, 900, false, b"from the future");
        assert_eq!(TableProperties::decode(&bytes).expect("skipped"), sample());
        append_field(&mut bytes, 901, true, b"from the future");
        assert!(TableProperties::decode(&bytes).expect_err("required").newer);
    }

    #[test]
    fn missing_and_repeated_properties_are_refused() {
        assert!(TableProperties::decode(&[]).is_err());
        let bytes = sample().encode();
        assert!(TableProperties::decode(&bytes[4..]).is_err(), "entries missing");
        assert!(TableProperties::decode(&[&bytes[..], &bytes[..]].concat()).is_err(), "repeated");
    }

    #[test]
    fn any_bytes_are_refused_or_decoded() {
        let bytes = sample().encode();
        for seed in 0..3000 {
            let mut random = Random::seeded(seed);
            let mut damaged = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let position = random.index(damaged.len());
                damaged[position] = random.next_u64() as u8;
            }
            damaged.truncate(random.index(damaged.len() * 2).max(1));
            if let Ok(properties) = TableProperties::decode(&damaged) {
                assert!(properties.smallest.len() >= TRAILER_BYTES);
            }
        }
    }
}
