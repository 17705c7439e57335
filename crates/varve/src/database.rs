//! The database people use.

use crate::batch::WriteBatch;
use crate::builder::DatabaseBuilder;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::image::{ImageSource, MediaImage};
use crate::iter::Iter;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::spec::Spec;
use crate::stack::{Stack, StackBuilder};
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use varve_engine::{Choice, Db, OptionWithoutEffect, Statistics, Totals, Value, WriteOptions};
use varve_env::Env;
use varve_store::Finding;

/// An ordered key-value database and the media it stands on.
///
/// Keys are byte strings up to 64 KiB in byte order; values are byte strings up to 4 GiB - 1. Both are taken as whatever
/// is bytes: `&str`, `&[u8]`, `Vec<u8>`, arrays; nothing is copied on the way to the batch they are written in.
///
/// Cloning is cheap and gives another handle of the same database; all calls may come from any
/// thread. Snapshots and iterators are handles as well. The last handle to go closes it; [`Varve::close`] does so at once,
/// and tells whether it went well.
///
/// A write that returned is visible to every later read. A write with [`WriteOptions::sync`] that
/// returned survives a power cut; one without survives the end of the process.
///
/// ```
/// # fn main() -> varve::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("db");
/// // let path = "/var/lib/varve";
/// let db = varve::Varve::open(&path)?;
/// db.put("layer", "light")?;
/// assert_eq!(db.get("layer")?.as_deref(), Some(&b"light"[..]));
/// db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Varve {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: the database writes until it is closed.
    db: Db,
    stack: Stack,
    unsaved: Option<Error>,
    choices: Vec<Choice>,
}

/// Opening and closing.
impl Varve {
    /// Opens the database in the directory at `path`, in the real world and with default options, making both when they
    /// are not there.
    ///
    /// # Errors
    /// See [`DatabaseBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Varve> {
        Varve::builder().open(path)
    }

    /// Opens the database on the medium `spec`, in the real world and with default options, making it when there is none.
    ///
    /// ```
    /// # fn main() -> varve::Result<()> {
    /// // A disk that is not there, in real time.
    /// let db = varve::Varve::open_spec(&"ram:64MiB".parse()?)?;
    /// db.put("layer", "light")?;
    /// db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`DatabaseBuilder::open_spec`].
    pub fn open_spec(spec: &Spec) -> Result<Varve> {
        Varve::builder().open_spec(spec)
    }

    /// Opens with choices.
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::default()
    }

    pub(crate) fn of_parts(db: Db, stack: Stack, unsaved: Option<Error>, choices: Vec<Choice>) -> Varve {
        Varve { inner: Arc::new(Inner { db, stack, unsaved, choices }) }
    }

    /// Stops background work, closes the database for all its handles, and tells whether that went well. The others
    /// answer [`ErrorKind::Closed`](crate::ErrorKind::Closed) afterwards; the medium is given back when the last of them is
    /// dropped.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(self) -> Result<()> {
        self.inner.db.close()?;
        self.inner.stack.flush_traces()
    }
}

/// What it leaves behind.
impl Varve {
    /// Closes it, and gives what its devices hold then, for others to [begin with](DatabaseBuilder::begin_with). What was to be
    /// flushed or compacted still is to be.
    ///
    /// # Errors
    /// Those of [`Varve::close`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) where not every device is an
    /// emulated one with `backing=compressed` and no overlapping tracks, or while there are other handles.
    pub fn close_into_image(self) -> Result<MediaImage> {
        let source = ImageSource::of(self.stack())?;
        self.inner.db.close()?;
        self.inner.stack.flush_traces()?;
        let Some(inner) = Arc::into_inner(self.inner) else {
            let (what, reason) = ("handles".to_owned(), "there are others, which hold its medium".to_owned());
            return Err(varve_engine::Error::InvalidArgument { what, reason }.into());
        };
        // Stores write what they hold when nobody has them open any more.
        drop(inner);
        source.image()
    }
}

