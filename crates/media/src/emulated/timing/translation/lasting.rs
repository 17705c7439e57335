//! What of a translation layer lasts: what is in the cache, and which zone is being cleaned.

use super::cache::{Cache, SECTOR_BYTES};
use super::record::MediaCacheRecord;
use super::{Cleaning, Mode, Step, TranslationLayer};
use crate::emulated::rules::ZoneTable;
use crate::emulated::timing::{Interrupted, SpaceReclaim};
use crate::zones::{MediaCache, ZoneGeometry, ZoneId};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// How far the cleaning of a zone is. Bytes of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) zone: ZoneId,
    /// Where the pointer of the zone stood.
    pub(super) pointer: u64,
    /// What is left.
    pub(super) rest: Range<u64>,
}

/// What the layer is at beside what the host wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) cleaning: Option<Progress>,
    /// Requests wait until there is space.
    pub(super) is_blocking: bool,
}

/// A change of what lasts. Of the same changes comes the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A piece of one zone went to the cache.
    Appended { zone: ZoneId, range: Range<u64> },
    /// A part of a zone lies in its place, or is discarded.
    Forgotten { range: Range<u64> },
    /// Nothing of a zone is in the cache any more.
    Released { zone: ZoneId },
    /// A zone was cleaned, and only what was written meanwhile is left of it.
    KeptRest { zone: ZoneId },
    /// What is under way from then on.
    UnderWay(UnderWay),
}

/// Changes in their order that nobody has taken note of yet.
pub(super) type Journal = Arc<Mutex<Vec<Change>>>;

/// Cache, map, and what is under way.
#[derive(Clone, Debug)]
pub(super) struct Lasting {
    pub(super) cache: Cache,
    pub(super) under_way: UnderWay,
}

impl Lasting {
    /// Nothing in the cache.
    pub(super) fn new(limits: MediaCache) -> Self {
        Lasting { cache: Cache::new(limits, false), under_way: UnderWay::default() }
    }

    /// Follows a change.
    pub(super) fn apply(&mut self, change: &Change, zones: &ZoneGeometry) {
        match change {
            Change::Appended { zone, range } => _ = self.cache.append(*zone, range.clone()),
            Change::Forgotten { range } => self.cache.forget(range),
            Change::Released { zone } => {
                self.cache.release(*zone, &zones.range(*zone));
                self.give_up(*zone);
            }
            Change::KeptRest { zone } => _ = self.cache.keep_rest(*zone, &zones.range(*zone)),
            Change::UnderWay(under_way) => self.under_way = under_way.clone(),
        }
    }

    fn give_up(&mut self, zone: ZoneId) {
        self.under_way.cleaning.take_if(|progress| progress.zone == zone);
    }

    /// Brings what was kept into line with the zones, of which more or less may have been kept. Nothing is in the cache of a
    /// zone that is sequential. Of one that is not, of which nothing is known, the last sector is taken; where there is no
    /// space for that, the zone is taken to be clean.
    pub(super) fn reconcile(&mut self, table: &mut ZoneTable) {
        let zones = table.geometry().clone();
        for zone in (0..zones.zone_count).map(ZoneId) {
            let (state, own) = (table.state(zone), zones.range(zone));
            let written = own.start + state.written_bytes.min(zones.zone_bytes);
            if self.cache.holds(zone) {
                // What was on its way when the record ended is not in the zone.
                let beyond = written..own.end;
                if self.cache.map().within(&beyond).next().is_some() {
                    self.cache.forget(&beyond);
                }
                let pointer = own.start + state.pointer_bytes;
                let cleaning = &mut self.under_way.cleaning;
                cleaning.take_if(|progress| {
                    progress.zone == zone && (progress.pointer != pointer || progress.rest.end > written.max(pointer))
                });
                let is_begun = self.under_way.cleaning.as_ref().is_some_and(|progress| progress.zone == zone);
                if state.non_sequential && (is_begun || self.cache.map().within(&own).next().is_some()) {
                    continue;
                }
                self.cache.release(zone, &own);
                self.give_up(zone);
            }
            if !state.non_sequential {
                continue;
            }
            let end = written.max(own.start + SECTOR_BYTES);
            if self.cache.fits(SECTOR_BYTES, SpaceReclaim::Zone) {
                self.cache.append(zone, end - SECTOR_BYTES..end);
            } else {
                table.cleaned(zone, state.written_bytes);
            }
        }
        // What is not in the cache is not cleaned.
        let cache = &self.cache;
        self.under_way.cleaning.take_if(|progress| !cache.holds(progress.zone));
        self.under_way.is_blocking &= !cache.is_empty();
    }
}

