//! The translation layer of a shingled disk that may be written anywhere.
//!
//! Writes at the pointer of a zone go to their place; others go to the media cache, a log at the beginning of the disk, and
//! make their zone non-sequential until it is cleaned: what lies between its first update and its pointer is read, and written
//! back with what the cache has of it. An idle cleaning begins after a while without commands; at the next command it stops, or
//! finishes its zone while requests are served between its steps. A blocking cleaning begins when a write finds cache or map full:
//! requests wait in order of arrival, and some are served between two steps.
//!
//! The layer is itself a model of time over one of the disk below, without thread or clock: its cleanings are requests of that
//! disk, of a track each, at most two at once, which are not called off once they began. Where bytes lie is a matter of time
//! only: the bytes of the device are kept by their addresses, and what is in the cache survives a power cut by decree.
//! Why it is made so: docs/design/0011.

mod cache;
mod extents;
mod lasting;
mod parameters;
mod record;
mod recorded;
#[cfg(test)]
mod tests;

pub use parameters::{
    CleaningOrder, Interrupted, ST8000AS0022_PUBLISHED_CACHE_BYTES, SpaceReclaim, TranslationParameters,
};
pub use record::MediaCacheRecord;
pub(crate) use record::fuzz as fuzz_media_cache_record;
pub(crate) use recorded::CacheRecorded;
pub use recorded::Translation;

use super::{MediaCounters, Task, Timing, Work};
use crate::device::{Capabilities, CleaningCounters};
use crate::emulated::rules::ZoneTable;
use crate::zones::{ZoneGeometry, ZoneId};
use cache::{Cache, Step};
use lasting::{Journal, Lasting, UnderWay};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one request of a cleaning: about a track.
const UNIT_BYTES: u64 = 2 << 20;
/// Requests of a cleaning in flight: one that the arm is at, and one so that it goes on without losing a rotation.
const DEPTH: usize = 2;

/// See the module's comment. The device below has the media cache before everything else, and must be as much larger.
pub struct TranslationLayer {
    inner: Box<dyn Timing>,
    parameters: TranslationParameters,
    zones: ZoneGeometry,
    table: Arc<Mutex<ZoneTable>>,
    cache: Cache,
    now_nanos: u64,
    /// When the host was last heard of.
    quiet_since_nanos: u64,
    /// Requests of the host in the device below or waiting here: how many parts of each are open.
    open: BTreeMap<u64, usize>,
    /// Whose the requests in the device below are.
    owners: BTreeMap<u64, Owner>,
    next_inner: u64,
    /// The device below got requests and was not moved on since.
    is_fresh: bool,
    /// Requests that wait for a step to end or for space, in order of arrival.
    held: VecDeque<Task>,
    mode: Mode,
    cleaning: Option<Cleaning>,
    /// Distinguishes cleanings: what a given up one still had in flight counts for nothing.
    cleanings: u64,
    /// Where what changes of what lasts is noted, and what was noted last as under way.
    journal: Option<Journal>,
    noted: UnderWay,
    counters: CleaningCounters,
    completed: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Host(u64),
    Cleaning(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// What the host wants.
    Serving,
    /// Cleaning until the host wants anything.
    Idle,
    /// An idle cleaning that finishes its zone while the host wants something.
    Finishing,
    /// Cleaning until there is space.
    Blocking,
}

impl Mode {
    /// True if requests wait for the running step.
    fn is_holding(self) -> bool {
        matches!(self, Mode::Finishing | Mode::Blocking)
    }
}

/// A zone that is being cleaned.
#[derive(Debug)]
struct Cleaning {
    number: u64,
    /// What its step was planned for.
    mode: Mode,
    zone: ZoneId,
    pointer: u64,
    /// What is left of the zone, the present step included.
    rest: Range<u64>,
    step: Step,
    /// Requests of the step that were begun, and that are in flight.
    begun: usize,
    in_flight: usize,
    /// Something was written in the step's part since it was planned.
    is_stale: bool,
    /// Something was written in what is not left of the zone.
    is_rewritten: bool,
    /// A step of it is done.
    has_done_step: bool,
}

impl Cleaning {
    /// The next request of the step. Nothing is written before all is read.
    fn next(&self) -> Option<(Work, Range<u64>)> {
        let reads = self.step.reads.len();
        if let Some(range) = self.step.reads.get(self.begun) {
            return Some((Work::Read, range.clone()));
        }
        if self.begun == reads && self.in_flight > 0 {
            return None;
        }
        let range = self.step.writes.get(self.begun - reads)?;
        Some((Work::Write { durable: true }, range.clone()))
    }

