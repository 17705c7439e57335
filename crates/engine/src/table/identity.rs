//! Which table a table is.

use crate::error::Error;
use crate::key::Sequence;

/// What tells a table from every other, as the manifest has it and as the table itself says.
///
/// The id alone would do: it is drawn at random for every table. The rest is compared because it costs nothing and
/// whatever plans and readers assume about a table rests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableIdentity<'a> {
    pub(crate) table_id: u64,
    pub(crate) entries: u64,
    pub(crate) deletions: u64,
    pub(crate) oldest_sequence: Sequence,
    pub(crate) newest_sequence: Sequence,
    /// Smallest internal key.
    pub(crate) smallest: &'a [u8],
    /// Largest internal key.
    pub(crate) largest: &'a [u8],
}

impl TableIdentity<'_> {
    /// An error unless table `name`, which says `found` of itself, is this one.
    pub(crate) fn expect(&self, found: &TableIdentity<'_>, name: &str) -> Result<(), Error> {
        if self == found {
            return Ok(());
        }
        let id = |id: u64| format!("id {id:016x}");
        let key = |key: &[u8]| format!("'{}'", key[..key.len().min(KEY_BYTES_SHOWN)].escape_ascii());
        let differences = [
            ("", id(self.table_id), id(found.table_id)),
            ("entries ", self.entries.to_string(), found.entries.to_string()),
            ("deletions ", self.deletions.to_string(), found.deletions.to_string()),
            ("oldest sequence number ", self.oldest_sequence.to_string(), found.oldest_sequence.to_string()),
            ("newest sequence number ", self.newest_sequence.to_string(), found.newest_sequence.to_string()),
            ("smallest key ", key(self.smallest), key(found.smallest)),
            ("largest key ", key(self.largest), key(found.largest)),
        ];
        let (what, expected, found) =
            differences.into_iter().find(|(_, expected, found)| expected != found).unwrap_or_default();
        Err(Error::Misplaced {
            file: name.to_owned(),
            structure: "table".to_owned(),
            expected: format!("{what}{expected}, as the manifest says"),
            found: format!("{what}{found}"),
        })
    }
}

/// Of a key in a message.
const KEY_BYTES_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told() {
        let one = TableIdentity {
            table_id: 0xabc,
            entries: 9,
            deletions: 1,
            oldest_sequence: 3,
            newest_sequence: 7,
            smallest: b"a",
            largest: b"z",
        };
        assert!(one.expect(&one, "000001.sst").is_ok());
        let others = [
            (TableIdentity { table_id: 0xabd, ..one }, "expected id 0000000000000abc, as the manifest says"),
            (TableIdentity { entries: 8, ..one }, "found entries 8"),
            (TableIdentity { deletions: 0, ..one }, "found deletions 0"),
            (TableIdentity { oldest_sequence: 2, ..one }, "found oldest sequence number 2"),
            (TableIdentity { newest_sequence: 8, ..one }, "found newest sequence number 8"),
            (TableIdentity { smallest: b"b", ..one }, "found smallest key 'b'"),
            (TableIdentity { largest: b"y", ..one }, "found largest key 'y'"),
        ];
        for (other, said) in others {
            let error = one.expect(&other, "000001.sst").unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Corruption);
            assert!(error.to_string().contains(said), "{error}");
            assert!(error.to_string().contains("000001.sst"), "{error}");
        }
    }
}
