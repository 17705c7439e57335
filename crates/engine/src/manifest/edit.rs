//! Version edits: what changed in the shape of the tree.
//!
//! A manifest record is one edit:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | format, 2 |
//! | n | fields: tag (varint), length (varint), that many bytes |
//!
//! An odd tag must be understood: an unknown one means that a newer version wrote it. An unknown
//! even one is skipped. Integers are varints, strings have a varint length.
//!
//! | tag | field | bytes |
//! |---|---|---|
//! | 1 | comparator | its name |
//! | 3 | tree | its name |
//! | 5 | levels | number of levels, at most 255 |
//! | 7 | next file number | smallest number not used yet |
//! | 9 | last sequence | newest sequence number in tables, at least |
//! | 11 | log number | oldest log that recovery needs |
//! | 13 | removed table | level, number; any number of times |
//! | 15 | added table | see below; any number of times |
//! | 17 | totals | the numbers of [`Totals`], in its order, as they are with this edit |
//! | 19, 21, 23 | key space: whose the fields after it are, a new one, one that is gone | kept for them |
//! | 25 | flushed range | see [`FlushedRange`]; any number of times |
//! | 2 | compaction pointer | level, then the internal key the next compaction starts after; any number of times |
//!
//! An added table: level, number, size in bytes, entries, deletions, oldest and newest sequence
//! number, the table's id (8 bytes, as in its footer), smallest internal key (string), largest internal key
//! (string), then fields as above. Removals come before additions, so a table that changes its level, or of which less
//! counts than before, is in both.
//!
//! | tag | field of an added table | bytes |
//! |---|---|---|
//! | 1 | range deletes | kept for them |
//! | 3 | begin | user key from which on entries count, above the smallest key and at most the largest |
//!
//! A table has a begin while a merge reads it whose outputs, up to there, are in the tree already. A version that does not know it would
//! find entries again that the merge dropped.
//!
//! Totals are absolute, and none goes down. A version that does not know them would install jobs without counting them, so
//! the tag is odd. A manifest without them is of a database whose totals are not known.
//!
//! Flushed ranges add to those before, as far as they go beyond the last sequence. A version that does not know them would
//! take entries of logs for newer than tables are.

use super::flushed_ranges::FlushedRange;
use crate::encoding::{Damage, Decoder, append_string, append_varint};
use crate::file_name::NUMBER_MAX;
use crate::key::{self, KEY_BYTES_MAX, SEQUENCE_MAX, Sequence, TRAILER_BYTES};
use crate::statistics::Totals;

const FORMAT: u8 = 2;

const COMPARATOR: u64 = 1;
const TREE: u64 = 3;
const LEVELS: u64 = 5;
const NEXT_FILE_NUMBER: u64 = 7;
const LAST_SEQUENCE: u64 = 9;
const LOG_NUMBER: u64 = 11;
const REMOVED: u64 = 13;
const ADDED: u64 = 15;
const TOTALS: u64 = 17;
const FLUSHED_RANGE: u64 = 25;
const COMPACTION_POINTER: u64 = 2;

/// Of an added table.
const BEGIN: u64 = 3;

/// Longest name of a comparator or a tree, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A table that joins the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddedFile {
    pub(crate) level: u8,
    pub(crate) number: u64,
    pub(crate) size_bytes: u64,
    /// As in the table's footer.
    pub(crate) table_id: u64,
    /// Entries, deletions included.
    pub(crate) entries: u64,
    pub(crate) deletions: u64,
    pub(crate) oldest_sequence: Sequence,
    pub(crate) newest_sequence: Sequence,
    /// Smallest internal key.
    pub(crate) smallest: Vec<u8>,
    /// Largest internal key.
    pub(crate) largest: Vec<u8>,
    /// User key from which on its entries count; all of them without one.
    pub(crate) begin: Option<Vec<u8>>,
}

/// What changed. What is not said stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionEdit {
    pub(crate) comparator: Option<String>,
    pub(crate) tree: Option<String>,
    pub(crate) num_levels: Option<u8>,
    pub(crate) next_file_number: Option<u64>,
    pub(crate) last_sequence: Option<Sequence>,
    pub(crate) log_number: Option<u64>,
    /// Level and number.
    pub(crate) removed: Vec<(u8, u64)>,
    pub(crate) added: Vec<AddedFile>,
    pub(crate) totals: Option<Totals>,
    pub(crate) flushed: Vec<FlushedRange>,
    /// Level and internal key.
    pub(crate) compaction_pointers: Vec<(u8, Vec<u8>)>,
}

