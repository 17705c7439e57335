//! Writing a small file: frames of log bands.

use super::allocation::Purpose;
use super::node::Node;
use super::open_store::OpenStore;
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, WritableFile};
use crate::kernel::RawStore;
use std::sync::Arc;
use varve_media::IoContext;

/// What waits in memory for a flush, at most.
const BUFFER_BYTES: usize = 256 << 10;

/// The writer of one small file. Every flush is at least one frame.
pub(crate) struct LogWriter {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    kind: FileKind,
    purpose: Purpose,
    /// Bytes of the file that no frame has.
    buffer: Vec<u8>,
    /// Offset in the file of the first byte of the buffer.
    start_bytes: u64,
}

impl LogWriter {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str, options: &CreateOptions) -> Self {
        let purpose = core.purpose(options.kind, options.job);
        let (name, kind) = (name.to_owned(), options.kind);
        LogWriter { core, node, name, kind, purpose, buffer: Vec::new(), start_bytes: 0 }
    }

    /// Puts bytes behind those that frames have into frames. All of them, or none.
    fn write(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.core.append_frames(&self.node, &self.name, self.purpose, self.start_bytes, data, context)?;
        self.start_bytes += data.len() as u64;
        self.node.set_written_nanos(self.core.env.now().as_nanos());
        self.node.set_flushed_bytes(self.start_bytes);
        Ok(())
    }

    /// Takes back what was appended and is not on the device. The file ends before it.
    pub(super) fn take_unwritten(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn write_buffer(&mut self, context: &IoContext) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.write(&buffer, context);
        if outcome.is_ok() {
            buffer.clear();
        }
        self.buffer = buffer;
        outcome
    }
}

impl WritableFile for LogWriter {
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        if self.buffer.len() + data.len() > BUFFER_BYTES {
            self.write_buffer(context)?;
            if data.len() > BUFFER_BYTES {
                return self.write(data, context);
            }
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.write_buffer(context)?;
        // A log is found after the end of the process only if its name is.
        match self.kind {
            FileKind::Log | FileKind::Manifest => self.core.commit(self.node.needed_change()),
            _ => Ok(()),
        }
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.sync_device(context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.write_buffer(context)?;
        self.core.sync_node(&self.node, &self.name, context)
    }

    fn set_level(&mut self, level: u8) {
        if self.node.flushed_bytes() == 0 {
            self.node.set_level(level);
        }
    }

    fn size_bytes(&self) -> u64 {
        self.start_bytes + self.buffer.len() as u64
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.write_buffer(context)
    }
}
