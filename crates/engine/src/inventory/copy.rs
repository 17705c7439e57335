//! Copies of files.

use crate::error::Error;
use crate::media::FileMedia;
use varve_store::{CreateOptions, FileStore, IoContext, Location, OpenOptions};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Errs when `target` is not a place for a copy of the database on `media`: it must be empty, and outside of it.
pub(crate) fn refuse_target(media: &FileMedia, target: &dyn FileStore) -> Result<(), Error> {
    for source in media.stores() {
        refuse_inside(&**source, target)?;
    }
    match target.list()?.first() {
        Some(entry) => Err(Error::InvalidArgument {
            what: format!("checkpoint into {}", target.name()),
            reason: format!("it is not empty: it holds '{}'", entry.name),
        }),
        None => Ok(()),
    }
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

/// Copies a file, durably. `check` gets all its bytes in order, a part at a time, before they are written.
///
/// Errors: those of the stores, and of `check`.
pub(crate) fn copy(
    from: &dyn FileStore,
    name: &str,
    to: &dyn FileStore,
    copy_name: &str,
    options: CreateOptions,
    context: &IoContext,
    check: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let source = from.open(name, &OpenOptions::default())?;
    let size = source.size_bytes();
    let mut copy = to.create(copy_name, &CreateOptions { expected_size_bytes: Some(size), ..options })?;
    let mut buffer = vec![0; COPY_BYTES.min(size as usize)];
    let mut offset = 0;
    while offset < size {
        let length = buffer.len().min((size - offset) as usize);
        source.read_at(offset, &mut buffer[..length], context)?;
        check(&buffer[..length])?;
        copy.append(&buffer[..length], context)?;
        offset += length as u64;
    }
    copy.sync(context)?;
    Ok(copy.finish(context)?)
}
