//! Verifies a whole table.

use super::filter::key_hash;
use super::iterator::{Readahead, TableIteratorOptions};
use super::reader::{KeyOrder, Table};
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use std::cmp::Ordering;
use std::sync::Arc;
use varve_store::{Finding, IoContext, Severity};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Findings after which a table is only said to have more.
const FINDINGS_MAX: usize = 100;

/// What the entries of a table amount to.
#[derive(Default)]
struct Totals {
    entries: u64,
    deletions: u64,
    distinct_keys: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    oldest_sequence: Option<u64>,
    newest_sequence: u64,
}

impl Table {
    /// Reads everything and checks it: checksums, structure, order, that every key is where the index and
    /// the filter say, and that the properties are true. Costs as much as a scan; changes nothing.
    pub(crate) fn verify(self: &Arc<Self>, io: IoContext) -> Vec<Finding> {
        let mut verifier = Verifier { table: self, findings: Vec::new() };
        verifier.walk(io);
        verifier.findings
    }
}

struct Verifier<'a> {
    table: &'a Arc<Table>,
    findings: Vec<Finding>,
}

impl Verifier<'_> {
    fn find(&mut self, code: &'static str, message: String) {
        match self.findings.len().cmp(&FINDINGS_MAX) {
            Ordering::Less => {
                let message = format!("table '{}': {message}", self.table.name());
                self.findings.push(Finding { severity: Severity::Error, code, message });
            }
            Ordering::Equal => {
                let message = format!("table '{}': more of the same kinds", self.table.name());
                self.findings.push(Finding { severity: Severity::Error, code: "table-more", message });
            }
            Ordering::Greater => {}
        }
    }

    fn walk(&mut self, io: IoContext) {
        let table = self.table.clone();
        let mut walk = table.iterator(TableIteratorOptions {
            fill_cache: false,
            verify_checksums: true,
            order: KeyOrder::Any,
            readahead: Readahead::Fixed { bytes: READ_BYTES },
            io,
        });
        if let Some(damage) = &table.properties().histogram_damage {
            let message = format!(
                "the histogram is damaged at {} of the properties: expected {}, found {}",
                damage.offset_bytes, damage.expected, damage.found
            );
            self.find("table-histogram", message);
        }
        let mut totals = Totals::default();
        let mut last: Vec<u8> = Vec::new();
        let mut all_read = true;
        let mut block = 0;
        while block < table.index.blocks() {
            walk.seek_to_block(block);
            if let Err(error) = walk.status() {
                all_read = false;
                let offset = table.index.handle(block).offset_bytes;
                self.find("table-block", format!("block {block} at {offset} cannot be read: {error}"));
            }
            // A walk goes on to the next block by itself; one that fails is found above.
            while walk.valid() && walk.block_number() == block {
                self.entry(block, walk.key(), walk.value().len(), &mut last, &mut totals);
                walk.next();
            }
            block += 1;
        }
        if all_read {
            self.totals(&totals, &last);
        }
    }

    fn entry(&mut self, block: usize, internal: &[u8], value_length: usize, last: &mut Vec<u8>, totals: &mut Totals) {
        let (user, trailer) = (key::user_key(internal), key::trailer(internal));
        if totals.entries > 0 && key::compare(last, internal) != Ordering::Less {
            let message =
                format!("block {block}: key {} is not after {}", internal.escape_ascii(), last.escape_ascii());
            self.find("table-order", message);
        }
        if self.table.index.find(user, trailer) != block {
            self.find(
                "table-index",
                format!("block {block}: the index looks for {} elsewhere", internal.escape_ascii()),
            );
        }
        if totals.entries == 0 || key::user_key(last) != user {
            totals.distinct_keys += 1;
            if self.table.filter.as_ref().is_some_and(|filter| !filter.may_contain(key_hash(user))) {
                self.find("table-filter", format!("block {block}: the filter denies key {}", user.escape_ascii()));
            }
        }
        match EntryKind::from_number(trailer as u8) {
            Some(EntryKind::Delete) => totals.deletions += 1,
            Some(EntryKind::Put) => {}
            None => {
                let message =
                    format!("block {block}: key {} is of unknown kind {}", user.escape_ascii(), trailer as u8);
                self.find("table-kind", message);
            }
        }
        totals.entries += 1;
        totals.raw_key_bytes += internal.len() as u64;
        totals.raw_value_bytes += value_length as u64;
        totals.oldest_sequence = Some(totals.oldest_sequence.map_or(trailer >> 8, |oldest| oldest.min(trailer >> 8)));
        totals.newest_sequence = totals.newest_sequence.max(trailer >> 8);
        if totals.entries == 1 && internal != self.table.properties.smallest.as_slice() {
            let said = self.table.properties.smallest.escape_ascii().to_string();
            self.find("table-properties", format!("smallest key is {}, not {said}", internal.escape_ascii()));
        }
        last.clear();
        last.extend_from_slice(internal);
    }

    fn totals(&mut self, totals: &Totals, last: &[u8]) {
        let properties = self.table.properties.clone();
        for (name, said, counted) in [
            ("entries", properties.entries, totals.entries),
            ("deletions", properties.deletions, totals.deletions),
            ("distinct keys", properties.distinct_keys, totals.distinct_keys),
            ("bytes of keys", properties.raw_key_bytes, totals.raw_key_bytes),
            ("bytes of values", properties.raw_value_bytes, totals.raw_value_bytes),
            ("oldest sequence", properties.oldest_sequence, totals.oldest_sequence.unwrap_or(0)),
            ("newest sequence", properties.newest_sequence, totals.newest_sequence),
            ("bytes of data", properties.data_bytes, self.table.index.data_end()),
        ] {
            if said != counted {
                self.find("table-properties", format!("{name}: properties say {said}, there are {counted}"));
            }
        }
        if last != properties.largest.as_slice() {
            let message = format!("largest key is {}, not {}", last.escape_ascii(), properties.largest.escape_ascii());
            self.find("table-properties", message);
        }
    }
}
