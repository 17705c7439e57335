//! How much of a table a repair can read.

use super::tables::Tables;
use crate::error::{Error, ErrorKind};
use crate::file_name;
use crate::manifest::{Contents, Recovered};
use crate::media::FileMedia;
use crate::repair::{Condition, may_be_stale};
use crate::table::{LostKeys, SalvagedTable, Table};
use varve_store::{Finding, IoClass, IoContext, OpenOptions, Severity};

/// Lost ranges of keys of one table after which the rest is reported as one.
const LOST_RANGES_MAX: usize = 100;

/// The sound data blocks of table `number`. `None` when there are none.
///
/// Errors: those of the medium.
pub(super) fn find_blocks(
    media: &FileMedia,
    number: u64,
    contents: Option<&Contents>,
    io: &IoContext,
) -> Result<Option<SalvagedTable>, Error> {
    let file = media.files.open(&file_name::table(number), &OpenOptions::default())?;
    let likeliest = contents.and_then(|contents| contents.files.get(&number)).map(|file| file.table_id);
    let is_known = |id| contents.is_none_or(|contents| contents.files.values().any(|file| file.table_id == id));
    SalvagedTable::search(&*file, is_known, likeliest, io)
}

/// How much of table `number` can be read.
pub(super) fn table_condition(
    media: &FileMedia,
    tables: &Tables,
    number: u64,
    manifest: Option<&Recovered>,
) -> Condition {
    let name = file_name::table(number);
    let contents = manifest.map(|manifest| &manifest.contents);
    let opened = media
        .files
        .open(&name, &OpenOptions::default())
        .map_err(Error::from)
        .and_then(|file| tables.open_unlisted(number, file.size_bytes()));
    let is_needed = contents.is_none_or(|contents| contents.files.contains_key(&number));
    let context = IoContext::of(IoClass::Check);
    let (table, mut findings) = match opened {
        Ok(table) => {
            // Tables of this database that changed names are as good as ever; others are not its own.
            let table_id = table.identity().table_id;
            let is_known = |contents: &Contents| contents.files.values().any(|file| file.table_id == table_id);
            if is_needed && !contents.is_none_or(is_known) {
                return Condition::Unreadable(Error::Misplaced {
                    file: name,
                    structure: "table".to_owned(),
                    expected: "an id that the manifest has".to_owned(),
                    found: format!("id {table_id:016x}"),
                });
            }
            let findings = table.verify(context);
            if findings.is_empty() {
                return Condition::Sound;
            }
            (Some(table), findings)
        }
        Err(error) if !is_needed || error.kind() == ErrorKind::Foreign => return Condition::Unreadable(error),
        Err(error) => (None, vec![damage(&error)]),
    };
    match find_blocks(media, number, contents, &context) {
        Ok(Some(salvaged)) => {
            findings.extend(lost_keys(&name, &salvaged, contents, table.as_deref()));
            Condition::Damaged(findings)
        }
        Ok(None) => {
            let first = findings.into_iter().next().map_or_else(String::new, |finding| finding.message);
            Condition::Unreadable(no_sound_block(name, first))
        }
        Err(error) => Condition::Unreadable(error),
    }
}

fn damage(error: &Error) -> Finding {
    Finding { severity: Severity::Error, code: "table-damaged", message: error.to_string() }
}

fn no_sound_block(file: String, found: String) -> Error {
    let (structure, expected) = ("table".to_owned(), "data blocks with the right checksum".to_owned());
    Error::Corruption { file, offset_bytes: 0, structure, expected, found: format!("none: {found}") }
}

/// The ranges of keys of which entries are lost.
fn lost_keys(name: &str, salvaged: &SalvagedTable, contents: Option<&Contents>, table: Option<&Table>) -> Vec<Finding> {
    let file = contents
        .and_then(|contents| contents.files.values().find(|file| file.table_id == salvaged.table_id()))
        .map(|file| (file.smallest.as_slice(), file.largest.as_slice()));
    let own = table.map(|table| (table.properties().smallest.as_slice(), table.properties().largest.as_slice()));
    let mut lost = salvaged.lost(file.or(own));
    if lost.len() > LOST_RANGES_MAX {
        let before = lost.last().and_then(|range| range.before.clone());
        lost.truncate(LOST_RANGES_MAX);
        if let Some(last) = lost.last_mut() {
            last.before = before;
        }
    }
    let finding = |LostKeys { after, before }: &LostKeys| may_be_stale(name, after.as_deref(), before.as_deref());
    lost.iter().map(finding).collect()
}
