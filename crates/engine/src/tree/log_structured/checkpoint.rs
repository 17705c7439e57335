//! A copy of the present database, sharing tables where both stores can. Tables that are copied are verified on the way.

use super::parts::TreeParts;
use crate::error::Error;
use crate::file_name;
use crate::inventory::{NO_LOG, copy, new_database_id, refuse_target};
use crate::shape::Version;
use crate::statistics::Totals;
use crate::table::CopiedTable;
use varve_store::{CreateOptions, FileKind, FileStore, IoClass, IoContext};

/// Writes the tables of `version` and a manifest that names them into `target`. The
/// memtables were flushed just before, so this holds everything written before the call; of what
/// is written meanwhile it holds nothing. Whoever holds the version keeps its tables from being removed.
pub(super) fn write(parts: &TreeParts, version: &Version, target: &dyn FileStore) -> Result<(), Error> {
    refuse_target(&parts.files.media, target)?;
    let context = IoContext::of(IoClass::Maintenance);
    let mut highest = 0;
    let mut last_sequence = 0;
    for (level, file) in version.files() {
        let name = file_name::table(file.number);
        highest = highest.max(file.number);
        last_sequence = last_sequence.max(file.newest_sequence);
        if !parts.files.media.files.share(&name, &target.properties().location, &name)? {
            let options = CreateOptions { kind: FileKind::Table, level: Some(level as u8), ..CreateOptions::default() };
            let table = parts.files.tables.get_for(file, &context)?;
            let mut check = CopiedTable::new(&table);
            copy(&*parts.files.media.files, &name, target, &name, options, &context, &mut |bytes| check.take(bytes))?;
            check.finish()?;
        }
    }
    target.sync_names()?;
    // From here on both go their own ways: nothing was done to the new one yet.
    let totals = Some(Totals::default());
    let edit = parts.catalog.snapshot_edit(version, NO_LOG, highest + 2, last_sequence, totals);
    let id = new_database_id(&parts.files.env, target);
    parts.catalog.prepare_manifest(&parts.files, target, id, highest + 1, &edit)?.switch(target)
}