    fn is_at_end_of_step(&self) -> bool {
        self.in_flight == 0 && self.begun == self.step.reads.len() + self.step.writes.len()
    }
}

impl TranslationLayer {
    /// A layer over `inner`, with the zones of `table`, which it moves from now on.
    pub(crate) fn new(parameters: TranslationParameters, table: Arc<Mutex<ZoneTable>>, inner: Box<dyn Timing>) -> Self {
        let layer = TranslationLayer::over(parameters, table, inner);
        let mut lasting = Lasting { cache: layer.cache, under_way: UnderWay::default() };
        lasting.reconcile(&mut layer.table.lock());
        TranslationLayer { cache: lasting.cache, ..layer }
    }

    /// A layer with nothing in its cache.
    fn over(parameters: TranslationParameters, table: Arc<Mutex<ZoneTable>>, inner: Box<dyn Timing>) -> Self {
        let zones = {
            let mut table = table.lock();
            table.translate();
            table.geometry().clone()
        };
        TranslationLayer {
            cache: Cache::new(parameters.media_cache, parameters.is_endless),
            inner,
            zones,
            table,
            now_nanos: 0,
            quiet_since_nanos: 0,
            open: BTreeMap::new(),
            owners: BTreeMap::new(),
            next_inner: 0,
            is_fresh: false,
            held: VecDeque::new(),
            mode: Mode::Serving,
            cleaning: None,
            cleanings: 0,
            journal: None,
            noted: UnderWay::default(),
            counters: CleaningCounters::default(),
            completed: Vec::new(),
            parameters,
        }
    }

    /// The same of what `record` kept of such a layer; what lasts is noted in it from now on. An endless cache is not kept.
    pub(crate) fn recorded(
        parameters: TranslationParameters,
        table: Arc<Mutex<ZoneTable>>,
        inner: Box<dyn Timing>,
        record: &mut MediaCacheRecord,
    ) -> Self {
        if parameters.is_endless {
            return TranslationLayer::new(parameters, table, inner);
        }
        let mut layer = TranslationLayer::over(parameters, table, inner);
        layer.go_on(record);
        layer
    }

    /// Where byte 0 of the address space lies on the device below.
    fn home(&self) -> u64 {
        self.parameters.home_bytes()
    }

    fn pointer(&self, zone: ZoneId) -> u64 {
        self.zones.start_bytes(zone) + self.table.lock().state(zone).pointer_bytes
    }

    fn begin(&mut self, owner: Owner, work: Work, range: Range<u64>) {
        let id = self.next_inner;
        self.next_inner += 1;
        self.owners.insert(id, owner);
        if let Owner::Host(host) = owner
            && let Some(open) = self.open.get_mut(&host)
        {
            *open += 1;
        }
        let task = Task { id, work, offset_bytes: range.start, length_bytes: range.end - range.start };
        self.inner.submit(self.now_nanos, task);
        self.is_fresh = true;
    }

    /// Hands a request on as far as there is space; what is left of it.
    fn serve(&mut self, task: Task) -> Option<Task> {
        let range = task.offset_bytes..task.offset_bytes + task.length_bytes;
        let owner = Owner::Host(task.id);
        let home = self.home();
        match task.work {
            Work::Read => {
                for piece in self.cache.map().pieces(&range) {
                    let length = piece.range.end - piece.range.start;
                    let at = piece.cached_at.unwrap_or(home + piece.range.start);
                    self.begin(owner, task.work, at..at + length);
                }
            }
            Work::Write { .. } => return self.write(task, range),
            Work::Discard | Work::ResetZone => {
                let zones: Vec<ZoneId> = self.zones.zones_in(&range).collect();
                for zone in zones {
                    let own = self.zones.range(zone);
                    if range.start <= own.start && own.end <= range.end {
                        self.give_up(zone);
                        self.release(zone, &own);
                    } else {
                        self.touch(zone, &range);
                        self.forget(&range);
                    }
                }
                self.begin(owner, task.work, home + range.start..home + range.end);
            }
            Work::FinishZone => self.begin(owner, task.work, home + range.start..home + range.end),
            Work::ManageZone | Work::Flush => self.begin(owner, task.work, 0..0),
        }
        None
    }

