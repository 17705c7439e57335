//! How what happened becomes durable.

use super::device::Shared;
use super::journal::MapJournal;
use super::record::{Entry, Staged};
use varve_media::{IoContext, MediaError};

impl Shared {
    /// Makes what was completed before durable, on both devices, and the map that says what is where. Those who come while a record is written
    /// share the next one.
    pub(super) fn make_durable(&self, is_for_room: bool, context: &IoContext) -> Result<(), MediaError> {
        let wanted = {
            let state = self.state.lock();
            state.check()?;
            state.completed
        };
        let mut journal = self.journal.lock();
        let mut state = self.state.lock();
        state.check()?;
        if !is_for_room && state.durable >= wanted {
            return Ok(());
        }
        let upto = state.completed;
        let mut entries = state.map.take_changes();
        let is_checkpoint = journal.is_full(entries.len());
        if is_checkpoint {
            entries = state.map.take_everything();
        }
        let staged = state.staged;
        let (is_disk_dirty, is_fast_dirty) = (state.is_disk_dirty, state.is_fast_dirty);
        (state.is_disk_dirty, state.is_fast_dirty) = (false, false);
        let asks_disk = is_disk_dirty && !is_for_room;
        state.disk_load.begin(asks_disk);
        drop(state);
        let written =
            self.write_record(&mut journal, &entries, staged, is_checkpoint, (is_disk_dirty, is_fast_dirty), context);
        let now_nanos = self.env.now().as_nanos();
        self.state.lock().disk_load.end(asks_disk, now_nanos);
        if let Err((operation, error)) = written {
            return Err(self.stop(operation, error));
        }
        let mut state = self.state.lock();
        state.map.recorded(&entries);
        state.durable = state.durable.max(upto);
        state.statistics.records += 1;
        self.tell(&state);
        Ok(())
    }

    fn write_record(
        &self,
        journal: &mut MapJournal,
        entries: &[Entry],
        staged: Option<Staged>,
        is_checkpoint: bool,
        (is_disk_dirty, is_fast_dirty): (bool, bool),
        context: &IoContext,
    ) -> Result<(), (&'static str, MediaError)> {
        // What the map is about to say must be so before it says it.
        if is_fast_dirty {
            self.fast_order.sync(context).map_err(|error| ("a sync of its device", error))?;
        }
        if is_disk_dirty {
            self.disk_order.sync(context).map_err(|error| ("a sync of the disk", error))?;
        }
        if entries.is_empty() && !journal.says_otherwise(staged) {
            return Ok(());
        }
        let appended = journal.append(entries.to_vec(), staged, is_checkpoint, context);
        appended.map_err(|error| ("a record of its map", error))
    }
}
