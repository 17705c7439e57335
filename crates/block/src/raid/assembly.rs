//! Which array the members that were given are: a pure decision from what they hold.

use super::error::{ArrayError, name_of};
use super::opening::ProtectionPlace;
use super::opening::{ArrayOpening, ArrayParameters};
use super::stripe_journal::StripeJournal;
use super::superblock::{COPIES, Flaw, Found, JOURNAL_NUMBERS, Superblock, UNIT_BYTES, VERSION};
use std::collections::{BTreeMap, BTreeSet};
use varve_media::{AlignedBuffer, BlockDeviceExt, Device, IoContext, MediaError, MediaErrorKind};

/// Bytes of a blank device that are read at its start and its end: everything known has its mark there.
const FIRST_BYTES: u64 = 2 << 20;
const LAST_BYTES: u64 = 1 << 20;
/// Bytes that are read at once.
const READ_BYTES: u64 = 128 << 10;
/// Places between that are looked at.
const SAMPLES: u64 = 64;

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberFound {
    Blank,
    Member(Superblock),
    /// Something else, at this offset.
    Foreign(u64),
    Damaged(Flaw),
    OtherVersion(u32),
    OtherProtection(u32),
}

/// A device that was given as a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) capacity_bytes: u64,
    pub(super) found: MemberFound,
    /// Both copies of the superblock are the same.
    pub(super) is_whole: bool,
}

/// What to do with the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Assembly {
    Create,
    Open {
        /// Of the array after opening.
        superblock: Superblock,
        /// By slot, the place of its device among those given.
        places: Vec<Option<usize>>,
        /// The superblock differs from that of a member.
        needs_record: bool,
    },
}

/// Reads what a device holds, as far as that says whether it is a member.
///
/// # Errors
/// Those of the device, except for unreadable sectors, which count as damage.
pub(super) fn inspect(device: &Device, context: &IoContext) -> Result<Given, MediaError> {
    let geometry = device.block.geometry();
    let capacity_bytes = geometry.capacity_bytes;
    let alignment = device.block.capabilities().buffer_alignment_bytes as usize;
    let read = |offset_bytes: u64, most: u64| {
        let length = most.min(capacity_bytes.saturating_sub(offset_bytes));
        let length = length / u64::from(geometry.sector_bytes) * u64::from(geometry.sector_bytes);
        let mut bytes = AlignedBuffer::new(length as usize, alignment);
        match device.block.read_at(offset_bytes, &mut bytes, context) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == MediaErrorKind::Unreadable => Ok(None),
            Err(error) => Err(error),
        }
    };
    let mut copies = Vec::new();
    for offset_bytes in COPIES {
        let unreadable = || {
            Found::Damaged(Flaw {
                what: "superblock",
                expected: "one of two copies that can be read".to_owned(),
                found: "unreadable sectors".to_owned(),
            })
        };
        copies.push(read(offset_bytes, UNIT_BYTES)?.map_or_else(unreadable, |bytes| Superblock::decode(&bytes)));
    }
    let is_whole = copies[0] == copies[1];
    let mut found = choose(&copies);
    if found == MemberFound::Blank {
        let first = FIRST_BYTES.min(capacity_bytes);
        let last = capacity_bytes.saturating_sub(LAST_BYTES).max(first) / UNIT_BYTES * UNIT_BYTES;
        let step = ((last - first.min(last)) / SAMPLES / UNIT_BYTES).max(1) * UNIT_BYTES;
        let whole = |range: std::ops::Range<u64>| range.step_by(READ_BYTES as usize).map(|at| (at, READ_BYTES));
        let samples = (first..last).step_by(step as usize).map(|at| (at, UNIT_BYTES));
        for (offset_bytes, length) in whole(0..first).chain(samples).chain(whole(last..capacity_bytes)) {
            // What cannot be read may be anything.
            let bytes = read(offset_bytes, length)?;
            let place = match &bytes {
                Some(bytes) => bytes.iter().position(|byte| *byte != 0),
                None => Some(0),
            };
            if let Some(place) = place {
                found = MemberFound::Foreign(offset_bytes + place as u64);
                break;
            }
        }
    }
    Ok(Given { name: device.block.name().to_owned(), capacity_bytes, found, is_whole })
}

