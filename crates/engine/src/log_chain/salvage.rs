//! What can be read of a log when something is damaged.

use crate::batch::BatchRecord;
use crate::error::Error;
use crate::file_name;
use crate::log::{LogReader, Purpose};
use varve_store::{FileStore, OpenOptions};

/// How much of a log could be read.
pub(crate) enum Salvaged {
    Whole,
    /// Up to this.
    UpTo(Error),
    Nothing(Error),
}

/// Gives every batch of log `number` to `apply`, in order, up to the end or the first damage. Where nothing said of which
/// `database` logs are, that of the first one is taken for it.
///
/// Errors: what `apply` fails with; what the log fails with is the result.
pub(crate) fn salvage_log(
    store: &dyn FileStore,
    number: u64,
    database: &mut Option<u64>,
    apply: &mut dyn FnMut(&BatchRecord<'_>) -> Result<(), Error>,
) -> Result<Salvaged, Error> {
    let name = file_name::log(number);
    let opened = store.open(&name, &OpenOptions::default()).map_err(Error::from).and_then(|file| {
        let reader = LogReader::open(file, &name, Purpose::WriteAhead, number)?;
        *database = database.or(reader.header().map(|header| header.database));
        database.map_or(Ok(()), |database| reader.expect_database(database))?;
        Ok(reader)
    });
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return Ok(Salvaged::Nothing(error)),
    };
    loop {
        match reader.next() {
            Ok(None) => return Ok(Salvaged::Whole),
            Ok(Some(record)) => match BatchRecord::decode(record.data) {
                Ok(batch) => apply(&batch)?,
                Err(damage) => return Ok(Salvaged::UpTo(damage.in_file(&name, record.offset_bytes, "batch"))),
            },
            Err(error) => return Ok(Salvaged::UpTo(error)),
        }
    }
}
