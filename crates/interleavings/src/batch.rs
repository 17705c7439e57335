//! A batch of one write, which is all a write group looks at.

/// A batch with one entry, or none.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    entry: Option<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    is_put: bool,
}

impl WriteBatch {
    pub(crate) fn put(id: u32) -> Self {
        WriteBatch { entry: Some(Entry { id, is_put: true }) }
    }

    pub(crate) fn delete(id: u32) -> Self {
        WriteBatch { entry: Some(Entry { id, is_put: false }) }
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.entry.map(|entry| entry.id)
    }

    pub(crate) fn has_puts(&self) -> bool {
        self.entry.is_some_and(|entry| entry.is_put)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entry.is_none()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Entry>() * usize::from(!self.is_empty())
    }
}