/// What two copies say together: the newest sound one, or what is wrong.
fn choose(copies: &[Found]) -> MemberFound {
    let sound = copies.iter().filter_map(|copy| match copy {
        Found::Superblock(superblock) => Some(superblock),
        _ => None,
    });
    if let Some(newest) = sound.max_by_key(|superblock| (superblock.is_made, superblock.generation)) {
        return MemberFound::Member(newest.clone());
    }
    let other = copies.iter().find_map(|copy| match copy {
        Found::OtherVersion(version) => Some(MemberFound::OtherVersion(*version)),
        Found::OtherProtection(kind) => Some(MemberFound::OtherProtection(*kind)),
        _ => None,
    });
    let damaged = || {
        copies.iter().find_map(|copy| match copy {
            Found::Damaged(flaw) => Some(MemberFound::Damaged(flaw.clone())),
            _ => None,
        })
    };
    let foreign =
        || copies.iter().zip(COPIES).find(|(copy, _)| **copy == Found::Foreign).map(|(_, at)| MemberFound::Foreign(at));
    other.or_else(damaged).or_else(foreign).unwrap_or(MemberFound::Blank)
}

/// Members of one array among those given, each with its place.
struct Members<'a> {
    given: &'a [Option<Given>],
    /// Those with a superblock that are not replaced.
    members: Vec<(usize, &'a Superblock)>,
}

impl<'a> Members<'a> {
    fn name(&self, place: usize) -> String {
        self.given[place].as_ref().map_or(String::new(), |given| given.name.clone())
    }

    /// The superblock with the newest generation.
    fn newest(&self) -> Option<&'a Superblock> {
        self.members
            .iter()
            .map(|(_, superblock)| *superblock)
            .max_by_key(|superblock| (superblock.is_made, superblock.generation))
    }

    /// Refuses members of several arrays. The one with the most members is meant.
    fn check_identity(&self) -> Result<(), ArrayError> {
        let mut counts: BTreeMap<[u8; 16], usize> = BTreeMap::new();
        for (_, superblock) in &self.members {
            *counts.entry(superblock.identity).or_default() += 1;
        }
        let most = self.members.iter().map(|(_, superblock)| counts[&superblock.identity]).max();
        let meant = self.members.iter().find(|(_, superblock)| Some(counts[&superblock.identity]) == most);
        let Some((_, meant)) = meant else { return Ok(()) };
        match self.members.iter().find(|(_, superblock)| superblock.identity != meant.identity) {
            None => Ok(()),
            Some((place, other)) => Err(ArrayError::Foreign {
                device: self.name(*place),
                array: name_of(&meant.identity),
                found: name_of(&other.identity),
            }),
        }
    }
}

fn check_parameters(newest: &Superblock, members: usize, parameters: &ArrayParameters) -> Result<(), ArrayError> {
    let array = name_of(&newest.identity);
    let geometry = &newest.geometry;
    let other =
        |what, expected: String, found: String| Err(ArrayError::OtherParameters { array, what, expected, found });
    if geometry.level != parameters.level {
        return other("level", parameters.level.to_string(), geometry.level.to_string());
    }
    if geometry.members != members {
        return other("members", members.to_string(), geometry.members.to_string());
    }
    if let Some(place) = parameters.protection
        && (place == ProtectionPlace::Beside) != newest.is_beside
    {
        let text = |is_beside: bool| if is_beside { "beside the data" } else { "as the members keep it" };
        let (expected, found) = (text(place == ProtectionPlace::Beside), text(newest.is_beside));
        return other("protection information", expected.to_owned(), found.to_owned());
    }
    match parameters.chunk_bytes {
        Some(chunk_bytes) if chunk_bytes != geometry.chunk_bytes => {
            other("a chunk of", format!("{chunk_bytes} bytes"), format!("{} bytes", geometry.chunk_bytes))
        }
        _ => match parameters.journal {
            Some(journal)
                if (geometry.level.parity_columns() > 0 || newest.is_beside)
                    && journal != StripeJournal::of(newest) =>
            {
                let text = |journal: StripeJournal| match journal {
                    StripeJournal::None => "none",
                    StripeJournal::Members => "one on its members",
                    StripeJournal::Device => "one on a device of its own",
                };
                other("a journal:", text(journal).to_owned(), text(StripeJournal::of(newest)).to_owned())
            }
            _ => Ok(()),
        },
    }
}

/// Use of the device that was given as the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalUse {
    /// The journal of the array, or none where the array has none on a device.
    Known,
    /// A blank device takes the place of one that is lost.
    New,
}

