//! The stores, each with the same budget.

mod fjall;
mod leveldb;
mod leveldb_library;
mod lmdb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
mod varve;

use crate::quiet::Rested;
use ::varve::env::Env;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use varve_lab::target::{NullTarget, Target, TargetError};

/// Memtable size of every store.
pub(crate) const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// Memtables of every store that can choose: the one being filled and one being flushed.
pub(crate) const WRITE_BUFFERS: usize = 2;

/// Threads for flushes and compactions of every store that can choose.
pub(crate) const BACKGROUND_THREADS: usize = 2;

/// Filter bits per key.
pub(crate) const FILTER_BITS: u32 = 10;

/// Size of a data block before it is cut.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Why RocksDB cannot be run by a program built without its feature.
const WITHOUT_ROCKSDB: &str = "this program was built without it (cargo's feature `rocksdb`)";

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Varve,
    RocksDb,
    /// Told to verify the checksum of every block it reads, as the others do.
    LevelDb,
    /// LevelDB as it is unless told otherwise: it verifies no checksums of blocks.
    LevelDbUnverified,
    Fjall,
    /// No log-structured store, but the mark for reads.
    Lmdb,
    /// Does nothing: what it costs is the harness.
    Null,
}

impl Engine {
    /// The stores that are compared unless others are asked for.
    pub(crate) const ALL: [Engine; 5] = [Engine::Varve, Engine::RocksDb, Engine::LevelDb, Engine::Fjall, Engine::Lmdb];

    /// Every one.
    const KNOWN: [Engine; 7] = [
        Engine::Varve,
        Engine::RocksDb,
        Engine::LevelDb,
        Engine::LevelDbUnverified,
        Engine::Fjall,
        Engine::Lmdb,
        Engine::Null,
    ];

    /// Whether it can read tables past the page cache.
    pub(crate) fn reads_directly(self) -> bool {
        matches!(self, Engine::Varve | Engine::RocksDb)
    }

    /// Whether puts come one to a transaction at a price that others do not pay: such a store is loaded by batches of ascending
    /// keys, and fills no large data by single puts.
    pub(crate) fn loads_by_batches(self) -> bool {
        self == Engine::Lmdb
    }

    /// Opens the store in `directory`, creating it when it is not there.
    pub(crate) fn open(self, directory: &Path, budget: Budget) -> Result<Arc<dyn Target>, TargetError> {
        Ok(match self {
            Engine::Varve => Rested::shared(varve::open(directory, budget)?),
            #[cfg(feature = "rocksdb")]
            Engine::RocksDb => Rested::shared(rocksdb::RocksDbTarget::open(directory, budget)?),
            #[cfg(not(feature = "rocksdb"))]
            Engine::RocksDb => return Err(WITHOUT_ROCKSDB.into()),
            Engine::LevelDb => Rested::shared(leveldb::LevelDbTarget::open(directory, budget, true)?),
            Engine::LevelDbUnverified => Rested::shared(leveldb::LevelDbTarget::open(directory, budget, false)?),
            Engine::Fjall => Rested::shared(fjall::FjallTarget::open(directory, budget)?),
            Engine::Lmdb => Rested::shared(lmdb::LmdbTarget::open(directory)?),
            Engine::Null => Rested::shared(NullTarget::new(&Env::real())),
        })
    }

    /// Why the store cannot be run here; `None` when it can.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Engine::LevelDb | Engine::LevelDbUnverified => {
                leveldb_library::Library::get().err().map(|error| error.to_string())
            }
            Engine::RocksDb if !cfg!(feature = "rocksdb") => Some(WITHOUT_ROCKSDB.to_owned()),
            _ => None,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Varve => "varve",
            Engine::RocksDb => "rocksdb",
            Engine::LevelDb => "leveldb",
            Engine::LevelDbUnverified => "leveldb-unverified",
            Engine::Fjall => "fjall",
            Engine::Lmdb => "lmdb",
            Engine::Null => "null",
        })
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Engine, String> {
        Engine::KNOWN.into_iter().find(|engine| engine.to_string() == text).ok_or_else(|| {
            let names: Vec<String> = Engine::KNOWN.iter().map(ToString::to_string).collect();
            format!("'{text}' is none of {}", names.join(", "))
        })
    }
}

/// What a store may use besides the constants above.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// A memtable.
    pub(crate) write_buffer_bytes: usize,
    /// Bits of a filter for a key; 0 for no filter.
    pub(crate) filter_bits: u32,
    /// Block cache.
    pub(crate) cache_bytes: usize,
    /// Read tables past the page cache.
    pub(crate) direct_reads: bool,
}