/// Writing.
impl Varve {
    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when key or value is too long; `NoSpace`, after
    /// waiting for space, when the medium is full; `ReadOnly` and `Closed`; `Poisoned` since a failure that left the medium
    /// unknown; `Io` when the medium fails now.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.inner.db.put(key.as_ref(), value.as_ref())?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// As [`Varve::put`].
    #[inline]
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        Ok(self.inner.db.put_with(key.as_ref(), value.as_ref(), options)?)
    }

    /// Removes a key; removing one that is not there is no error.
    ///
    /// # Errors
    /// As [`Varve::put`].
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.inner.db.delete(key.as_ref())?)
    }

    /// Removes a key; removing one that is not there is no error.
    ///
    /// # Errors
    /// As [`Varve::put`].
    #[inline]
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        Ok(self.inner.db.delete_with(key.as_ref(), options)?)
    }

    /// Applies a batch atomically, entries in order.
    ///
    /// # Errors
    /// As [`Varve::put`].
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// Applies a batch atomically, entries in order. An empty one with [`WriteOptions::sync`] makes what was written before
    /// durable.
    ///
    /// # Errors
    /// As [`Varve::put`].
    pub fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        Ok(self.inner.db.write(batch.into_engine(), options)?)
    }
}

/// Reading. A [`Snapshot`] has the same calls.
impl Varve {
    /// Value of a key, if it has one, without copying it out of the block cache: keep it briefly, or copy it with
    /// [`Value::into_vec`].
    ///
    /// # Errors
    /// `Corruption` (see [`Error::kind`]) when what was read is not what was written, `Io` when the medium fails, `Closed`.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// Value of a key, if it has one.
    ///
    /// # Errors
    /// As [`Varve::get`].
    #[inline]
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        Ok(self.inner.db.get_with(key.as_ref(), &options.of_keys(None))?)
    }

    /// Values of many keys, in the order asked, all as of one moment.
    ///
    /// # Errors
    /// Of each key, as [`Varve::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// Values of many keys, in the order asked, all as of one moment.
    ///
    /// # Errors
    /// Of each key, as [`Varve::get`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Vec<Result<Option<Value>>> {
        self.multi_get_at(keys, &options.of_keys(None))
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &varve_engine::ReadOptions<'_>,
    ) -> Vec<Result<Option<Value>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let slices: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let values = self.inner.db.multi_get(&slices, options);
        values.into_iter().map(|value| value.map_err(Error::from)).collect()
    }

    /// All pairs in the order of their keys, as of now, from either end.
    ///
    /// ```
    /// # fn main() -> varve::Result<()> {
    /// # let db = varve::Varve::open_spec(&"ram:64MiB".parse()?)?;
    /// db.put("a", "first")?;
    /// db.put("z", "last")?;
    /// for pair in db.iter() {
    ///     let (key, value) = pair?;
    ///     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// let (key, _) = db.iter().next_back().expect("there are two")?;
    /// assert_eq!(key, "z");
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter(&self) -> Iter {
        self.snapshot().iter()
    }

    /// The pairs between the bounds of `options`, as of now.
    pub fn iter_with(&self, options: &ReadOptions) -> Iter {
        self.snapshot().iter_with(options)
    }

    /// The pairs whose keys are in `range`, as of now. One whose end is before its start holds none.
    ///
    /// ```
    /// # fn main() -> varve::Result<()> {
    /// # let db = varve::Varve::open_spec(&"ram:64MiB".parse()?)?;
    /// for year in ["1755", "1815", "1991"] {
    ///     db.put(year, "tephra")?;
    /// }
    /// assert_eq!(db.range("1800".."1991").count(), 1);
    /// assert_eq!(db.range("1800"..="1991").count(), 2);
    /// assert_eq!(db.range([b'1', b'9']..).count(), 1);
    /// assert_eq!(db.range(&b"1"[..]..&b"1815"[..]).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Bounds are of one type, which says what it is: texts, slices, vectors, arrays. Of references to arrays (`b"1"..b"2"`)
    /// and of `..` alone the compiler cannot tell; `&b"1"[..]` and [`Varve::iter`] say it.
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Iter {
        self.snapshot().range(range)
    }

    /// The pairs whose keys begin with `prefix`, as of now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.snapshot().prefix(prefix)
    }

    /// A walk over the pairs between the bounds of `options`, as of now, that can be moved to any key.
    ///
    /// # Errors
    /// As [`Varve::get`].
    pub fn cursor(&self, options: &ReadOptions) -> Result<Cursor> {
        Ok(Cursor::new(self.inner.db.iterator(&options.of_walks(None))?))
    }

    /// Holds the state of now for later reads.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.clone())
    }
}

