//! The write handler: tables into the write buffer, other files to the store of small files.

use super::node::Node;
use super::open_store::{OpenStore, named};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, WritableFile};
use crate::kernel::RawStore;
use std::sync::Arc;
use varve_media::IoContext;

/// Writer of a table. All of it stays in memory until it is synced.
pub(super) struct TableWriter {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    size_bytes: u64,
    /// The level was given when nothing was flushed yet.
    takes_level: bool,
    is_finished: bool,
}

impl TableWriter {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str, options: &CreateOptions) -> Self {
        let expected = options.expected_size_bytes.unwrap_or(0).min(core.geometry.table_bytes_max);
        if expected > 0 {
            let mut bytes = core.spare_buffers.take();
            bytes.reserve(usize::try_from(expected).unwrap_or(0));
            node.buffer.write().bytes = bytes;
        }
        TableWriter { core, node, name: name.to_owned(), size_bytes: 0, takes_level: true, is_finished: false }
    }

    /// Keeps memory for what is to come only while something may come.
    fn end(&mut self) {
        self.is_finished = true;
        let mut buffer = self.node.buffer.write();
        if self.node.map().size_bytes() == buffer.end_bytes() {
            buffer.offset_bytes = buffer.end_bytes();
            let used = std::mem::take(&mut buffer.bytes);
            self.core.spare_buffers.give(used);
        }
    }
}

impl WritableFile for TableWriter {
    fn append(&mut self, data: &[u8], _context: &IoContext) -> Result<(), StoreError> {
        self.node.buffer.write().bytes.extend_from_slice(data);
        self.size_bytes += data.len() as u64;
        Ok(())
    }

    fn flush(&mut self, _context: &IoContext) -> Result<(), StoreError> {
        self.core.check_node(&self.node)?;
        self.takes_level = false;
        self.node.set_flushed_bytes(self.size_bytes);
        Ok(())
    }

    /// A table stays in memory until it is persisted whole.
    fn write_back(&mut self, _context: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.flush(context)?;
        self.core.persist(&self.node, &self.name, context)
    }

    fn set_level(&mut self, level: u8) {
        if self.takes_level {
            self.node.set_level(Some(level));
        }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.flush(context)?;
        // It would stay in memory for good.
        if self.size_bytes > self.node.map().size_bytes() && !self.node.is_removed() {
            self.core.persist(&self.node, &self.name, context)?;
        }
        self.end();
        Ok(())
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // What readers have seen stays; what was only appended is forgotten.
        let flushed_bytes = self.node.flushed_bytes();
        {
            let mut buffer = self.node.buffer.write();
            let kept = flushed_bytes.saturating_sub(buffer.offset_bytes);
            buffer.bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        }
        self.end();
    }
}

/// Writer of a file in the store of small files.
pub(super) struct PackedWriter {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    inner: Box<dyn WritableFile>,
    /// What a flush promises includes the name.
    keeps_name: bool,
}

impl PackedWriter {
    pub(super) fn new(
        core: Arc<OpenStore>,
        node: Arc<Node>,
        name: &str,
        inner: Box<dyn WritableFile>,
        keeps_name: bool,
    ) -> Self {
        PackedWriter { core, node, name: name.to_owned(), inner, keeps_name }
    }
}

impl WritableFile for PackedWriter {
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.core.free_packed_space(data.len() as u64)?;
        self.inner.append(data, context).map_err(|error| named(error, &self.name))
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.inner.flush(context).map_err(|error| named(error, &self.name))?;
        if self.keeps_name { self.core.commit(self.node.needed_change()) } else { Ok(()) }
    }

    fn write_back(&mut self, _context: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.inner.sync(context).map_err(|error| named(error, &self.name))?;
        self.node.set_durable_bytes(self.inner.size_bytes());
        self.core.commit(self.node.needed_change())
    }

    fn set_level(&mut self, level: u8) {
        self.inner.set_level(level);
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn finish(self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        let name = self.name;
        self.inner.finish(context).map_err(|error| named(error, &name))
    }
}