impl TranslationLayer {
    /// Goes on with what was kept of a layer over the same zones, and notes from now on what changes. A step that was under way
    /// is done again.
    pub(super) fn go_on(&mut self, record: &mut MediaCacheRecord) {
        let mut lasting = record.lasting().clone();
        lasting.reconcile(&mut self.table.lock());
        if self.parameters.interrupted == Interrupted::RepeatsZone && !lasting.under_way.is_blocking {
            lasting.under_way.cleaning = None;
        }
        self.journal = Some(record.begin(lasting.clone()));
        self.noted = lasting.under_way.clone();
        let Lasting { cache, under_way: UnderWay { cleaning, is_blocking } } = lasting;
        self.cache = cache;
        self.cleaning = cleaning.map(|Progress { zone, pointer, rest }| Cleaning {
            number: self.cleanings,
            mode: Mode::Serving,
            zone,
            pointer,
            rest,
            step: Step::default(),
            begun: 0,
            in_flight: 0,
            is_stale: true,
            is_rewritten: false,
            has_done_step: false,
        });
        if is_blocking {
            self.mode = Mode::Blocking;
            self.pump();
        }
    }

    fn note(&self, change: impl FnOnce() -> Change) {
        if let Some(journal) = &self.journal {
            journal.lock().push(change());
        }
    }

    /// Notes what is under way if it is something else than it was.
    pub(super) fn note_under_way(&mut self) {
        if self.journal.is_none() {
            return;
        }
        let is_blocking = self.mode == Mode::Blocking;
        let (cleaning, noted) = (self.cleaning.as_ref(), self.noted.cleaning.as_ref());
        let is_same = cleaning.map(|cleaning| (cleaning.zone, cleaning.pointer, &cleaning.rest))
            == noted.map(|progress| (progress.zone, progress.pointer, &progress.rest));
        if is_same && is_blocking == self.noted.is_blocking {
            return;
        }
        let cleaning = cleaning.map(|Cleaning { zone, pointer, rest, .. }| Progress {
            zone: *zone,
            pointer: *pointer,
            rest: rest.clone(),
        });
        self.noted = UnderWay { cleaning, is_blocking };
        self.note(|| Change::UnderWay(self.noted.clone()));
    }

    /// Takes a piece that fits into the cache, and says which bytes of it it goes to.
    pub(super) fn append(&mut self, zone: ZoneId, range: Range<u64>) -> Range<u64> {
        self.note(|| Change::Appended { zone, range: range.clone() });
        self.cache.append(zone, range)
    }

    /// Forgets what is cached of a part of a zone.
    pub(super) fn forget(&mut self, part: &Range<u64>) {
        if self.cache.map().within(part).next().is_some() {
            self.note(|| Change::Forgotten { range: part.clone() });
            self.cache.forget(part);
        }
    }

    /// Gives back the space of a zone that was cleaned, but for what was written meanwhile.
    pub(super) fn keep_rest(&mut self, zone: ZoneId, own: &Range<u64>) {
        self.note(|| Change::KeptRest { zone });
        self.counters.released_bytes += self.cache.keep_rest(zone, own);
    }

    /// Gives back the space of a zone of which nothing is needed any more.
    pub(super) fn release(&mut self, zone: ZoneId, own: &Range<u64>) {
        if self.cache.holds(zone) {
            self.note(|| Change::Released { zone });
            self.counters.released_bytes += self.cache.release(zone, own);
        }
    }
}

#[cfg(test)]
mod tests;
