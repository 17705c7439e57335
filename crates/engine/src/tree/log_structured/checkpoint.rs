//! A copy of the database as it is now, sharing tables where both stores can.

use super::recovery::NO_LOG;
use super::shared::{Shared, new_database_id, snapshot_edit};
use crate::error::Error;
use crate::file_name;
use crate::statistics::Totals;
use varve_store::{CreateOptions, FileKind, FileStore, IoClass, IoContext, Location, OpenOptions};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Writes the tables of the newest version and a manifest that names them into `target`. The
/// memtables were flushed just before, so this holds everything written before the call; of what
/// is written meanwhile it holds nothing.
pub(super) fn write(shared: &Shared, target: &dyn FileStore) -> Result<(), Error> {
    for source in std::iter::once(&shared.media.files).chain(&shared.media.logs) {
        refuse_inside(&**source, target)?;
    }
    if let Some(entry) = target.list()?.first() {
        return Err(Error::InvalidArgument {
            what: format!("checkpoint into {}", target.name()),
            reason: format!("it is not empty: it holds '{}'", entry.name),
        });
    }
    // Holding the version keeps its tables from being removed.
    let version = shared.read_state.load().version.clone();
    let context = IoContext::of(IoClass::Maintenance);
    let mut highest = 0;
    let mut last_sequence = 0;
    for (level, file) in version.files() {
        let name = file_name::table(file.number);
        highest = highest.max(file.number);
        last_sequence = last_sequence.max(file.newest_sequence);
        if !shared.media.files.share(&name, &target.properties().location, &name)? {
            let options = CreateOptions { kind: FileKind::Table, level: Some(level as u8), ..CreateOptions::default() };
            copy(&*shared.media.files, &name, target, &name, options, &context)?;
        }
    }
    target.sync_names()?;
    // From here on both go their own ways: nothing was done to the new one yet.
    let totals = Some(Totals::default());
    let edit = snapshot_edit(&version, NO_LOG, highest + 2, last_sequence, totals, &*shared.policy);
    shared.prepare_manifest(target, new_database_id(&shared.env, target), highest + 1, &edit)?.switch(target)
}

/// Errs when `target` is the directory of `source` or within it: a copy there goes when the database goes.
fn refuse_inside(source: &dyn FileStore, target: &dyn FileStore) -> Result<(), Error> {
    match (&source.properties().location, &target.properties().location) {
        (Location::Directory(of_source), Location::Directory(of_target)) if of_target.starts_with(of_source) => {
            Err(Error::InvalidArgument {
                what: format!("checkpoint into {}", target.name()),
                reason: format!(
                    "'{}' is within '{}', the directory of the database; name one outside of it",
                    of_target.display(),
                    of_source.display()
                ),
            })
        }
        _ => Ok(()),
    }
}

/// Copies a file, durably.
pub(super) fn copy(
    from: &dyn FileStore,
    name: &str,
    to: &dyn FileStore,
    copy_name: &str,
    options: CreateOptions,
    context: &IoContext,
) -> Result<(), Error> {
    let source = from.open(name, &OpenOptions::default())?;
    let size = source.size_bytes();
    let mut copy = to.create(copy_name, &CreateOptions { expected_size_bytes: Some(size), ..options })?;
    let mut buffer = vec![0; COPY_BYTES.min(size as usize)];
    let mut offset = 0;
    while offset < size {
        let length = buffer.len().min((size - offset) as usize);
        source.read_at(offset, &mut buffer[..length], context)?;
        copy.append(&buffer[..length], context)?;
        offset += length as u64;
    }
    copy.sync(context)?;
    Ok(copy.finish(context)?)
}
