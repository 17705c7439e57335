//! LevelDB through its C interface.

use super::leveldb_library::{ErrorSlot, Library, Opaque};
use super::{BLOCK_BYTES, Budget};
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use varve_lab::target::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};

/// `leveldb_no_compression` of c.h.
const NO_COMPRESSION: c_int = 0;

/// An open database with everything it points to. LevelDB allows every call on it from any thread;
/// the option objects are only read after they are made.
struct Handle {
    library: &'static Library,
    db: Opaque,
    cache: Opaque,
    filter: Opaque,
    read_options: Opaque,
    buffered: Opaque,
    synced: Opaque,
}

// SAFETY: leveldb/db.h and options.h: a database may be used from several threads without outside
// synchronisation; cache and filter policy are thread-safe; the option objects are not changed
// after `open`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let library = self.library;
        // SAFETY: every pointer was made by the matching create function, is destroyed once, and the
        // database, which uses cache and filter, goes first. Sessions hold the handle, so no
        // iterator is left.
        unsafe {
            (library.close)(self.db);
            (library.writeoptions_destroy)(self.synced);
            (library.writeoptions_destroy)(self.buffered);
            (library.readoptions_destroy)(self.read_options);
            (library.filterpolicy_destroy)(self.filter);
            (library.cache_destroy)(self.cache);
        }
    }
}

pub(crate) struct LevelDbTarget {
    name: String,
    handle: Arc<Handle>,
}

impl LevelDbTarget {
    /// A database that verifies the checksums of blocks it reads, for readers and for compactions, if told to: of itself it
    /// does neither.
    pub(crate) fn open(directory: &Path, budget: Budget, verify_checksums: bool) -> Result<LevelDbTarget, TargetError> {
        if budget.direct_reads {
            return Err("LevelDB cannot read past the page cache".into());
        }
        let library = Library::get()?;
        let path = CString::new(directory.as_os_str().as_bytes())?;
        // SAFETY: the objects are made and used as c.h says: options live through `open` only, cache
        // and filter until the database is closed (`Handle::drop`). When `open` fails the three that
        // would go with the handle are destroyed here.
        unsafe {
            let cache = (library.cache_create_lru)(budget.cache_bytes);
            // Null stands for no filter, and may be destroyed.
            let filter = match budget.filter_bits {
                0 => std::ptr::null_mut(),
                bits => (library.filterpolicy_create_bloom)(bits as c_int),
            };
            let options = (library.options_create)();
            (library.options_set_create_if_missing)(options, 1);
            (library.options_set_write_buffer_size)(options, budget.write_buffer_bytes);
            (library.options_set_block_size)(options, BLOCK_BYTES);
            (library.options_set_compression)(options, NO_COMPRESSION);
            (library.options_set_cache)(options, cache);
            (library.options_set_filter_policy)(options, filter);
            (library.options_set_paranoid_checks)(options, u8::from(verify_checksums));
            let opened = checked(library, |error| (library.open)(options, path.as_ptr(), error));
            (library.options_destroy)(options);
            match opened {
                Ok(db) => {
                    let synced = (library.writeoptions_create)();
                    (library.writeoptions_set_sync)(synced, 1);
                    let read_options = (library.readoptions_create)();
                    (library.readoptions_set_verify_checksums)(read_options, u8::from(verify_checksums));
                    let buffered = (library.writeoptions_create)();
                    let handle = Handle { library, db, cache, filter, read_options, buffered, synced };
                    let checks = if verify_checksums { "" } else { ", checksums not verified" };
                    Ok(LevelDbTarget { name: format!("{}{checks}", library.description), handle: Arc::new(handle) })
                }
                Err(error) => {
                    (library.filterpolicy_destroy)(filter);
                    (library.cache_destroy)(cache);
                    Err(error)
                }
            }
        }
    }
}

/// Calls a function with an error slot and turns what it says into a result.
fn checked<T>(library: &Library, call: impl FnOnce(ErrorSlot) -> T) -> Result<T, TargetError> {
    let mut message: *mut c_char = std::ptr::null_mut();
    let result = call(&mut message);
    if message.is_null() {
        return Ok(result);
    }
    // SAFETY: LevelDB put a zero-terminated string there that is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        (library.free)(message.cast());
        text
    };
    Err(text.into())
}