    fn write(&mut self, task: Task, range: Range<u64>) -> Option<Task> {
        let mut from = range.start;
        while from < range.end {
            let Some(zone) = self.zones.zone_at(from) else {
                // Behind the last zone nothing is shingled.
                self.begin(Owner::Host(task.id), task.work, self.home() + from..self.home() + range.end);
                return None;
            };
            let whole = from..range.end.min(self.zones.range(zone).end);
            let in_place = !self.cache.holds(zone) && self.table.lock().is_in_place(zone, &whole);
            let piece = match in_place {
                true => whole,
                false => from..whole.end.min(from.saturating_add(self.cache.piece_bytes_max())),
            };
            let length = piece.end - piece.start;
            if !in_place && !self.cache.fits(length, self.parameters.reclaim) {
                let length_bytes = range.end - from;
                return Some(Task { offset_bytes: from, length_bytes, ..task });
            }
            self.table.lock().place(zone, &piece);
            from = piece.end;
            let place = if in_place {
                self.home() + piece.start..self.home() + piece.end
            } else {
                self.touch(zone, &piece);
                self.counters.cached_writes += 1;
                self.counters.cached_bytes += length;
                self.append(zone, piece)
            };
            self.begin(Owner::Host(task.id), task.work, place);
        }
        None
    }

    /// Notes that a part of a zone changes that may be in a step.
    fn touch(&mut self, zone: ZoneId, changed: &Range<u64>) {
        if let Some(cleaning) = &mut self.cleaning
            && cleaning.zone == zone
        {
            let part = &cleaning.step.part;
            cleaning.is_stale |= changed.start < part.end && part.start < changed.end;
            cleaning.is_rewritten |= changed.start < cleaning.rest.start || cleaning.rest.end < changed.end;
        }
    }

    /// Ends the cleaning of a zone, if it is that one, and forgets how far it was.
    fn give_up(&mut self, zone: ZoneId) {
        if self.cleaning.as_ref().is_some_and(|cleaning| cleaning.zone == zone) {
            self.cleaning = None;
        }
    }

    /// Follows a command that calls an idle cleaning off.
    fn interrupt(&mut self) {
        self.counters.interrupted_cleanings += 1;
        match self.parameters.interrupted {
            Interrupted::GoesOn => {}
            Interrupted::FinishesZone => {
                if self.cleaning.as_ref().is_some_and(|cleaning| cleaning.has_done_step) {
                    self.mode = Mode::Finishing;
                } else {
                    self.repeat_step();
                }
            }
            Interrupted::RepeatsZone => self.cleaning = None,
            Interrupted::RepeatsStep => self.repeat_step(),
        }
    }

    /// Gives up what is done of the step under way.
    fn repeat_step(&mut self) {
        self.cleanings += 1;
        if let Some(cleaning) = &mut self.cleaning {
            (cleaning.number, cleaning.begun, cleaning.in_flight) = (self.cleanings, 0, 0);
        }
    }

    /// Serves a request, or lets it wait until there is space.
    fn take(&mut self, task: Task) {
        if self.mode.is_holding() || !self.held.is_empty() {
            self.held.push_back(task);
            return;
        }
        if let Some(rest) = self.serve(task) {
            self.held.push_back(rest);
            self.mode = Mode::Blocking;
            self.counters.blocking_cleanings += 1;
        }
        self.complete_if_done(task.id);
    }

    /// Completes a request of which no part is open or held.
    fn complete_if_done(&mut self, id: u64) {
        let is_held = self.held.iter().any(|task| task.id == id);
        if !is_held && self.open.get(&id) == Some(&0) {
            self.open.remove(&id);
            self.quiet_since_nanos = self.now_nanos;
            self.completed.push(id);
        }
    }

    /// When an idle cleaning begins, unless something happens before.
    fn trigger_nanos(&self) -> Option<u64> {
        let rests = self.mode == Mode::Serving && self.open.is_empty() && !self.cache.is_empty();
        rests.then(|| self.quiet_since_nanos + self.parameters.idle_trigger_nanos)
    }

