//! When pages leave: functions of what is known.

use super::parameters::{BufferParameters, EvictionAhead};
use std::collections::BTreeMap;

/// Where the map on the medium stands in the way of one in so many pages, it is brought up to date.
const UNRECORDED_SHARE: u32 = 8;

/// What is known when room could be made. Pages are those of the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Situation {
    pub(super) now_nanos: u64,
    pub(super) free: usize,
    /// Free once the map on the medium says so.
    pub(super) unrecorded: usize,
    /// On their way to the disk.
    pub(super) leaving: usize,
    /// What those who wait need, together.
    pub(super) wanted: usize,
    pub(super) evictions: u32,
    /// The map on the medium is being brought up to date.
    pub(super) is_recording: bool,
    /// Requests of others at the disk.
    pub(super) outstanding: u32,
    /// Since when there is none, if so.
    pub(super) quiet_since_nanos: u64,
    /// The disk is left alone by its control.
    pub(super) is_held_back: bool,
    /// Pages could not leave when that was tried last.
    pub(super) has_failed: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Bring the map on the medium up to date.
    Record,
    /// Let pages leave, in so many writes at most.
    Evict { writes_max: usize },
    /// Nothing before then, if nothing changes.
    At(u64),
    /// Nothing, until something changes.
    WhenChanged,
}

impl BufferParameters {
    /// What somebody does who needs room that there is not.
    pub(super) fn turn_for_room(&self, found: &Situation) -> Turn {
        let short = found.wanted.saturating_sub(found.free);
        let share = self.share(UNRECORDED_SHARE);
        if !found.is_recording && found.unrecorded > 0 && found.unrecorded >= short.max(share) {
            return Turn::Record;
        }
        // What leaves already, or is being told as free, may be enough.
        let coming = found.leaving + if found.is_recording { found.unrecorded } else { 0 };
        if found.evictions < self.evictions_at_once.max(1) && coming < short {
            return Turn::Evict { writes_max: usize::MAX };
        }
        Turn::WhenChanged
    }

    /// What to do where nothing is left that could leave.
    pub(super) fn turn_without_pages(&self, found: &Situation) -> Turn {
        if found.unrecorded > 0 && !found.is_recording { Turn::Record } else { Turn::WhenChanged }
    }

    /// Whether fewer pages are free, or will be, than are to be.
    pub(super) fn is_short(&self, ahead: &EvictionAhead, found: &Situation) -> bool {
        found.free + found.leaving < self.share(ahead.reserve_share).max(1) + found.wanted
    }

    fn share(&self, of: u32) -> usize {
        self.page_count as usize / of.max(1) as usize
    }

    /// What to do before room is needed. While there is no hurry pages leave one write at a time, each when no request has been outstanding for
    /// a while: whoever comes meanwhile waits for no more.
    pub(super) fn turn_ahead(&self, ahead: &EvictionAhead, found: &Situation) -> Turn {
        if !self.is_short(ahead, found) || found.has_failed || found.is_held_back {
            return Turn::WhenChanged;
        }
        let is_urgent = found.free < self.share(ahead.urgent_share);
        if is_urgent {
            // Those who wait do it themselves.
            if found.evictions >= self.evictions_at_once.max(1) || found.wanted > 0 {
                return Turn::WhenChanged;
            }
        } else {
            if found.outstanding > 0 || found.evictions > 0 {
                return Turn::WhenChanged;
            }
            let due_nanos = found.quiet_since_nanos.saturating_add(ahead.quiet_nanos);
            if found.now_nanos < due_nanos {
                return Turn::At(due_nanos);
            }
        }
        if !found.is_recording && found.unrecorded >= self.share(ahead.reserve_share).div_ceil(2) {
            return Turn::Record;
        }
        Turn::Evict { writes_max: if is_urgent { self.requests_at_once.max(1) as usize } else { 1 } }
    }
}

/// Those who wait for room, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<u64, usize>,
    next_ticket: u64,
    wanted: usize,
}

impl Queue {
    /// Pages that all who wait need, together.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Joins at the end; gives the ticket.
    pub(super) fn join(&mut self, pages: usize) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, pages);
        self.wanted += pages;
        ticket
    }

    /// What this one needs is another number now.
    pub(super) fn need(&mut self, ticket: u64, pages: usize) {
        if let Some(own) = self.waiting.get_mut(&ticket) {
            self.wanted = self.wanted - *own + pages;
            *own = pages;
        }
    }

    /// Pages that this one and those before it need: with as many free it can go.
    pub(super) fn up_to(&self, ticket: u64) -> usize {
        self.waiting.range(..=ticket).map(|(_, pages)| pages).sum()
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        if let Some(pages) = self.waiting.remove(&ticket) {
            self.wanted -= pages;
        }
    }
}