impl Target for LevelDbTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(LevelDbSession { handle: Arc::clone(&self.handle) }))
    }

    fn flush(&self) -> Result<(), TargetError> {
        // The C interface has no flush; a compaction of an empty range at the very end flushes the
        // memtable and finds nothing to merge.
        let end = [0xffu8; 64];
        let handle = &*self.handle;
        // SAFETY: both ends point to 64 bytes that live through the call.
        unsafe {
            (handle.library.compact_range)(handle.db, end.as_ptr().cast(), end.len(), end.as_ptr().cast(), end.len())
        };
        Ok(())
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        // The C interface cannot say; the process coming to rest does.
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        let handle = &*self.handle;
        // SAFETY: null ends stand for the ends of the key space.
        unsafe { (handle.library.compact_range)(handle.db, std::ptr::null(), 0, std::ptr::null(), 0) };
        Ok(())
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        let handle = &*self.handle;
        // SAFETY: the name is zero-terminated; the result is null or a string that is ours to free.
        let text = unsafe {
            let value = (handle.library.property_value)(handle.db, c"leveldb.stats".as_ptr());
            if value.is_null() {
                return Ok(TargetStatistics::default());
            }
            let text = CStr::from_ptr(value).to_string_lossy().into_owned();
            (handle.library.free)(value.cast());
            text
        };
        Ok(parse_statistics(&text))
    }
}

/// Sums the levels of the property `leveldb.stats`: level, files, size (MB), time (s), read (MB),
/// written (MB). Flushes are in it as writes of the level they went to.
fn parse_statistics(text: &str) -> TargetStatistics {
    let (mut size, mut seconds, mut read, mut written) = (0.0, 0.0, 0.0, 0.0);
    for line in text.lines() {
        let numbers: Vec<f64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        if let [_level, _files, level_size, level_seconds, level_read, level_written] = numbers[..] {
            size += level_size;
            seconds += level_seconds;
            read += level_read;
            written += level_written;
        }
    }
    const MEGABYTE: f64 = 1_048_576.0;
    let mut statistics = TargetStatistics {
        compaction_read_bytes: Some((read * MEGABYTE) as u64),
        compaction_nanos: Some((seconds * 1e9) as u64),
        space_bytes: Some((size * MEGABYTE) as u64),
        ..TargetStatistics::default()
    };
    statistics.properties.insert("flushed and compacted bytes".to_owned(), written * MEGABYTE);
    statistics
}

struct LevelDbSession {
    handle: Arc<Handle>,
}

impl LevelDbSession {
    fn options(&self, durability: Durability) -> Opaque {
        match durability {
            Durability::Buffered => self.handle.buffered,
            Durability::Synced => self.handle.synced,
        }
    }
}

impl Session for LevelDbSession {
    fn put(&mut self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), TargetError> {
        let (library, db, options) = (self.handle.library, self.handle.db, self.options(durability));
        // SAFETY: key and value are read during the call only.
        checked(library, |error| unsafe {
            (library.put)(db, options, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len(), error);
        })
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let Handle { library, db, read_options, .. } = *self.handle;
        let mut length = 0;
        // SAFETY: the key is read during the call only; the length goes to a live variable.
        let bytes = checked(library, |error| unsafe {
            (library.get)(db, read_options, key.as_ptr().cast(), key.len(), &mut length, error)
        })?;
        if bytes.is_null() {
            return Ok(false);
        }
        // SAFETY: LevelDB returned `length` bytes that are ours to free.
        unsafe {
            value.extend_from_slice(std::slice::from_raw_parts(bytes.cast(), length));
            (library.free)(bytes.cast());
        }
        Ok(true)
    }

