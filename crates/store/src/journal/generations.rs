//! Which generation of a journal in [zones](super::zones) counts.
//!
//! *Durable* is what was there at a sync of the device: where the pointer of a zone stands is what the device promises then, so
//! nothing is written durably by itself.
//!
//! *A generation has begun* in a group when the first commit of its log, which says nothing, is there: it is written when
//! everything before it is durable. A group whose log proves that it has not begun holds nothing.
//!
//! *Two copies.* A commit is acknowledged when it is durable in both copies of its generation. The next generation is
//! begun in the third group, and then in one of the two that held the one before it; the other keeps that one until then.
//! So at each moment two groups hold all that was acknowledged, and any one of them may be lost.
//!
//! *A group that cannot be read* may hold a newer generation than those that can be. But then one of the two groups that
//! can be read holds the same: a second copy was written before anything was acknowledged. So one such group is borne.
//! With two of them opening is an error, even where the third holds a generation that is whole. A group that was given up
//! before a generation began holds no later one; the superblock says which are.
//!
//! *What is not borne*: a second group that cannot be read at the moment at which only two groups are left, a new generation
//! is begun in one of them, and power fails.

use super::log::{LogReader, LogTail};
use super::place::Place;
use super::superblock::{self, Slot, Superblock};
use super::zones::{GroupLayout, MetadataZones};
use super::{checkpoint, corruption};
use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::identity::block::{self, IdentityBlock, Presence};
use crate::identity::{self, OpenedAs};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use varve_media::Device;

/// A generation that has begun.
pub(super) struct Begun {
    pub(super) groups: Vec<Place>,
    /// Groups that hold it, with the commits each of them has.
    pub(super) holders: Vec<(usize, u64)>,
    /// Groups that hold no later generation: a bit for each.
    pub(super) given_up: u8,
    /// The copy that has most.
    pub(super) place: Place,
    pub(super) superblock: Superblock,
    pub(super) findings: Vec<Finding>,
    pub(super) checkpoint: Vec<u8>,
    /// Content of its log after the first commit.
    pub(super) tail: LogTail,
}

/// Content of a journal in zones.
enum Found {
    Blank,
    /// A store is being made, or its making was interrupted.
    Unfinished(IdentityBlock),
    Begun(Box<Begun>),
}

/// Content of a group without superblocks.
enum Head {
    Blank,
    Mark(IdentityBlock),
    /// It cannot be known what it holds.
    Unknown(StoreError),
    Superblock(Superblock, Vec<Finding>),
}

/// A group with a superblock.
struct Candidate {
    group: usize,
    superblock: Superblock,
    findings: Vec<Finding>,
}

/// A copy of a generation that has begun, read to its end.
struct CopyRead {
    candidate: Candidate,
    tail: LogTail,
    checkpoint: Vec<u8>,
}

/// The rank of what lies in the places of superblocks: a store that is whole comes behind the marks of its making.
pub(super) fn rank(slots: &[Slot; 2]) -> (u64, bool) {
    let of_slot = |slot: &Slot| match slot {
        Slot::Valid(superblock) => (superblock.generation, true),
        Slot::Identity(block) => (block.generation, false),
        _ => (0, false),
    };
    of_slot(&slots[0]).max(of_slot(&slots[1]))
}

/// The superblocks of the newest generation; `None` of a device whose journal lies elsewhere.
pub(super) fn newest_slots(device: &Device, label: &str) -> Option<[Slot; 2]> {
    let zones = MetadataZones::of(device, label)?;
    let scan = match zones.scan() {
        Ok(scan) => scan,
        Err(error) => return Some([Slot::Damaged(error.clone()), Slot::Damaged(error)]),
    };
    if scan.is_at_fixed_offsets {
        return Some(zones.slots_at_fixed_offsets());
    }
    Some(match (scan.layout, scan.mark) {
        (Some(layout), _) => {
            let mut slots: Vec<[Slot; 2]> = zones.groups(layout).iter().map(superblock::slots_in).collect();
            // The first of equal ones.
            slots.sort_by_key(|slots| Reverse(rank(slots)));
            slots.swap_remove(0)
        }
        (None, Some(mark)) => [Slot::Identity(mark.clone()), Slot::Identity(mark)],
        (None, None) => superblock::slots_in(&zones.header_at(0)),
    })
}

