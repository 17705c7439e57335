//! The files of a database in its stores: which there are, which are needed, whose they are, which are strays.

mod beside_writer;
mod copy;
mod origin;
mod recovery;
mod strays;

pub(crate) use crate::log_chain::NO_LOG;
pub(crate) use beside_writer::read_beside_writer;
pub(crate) use copy::{copy, refuse_target};
pub(crate) use origin::{OF_OTHERS, Origin, begins_as, not_ours, origin};
pub(crate) use recovery::{ApplyBatch, RecoveredLogs, logs_from, recover_manifest};
pub(crate) use strays::{Needed, remove_strays};

use crate::error::Error;
use crate::file_name::{self, FileName};
use crate::log_chain::open_log;
use crate::media::{FileMedia, check_absent};
use varve_env::Env;
use varve_store::{FileEntry, FileStore, StoreLock};

/// A number for the database that is being made on `files`: no other has it.
pub(crate) fn new_database_id(env: &Env, files: &dyn FileStore) -> u64 {
    // An env's streams are the same for all databases it opens, so what tells those apart is in the name.
    env.random(&format!("database of {} at {}", files.name(), env.now().as_nanos())).next_u64()
}

/// Files of a database without the one that names its manifest are a database that lost it, not a place for a new one.
pub(crate) fn refuse_orphans(media: &FileMedia, file_names: &[FileName], logs: &[u64]) -> Result<(), Error> {
    check_absent(&*media.files, file_name::CURRENT)?;
    if let Some(orphan) = file_names.iter().find(|name| matches!(name, FileName::Table(_) | FileName::Manifest(_)))
        && file_names.iter().any(|name| matches!(name, FileName::Table(_)))
    {
        let is_of_others = |name: &&FileName| {
            matches!(name, FileName::Table(_))
                && origin(&*media.files, **name).is_ok_and(|origin| origin == Origin::LevelDbOrRocksDb)
        };
        if let Some(other) = file_names.iter().find(is_of_others) {
            return Err(not_ours(&other.format(), OF_OTHERS));
        }
        return Err(Error::Corruption {
            file: file_name::CURRENT.to_owned(),
            offset_bytes: 0,
            structure: "database".to_owned(),
            expected: format!("a file {} beside '{}'", file_name::CURRENT, orphan.format()),
            found: "none".to_owned(),
        });
    }
    for &number in logs {
        let name = file_name::log(number);
        if open_log(&**media.log_store(), number)?.next()?.is_some() {
            return Err(Error::Corruption {
                file: file_name::CURRENT.to_owned(),
                offset_bytes: 0,
                structure: "database".to_owned(),
                expected: format!("a file {} beside '{name}', which holds writes", file_name::CURRENT),
                found: "none".to_owned(),
            });
        }
    }
    Ok(())
}

/// No file of a database has a larger number.
pub(crate) fn highest_number(media: &FileMedia) -> Result<u64, Error> {
    let mut highest = 0;
    for store in media.stores() {
        highest = names(&store.list()?).iter().filter_map(FileName::number).fold(highest, u64::max);
    }
    Ok(highest)
}

/// Locks the stores of a database.
pub(crate) fn lock(media: &FileMedia) -> Result<Vec<Box<dyn StoreLock>>, Error> {
    Ok(media.stores().map(|store| store.lock(file_name::LOCK)).collect::<Result<_, _>>()?)
}

/// Numbers of the logs among `names`, ascending.
pub(crate) fn log_numbers(names: &[FileName]) -> Vec<u64> {
    let number = |name: &FileName| if let FileName::Log(number) = name { Some(*number) } else { None };
    let mut logs: Vec<u64> = names.iter().filter_map(number).collect();
    logs.sort_unstable();
    logs
}

/// Files of a database in a listing.
pub(crate) fn names(listing: &[FileEntry]) -> Vec<FileName> {
    listing.iter().filter_map(|entry| FileName::parse(&entry.name)).collect()
}
