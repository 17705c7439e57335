//! A log that is written by whoever appends, hands over or syncs.

use varve_store::{IoContext, StoreError, WritableFile};

/// A log file.
pub(super) struct DirectLog {
    pub(super) file: Box<dyn WritableFile>,
    /// Appended, and not in the file; nothing where the file takes what is appended at once.
    held_back: Option<Vec<u8>>,
}

impl DirectLog {
    pub(super) fn new(file: Box<dyn WritableFile>) -> DirectLog {
        DirectLog { file, held_back: None }
    }

    /// Lets appends be no requests to a device from now on: the file gets what was appended when it is handed over or synced.
    pub(super) fn hold_back(&mut self) {
        self.held_back = Some(Vec::new());
    }

    pub(super) fn holds_back(&self) -> bool {
        self.held_back.is_some()
    }

    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8], context: &IoContext) -> Result<(), StoreError> {
        match &mut self.held_back {
            Some(held_back) => {
                held_back.extend_from_slice(bytes);
                Ok(())
            }
            None => self.file.append(bytes, context),
        }
    }

    pub(super) fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.append_held_back(context)?;
        self.file.flush(context)
    }

    pub(super) fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.append_held_back(context)?;
        self.file.sync(context)
    }

    pub(super) fn finish(mut self, context: &IoContext) -> Result<(), StoreError> {
        self.append_held_back(context)?;
        self.file.finish(context)
    }

    /// All of it is in the file, or the log failed.
    fn append_held_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        let Some(held_back) = self.held_back.as_mut().filter(|held_back| !held_back.is_empty()) else { return Ok(()) };
        let appended = self.file.append(held_back, context);
        held_back.clear();
        appended
    }
}