/// The mark of a store that is not whole.
pub(super) fn mark_in(slots: &[Slot; 2]) -> Option<IdentityBlock> {
    slots.iter().find_map(|slot| match slot {
        Slot::Identity(block) if block.is_unfinished => Some(block.clone()),
        _ => None,
    })
}

/// Looks for the newest generation that has begun; `None` of a device whose journal lies elsewhere. What is being made is of the kind
/// it is opened as. Reads everything that has begun.
fn find(device: &Device, label: &str, opened_as: &OpenedAs) -> Option<Result<Found, StoreError>> {
    if !opened_as.is_in_order {
        return None;
    }
    let zones = MetadataZones::of(device, label)?;
    let found = find_in(&zones, opened_as).and_then(|found| {
        if let Found::Unfinished(mark) = &found {
            identity::refuse_other(label, 0, mark.kind, &mark.identity.shape, opened_as)?;
        }
        Ok(found)
    });
    Some(found)
}

fn find_in(zones: &MetadataZones<'_>, opened_as: &OpenedAs) -> Result<Found, StoreError> {
    let scan = zones.scan()?;
    if scan.is_at_fixed_offsets {
        let place = Place::whole(zones.device, zones.label);
        let (superblock, ..) = superblock::choose(&place, opened_as, superblock::slots_in(&place))?;
        let found = format!("one at fixed offsets, generation {}", superblock.generation);
        return Err(corruption(zones.label, "superblock", 0, "a journal in groups of zones", found));
    }
    match (scan.layout, scan.mark) {
        (Some(layout), _) => Groups::read(zones, layout, opened_as)?.newest_begun(zones),
        (None, Some(mark)) => Ok(Found::Unfinished(mark)),
        (None, None) => {
            let place = zones.header_at(0);
            let slots = superblock::slots_in(&place);
            match slots.iter().all(|slot| matches!(slot, Slot::Blank)) {
                true => Ok(Found::Blank),
                // It says what is wrong with them: none is valid.
                false => superblock::choose(&place, opened_as, slots).map(|_| Found::Blank),
            }
        }
    }
}

/// The groups of a journal as they are found.
struct Groups {
    places: Vec<Place>,
    copies: usize,
    mark: Option<IdentityBlock>,
    /// Groups of which it cannot be known what they hold.
    unknown: BTreeMap<usize, StoreError>,
    blank: Vec<usize>,
    /// The newest first.
    candidates: Vec<Candidate>,
}

impl Groups {
    fn read(zones: &MetadataZones<'_>, layout: GroupLayout, opened_as: &OpenedAs) -> Result<Groups, StoreError> {
        let places = zones.groups(layout);
        let mut groups = Groups {
            copies: layout.copies(),
            places,
            mark: None,
            unknown: BTreeMap::new(),
            blank: Vec::new(),
            candidates: Vec::new(),
        };
        for group in 0..groups.places.len() {
            match groups.head(group, layout, opened_as)? {
                Head::Blank => groups.blank.push(group),
                Head::Mark(mark) => groups.mark = Some(mark),
                Head::Unknown(error) => _ = groups.unknown.insert(group, error),
                Head::Superblock(superblock, findings) => {
                    groups.candidates.push(Candidate { group, superblock, findings });
                }
            }
        }
        groups.candidates.sort_by_key(|candidate| Reverse(candidate.superblock.generation));
        // Zones that could not be emptied may hold a store that was there before.
        if let Some(store_id) = groups.candidates.first().map(|newest| newest.superblock.store_id) {
            groups.candidates.retain(|candidate| candidate.superblock.store_id == store_id);
        }
        Ok(groups)
    }

