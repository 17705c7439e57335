//! Whose a file is.

use crate::error::Error;
use crate::file_name::FileName;
use crate::log;
use crate::table;
use varve_store::{FileStore, IoClass, IoContext, OpenOptions};

/// Whose bytes a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It begins or ends as ours do.
    Ours,
    /// It ends as tables of LevelDB or RocksDB do.
    LevelDbOrRocksDb,
    /// Nothing but zeros, or nothing.
    Blank,
    /// Other bytes.
    Unknown,
    /// The medium does not give them.
    Unreadable,
}

/// Whose a file is, by where its format says so.
pub(crate) fn origin(store: &dyn FileStore, name: FileName) -> Result<Origin, Error> {
    let file = store.open(&name.format(), &OpenOptions::default())?;
    let size = file.size_bytes();
    let context = IoContext::of(IoClass::Check);
    let mut head = vec![0; size.min(4096) as usize];
    file.read_at(0, &mut head, &context)?;
    let mut tail = vec![0; size.min(8) as usize];
    file.read_at(size - tail.len() as u64, &mut tail, &context)?;
    Ok(match name {
        _ if head.iter().chain(&tail).all(|&byte| byte == 0) => Origin::Blank,
        FileName::Log(_) | FileName::Manifest(_) if head.starts_with(log::MAGIC) => Origin::Ours,
        FileName::Table(_) if tail == table::MAGIC => Origin::Ours,
        FileName::Table(_) if LEVELDB_OR_ROCKSDB_TABLES.iter().any(|magic| tail == magic.to_le_bytes()) => {
            Origin::LevelDbOrRocksDb
        }
        _ => Origin::Unknown,
    })
}

/// Whether a file begins with `magic`.
pub(crate) fn begins_as(store: &dyn FileStore, name: &str, magic: &[u8]) -> bool {
    let mut head = vec![0; magic.len()];
    let read =
        store.open(name, &OpenOptions::default()).and_then(|file| match file.size_bytes() < magic.len() as u64 {
            true => Ok(()),
            false => file.read_at(0, &mut head, &IoContext::of(IoClass::Check)),
        });
    read.is_ok() && head == magic
}

/// Last eight bytes of tables: LevelDB and RocksDB until version 1 of its footer, RocksDB since, its plain tables.
const LEVELDB_OR_ROCKSDB_TABLES: [u64; 4] =
    [0xdb47_7524_8b80_fb57, 0x88e2_41b7_85f4_cff7, 0x4f34_18eb_7a8f_13b8, 0x8242_2296_63bf_9564];

/// What a table of another program is, for [`not_ours`].
pub(crate) const OF_OTHERS: &str = "a table of LevelDB or RocksDB";

/// The refusal of a file of another program.
pub(crate) fn not_ours(file: &str, found: &str) -> Error {
    Error::Foreign {
        file: file.to_owned(),
        offset_bytes: 0,
        expected: "files of a Varve database".to_owned(),
        found: found.to_owned(),
        advice: "nothing was changed; name a directory with a Varve database".to_owned(),
    }
}
