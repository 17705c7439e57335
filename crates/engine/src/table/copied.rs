//! Verifies a table while it is copied.

use super::format::{BlockHandle, FOOTER_BYTES, Footer};
use super::reader::Table;
use crate::block::verify_block;
use crate::encoding::Decoder;
use crate::error::Error;

/// The check of a table whose bytes pass by. Memory: one block, and filter, index and properties.
pub(crate) struct CopiedTable<'a> {
    table: &'a Table,
    /// The block that comes next.
    block: usize,
    /// Its first bytes; behind the last block, all that follow.
    pending: Vec<u8>,
}

impl<'a> CopiedTable<'a> {
    /// A check of the bytes of `table` from the first on.
    pub(crate) fn new(table: &'a Table) -> CopiedTable<'a> {
        CopiedTable { table, block: 0, pending: Vec::new() }
    }

    /// The next bytes.
    ///
    /// Errors: [`Error::Corruption`] where a block is not what its checksum says.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while self.block < self.table.block_count() {
            let handle = self.table.index.handle(self.block);
            let missing = (handle.length_bytes as usize).saturating_sub(self.pending.len());
            if bytes.len() < missing {
                break;
            }
            let (rest_of_block, rest) = bytes.split_at(missing);
            if self.pending.is_empty() {
                self.verify(rest_of_block, &handle, "data block")?;
            } else {
                self.pending.extend_from_slice(rest_of_block);
                self.verify(&self.pending, &handle, "data block")?;
                self.pending.clear();
            }
            bytes = rest;
            self.block += 1;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// All bytes were taken.
    ///
    /// Errors: [`Error::Corruption`] where they do not end as the table does.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Table { name, size_bytes, .. } = self.table;
        let behind_data = self.table.index.data_end();
        let length = behind_data + self.pending.len() as u64;
        let footer = match self.pending.last_chunk::<FOOTER_BYTES>() {
            Some(footer) if self.block == self.table.block_count() && length == *size_bytes => footer,
            _ => {
                let damage = Decoder::damage(0, format!("{size_bytes} bytes"), format!("{length} bytes"));
                return Err(damage.in_file(name, 0, "table"));
            }
        };
        let footer_at = length - FOOTER_BYTES as u64;
        let footer =
            Footer::decode(footer, length).map_err(|damage| damage.in_file(name, footer_at, "table footer"))?;
        for (handle, structure) in
            [(footer.filter, "table filter"), (footer.index, "table index"), (footer.properties, "table properties")]
        {
            if handle.length_bytes > 0 {
                let range = handle.range();
                let start = range.start.checked_sub(behind_data).unwrap_or(u64::MAX) as usize;
                let end = range.end.saturating_sub(behind_data) as usize;
                self.verify(self.pending.get(start..end).unwrap_or_default(), &handle, structure)?;
            }
        }
        Ok(())
    }

    fn verify(&self, block: &[u8], handle: &BlockHandle, structure: &str) -> Result<(), Error> {
        verify_block(block, self.table.table_id, handle.offset_bytes)
            .map_err(|damage| damage.in_file(&self.table.name, handle.offset_bytes, structure))
    }
}