    fn delete(&mut self, key: &[u8], durability: Durability) -> Result<(), TargetError> {
        let (library, db, options) = (self.handle.library, self.handle.db, self.options(durability));
        // SAFETY: the key is read during the call only.
        checked(library, |error| unsafe { (library.delete)(db, options, key.as_ptr().cast(), key.len(), error) })
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> Result<(), TargetError> {
        let (library, db, options) = (self.handle.library, self.handle.db, self.options(durability));
        // SAFETY: the batch copies what it is given and is destroyed once, after the write.
        unsafe {
            let batch = (library.writebatch_create)();
            for change in changes {
                match change {
                    Change::Put { key, value } => {
                        (library.writebatch_put)(
                            batch,
                            key.as_ptr().cast(),
                            key.len(),
                            value.as_ptr().cast(),
                            value.len(),
                        );
                    }
                    Change::Delete { key } => (library.writebatch_delete)(batch, key.as_ptr().cast(), key.len()),
                }
            }
            let result = checked(library, |error| (library.write)(db, options, batch, error));
            (library.writebatch_destroy)(batch);
            result
        }
    }

    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        let mut cursor = Cursor::new(&self.handle);
        match (direction, start) {
            (_, Some(key)) => cursor.seek(key),
            (Direction::Forward, None) => cursor.seek_to_first(),
            (Direction::Reverse, None) => cursor.seek_to_last(),
        }
        // A seek goes to the first key at or after; reverse scans begin at or before.
        if let (Direction::Reverse, Some(key)) = (direction, start) {
            match cursor.pair() {
                None => cursor.seek_to_last(),
                Some((found, _)) if found > key => cursor.previous(),
                Some(_) => {}
            }
        }
        let mut visited = 0;
        while visited < limit {
            let Some((key, value)) = cursor.pair() else { break };
            visit(key, value);
            visited += 1;
            if visited < limit {
                match direction {
                    Direction::Forward => cursor.next(),
                    Direction::Reverse => cursor.previous(),
                }
            }
        }
        cursor.status()?;
        Ok(visited)
    }
}

/// An iterator of LevelDB.
struct Cursor<'a> {
    library: &'static Library,
    iterator: Opaque,
    /// Keeps the database open.
    _handle: &'a Handle,
}

// SAFETY of all calls below: `iterator` lives from `new` to `drop` and is used by one thread;
// `next`, `previous` and the accessors are called only where it is valid, as c.h asks.
impl<'a> Cursor<'a> {
    fn new(handle: &'a Handle) -> Cursor<'a> {
        // SAFETY: database and options live as long as the handle.
        let iterator = unsafe { (handle.library.create_iterator)(handle.db, handle.read_options) };
        Cursor { library: handle.library, iterator, _handle: handle }
    }

    fn is_valid(&self) -> bool {
        // SAFETY: see above.
        unsafe { (self.library.iter_valid)(self.iterator) != 0 }
    }

    fn seek(&mut self, key: &[u8]) {
        // SAFETY: see above; the key is read during the call only.
        unsafe { (self.library.iter_seek)(self.iterator, key.as_ptr().cast(), key.len()) }
    }

    fn seek_to_first(&mut self) {
        // SAFETY: see above.
        unsafe { (self.library.iter_seek_to_first)(self.iterator) }
    }

    fn seek_to_last(&mut self) {
        // SAFETY: see above.
        unsafe { (self.library.iter_seek_to_last)(self.iterator) }
    }

    fn next(&mut self) {
        if self.is_valid() {
            // SAFETY: see above; it is valid.
            unsafe { (self.library.iter_next)(self.iterator) }
        }
    }

    fn previous(&mut self) {
        if self.is_valid() {
            // SAFETY: see above; it is valid.
            unsafe { (self.library.iter_prev)(self.iterator) }
        }
    }

    /// The pair it stands on, until it moves.
    fn pair(&self) -> Option<(&[u8], &[u8])> {
        if !self.is_valid() {
            return None;
        }
        // SAFETY: see above; it is valid, and the bytes stay until it moves, which takes `&mut self`.
        unsafe {
            let (mut key_length, mut value_length) = (0, 0);
            let key = (self.library.iter_key)(self.iterator, &mut key_length);
            let value = (self.library.iter_value)(self.iterator, &mut value_length);
            Some((
                std::slice::from_raw_parts(key.cast(), key_length),
                std::slice::from_raw_parts(value.cast(), value_length),
            ))
        }
    }

    fn status(&self) -> Result<(), TargetError> {
        // SAFETY: see above.
        checked(self.library, |error| unsafe { (self.library.iter_get_error)(self.iterator, error) })
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once, while the database is open.
        unsafe { (self.library.iter_destroy)(self.iterator) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_sum_the_levels() {
        let text = "                               Compactions\nLevel  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
                    --------------------------------------------------\n  0        2      100         1        0       100\n  \
                    1       10       20         2       30        25\n";
        let statistics = parse_statistics(text);
        assert_eq!(statistics.space_bytes, Some(120 << 20));
        assert_eq!(statistics.compaction_nanos, Some(3_000_000_000));
        assert_eq!(statistics.compaction_read_bytes, Some(30 << 20));
        assert_eq!(statistics.properties["flushed and compacted bytes"], 125.0 * 1_048_576.0);
    }
}
