//! Traces of directories.

use super::{Call, TraceSink, Tracer};
use crate::context::IoContext;
use crate::directory::{
    Directory, DirectoryEntry, DirectoryFile, DirectoryLock, FileMapping, OpenMode, Space, WritableMapping,
};
use crate::error::{MediaError, Operation};
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use varve_env::Env;

/// A layer that tells a sink about every call of a directory and its files. It adds no I/O. Hints
/// (prefetch) are not traced.
pub struct TraceDirectory {
    tracer: Tracer,
    inner: Arc<dyn Directory>,
}

impl TraceDirectory {
    /// `inner`, traced to `sink`.
    pub fn new(env: &Env, sink: Arc<dyn TraceSink>, inner: Arc<dyn Directory>) -> Self {
        TraceDirectory { tracer: Tracer { env: env.clone(), sink }, inner }
    }

    fn around<T>(
        &self,
        operation: Operation,
        name: &str,
        perform: impl FnOnce() -> Result<T, MediaError>,
    ) -> Result<T, MediaError> {
        self.tracer.around(Call { operation, name, offset_bytes: 0, length_bytes: 0, context: None }, perform)
    }
}

impl Directory for TraceDirectory {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, MediaError> {
        let inner = self.around(Operation::Open, name, || self.inner.open(name, mode))?;
        Ok(Arc::new(TraceFile { tracer: self.tracer.clone(), inner, name: name.to_owned() }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediaError> {
        self.around(Operation::Rename, from, || self.inner.rename(from, to))
    }

    fn remove(&self, name: &str) -> Result<(), MediaError> {
        self.around(Operation::Remove, name, || self.inner.remove(name))
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>, MediaError> {
        self.around(Operation::List, self.inner.name(), || self.inner.list())
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.around(Operation::SyncDirectory, self.inner.name(), || self.inner.sync())
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>, MediaError> {
        self.around(Operation::Lock, name, || self.inner.lock(name))
    }

    fn space(&self) -> Result<Space, MediaError> {
        self.around(Operation::List, self.inner.name(), || self.inner.space())
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn link(&self, name: &str, target: &Path, target_name: &str) -> Result<bool, MediaError> {
        self.around(Operation::Rename, name, || self.inner.link(name, target, target_name))
    }
}

struct TraceFile {
    tracer: Tracer,
    inner: Arc<dyn DirectoryFile>,
    name: String,
}

impl TraceFile {
    fn call<'a>(
        &'a self,
        operation: Operation,
        offset_bytes: u64,
        length_bytes: u64,
        context: Option<&'a IoContext>,
    ) -> Call<'a> {
        Call { operation, name: &self.name, offset_bytes, length_bytes, context }
    }
}

impl DirectoryFile for TraceFile {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<usize, MediaError> {
        let call = self.call(Operation::Read, offset_bytes, data.len() as u64, Some(context));
        self.tracer.around(call, || self.inner.read_at(offset_bytes, data, context))
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>], context: &IoContext) -> Result<(), MediaError> {
        let length_bytes = data.iter().map(|slice| slice.len() as u64).sum();
        let call = self.call(Operation::Write, offset_bytes, length_bytes, Some(context));
        self.tracer.around(call, || self.inner.write_at(offset_bytes, data, context))
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.tracer.around(self.call(Operation::Sync, 0, 0, Some(context)), || self.inner.sync(context))
    }

    fn size_bytes(&self) -> Result<u64, MediaError> {
        self.tracer.around(self.call(Operation::List, 0, 0, None), || self.inner.size_bytes())
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), MediaError> {
        self.tracer.around(self.call(Operation::Truncate, size_bytes, 0, None), || self.inner.truncate(size_bytes))
    }

    fn allocate(&self, size_bytes: u64) -> Result<(), MediaError> {
        self.tracer.around(self.call(Operation::Truncate, size_bytes, 0, None), || self.inner.allocate(size_bytes))
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64) {
        self.inner.prefetch(offset_bytes, length_bytes);
    }

    fn map(&self) -> Option<FileMapping> {
        // Reads of a mapping would pass by unseen.
        None
    }

    fn map_for_writing(&self, _range: Range<u64>) -> Option<WritableMapping> {
        // Writes to it would pass by unseen.
        None
    }

    fn alignment_bytes(&self) -> u32 {
        self.inner.alignment_bytes()
    }
}