/// Requests at the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiskLoad {
    pub(super) outstanding: u32,
    pub(super) quiet_since_nanos: u64,
}

impl DiskLoad {
    /// One goes there, if so.
    pub(super) fn begin(&mut self, is_one: bool) {
        self.outstanding += u32::from(is_one);
    }

    pub(super) fn end(&mut self, is_one: bool, now_nanos: u64) {
        if is_one {
            self.outstanding = self.outstanding.saturating_sub(1);
            self.quiet_since_nanos = now_nanos;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> BufferParameters {
        let parameters = BufferParameters { page_count: 320, evictions_at_once: 3, ..BufferParameters::default() };
        BufferParameters { requests_at_once: 8, ..parameters }
    }

    const AHEAD: EvictionAhead = EvictionAhead { reserve_share: 8, urgent_share: 32, quiet_nanos: 100 };

    #[test]
    fn as_many_evictions_begin_as_those_who_wait_need() {
        let turn = |found: Situation| parameters().turn_for_room(&found);
        let evict = Turn::Evict { writes_max: usize::MAX };
        let found = Situation { free: 2, wanted: 10, ..Situation::default() };
        assert_eq!(turn(found), evict);
        assert_eq!(turn(Situation { leaving: 7, evictions: 1, ..found }), evict);
        assert_eq!(turn(Situation { leaving: 8, evictions: 1, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { leaving: 3, evictions: 3, ..found }), Turn::WhenChanged);
    }

    #[test]
    fn the_map_is_brought_up_to_date_once_it_stands_in_the_way_of_many() {
        let turn = |found: Situation| parameters().turn_for_room(&found);
        let found = Situation { wanted: 10, unrecorded: 39, ..Situation::default() };
        assert_eq!(turn(found), Turn::Evict { writes_max: usize::MAX });
        let found = Situation { unrecorded: 40, ..found };
        assert_eq!(turn(found), Turn::Record);
        assert_eq!(turn(Situation { is_recording: true, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { wanted: 41, ..found }), Turn::Evict { writes_max: usize::MAX });
        // Nothing else may be left.
        let found = Situation { unrecorded: 1, ..Situation::default() };
        assert_eq!(parameters().turn_without_pages(&found), Turn::Record);
        assert_eq!(parameters().turn_without_pages(&Situation { is_recording: true, ..found }), Turn::WhenChanged);
        assert_eq!(parameters().turn_without_pages(&Situation::default()), Turn::WhenChanged);
    }

    #[test]
    fn ahead_of_need_pages_leave_in_gaps() {
        let turn = |found: Situation| parameters().turn_ahead(&AHEAD, &found);
        let found = Situation { now_nanos: 1000, free: 39, quiet_since_nanos: 900, ..Situation::default() };
        let one = Turn::Evict { writes_max: 1 };
        assert_eq!(turn(found), one);
        assert_eq!(turn(Situation { free: 40, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { leaving: 1, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { now_nanos: 950, ..found }), Turn::At(1000));
        assert_eq!(turn(Situation { outstanding: 1, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { evictions: 1, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { is_held_back: true, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { has_failed: true, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { unrecorded: 20, ..found }), Turn::Record);
        assert_eq!(turn(Situation { unrecorded: 20, is_recording: true, ..found }), one);
        // There is a hurry.
        let found = Situation { free: 9, outstanding: 5, ..found };
        assert_eq!(turn(found), Turn::Evict { writes_max: 8 });
        assert_eq!(turn(Situation { evictions: 3, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { wanted: 1, ..found }), Turn::WhenChanged);
        assert_eq!(turn(Situation { is_held_back: true, ..found }), Turn::WhenChanged);
    }

    #[test]
    fn nobody_is_overtaken_by_who_came_later() {
        let mut queue = Queue::default();
        let (first, second, third) = (queue.join(4), queue.join(1), queue.join(2));
        assert_eq!((queue.up_to(first), queue.up_to(second), queue.up_to(third), queue.wanted()), (4, 5, 7, 7));
        queue.need(first, 2);
        queue.need(99, 5);
        assert_eq!((queue.up_to(second), queue.wanted()), (3, 5));
        queue.leave(first);
        queue.leave(first);
        assert_eq!((queue.up_to(third), queue.wanted()), (3, 3));
    }
}