impl VersionEdit {
    /// The bytes of the edit. The same edit always has the same bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        let mut body = Vec::new();
        let mut field = |tag: u64, write: &dyn Fn(&mut Vec<u8>)| {
            body.clear();
            write(&mut body);
            append_varint(&mut out, tag);
            append_string(&mut out, &body);
        };
        if let Some(name) = &self.comparator {
            field(COMPARATOR, &|body| body.extend_from_slice(name.as_bytes()));
        }
        if let Some(name) = &self.tree {
            field(TREE, &|body| body.extend_from_slice(name.as_bytes()));
        }
        let numbers = [
            (LEVELS, self.num_levels.map(u64::from)),
            (NEXT_FILE_NUMBER, self.next_file_number),
            (LAST_SEQUENCE, self.last_sequence),
            (LOG_NUMBER, self.log_number),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                field(tag, &|body| append_varint(body, number));
            }
        }
        for (level, number) in &self.removed {
            field(REMOVED, &|body| {
                append_varint(body, u64::from(*level));
                append_varint(body, *number);
            });
        }
        for file in &self.added {
            field(ADDED, &|body| file.encode(body));
        }
        if let Some(totals) = &self.totals {
            field(TOTALS, &|body| totals.fields().iter().for_each(|(_, value)| append_varint(body, *value)));
        }
        for range in &self.flushed {
            field(FLUSHED_RANGE, &|body| range.encode(body));
        }
        for (level, key) in &self.compaction_pointers {
            field(COMPACTION_POINTER, &|body| {
                append_varint(body, u64::from(*level));
                append_string(body, key);
            });
        }
        out
    }

    /// The edit in a manifest record, validated as far as one edit can be.
    pub(crate) fn decode(record: &[u8]) -> Result<Self, Damage> {
        let mut decoder = Decoder::new(record);
        let format = decoder.byte("the format of an edit")?;
        if format != FORMAT {
            let (expected, found) = (format!("edit format {FORMAT}"), format!("format {format}"));
            let damage = Decoder::damage(0, expected, found);
            return Err(Damage { newer: format > FORMAT, older: format < FORMAT, ..damage });
        }
        let mut edit = VersionEdit::default();
        while !decoder.is_empty() {
            let start = decoder.position();
            let tag = decoder.varint("the tag of a field")?;
            let body = decoder.string(record.len(), "the field's length")?;
            let mut field = Decoder::new(body);
            edit.decode_field(tag, &mut field).map_err(|damage| within(damage, decoder.position() - body.len()))?;
            if !field.is_empty() {
                return Err(Decoder::damage(start, format!("the end of the field with tag {tag}"), "more bytes"));
            }
        }
        Ok(edit)
    }

    fn decode_field(&mut self, tag: u64, field: &mut Decoder<'_>) -> Result<(), Damage> {
        match tag {
            COMPARATOR => set(&mut self.comparator, name(field, "the comparator")?, "comparator"),
            TREE => set(&mut self.tree, name(field, "the tree")?, "tree"),
            LEVELS => set(&mut self.num_levels, level(field, "levels")?, "levels"),
            NEXT_FILE_NUMBER => {
                set(&mut self.next_file_number, field.varint_at_most(NUMBER_MAX, "a file number")?, "next file number")
            }
            LAST_SEQUENCE => {
                set(&mut self.last_sequence, field.varint_at_most(SEQUENCE_MAX, "sequence number")?, "last sequence")
            }
            LOG_NUMBER => set(&mut self.log_number, field.varint_at_most(NUMBER_MAX, "a log number")?, "log number"),
            REMOVED => {
                self.removed.push((level(field, "level")?, field.varint("a table number")?));
                Ok(())
            }
            ADDED => {
                self.added.push(AddedFile::decode(field)?);
                Ok(())
            }
            TOTALS => set(&mut self.totals, totals(field)?, "totals"),
            FLUSHED_RANGE => {
                self.flushed.push(FlushedRange::decode(field)?);
                Ok(())
            }
            COMPACTION_POINTER => {
                self.compaction_pointers.push((level(field, "level")?, internal_key(field, "compaction pointer")?));
                Ok(())
            }
            _ => skip(tag, field, &KEPT_TAGS),
        }
    }
}

