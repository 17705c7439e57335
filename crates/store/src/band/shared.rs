//! Zones that tables share: taking and leaving them, and which is emptied next. What is decided is decided in
//! [`sharing`](super::sharing); here it is done.

use super::allocation::{Purpose, TableGrowth};
use super::lifetimes::Lifetimes;
use super::node::Node;
use super::open_store::OpenStore;
use super::pool::Left;
use super::sharing::{
    Budget, Fill, Need, NewTable, OpenZone, beside_copies, closed_first, closed_for, emptied_first, room_for_copies,
    share,
};
use crate::error::StoreError;
use parking_lot::Mutex as ShortMutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What tables that share zones go by.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    /// How long tables live: of all devices of a store together.
    pub(crate) lifetimes: Arc<ShortMutex<Lifetimes>>,
    /// Bytes of a table of which nobody says how large it will be.
    pub(crate) table_bytes: u64,
}

/// When a table was made, and what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableOrigin {
    /// By the clock of lifetimes.
    pub(crate) born_bytes: u64,
    /// It is copied out of a zone that is emptied.
    pub(crate) is_cleaning: bool,
}

/// Where a table that shares zones wants to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedPlace {
    pub(super) origin: TableOrigin,
    /// Bytes of it that are expected still.
    pub(super) left_bytes: u64,
}

/// Sharing on one device.
pub(super) struct SharedZones {
    pub(super) sharing: Sharing,
    pub(super) budget: ShortMutex<Budget>,
}

impl SharedZones {
    pub(super) fn new(sharing: &Sharing, zone_bytes: u64) -> SharedZones {
        SharedZones { sharing: sharing.clone(), budget: ShortMutex::new(Budget::new(zone_bytes)) }
    }

    /// Whether a table shares zones: where two of its size have space in one.
    pub(super) fn is_for(&self, expected_bytes: Option<u64>, zone_bytes: u64) -> bool {
        expected_bytes.unwrap_or(self.sharing.table_bytes) <= zone_bytes / 2
    }
}