    fn head(&self, group: usize, layout: GroupLayout, opened_as: &OpenedAs) -> Result<Head, StoreError> {
        let place = &self.places[group];
        let slots = superblock::slots_in(place);
        if slots.iter().all(|slot| matches!(slot, Slot::Blank)) {
            return Ok(Head::Blank);
        }
        if let Some(mark) = mark_in(&slots) {
            return Ok(Head::Mark(mark));
        }
        let is_known = slots.iter().any(|slot| matches!(slot, Slot::Valid(_) | Slot::OtherVersion(_)));
        let (superblock, _, findings) = match superblock::choose(place, opened_as, slots) {
            Err(error) if self.copies > 1 && !is_known => return Ok(Head::Unknown(error)),
            chosen => chosen?,
        };
        let group_bytes = place.capacity_bytes();
        let found = GroupLayout::of(&superblock.regions);
        if superblock.capacity_bytes == group_bytes && found == layout {
            return Ok(Head::Superblock(superblock, findings));
        }
        let found = format!("{} bytes in {} zones", superblock.capacity_bytes, found.zones);
        let expected = format!("a group of {group_bytes} bytes in {} zones", layout.zones);
        let error = corruption(&place.label, "superblock", place.device_offset(0), expected, found);
        match self.copies > 1 {
            true => Ok(Head::Unknown(error)),
            false => Err(error),
        }
    }

    fn newest_begun(mut self, zones: &MetadataZones<'_>) -> Result<Found, StoreError> {
        let top = self.candidates.first().map_or(0, |newest| newest.superblock.generation);
        let mut waiting = std::mem::take(&mut self.candidates).into_iter().peekable();
        while let Some(generation) = waiting.peek().map(|candidate| candidate.superblock.generation) {
            // Whatever is older than a making does not count any more.
            if self.mark.as_ref().is_some_and(|mark| mark.generation > generation) {
                break;
            }
            let mut copies = Vec::new();
            while let Some(candidate) = waiting.next_if(|next| next.superblock.generation == generation) {
                let group = candidate.group;
                match self.read_copy(candidate) {
                    Ok(copy) => copies.extend(copy),
                    Err(error) if self.copies == 1 => return Err(error),
                    Err(error) => _ = self.unknown.insert(group, error),
                }
            }
            if !copies.is_empty() {
                return self.accept(copies, top).map(|begun| Found::Begun(Box::new(begun)));
            }
        }
        match (self.mark, self.unknown.pop_first()) {
            (_, Some((_, error))) => Err(error),
            (Some(mark), None) => Ok(Found::Unfinished(mark)),
            (None, None) => {
                let expected = "a generation of the journal that has begun in a group of zones";
                Err(corruption(zones.label, "metadata zones", 0, expected, "none"))
            }
        }
    }

    /// A copy of a generation; `None` when it has not begun there.
    fn read_copy(&self, candidate: Candidate) -> Result<Option<CopyRead>, StoreError> {
        let contents = read_contents(&self.places[candidate.group], &candidate.superblock)?;
        Ok(contents.map(|(tail, checkpoint)| CopyRead { candidate, tail, checkpoint }))
    }