impl AddedFile {
    fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            u64::from(self.level),
            self.number,
            self.size_bytes,
            self.entries,
            self.deletions,
            self.oldest_sequence,
            self.newest_sequence,
        ];
        for number in numbers {
            append_varint(out, number);
        }
        // Random, so that a varint would only make it longer.
        out.extend_from_slice(&self.table_id.to_le_bytes());
        append_string(out, &self.smallest);
        append_string(out, &self.largest);
        if let Some(begin) = &self.begin {
            append_varint(out, BEGIN);
            append_string(out, begin);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, Damage> {
        let mut file = AddedFile {
            level: level(decoder, "level")?,
            number: decoder.varint_at_most(NUMBER_MAX, "table number")?,
            size_bytes: decoder.varint("table size")?,
            entries: decoder.varint("entries")?,
            deletions: decoder.varint("deletions")?,
            oldest_sequence: decoder.varint_at_most(SEQUENCE_MAX, "oldest sequence number")?,
            newest_sequence: decoder.varint_at_most(SEQUENCE_MAX, "newest sequence number")?,
            table_id: decoder.fixed_u64("table id")?,
            smallest: internal_key(decoder, "smallest key")?,
            largest: internal_key(decoder, "largest key")?,
            begin: None,
        };
        let number = file.number;
        let contradiction = |expected: &str| {
            let found = format!("table {number} that contradicts this");
            Err(Decoder::damage(0, expected, found))
        };
        if key::compare(&file.smallest, &file.largest).is_gt() {
            return contradiction("a smallest key at or before the largest");
        }
        if file.oldest_sequence > file.newest_sequence {
            return contradiction("an oldest sequence number at or below the newest");
        }
        if file.deletions > file.entries {
            return contradiction("at most as many deletions as entries");
        }
        while !decoder.is_empty() {
            let tag = decoder.varint("the tag of a field")?;
            let start = decoder.position();
            let body = decoder.string(decoder.remaining(), "the field's length")?;
            match tag {
                BEGIN => set(&mut file.begin, body.to_vec(), "begin").map_err(|damage| within(damage, start))?,
                _ => {
                    skip(tag, &mut Decoder::new(body), &KEPT_TAGS_OF_TABLES).map_err(|damage| within(damage, start))?
                }
            }
        }
        let (smallest, largest) = (key::user_key(&file.smallest), key::user_key(&file.largest));
        if file.begin.as_deref().is_some_and(|begin| begin <= smallest || begin > largest) {
            return contradiction("a begin above the smallest key and not above the largest");
        }
        Ok(file)
    }
}

/// Moves damage found in a part to its place in the whole.
fn within(damage: Damage, start: usize) -> Damage {
    Damage { offset_bytes: damage.offset_bytes + start as u64, ..damage }
}

fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), Damage> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Decoder::damage(0, format!("{what} at most once"), "it twice")),
    }
}

/// What a tag of an edit is kept for (`docs/design/0005-range-deletes-and-key-spaces.md`).
const KEPT_TAGS: [(u64, &str); 3] = [(19, "key space"), (21, "new key space"), (23, "key space that is gone")];

/// What a tag of an added table is kept for.
const KEPT_TAGS_OF_TABLES: [(u64, &str); 1] = [(1, "range deletes of a table")];

/// An unknown field: skipped if it may be.
fn skip(tag: u64, field: &mut Decoder<'_>, kept: &[(u64, &str)]) -> Result<(), Damage> {
    if tag % 2 == 1 {
        let name =
            kept.iter().find(|(number, _)| *number == tag).map_or(String::new(), |(_, name)| format!(" ({name})"));
        let damage = Decoder::damage(0, "fields this version knows", format!("required field with tag {tag}{name}"));
        return Err(Damage { newer: true, ..damage });
    }
    field.bytes(field.remaining() as u64, "an unknown field").map(|_| ())
}

fn level(decoder: &mut Decoder<'_>, what: &str) -> Result<u8, Damage> {
    decoder.varint_at_most(u64::from(u8::MAX), what).map(|level| level as u8)
}

fn totals(decoder: &mut Decoder<'_>) -> Result<Totals, Damage> {
    let mut totals = Totals::default();
    for (name, value) in totals.fields_mut() {
        *value = decoder.varint(name)?;
    }
    Ok(totals)
}

fn name(decoder: &mut Decoder<'_>, what: &str) -> Result<String, Damage> {
    let bytes = decoder.bytes(decoder.remaining() as u64, what)?;
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= NAME_BYTES_MAX => Ok(text.to_string()),
        _ => Err(Decoder::damage(0, format!("{what} as at most {NAME_BYTES_MAX} bytes of UTF-8"), "other bytes")),
    }
}