impl OpenStore {
    /// A zone for a table that shares them, and how much of it is written; `None` when there is none.
    pub(super) fn take_shared(
        &self,
        node: &Node,
        name: &str,
        purpose: Purpose,
        table: TableGrowth,
        wanted: SharedPlace,
    ) -> Result<Option<(u32, u64)>, StoreError> {
        let Some(shared) = &self.shared else { return Ok(None) };
        loop {
            if let Some(joined) = self.join_shared(shared, node, purpose, wanted.origin, false) {
                return Ok(Some(joined));
            }
            match self.take_band(name, purpose, Some(table)) {
                Ok(Some(band)) => {
                    let mut state = self.state.lock();
                    state.pool.begin(band, node.file, wanted.origin.is_cleaning);
                    self.note_owner(&mut state.pool, node, band, wanted.origin);
                    return Ok(Some((band, 0)));
                }
                Ok(None) => return Ok(self.join_shared(shared, node, purpose, wanted.origin, true)),
                Err(error @ StoreError::TooManyWriters { .. }) => {
                    if self.close_open_zone_for(wanted.left_bytes) {
                        continue;
                    }
                    let joined = self.join_shared(shared, node, purpose, wanted.origin, true);
                    return joined.map(Some).ok_or(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A table has so many bytes more in a zone, in whole units, which ends behind `written_bytes`.
    pub(super) fn wrote_shared(&self, node: &Node, band: u32, bytes: u64, written_bytes: u64, origin: TableOrigin) {
        if let Some(shared) = self.shared.as_ref().filter(|_| !origin.is_cleaning) {
            shared.budget.lock().wrote(bytes);
        }
        self.state.lock().pool.wrote(band, node.file, bytes, written_bytes);
    }

    fn note_owner(&self, pool: &mut super::pool::Pool, node: &Node, band: u32, origin: TableOrigin) {
        if !node.is_removed() {
            pool.note_table(node.file, node.level(), origin.born_bytes);
        }
        node.bands.lock().insert(band);
    }

    /// A zone that is open, as the policy says, or any.
    fn join_shared(
        &self,
        shared: &SharedZones,
        node: &Node,
        purpose: Purpose,
        origin: TableOrigin,
        is_any: bool,
    ) -> Option<(u32, u64)> {
        let mut state = self.state.lock();
        let (mut open, remaining_bytes) = {
            let lifetimes = shared.sharing.lifetimes.lock();
            (state.pool.open_zones(&lifetimes), lifetimes.remaining_bytes(node.level(), origin.born_bytes))
        };
        let empty_zones = if is_any { 0 } else { state.bands.view().available_bands(purpose) };
        if !origin.is_cleaning && state.bands.view().available_bands(Purpose::Cleaning) == 0 {
            open = beside_copies(&open);
        }
        let table = NewTable { remaining_bytes, is_copy: origin.is_cleaning };
        let band = share(table, &open, empty_zones, self.geometry.band_count as usize)?;
        let written_bytes = state.pool.join(band, node.file)?;
        self.note_owner(&mut state.pool, node, band, origin);
        Some((band, written_bytes))
    }

    /// A table writes a zone no more. Another one may go on in it, if it has space.
    pub(super) fn stop_shared(&self, band: u32, written_bytes: u64) {
        if written_bytes >= self.geometry.band_bytes {
            self.close_shared(band, written_bytes);
            return;
        }
        let mut state = self.state.lock();
        if state.pool.stop(band, written_bytes) == Left::Free {
            state.free_shared(band, true);
        }
    }

    fn open_zones(&self, pool: &super::pool::Pool) -> Vec<OpenZone> {
        self.shared.as_ref().map_or_else(Vec::new, |shared| pool.open_zones(&shared.sharing.lifetimes.lock()))
    }

    /// Closes a zone that whoever calls it has: nobody writes it before it is free.
    pub(super) fn close_shared(&self, band: u32, written_bytes: u64) {
        self.leave_band(band, written_bytes);
        let mut state = self.state.lock();
        if state.pool.close(band) == Left::Free {
            state.free_shared(band, true);
        }
    }

    /// Closes one of the zones that nobody writes, for somebody who shares none. False when there is none.
    pub(super) fn close_open_zone(&self) -> bool {
        self.close_chosen(closed_first)
    }

    /// The same for a table of so many bytes: false also where that would waste more than the table among others does.
    fn close_open_zone_for(&self, table_bytes: u64) -> bool {
        self.close_chosen(|open| closed_for(table_bytes, open))
    }

    fn close_chosen(&self, choice: impl FnOnce(&[OpenZone]) -> Option<u32>) -> bool {
        let closed = {
            let mut state = self.state.lock();
            let chosen = choice(&self.open_zones(&state.pool));
            chosen.and_then(|band| state.pool.hold(band).map(|written_bytes| (band, written_bytes)))
        };
        let Some((band, written_bytes)) = closed else { return false };
        self.close_shared(band, written_bytes);
        true
    }

    /// A table wrote to a zone behind which something may have arrived that nobody knows: it is closed. Where nothing of the table
    /// is in it, it has it no more.
    pub(super) fn leave_failed(&self, node: &Node, band: u32, written_bytes: u64) {
        // The pointer is not where it should be.
        self.leave_band(band, written_bytes.min(self.geometry.band_bytes - 1));
        let mut state = self.state.lock();
        let has_bytes = node.fragments.read().iter().any(|fragment| fragment.band == band);
        let mut left = Left::Kept;
        if !has_bytes && node.bands.lock().remove(&band) {
            left = state.pool.disown(band, node.file);
        }
        if left == Left::Kept {
            left = state.pool.close(band);
        }
        if left == Left::Free {
            state.free_shared(band, true);
        }
    }

    fn fill(&self, state: &super::state::BandState) -> Fill {
        let view = state.bands.view();
        Fill {
            zone_bytes: self.geometry.band_bytes,
            zones: u64::from(self.geometry.band_count) - state.bands.retired().len() as u64,
            empty_zones: view.available_bands(Purpose::Table) as u64,
            shared_zones: state.pool.zones(),
            live_bytes: state.pool.live_bytes(),
        }
    }

    /// Names of the tables of the zone that is emptied next, if one should be. Only those count of which each may be copied.
    pub(super) fn tables_to_copy(&self, need: Need, may_be_copied: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
        let shared = self.shared.as_ref()?;
        if need == Need::None && !shared.budget.lock().allows() {
            return None;
        }
        let state = self.state.lock();
        if !self.fill(&state).is_due(need) {
            return None;
        }
        let (mut zones, open) = {
            let lifetimes = shared.sharing.lifetimes.lock();
            (state.pool.closed_zones(&lifetimes, need), state.pool.open_zones(&lifetimes))
        };
        let empty_zones = state.bands.view().available_bands(Purpose::Cleaning);
        let room_bytes = room_for_copies(&open, empty_zones, self.geometry.band_bytes);
        zones.retain(|zone| zone.copy_bytes <= room_bytes);
        let names: BTreeMap<u64, &String> =
            state.names.iter().filter(|(_, node)| !node.is_packed).map(|(name, node)| (node.file, name)).collect();
        while let Some(band) = emptied_first(&zones, self.geometry.band_bytes) {
            let named: Option<Vec<String>> = state
                .pool
                .tables_of(band)
                .iter()
                .map(|file| names.get(file).filter(|name| may_be_copied(name)).map(|name| (*name).clone()))
                .collect();
            if named.is_some() {
                return named;
            }
            zones.retain(|zone| zone.band != band);
        }
        None
    }
}