/// Decides whether an array that is opened has the journal that was given.
///
/// # Errors
/// It has another one, or none.
pub(super) fn journal_of(
    given: Option<&Given>,
    superblock: &Superblock,
    opening: &ArrayOpening,
) -> Result<JournalUse, ArrayError> {
    let array = name_of(&superblock.identity);
    let Some(given) = given else {
        return match superblock.journal_device {
            None => Ok(JournalUse::Known),
            Some(_) => Err(ArrayError::NeedsJournalDevice { array }),
        };
    };
    let device = given.name.clone();
    let other =
        |expected: String, found: String| Err(ArrayError::OtherJournal { device: device.clone(), expected, found });
    let Some(number) = superblock.journal_device else {
        let found = match superblock.has_journal() {
            true => "the journal lies on the members",
            false => "it has no journal",
        };
        return other(format!("an array with its journal on a device, {array} being opened"), found.to_owned());
    };
    let expected = format!("the journal of the array {array}");
    match &given.found {
        MemberFound::Member(found) if found.identity != superblock.identity => {
            other(expected, format!("a device of the array {}", name_of(&found.identity)))
        }
        MemberFound::Member(found) if !found.is_of_journal() => other(expected, format!("its member {}", found.slot)),
        // Its taking the place of another one was cut short.
        MemberFound::Member(found)
            if found.journal_device == Some((number + 1) % JOURNAL_NUMBERS)
                && opening.accepts_unsynced
                && !opening.is_read_only =>
        {
            Ok(JournalUse::New)
        }
        MemberFound::Member(found) if found.journal_device != Some(number) => {
            other(expected, "its journal of before: the array went on with another one".to_owned())
        }
        MemberFound::Member(_) => Ok(JournalUse::Known),
        MemberFound::Blank if opening.accepts_unsynced && !opening.is_read_only => Ok(JournalUse::New),
        MemberFound::Blank => other(expected, "a blank device".to_owned()),
        found => Err(refusal(device, found)),
    }
}

/// Refuses a device for the journal of a new array that holds anything, but for that of an array whose making was cut short.
///
/// # Errors
/// What it holds.
pub(super) fn check_new_journal(given: &Given, members: &[Option<Given>]) -> Result<(), ArrayError> {
    let is_cut_short = |found: &Superblock| {
        let of_members = members.iter().flatten().any(|member| match &member.found {
            MemberFound::Member(member) => !member.is_made && member.identity == found.identity,
            _ => false,
        });
        found.is_of_journal() && (!found.is_made || of_members)
    };
    match &given.found {
        MemberFound::Blank => Ok(()),
        MemberFound::Member(found) if is_cut_short(found) => Ok(()),
        MemberFound::Member(found) => Err(ArrayError::OtherJournal {
            device: given.name.clone(),
            expected: "a blank device".to_owned(),
            found: format!("a device of the array {}", name_of(&found.identity)),
        }),
        found => Err(refusal(given.name.clone(), found)),
    }
}

/// The error of a device that holds something else than a member, a journal or nothing.
fn refusal(device: String, found: &MemberFound) -> ArrayError {
    match found {
        MemberFound::OtherVersion(found) => ArrayError::OtherVersion { device, readable: VERSION, found: *found },
        MemberFound::OtherProtection(found) => ArrayError::OtherProtection { device, found: *found },
        MemberFound::Damaged(flaw) => ArrayError::damaged(&device, flaw.clone()),
        MemberFound::Foreign(at) => ArrayError::NotBlank { device, offset_bytes: *at, found: "other data".to_owned() },
        MemberFound::Blank | MemberFound::Member(_) => {
            ArrayError::NotBlank { device, offset_bytes: 0, found: "another device of an array".to_owned() }
        }
    }
}

