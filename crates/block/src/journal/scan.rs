//! Which records an area of a journal has, and what is wrong with it. Pure.

use super::Flaw;
use super::record::{self, Found, Header, Owner, Role};
use std::ops::Range;

/// The bytes of an area, whole units, and which of the units could not be read.
pub(crate) struct AreaBytes {
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) unreadable: Vec<bool>,
}

/// A sound copy of a record: where it begins, and where its payload is.
#[derive(Clone, Debug)]
struct Copy {
    at: usize,
    header: Header,
    payload: Range<usize>,
}

/// A record of the newest generation of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) at: usize,
    pub(crate) role: Role,
    pub(crate) payload: Range<usize>,
}

/// Records of one area.
pub(crate) struct Scanned {
    /// The newest generation of which anything is sound.
    pub(crate) generation: Option<u64>,
    /// Its records, of the first on; what is wrong with them.
    pub(crate) records: Result<Vec<Listed>, Flaw>,
    /// Where the next one would begin.
    pub(crate) end: usize,
    /// A copy of a record is not sound.
    pub(crate) has_damage: bool,
    pub(crate) other_version: Option<u32>,
    /// Units that could not be read, and others at which an unsound record begins.
    unreadable: Vec<usize>,
    unsound: Vec<usize>,
    offset_bytes: u64,
}

impl Scanned {
    /// Looks at an area. `parity` is that of its generations.
    pub(crate) fn of(owner: &Owner, area: &AreaBytes, unit: usize, parity: u64) -> Scanned {
        let (mut copies, mut unsound, mut unreadable) = (Vec::<Copy>::new(), Vec::new(), Vec::new());
        let mut other_version = None;
        let mut at = 0;
        while at + unit <= area.bytes.len() {
            if area.unreadable.get(at / unit).copied().unwrap_or(false) {
                unreadable.push(at);
                at += unit;
                continue;
            }
            match record::decode(owner, &area.bytes[at..], unit) {
                Found::Record(header, payload) if header.generation % 2 == parity => {
                    let start = at + record::HEADER_BYTES;
                    copies.push(Copy { at, header, payload: start..start + payload.len() });
                    at += record::copy_bytes(payload.len() as u64, unit as u64) as usize;
                    continue;
                }
                Found::OtherVersion(found) => other_version = other_version.or(Some(found)),
                Found::Record(..) | Found::Unsound => unsound.push(at),
                Found::Other => {}
            }
            at += unit;
        }
        let generation = copies.iter().map(|copy| copy.header.generation).max();
        let mut scanned = Scanned {
            generation,
            records: Ok(Vec::new()),
            end: 0,
            has_damage: false,
            other_version,
            unreadable,
            unsound,
            offset_bytes: area.offset_bytes,
        };
        if let Some(generation) = generation {
            copies.retain(|copy| copy.header.generation == generation);
            scanned.records = scanned.list(generation, &copies, unit);
        }
        scanned
    }

    /// Lists the records of a generation by their sound copies, in the order in which these lie.
    fn list(&mut self, generation: u64, copies: &[Copy], unit: usize) -> Result<Vec<Listed>, Flaw> {
        let mut listed = Vec::<Listed>::new();
        let mut rest = copies;
        while let Some((first, others)) = rest.split_first() {
            let place = listed.len() as u32;
            let length = record::copy_bytes(first.payload.len() as u64, unit as u64) as usize;
            let is_second = first.at == self.end + length;
            if first.header.place != place || !(first.at == self.end || is_second) {
                return Err(Flaw {
                    what: "record",
                    offset_bytes: self.offset_bytes + self.end as u64,
                    expected: format!("record {place} of generation {generation}"),
                    found: format!("none that is sound, and record {} behind it", first.header.place),
                });
            }
            rest = others;
            match others.split_first() {
                Some((second, others)) if second.header.place == place && !is_second => rest = others,
                _ => self.has_damage = true,
            }
            listed.push(Listed { at: first.at, role: first.header.role, payload: first.payload.clone() });
            self.end += length * 2;
        }
        Ok(listed)
    }

    /// A place at which an acknowledged record may lie that neither of its copies shows: both would be at bad places, the
    /// first of them where the records end. One bad place hides no record, as copies lie apart.
    pub(crate) fn hidden(&self) -> Option<u64> {
        let is_unreadable = self.unreadable.contains(&self.end);
        let is_unsound = self.unsound.contains(&self.end);
        let others = |bad: &[usize]| bad.iter().any(|at| *at > self.end);
        let hides = is_unreadable && (others(&self.unreadable) || others(&self.unsound))
            || is_unsound && others(&self.unreadable);
        hides.then_some(self.offset_bytes + self.end as u64)
    }

    /// True if some of its content is, or may be, part of a journal.
    pub(crate) fn has_anything(&self) -> bool {
        self.generation.is_some() || !self.unreadable.is_empty() || !self.unsound.is_empty()
    }

    /// First unit that could not be read.
    pub(crate) fn first_unreadable(&self) -> Option<u64> {
        self.unreadable.first().map(|at| self.offset_bytes + *at as u64)
    }
}