    /// The generation of these copies, unless a group that cannot be read may hold a newer one that was acknowledged.
    fn accept(mut self, mut copies: Vec<CopyRead>, top: u64) -> Result<Begun, StoreError> {
        copies.sort_by_key(|copy| Reverse(copy.tail.position_units));
        let holders = copies.iter().map(|copy| (copy.candidate.group, copy.tail.commits.len() as u64)).collect();
        let given_up = copies.iter().fold(0, |given_up, copy| given_up | copy.candidate.superblock.given_up);
        let is_given_up = |group: usize| given_up >> group & 1 == 1;
        let mut findings = Vec::new();
        let mut is_worn = Vec::new();
        for (group, place) in self.places.iter().enumerate() {
            let worn = match place.worn_zone() {
                Ok(worn) => worn.map(|(zone, found)| format!("zone {} is {}", zone.0, found.condition)),
                Err(error) => Some(error.to_string()),
            };
            is_worn.push(worn.is_some());
            const COPY_IT: &str = "the store survives no other loss; copy its files to another device";
            let (what, advice) = match (worn, self.unknown.get(&group)) {
                _ if self.copies == 1 => continue,
                (Some(what), _) => (what, COPY_IT),
                _ if is_given_up(group) => ("it refused a write or a reset".to_owned(), COPY_IT),
                (None, Some(error)) => (error.to_string(), "the next opening replaces it"),
                (None, None) => continue,
            };
            findings.push(redundancy(place, &what, advice));
        }
        self.unknown.retain(|group, _| !is_given_up(*group));
        let copy = copies.swap_remove(0);
        let (group, generation) = (copy.candidate.group, copy.candidate.superblock.generation);
        // The only group that can be read, and one that was not emptied for what the lost one has.
        let is_blank = self.blank.iter().any(|blank| !is_given_up(*blank));
        let may_be_old = is_blank && is_worn[group];
        let bears = if may_be_old { 0 } else { self.copies - 1 };
        if self.unknown.len() > bears
            && let Some((_, error)) = self.unknown.pop_first()
        {
            return Err(error);
        }
        let place = self.places[group].clone();
        if self.copies > 1 && generation + 1 < top {
            let expected = format!("generation {} of the journal, or a later one", top - 1);
            let found = format!("generation {generation}");
            return Err(corruption(&place.label, "metadata zones", place.device_offset(0), expected, found));
        }
        // Of a worn group more need not be said.
        for candidate in copies.iter().map(|copy| &copy.candidate).chain([&copy.candidate]) {
            findings.extend(candidate.findings.iter().filter(|_| !is_worn[candidate.group]).cloned());
        }
        Ok(Begun {
            groups: self.places,
            holders,
            given_up,
            place,
            superblock: copy.candidate.superblock,
            findings,
            checkpoint: copy.checkpoint,
            tail: copy.tail,
        })
    }
}

/// Commits and checkpoint of a generation in a group; `None` when it has not begun there.
fn read_contents(place: &Place, superblock: &Superblock) -> Result<Option<(LogTail, Vec<u8>)>, StoreError> {
    let mut tail = LogReader::new(place, superblock).read()?;
    if tail.commits.is_empty() {
        return Ok(None);
    }
    tail.commits.remove(0);
    let checkpoint = checkpoint::read(place, superblock.regions.checkpoints[0], superblock)?;
    Ok(Some((tail, checkpoint)))
}

/// True if a group holds the whole generation of this superblock and can be read.
pub(super) fn holds(place: &Place, superblock: &Superblock) -> bool {
    let is_it = |slot: &Slot| matches!(slot, Slot::Valid(found) if found.generation == superblock.generation);
    superblock::slots_in(place).iter().any(is_it) && matches!(read_contents(place, superblock), Ok(Some(_)))
}

/// The finding of a group of which one copy less can be had.
pub(super) fn redundancy(place: &Place, what: &str, advice: &str) -> Finding {
    let message = format!("{}: metadata in {} cannot be used: {what}; {advice}", place.label, place.zones_text());
    Finding { severity: Severity::Warning, code: "metadata-redundancy", message }
}

/// [`Presence`] of a journal in zones.
pub(super) fn presence(device: &Device, label: &str, opened_as: &OpenedAs) -> Option<Result<Presence, StoreError>> {
    Some(find(device, label, opened_as)?.map(|found| match found {
        Found::Blank => Presence::Blank,
        Found::Begun(_) => Presence::Store,
        Found::Unfinished(_) => Presence::Unfinished,
    }))
}

/// The generation that counts, for one who opens it; `None` of a device whose journal lies elsewhere.
pub(super) fn recover(device: &Device, label: &str, opened_as: &OpenedAs) -> Option<Result<Begun, StoreError>> {
    Some(find(device, label, opened_as)?.and_then(|found| match found {
        Found::Begun(begun) => Ok(*begun),
        Found::Blank => Err(block::missing(label, Presence::Blank, opened_as)),
        Found::Unfinished(_) => Err(block::missing(label, Presence::Unfinished, opened_as)),
    }))
}