/// Decides what the members that were given are.
///
/// # Errors
/// Every [`ArrayError`] but those of sizes and devices.
pub(super) fn assemble(
    given: &[Option<Given>],
    parameters: &ArrayParameters,
    opening: &ArrayOpening,
) -> Result<Assembly, ArrayError> {
    if opening.format {
        return match given.iter().all(Option::is_some) {
            true => Ok(Assembly::Create),
            false => Err(ArrayError::MemberCount {
                level: parameters.level,
                expected: format!("all {}", given.len()),
                found: given.iter().flatten().count(),
            }),
        };
    }
    let mut members = Members { given, members: Vec::new() };
    let (mut blank, mut replaced) = (Vec::new(), Vec::new());
    for (place, one) in given.iter().enumerate() {
        let Some(one) = one else { continue };
        let device = one.name.clone();
        let is_replaced = opening.replace.contains(&place);
        match &one.found {
            found @ (MemberFound::Foreign(_) | MemberFound::OtherVersion(_) | MemberFound::OtherProtection(_)) => {
                return Err(refusal(device, found));
            }
            MemberFound::Member(found) if found.is_of_journal() => {
                let (expected, found) = ("a member".to_owned(), "the journal of an array".to_owned());
                return Err(ArrayError::OtherJournal { device, expected, found });
            }
            _ if is_replaced => replaced.push(place),
            MemberFound::Damaged(flaw) => return Err(ArrayError::damaged(&device, flaw.clone())),
            MemberFound::Blank => blank.push(place),
            MemberFound::Member(superblock) => members.members.push((place, superblock)),
        }
    }
    members.check_identity()?;
    let is_complete = given.iter().all(Option::is_some) && replaced.is_empty();
    let Some(newest) = members.newest().filter(|newest| newest.is_made) else {
        // All are blank, or an array whose making was cut short.
        let device = given.iter().flatten().next().map_or(parameters.name.clone(), |given| given.name.clone());
        return if opening.create && is_complete { Ok(Assembly::Create) } else { Err(ArrayError::NotThere { device }) };
    };
    check_parameters(newest, given.len(), parameters)?;
    let array = name_of(&newest.identity);
    let mut places: Vec<Option<usize>> = vec![None; given.len()];
    for &(place, superblock) in &members.members {
        let (device, slot) = (members.name(place), superblock.slot);
        if let Some(other) = places[slot].replace(place) {
            return Err(ArrayError::Duplicate { device, other: members.name(other), array, slot });
        }
        let is_alike = (superblock.in_use, superblock.rebuilding) == (newest.in_use, newest.rebuilding);
        if superblock.generation == newest.generation && superblock.is_made && !is_alike {
            let (other, generation) = (members.name(places[newest.slot].unwrap_or(place)), newest.generation);
            return Err(ArrayError::Diverged { device, other, array, generation });
        }
        if !newest.is_in_use(slot) {
            let (expected, found) = (newest.generation, superblock.generation);
            return Err(ArrayError::Stale { device, array, slot, expected, found });
        }
    }
    let mut free = (0..given.len()).filter(|slot| places[*slot].is_none()).collect::<Vec<_>>().into_iter();
    if let Some(&place) = blank.first() {
        let slot = free.next().unwrap_or(place);
        return Err(ArrayError::BlankMember { device: members.name(place), array, slot });
    }
    let mut joined = BTreeSet::new();
    for place in replaced {
        let Some(slot) = free.next() else { continue };
        places[slot] = Some(place);
        joined.insert(slot);
    }
    for (place, one) in places.iter().flatten().filter_map(|place| Some((place, given[*place].as_ref()?))) {
        if one.capacity_bytes < newest.member_bytes {
            let (expected_bytes, found_bytes) = (newest.member_bytes, one.capacity_bytes);
            return Err(ArrayError::OtherSize { device: members.name(*place), expected_bytes, found_bytes });
        }
    }
    let bits =
        |is: &dyn Fn(usize) -> bool| (0..given.len()).filter(|slot| is(*slot)).fold(0, |bits, slot| bits | 1 << slot);
    let mut superblock = newest.clone();
    superblock.in_use = bits(&|slot| places[slot].is_some());
    superblock.rebuilding =
        bits(&|slot| joined.contains(&slot) || newest.is_rebuilding(slot) && places[slot].is_some());
    let level = superblock.geometry.level;
    let usable = (superblock.in_use & !superblock.rebuilding).count_ones() as usize;
    let expected = given.len() - level.tolerated(given.len());
    if usable < expected {
        let is_missing = |slot: &usize| !superblock.is_in_use(*slot) || superblock.is_rebuilding(*slot);
        let missing = (0..given.len()).filter(is_missing).collect();
        return Err(ArrayError::TooFew { array, level, members: given.len(), expected, found: usable, missing });
    }
    let has_changed = (superblock.in_use, superblock.rebuilding) != (newest.in_use, newest.rebuilding);
    superblock.generation += u64::from(has_changed);
    let is_recorded = |(place, own): &(usize, &Superblock)| {
        **own == superblock.for_slot(own.slot) && given[*place].as_ref().is_some_and(|given| given.is_whole)
    };
    let needs_record = has_changed || !members.members.iter().all(is_recorded);
    Ok(Assembly::Open { superblock, places, needs_record })
}