/// Looking after it.
impl Varve {
    /// Writes memtables to tables; everything written before is durable when this returns.
    ///
    /// # Errors
    /// As [`Varve::put`].
    pub fn flush(&self) -> Result<()> {
        Ok(self.inner.db.flush()?)
    }

    /// Compacts all tables to the last level.
    ///
    /// # Errors
    /// As [`Varve::put`].
    pub fn compact(&self) -> Result<()> {
        Ok(self.inner.db.compact_range(None, None)?)
    }

    /// Compacts all tables that hold keys of `range` to the last level; those at its ends as a whole.
    ///
    /// # Errors
    /// As [`Varve::put`].
    pub fn compact_range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Result<()> {
        fn key<K: AsRef<[u8]>>(bound: Bound<&K>) -> Option<&[u8]> {
            match bound {
                Bound::Included(key) | Bound::Excluded(key) => Some(key.as_ref()),
                Bound::Unbounded => None,
            }
        }
        Ok(self.inner.db.compact_range(key(range.start_bound()), key(range.end_bound()))?)
    }

    /// Waits until no flush or compaction runs or is due.
    ///
    /// # Errors
    /// What kept them from ending.
    pub fn wait_idle(&self) -> Result<()> {
        Ok(self.inner.db.wait_idle()?)
    }

    /// Writes a database equal to the state of now into the directory at `path`, which must hold none. Between
    /// directories of one file system tables are shared instead of copied.
    ///
    /// # Errors
    /// As [`Varve::checkpoint_spec`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.checkpoint_spec(&Spec::of_directory(path.as_ref())?)
    }

    /// Writes a database equal to the state of now onto the medium `target`, which must hold
    /// none. Shares files instead of copying where both media can; what is copied is verified, and damage is an error.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the target holds something; what the target
    /// says when it is opened, and what cannot be read or written.
    pub fn checkpoint_spec(&self, target: &Spec) -> Result<()> {
        let stack = StackBuilder::new(self.inner.db.env()).build(target)?;
        self.inner.db.checkpoint(&**stack.files()).inspect_err(|_| stack.made().remove())?;
        stack.flush_traces()
    }

    /// Reads and verifies every table and the store below; what is wrong is in what it returns. Cost: reads everything.
    ///
    /// # Errors
    /// What kept it from looking.
    pub fn check(&self) -> Result<Vec<Finding>> {
        Ok(self.inner.db.check()?)
    }
}

/// What it tells of itself.
impl Varve {
    /// Counters since this opening, and shape of the tree.
    pub fn statistics(&self) -> Statistics {
        self.inner.db.statistics()
    }

    /// What was done to the database since it was created, see [`Db::totals`]. `None` when that is not known.
    pub fn totals(&self) -> Option<Totals> {
        self.inner.db.totals()
    }

    /// A property by name, such as `varve.stats`; [`Db::property`] lists them. `None` for any other name.
    pub fn property(&self, name: &str) -> Option<String> {
        self.inner.db.property(name)
    }

    /// About how many bytes of tables hold keys of `[begin, end)`, to within a block per table.
    /// What is still in memtables is not counted.
    ///
    /// # Errors
    /// As [`Varve::get`].
    pub fn approximate_bytes(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<u64> {
        Ok(self.inner.db.approximate_bytes(begin.as_ref(), end.as_ref())?)
    }

    /// Options of this opening that are not at their default and have no effect on this tree or medium, each with the
    /// reason. The property `varve.options-without-effect` has them as text.
    pub fn options_without_effect(&self) -> &[OptionWithoutEffect] {
        self.inner.db.options_without_effect()
    }

    /// Options that were unset when it was opened and that the medium decided, each with its value and the reason.
    pub fn choices(&self) -> &[Choice] {
        &self.inner.choices
    }

    /// Why the options it was opened with could not be saved with it, for those who ask later; none when they are, or
    /// when the bytes of the medium are gone with the process anyway. The database works all the same.
    pub fn unsaved_options(&self) -> Option<&Error> {
        self.inner.unsaved.as_ref()
    }

    /// What it stands on.
    pub fn stack(&self) -> &Stack {
        &self.inner.stack
    }

    /// The environment it runs in.
    pub fn env(&self) -> &Env {
        self.inner.db.env()
    }

    pub(crate) fn engine(&self) -> &Db {
        &self.inner.db
    }
}

impl std::fmt::Debug for Varve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Varve").field("spec", self.stack().spec()).finish_non_exhaustive()
    }
}