    /// The cleaning to go on with, planned if there was none or what was planned is out of date.
    fn plan(&mut self) -> bool {
        if let Some(cleaning) = &self.cleaning {
            let is_stale = cleaning.is_stale && cleaning.in_flight == 0;
            // Longer steps in place of one that was not begun.
            if is_stale || (cleaning.begun == 0 && cleaning.in_flight == 0 && cleaning.mode != self.mode) {
                self.plan_step();
            }
            return true;
        }
        let pointer = |zone| self.pointer(zone);
        let Some(zone) = self.cache.next_zone(self.parameters.order, &self.zones, pointer) else { return false };
        let pointer = self.pointer(zone);
        let rest = self.cache.span(&self.zones.range(zone), pointer);
        let step = self.step(&rest, pointer);
        self.cleanings += 1;
        let (number, mode, begun, in_flight) = (self.cleanings, self.mode, 0, 0);
        let (is_stale, is_rewritten, has_done_step) = (false, false, false);
        self.cleaning = Some(Cleaning {
            number,
            mode,
            zone,
            pointer,
            rest,
            step,
            begun,
            in_flight,
            is_stale,
            is_rewritten,
            has_done_step,
        });
        true
    }

    /// Plans the next step of the cleaning under way.
    fn plan_step(&mut self) {
        let mode = self.mode;
        let Some(step) = self.cleaning.as_ref().map(|cleaning| self.step(&cleaning.rest, cleaning.pointer)) else {
            return;
        };
        if let Some(cleaning) = &mut self.cleaning {
            (cleaning.step, cleaning.begun, cleaning.is_stale, cleaning.mode) = (step, 0, false, mode);
        }
    }

    /// The next step of what is left of a zone.
    fn step(&self, rest: &Range<u64>, pointer: u64) -> Step {
        let step_bytes = match self.mode {
            Mode::Blocking => self.parameters.blocking_step_bytes,
            _ => self.parameters.idle_step_bytes,
        };
        self.cache.step(rest, pointer, step_bytes, self.home(), UNIT_BYTES.min(step_bytes.max(1)))
    }

    /// Follows a step that is done; true if it was.
    fn end_step(&mut self) -> bool {
        let Some(cleaning) = self.cleaning.as_mut().filter(|cleaning| cleaning.is_at_end_of_step()) else {
            return false;
        };
        if cleaning.is_stale {
            return false;
        }
        let part = cleaning.step.part.clone();
        cleaning.rest.start = part.end;
        cleaning.has_done_step = true;
        let (zone, pointer) = (cleaning.zone, cleaning.pointer.max(part.end));
        let (own, is_more) = (self.zones.range(zone), cleaning.rest.start < cleaning.rest.end);
        // What may have to be done again stays in the cache until all of it is done.
        let is_kept = self.mode == Mode::Idle && self.parameters.interrupted == Interrupted::RepeatsZone;
        let is_rewritten = cleaning.is_rewritten;
        if !is_kept {
            self.forget(&part);
        }
        if is_more {
            self.plan_step();
            return true;
        }
        self.cleaning = None;
        let is_left = if is_kept { is_rewritten } else { self.cache.map().within(&own).next().is_some() };
        if is_left {
            // Written to meanwhile, before what was done: it is cleaned once more.
            if !is_kept {
                self.keep_rest(zone, &own);
            }
            self.table.lock().cleaned_in_part(zone, pointer - own.start);
            return true;
        }
        self.release(zone, &own);
        self.table.lock().cleaned(zone, pointer - own.start);
        match self.mode {
            Mode::Blocking => self.counters.blocking_cleaned_zones += 1,
            _ => self.counters.idle_cleaned_zones += 1,
        }
        true
    }

    /// Serves at most `most` requests that waited for space or for a step, in order of arrival, up to the first one without space.
    fn serve_held(&mut self, most: usize) {
        for _ in 0..most {
            let Some(task) = self.held.pop_front() else { return };
            if let Some(rest) = self.serve(task) {
                self.held.push_front(rest);
                return;
            }
            self.complete_if_done(task.id);
        }
    }

    /// Serves all requests that waited; false if one finds no space, so that a blocking cleaning begins or continues.
    fn end_holding(&mut self) -> bool {
        let was_blocking = self.mode == Mode::Blocking;
        self.mode = Mode::Serving;
        self.serve_held(usize::MAX);
        if !self.held.is_empty() {
            self.mode = Mode::Blocking;
            self.counters.blocking_cleanings += u64::from(!was_blocking);
        }
        self.mode == Mode::Serving
    }