fn internal_key(decoder: &mut Decoder<'_>, what: &str) -> Result<Vec<u8>, Damage> {
    let start = decoder.position();
    let key = decoder.string(KEY_BYTES_MAX + TRAILER_BYTES, what)?;
    if key.len() < TRAILER_BYTES {
        return Err(Decoder::damage(start, format!("{what} of at least {TRAILER_BYTES} bytes"), key.len().to_string()));
    }
    Ok(key.to_vec())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::key::EntryKind;

    pub(in crate::manifest) fn internal(user_key: &[u8], sequence: Sequence) -> Vec<u8> {
        let mut out = Vec::new();
        key::append_internal_key(&mut out, user_key, sequence, EntryKind::Put as u8);
        out
    }

    pub(in crate::manifest) fn file(level: u8, number: u64) -> AddedFile {
        AddedFile {
            level,
            number,
            size_bytes: 4096 * number,
            table_id: number << 32 | 7,
            entries: 100 + number,
            deletions: number % 7,
            oldest_sequence: 10 * number,
            newest_sequence: 10 * number + 9,
            smallest: internal(format!("key{number:06}a").as_bytes(), 10 * number),
            largest: internal(format!("key{number:06}z").as_bytes(), 10 * number + 9),
            begin: None,
        }
    }

    /// Totals that begin with `first` and differ.
    pub(in crate::manifest) fn totals(first: u64) -> Totals {
        let mut totals = Totals::default();
        (first..).zip(totals.fields_mut()).for_each(|(value, (_, total))| *total = value);
        totals
    }

    fn full() -> VersionEdit {
        VersionEdit {
            comparator: Some("bytewise".to_string()),
            tree: Some("leveled".to_string()),
            num_levels: Some(7),
            next_file_number: Some(300),
            last_sequence: Some(SEQUENCE_MAX),
            log_number: Some(0),
            removed: vec![(0, 5), (255, u64::MAX)],
            added: vec![file(1, 6), AddedFile { begin: Some(b"key000007k".to_vec()), ..file(6, 7) }],
            totals: Some(totals(300)),
            flushed: vec![FlushedRange { begin: b"f".to_vec(), end: None, sequence: 9 }],
            compaction_pointers: vec![(3, internal(b"p", 1))],
        }
    }

    #[test]
    fn edits_come_back() {
        for edit in [VersionEdit::default(), full()] {
            assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
        }
    }

    /// The bytes of the format; a change here is a change of the format.
    #[test]
    fn golden_edit() {
        let edit = VersionEdit {
            comparator: Some("bytewise".to_string()),
            next_file_number: Some(300),
            removed: vec![(2, 5)],
            added: vec![AddedFile {
                level: 1,
                number: 200,
                size_bytes: 1 << 20,
                table_id: 0x0807_0605_0403_0201,
                entries: 9,
                deletions: 2,
                oldest_sequence: 3,
                newest_sequence: 4,
                smallest: internal(b"a", 3),
                largest: internal(b"b", 4),
                begin: None,
            }],
            totals: Some(Totals {
                flush_jobs: 1,
                flush_user_entries: 2,
                flush_user_bytes: 3,
                flush_written_tables: 4,
                flush_written_bytes: 300,
                compactions: 6,
                trivial_moves: 7,
                compaction_read_tables: 8,
                compaction_read_bytes: 9,
                compaction_written_tables: 10,
                compaction_written_bytes: 11,
            }),
            flushed: vec![
                FlushedRange { begin: b"a".to_vec(), end: Some(b"b".to_vec()), sequence: 300 },
                FlushedRange { begin: b"c".to_vec(), end: None, sequence: 4 },
            ],
            ..VersionEdit::default()
        };
        let expected = [
            &[2, 1, 8][..],
            b"bytewise",
            &[7, 2, 0xac, 0x02],
            &[13, 2, 2, 5],
            &[15, 38, 1, 0xc8, 0x01, 0x80, 0x80, 0x40, 9, 2, 3, 4],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[9, b'a', 1, 3, 0, 0, 0, 0, 0, 0],
            &[9, b'b', 1, 4, 0, 0, 0, 0, 0, 0],
            &[17, 12, 1, 2, 3, 4, 0xac, 0x02, 6, 7, 8, 9, 10, 11],
            &[25, 6, 0xac, 0x02, 1, b'a', 1, b'b'],
            &[25, 3, 4, 1, b'c'],
        ]
        .concat();
        assert_eq!(edit.encode(), expected);
    }

    /// The bytes of a table that begins later.
    #[test]
    fn golden_begin() {
        let whole = VersionEdit { added: vec![AddedFile { number: 1, ..file(0, 1) }], ..VersionEdit::default() };
        let mut rest = whole.clone();
        rest.added[0].begin = Some(b"key000001k".to_vec());
        let (whole, rest) = (whole.encode(), rest.encode());
        let fields = [&[3, 10][..], b"key000001k"].concat();
        assert_eq!(rest[2], whole[2] + fields.len() as u8);
        assert_eq!(rest[3..], [&whole[3..], &fields].concat());
    }

    #[test]
    fn unknown_fields_are_skipped_or_newer() {
        let mut bytes = full().encode();
        append_varint(&mut bytes, 1000);
        append_string(&mut bytes, b"whatever");
        assert_eq!(VersionEdit::decode(&bytes), Ok(full()));
        append_varint(&mut bytes, 1001);
        append_string(&mut bytes, b"whatever");
        assert!(VersionEdit::decode(&bytes).unwrap_err().newer);
        for (tag, name) in KEPT_TAGS {
            let mut bytes = full().encode();
            append_varint(&mut bytes, tag);
            append_string(&mut bytes, b"\x01");
            let error = VersionEdit::decode(&bytes).unwrap_err().in_file("MANIFEST-000001", 0, "edit").to_string();
            assert!(error.contains(&format!("tag {tag} ({name}); it was written by a newer version")), "{error}");
        }
        for (tag, name) in KEPT_TAGS_OF_TABLES {
            let mut body = Vec::new();
            file(1, 6).encode(&mut body);
            append_varint(&mut body, tag);
            append_string(&mut body, b"\x01");
            let mut bytes = full().encode();
            append_varint(&mut bytes, ADDED);
            append_string(&mut bytes, &body);
            let error = VersionEdit::decode(&bytes).unwrap_err().in_file("MANIFEST-000001", 0, "edit").to_string();
            assert!(error.contains(&format!("tag {tag} ({name}); it was written by a newer version")), "{error}");
        }
        for format in [1, 3] {
            let mut other = full().encode();
            other[0] = format;
            let damage = VersionEdit::decode(&other).unwrap_err();
            assert_eq!((damage.newer, damage.older), (format > FORMAT, format < FORMAT));
        }

        let mut body = Vec::new();
        file(1, 6).encode(&mut body);
        for (tag, newer) in [(20, false), (21, true)] {
            let mut longer = body.clone();
            append_varint(&mut longer, tag);
            append_string(&mut longer, b"new");
            let mut bytes = vec![FORMAT];
            append_varint(&mut bytes, ADDED);
            append_string(&mut bytes, &longer);
            match VersionEdit::decode(&bytes) {
                Ok(edit) => assert_eq!((edit.added, newer), (vec![file(1, 6)], false)),
                Err(damage) => assert!(damage.newer && newer),
            }
        }
    }

    #[test]
    fn contradictions_are_damage() {
        let refuse = |change: fn(&mut VersionEdit)| {
            let mut edit = full();
            change(&mut edit);
            assert!(!VersionEdit::decode(&edit.encode()).unwrap_err().newer);
        };
        refuse(|edit| edit.added[0].smallest = internal(b"z", 1));
        refuse(|edit| edit.added[0].oldest_sequence = 1000);
        refuse(|edit| edit.added[0].deletions = 1000);
        refuse(|edit| edit.added[0].largest.truncate(7));
        refuse(|edit| edit.added[0].begin = Some(b"key000006a".to_vec()));
        refuse(|edit| edit.added[0].begin = Some(b"key000006zz".to_vec()));
        refuse(|edit| edit.added[0].begin = Some(Vec::new()));
        refuse(|edit| edit.last_sequence = Some(SEQUENCE_MAX + 1));
        refuse(|edit| edit.tree = Some("x".repeat(256)));
        refuse(|edit| edit.next_file_number = Some(NUMBER_MAX + 1));
        refuse(|edit| edit.log_number = Some(u64::MAX));
        refuse(|edit| edit.added[0].number = u64::MAX);
        // Not of the numbers there are.
        for numbers in [0, 10, 12] {
            let mut bytes = vec![FORMAT];
            append_varint(&mut bytes, TOTALS);
            append_string(&mut bytes, &vec![1; numbers]);
            assert!(!VersionEdit::decode(&bytes).unwrap_err().newer);
        }
        let twice = [&full().encode()[..], &full().encode()[1..]].concat();
        assert!(VersionEdit::decode(&twice).is_err());
    }

    #[test]
    fn every_shorter_record_is_an_error_and_no_changed_one_panics() {
        let bytes = full().encode();
        let whole: Vec<usize> = (0..bytes.len()).filter(|&at| VersionEdit::decode(&bytes[..at]).is_ok()).collect();
        // Only cuts between fields are edits, which is why a record has a checksum.
        assert!(whole.len() <= 13, "{whole:?}");
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[position] ^= 1 << bit;
                if let Ok(edit) = VersionEdit::decode(&changed) {
                    assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
                }
            }
        }
    }
}