    /// Begins what is to be done now.
    fn pump(&mut self) {
        loop {
            let ended = self.end_step();
            if self.mode == Mode::Serving {
                return;
            }
            if self.mode.is_holding() && ended {
                let is_over = match self.mode {
                    Mode::Finishing => self.cleaning.is_none(),
                    _ => self.cache.is_below(self.parameters.blocking_stop_percent, self.parameters.reclaim),
                };
                match is_over {
                    true if self.end_holding() => return,
                    true => {}
                    false => self.serve_held(self.parameters.requests_between_steps.max(1) as usize),
                }
            }
            // A step begins when what was served before it is done.
            let is_served = self.owners.values().all(|owner| matches!(owner, Owner::Cleaning(_)));
            let at_beginning = self.cleaning.as_ref().is_none_or(|cleaning| cleaning.begun == 0);
            if self.mode.is_holding() && at_beginning && !is_served {
                return;
            }
            // The zone that was to be finished was reset or discarded.
            let is_pointless = self.mode == Mode::Finishing && self.cleaning.is_none();
            if is_pointless || !self.plan() {
                // All is clean.
                if self.mode == Mode::Idle || self.end_holding() {
                    self.mode = Mode::Serving;
                    return;
                }
                continue;
            }
            let Some(cleaning) = &mut self.cleaning else { return };
            if cleaning.is_stale {
                return;
            }
            if cleaning.is_at_end_of_step() {
                // There was nothing to do.
                continue;
            }
            let number = cleaning.number;
            let Some((work, range)) = cleaning.next().filter(|_| cleaning.in_flight < DEPTH) else { return };
            cleaning.begun += 1;
            cleaning.in_flight += 1;
            self.begin(Owner::Cleaning(number), work, range);
        }
    }

    /// Follows a request of the device below that is done.
    fn ended(&mut self, inner: u64) {
        match self.owners.remove(&inner) {
            Some(Owner::Host(id)) => {
                if let Some(open) = self.open.get_mut(&id) {
                    *open -= 1;
                }
                self.complete_if_done(id);
            }
            Some(Owner::Cleaning(number)) => {
                if let Some(cleaning) = self.cleaning.as_mut().filter(|cleaning| cleaning.number == number) {
                    cleaning.in_flight -= 1;
                }
            }
            None => {}
        }
    }

    /// Moves on to `nanos`, at which something happens below or a cleaning begins.
    fn pass(&mut self, nanos: u64) {
        let passed = nanos.saturating_sub(self.now_nanos);
        match self.mode {
            Mode::Serving => {}
            Mode::Idle | Mode::Finishing => self.counters.idle_cleaning_nanos += passed,
            Mode::Blocking => self.counters.blocking_cleaning_nanos += passed,
        }
        self.now_nanos = self.now_nanos.max(nanos);
        let mut done = Vec::new();
        self.inner.advance(self.now_nanos, &mut done);
        done.into_iter().for_each(|inner| self.ended(inner));
    }
}

impl Timing for TranslationLayer {
    fn describe(&self, capabilities: &mut Capabilities) {
        self.inner.describe(capabilities);
    }

    fn submit(&mut self, now_nanos: u64, task: Task) {
        self.now_nanos = self.now_nanos.max(now_nanos);
        if self.mode == Mode::Idle {
            self.mode = Mode::Serving;
            self.interrupt();
        }
        self.quiet_since_nanos = self.now_nanos;
        self.open.insert(task.id, 0);
        self.take(task);
        self.pump();
        self.note_under_way();
    }

    fn advance(&mut self, now_nanos: u64, completed: &mut Vec<u64>) {
        loop {
            // What the device below does with a request it begins when it is moved on.
            while std::mem::take(&mut self.is_fresh) {
                self.pass(self.now_nanos);
                self.pump();
            }
            let below = if self.owners.is_empty() { None } else { self.inner.next_event_nanos() };
            let trigger = self.trigger_nanos();
            let Some(next) = below.into_iter().chain(trigger).min().filter(|&next| next <= now_nanos) else { break };
            self.pass(next);
            if self.trigger_nanos().is_some_and(|trigger| trigger <= self.now_nanos) {
                self.mode = Mode::Idle;
            }
            self.pump();
        }
        self.pass(now_nanos);
        self.note_under_way();
        completed.append(&mut self.completed);
    }

    fn next_event_nanos(&self) -> Option<u64> {
        if !self.completed.is_empty() {
            return Some(self.now_nanos);
        }
        if self.open.is_empty() { None } else { self.inner.next_event_nanos() }
    }

    fn counters(&self, now_nanos: u64) -> MediaCounters {
        let cleaning = CleaningCounters {
            extents: self.cache.map().len() as u64,
            non_sequential_zones: self.cache.zone_count() as u64,
            ..self.counters
        };
        MediaCounters { cleaning, ..self.inner.counters(now_nanos) }
    }
}
