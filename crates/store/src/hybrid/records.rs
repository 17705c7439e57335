//! What the devices of a set say of its files, put together. Pure: nothing is read or written here.
//!
//! Of the records of one name those with the highest stamp are the file: its parts, one behind the other from its first byte on.
//! Older ones were replaced, moved or removed. Where a part has no part before it, its file was being removed: the first part
//! goes first. But where a device is not there, that is where the first part may be.
//!
//! Beside files of users a device has some of the store's own, whose names begin with a NUL:
//!
//! | name | what |
//! |---|---|
//! | `\0copy-N` | a copy that is made; what is found of it goes |
//! | `\0cache-N` | a cache zone |
//! | `\0removed-NAME` | records of `NAME` with a lower stamp than this record has were removed, wherever they are |
//! | `\0without-ID` | the member with this id, 16 hexadecimal digits, was given up: it is not of the set any more |
//! | `\0attempt` | records of this device with this stamp or a higher one were made by an [attempt](super::given_up) to go on without a member, and go with the next open; they stay where a `\0without-ID` of any device has this stamp or a higher one |

use super::KIND;
use super::cached::{FoundZone, zone_number};
use crate::band::{DeviceFile, DeviceFiles, MountedFiles, Stamp};
use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::identity;
use crate::journal::corruption;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use varve_media::Device;

/// More names than are changed while a store is open.
pub(super) const NUMBERS_OF_OPEN: u64 = 1 << 36;
/// What the names of records of removals begin with.
const REMOVED_NAME: &str = "\0removed-";
/// What the names of records of members that were given up begin with.
const WITHOUT_NAME: &str = "\0without-";
/// Name of the record of an attempt to go on without members that are not there.
pub(super) const ATTEMPT_NAME: &str = "\0attempt";

/// Name of the record that a name was removed; `None` where it is too long to be one.
pub(super) fn removed_name(name: &str) -> Option<String> {
    let own = format!("{REMOVED_NAME}{name}");
    // As many bytes as a record of the band table has.
    (own.len() <= 255).then_some(own)
}

/// Name of the record that a member was given up.
pub(super) fn without_name(member: u64) -> String {
    format!("{WITHOUT_NAME}{member:016x}")
}

fn without_member(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(WITHOUT_NAME)?;
    u64::from_str_radix(digits, 16).ok().filter(|member| without_name(*member) == name)
}

/// A record of a name on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) device: usize,
    pub(super) stamp: Stamp,
    pub(super) file: DeviceFile,
}

impl Record {
    fn end_bytes(&self) -> u64 {
        self.stamp.start_bytes.saturating_add(self.file.size_bytes)
    }
}

/// What becomes of the records of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The parts of the file, in order; none where there is no such file.
    pub(super) parts: Vec<Record>,
    /// Devices whose record goes.
    pub(super) left_over: Vec<usize>,
    /// Devices of parts that are nobody's, among those whose record goes.
    pub(super) orphans: Vec<usize>,
    /// Records with bytes under the stamp and at the place of a part. Where those are others than it begins with, nobody can say
    /// which of them are the file.
    pub(super) rivals: Vec<Record>,
    /// The file misses bytes before a part that is there: it is kept, and reading those is an error.
    pub(super) has_gap: bool,
    /// More of the file may be behind its last part, on a device that is not there.
    pub(super) is_cut: bool,
    /// A part begins before the end of the one before it.
    pub(super) has_overlap: bool,
}

/// Decides which records of one name are its file. With `keeps_orphans` a part stays though what is before it is not there.
pub(super) fn resolve(mut records: Vec<Record>, keeps_orphans: bool) -> Resolved {
    let newest = records.iter().map(|record| record.stamp.number).max().unwrap_or(0);
    // Of two that begin at one place one is empty: nothing was written before its device had no space.
    records.sort_by_key(|record| {
        (Reverse(record.stamp.number), record.stamp.start_bytes, Reverse(record.file.size_bytes))
    });
    let mut resolved = Resolved::default();
    let mut end_bytes = 0;
    for record in records {
        let begins = record.stamp.start_bytes;
        if record.stamp.number != newest {
            resolved.left_over.push(record.device);
            continue;
        }
        let Some(last) = resolved.parts.last() else {
            if begins == 0 || keeps_orphans {
                resolved.has_gap = begins > 0;
                end_bytes = record.end_bytes();
                resolved.parts.push(record);
            } else {
                resolved.left_over.push(record.device);
                resolved.orphans.push(record.device);
            }
            continue;
        };
        if begins == last.stamp.start_bytes {
            match record.file.size_bytes {
                0 => resolved.left_over.push(record.device),
                _ => resolved.rivals.push(record),
            }
            continue;
        }
        resolved.has_gap |= begins > end_bytes;
        resolved.has_overlap |= begins < end_bytes;
        end_bytes = record.end_bytes();
        resolved.parts.push(record);
    }
    resolved.is_cut = keeps_orphans && resolved.parts.last().is_some_and(|last| last.stamp.goes_on);
    resolved
}

/// What the devices have together.
pub(super) struct Found {
    /// The parts of every file.
    pub(super) files: BTreeMap<String, Resolved>,
    /// Records that go, with their devices.
    pub(super) left_over: Vec<(usize, String)>,
    /// Records of removals, which go when all that they are about has gone.
    pub(super) removals: Vec<(usize, String)>,
    /// Devices with a record of an attempt, which goes when what the attempt made has gone, or was taken for good.
    pub(super) attempts: Vec<usize>,
    /// Number of the next change of a name.
    pub(super) next: u64,
    pub(super) cache_zones: Vec<FoundZone>,
}

impl Found {
    /// What `set` says of the devices that are there.
    pub(super) fn of(label: &str, mounted: &[MountedFiles], set: &Set) -> Result<Found, StoreError> {
        let mut found = Found {
            files: BTreeMap::new(),
            left_over: Vec::new(),
            removals: Vec::new(),
            attempts: Vec::new(),
            next: 1,
            cache_zones: Vec::new(),
        };
        let mut records: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        let mut removed: BTreeMap<String, u64> = BTreeMap::new();
        let decided = decided_by(mounted);
        for (device, files) in mounted.iter().enumerate() {
            let files = files.files();
            let attempt = files.iter().find(|file| file.name == ATTEMPT_NAME).and_then(|file| file.stamp);
            found.attempts.extend(attempt.map(|_| device));
            // Records from this one on were made by an attempt that came to nothing.
            let undone = attempt.map(|stamp| stamp.number).filter(|first| decided < *first);
            for file in files {
                let Some(stamp) = file.stamp else {
                    let without = format!("none of '{}'", file.name);
                    return Err(corruption(label, "band table", 0, "a stamp of every file", without));
                };
                found.next = found.next.max(stamp.number + 1);
                if let Some(number) = zone_number(&file.name) {
                    found.next = found.next.max(number + 1);
                    found.cache_zones.push(FoundZone { number, device, size_bytes: file.size_bytes });
                } else if file.name == ATTEMPT_NAME || without_member(&file.name).is_some() {
                    // The former goes after what it is about, the latter stays as long as the store.
                } else if undone.is_some_and(|first| stamp.number >= first) {
                    found.left_over.push((device, file.name));
                } else if let Some(name) = file.name.strip_prefix(REMOVED_NAME) {
                    let number = removed.entry(name.to_owned()).or_default();
                    *number = stamp.number.max(*number);
                    found.removals.push((device, file.name));
                } else if file.name.starts_with('\0') {
                    // Other files of the store's own are unfinished.
                    found.left_over.push((device, file.name));
                } else {
                    records.entry(file.name.clone()).or_default().push(Record { device, stamp, file });
                }
            }
        }
        if !found.cache_zones.is_empty() {
            // Files of which cache zones have copies, and no device a record any more: their numbers are not given again.
            found.next = found.next.saturating_add(NUMBERS_OF_OPEN);
        }
        for (name, records) in records {
            let number = removed.get(&name).copied().unwrap_or(0);
            let (counts, gone): (Vec<Record>, Vec<Record>) =
                records.into_iter().partition(|record| record.stamp.number >= number);
            let resolved = resolve(counts, !set.is_whole());
            let devices = gone.iter().map(|record| record.device).chain(resolved.left_over.iter().copied());
            found.left_over.extend(devices.map(|device| (device, name.clone())));
            if !(resolved.parts.is_empty() && resolved.orphans.is_empty()) {
                found.files.insert(name, resolved);
            }
        }
        Ok(found)
    }

    /// What is wrong with files over several devices.
    pub(super) fn findings(&self, label: &str, names: &[&str]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, resolved) in &self.files {
            let on = |devices: &[usize]| {
                devices.iter().filter_map(|device| names.get(*device).copied()).collect::<Vec<_>>().join("' and '")
            };
            if resolved.has_gap || resolved.is_cut {
                findings.push(gap_finding(label, name));
            }
            if resolved.has_overlap {
                let message = format!("{label}: a part of '{name}' begins before the end of the one before it");
                findings.push(Finding::error("file-overlap", message));
            }
            if !resolved.rivals.is_empty() {
                let devices: Vec<usize> = resolved.rivals.iter().map(|record| record.device).collect();
                // Only an open compares them.
                findings.push(Finding { severity: Severity::Warning, ..rival_finding(label, name, &on(&devices)) });
            }
            if !resolved.orphans.is_empty() {
                let message = format!(
                    "{label}: a part of '{name}' on '{}' has no part before it: its removal was interrupted",
                    on(&resolved.orphans)
                );
                findings.push(Finding { severity: Severity::Warning, code: "part-nobodys", message });
            }
        }
        findings
    }
}

/// Stamp of the last decision to give up a member; 0 where there is none.
fn decided_by(mounted: &[MountedFiles]) -> u64 {
    let files = mounted.iter().flat_map(MountedFiles::files);
    let decisions = files.filter(|file| without_member(&file.name).is_some());
    decisions.filter_map(|file| file.stamp).map(|stamp| stamp.number).max().unwrap_or(0)
}

pub(super) fn gap_finding(label: &str, name: &str) -> Finding {
    Finding::error(
        "file-gap",
        format!("{label}: '{name}' misses bytes before a part that is there, or behind the last one"),
    )
}

pub(super) fn rival_finding(label: &str, name: &str, devices: &str) -> Finding {
    let message = format!(
        "{label}: '{devices}' has another file '{name}' of the same stamp: which of them counts nobody can say"
    );
    Finding::error("stamp-twice", message)
}

/// Which members of their set devices are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// Members that are not there, and were not given up.
    pub(super) missing: Vec<String>,
    /// Their ids.
    pub(super) missing_ids: Vec<u64>,
    /// Members that were given up.
    pub(super) given_up: Vec<String>,
    pub(super) given_up_ids: Vec<u64>,
}

impl Set {
    /// Every device that was formatted with it is there.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.given_up.is_empty()
    }

    /// Refuses devices that are not members of one set, each once, and those that were given up.
    pub(super) fn of(label: &str, mounted: &[MountedFiles]) -> Result<Set, StoreError> {
        let Some(first) = mounted.first() else { return Ok(Set::default()) };
        let set = &first.identity().members;
        let mut indices: Vec<usize> = Vec::new();
        for device in mounted {
            let identity = device.identity();
            if identity.members != *set || indices.contains(&identity.index) {
                return Err(foreign(label, device.label(), first.label()));
            }
            indices.push(identity.index);
        }
        let mut given_up: BTreeMap<u64, String> = BTreeMap::new();
        for device in mounted {
            let own_names = device.files().into_iter().map(|file| file.name);
            given_up.extend(own_names.filter_map(|name| Some((without_member(&name)?, device.label().to_owned()))));
        }
        let mut found = Set::default();
        for (index, member) in set.iter().enumerate() {
            let is_there = indices.contains(&index);
            match given_up.get(&member.id) {
                Some(witness) if is_there => {
                    let device = mounted.iter().find(|device| device.identity().index == index);
                    return Err(was_given_up(label, device.map_or("", |device| device.label()), witness));
                }
                Some(_) => {
                    found.given_up.push(describe(index, set));
                    found.given_up_ids.push(member.id);
                }
                None if !is_there => {
                    found.missing.push(describe(index, set));
                    found.missing_ids.push(member.id);
                }
                None => {}
            }
        }
        Ok(found)
    }
}

/// What people can tell a member by that is not there.
fn describe(index: usize, set: &[identity::Member]) -> String {
    let member = &set[index];
    format!("device {} of {} (of {} bytes, id {:016x})", index + 1, set.len(), member.capacity_bytes, member.id)
}

fn foreign(label: &str, device: &str, first: &str) -> StoreError {
    StoreError::Foreign {
        store: label.to_owned(),
        structure: format!("the set of '{device}'"),
        offset_bytes: 0,
        expected: format!("a device of the set of '{first}', once"),
        found: "one of another set, or the same twice".to_owned(),
        advice: "give the devices that were formatted together".to_owned(),
    }
}

fn was_given_up(label: &str, device: &str, witness: &str) -> StoreError {
    StoreError::Foreign {
        store: label.to_owned(),
        structure: format!("the set of '{device}'"),
        offset_bytes: 0,
        expected: format!("a device that the set of '{witness}' still has"),
        found: "one that was given up, and has older files".to_owned(),
        advice: format!("give the devices without '{device}'; what is on it is no part of the store any more"),
    }
}

/// The error for a set of which a device is not there.
pub(super) fn incomplete(label: &str, set: &Set, members: usize) -> StoreError {
    StoreError::Foreign {
        store: label.to_owned(),
        structure: "the set of devices".to_owned(),
        offset_bytes: 0,
        expected: format!("{members} devices"),
        found: format!("{}, without {}", members - set.missing.len(), set.missing.join(" and ")),
        advice: "give all devices that were formatted together; what is left of them is read with \
                 missing-devices=read-only, and is a store without the others from then on with missing-devices=give-up"
            .to_owned(),
    }
}

/// What is wrong between devices of which the store cannot be opened, or is not open. Reads them; writes nothing.
pub(super) fn inspect(label: &str, devices: &[Device]) -> Vec<Finding> {
    let mounted: Vec<MountedFiles> =
        devices.iter().filter_map(|device| DeviceFiles::mount(device.clone(), KIND).ok()).collect();
    // Of those that cannot be read their own findings tell.
    let Some(first) = mounted.first() else { return Vec::new() };
    let names: Vec<&str> = mounted.iter().map(MountedFiles::label).collect();
    let (set, mut findings) = match Set::of(label, &mounted) {
        Ok(set) => (set, Vec::new()),
        Err(error) => {
            let finding = Finding { severity: Severity::Fatal, code: "device-foreign", message: error.to_string() };
            return vec![finding];
        }
    };
    let here: BTreeSet<usize> = mounted.iter().map(|device| device.identity().index).collect();
    let unread = devices.len() - mounted.len();
    // One that is given and cannot be read is told of by what is wrong with it.
    let is_any_missing = first.identity().members.len() > here.len() + set.given_up.len() + unread;
    let told = if is_any_missing { set.missing.clone() } else { Vec::new() };
    findings.extend(missing_findings(label, &Set { missing: told, ..set.clone() }));
    match Found::of(label, &mounted, &set) {
        Ok(found) => findings.extend(found.findings(label, &names)),
        Err(error) => findings.push(Finding::unreadable(&error)),
    }
    findings
}

/// Tells of members that are not there.
pub(super) fn missing_findings(label: &str, set: &Set) -> Vec<Finding> {
    let missing = set.missing.iter().map(|member| {
        let message = format!("{label}: {member} is not there, nor what lay on it");
        Finding { severity: Severity::Fatal, code: "device-missing", message }
    });
    let given_up = set.given_up.iter().map(|member| {
        let message = format!("{label}: {member} was given up, with what lay on it");
        Finding { severity: Severity::Warning, code: "device-given-up", message }
    });
    missing.chain(given_up).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(device: usize, number: u64, start_bytes: u64, size_bytes: u64) -> Record {
        let stamp = Stamp { number, start_bytes, goes_on: false };
        let file = DeviceFile { name: "f".to_owned(), stamp: Some(stamp), is_table: true, level: None, size_bytes };
        Record { device, stamp, file }
    }

    #[test]
    fn a_part_without_the_one_before_it_stays_where_a_device_is_missing() {
        let resolved = resolve(vec![record(1, 5, 10, 3), record(0, 4, 0, 10)], true);
        assert_eq!((resolved.parts.len(), resolved.left_over, resolved.has_gap), (1, vec![0], true));
        let resolved = resolve(vec![record(1, 5, 10, 3)], false);
        assert_eq!((resolved.parts.len(), resolved.left_over, resolved.orphans), (0, vec![1], vec![1]));
    }

    #[test]
    fn two_files_of_one_stamp_are_told() {
        let resolved = resolve(vec![record(0, 5, 0, 10), record(1, 5, 0, 12)], false);
        assert_eq!((resolved.parts[0].device, resolved.rivals.len(), resolved.left_over), (1, 1, vec![]));
        assert!(resolve(vec![record(0, 5, 0, 10), record(1, 5, 9, 12)], false).has_overlap);
    }

    #[test]
    fn names_of_records_of_the_store_are_no_others() {
        assert_eq!(without_member(&without_name(77)), Some(77));
        assert_eq!(without_member("\0without-4d"), None);
        assert_eq!(removed_name("f").as_deref(), Some("\0removed-f"));
        assert!(removed_name(&"n".repeat(246)).is_some() && removed_name(&"n".repeat(247)).is_none());
    }

    #[test]
    fn the_highest_stamp_is_the_file_and_its_parts_follow_each_other() {
        for (records, parts, left_over, has_gap) in [
            (vec![record(0, 5, 0, 10)], vec![0], vec![], false),
            // Replaced, moved or being removed.
            (vec![record(0, 5, 0, 10), record(1, 7, 0, 3)], vec![1], vec![0], false),
            (vec![record(0, 5, 0, 10), record(1, 5, 10, 3), record(2, 7, 0, 1)], vec![2], vec![0, 1], false),
            // Two parts, in any order.
            (vec![record(1, 5, 10, 3), record(0, 5, 0, 10)], vec![0, 1], vec![], false),
            // The first part was removed.
            (vec![record(1, 5, 10, 3)], vec![], vec![1], false),
            // Nothing was in a part before it had to go elsewhere.
            (vec![record(0, 5, 0, 0), record(1, 5, 0, 9)], vec![1], vec![0], false),
            (vec![record(0, 5, 0, 4), record(1, 5, 4, 0), record(2, 5, 4, 9)], vec![0, 2], vec![1], false),
            // Bytes of the first part are lost.
            (vec![record(0, 5, 0, 6), record(1, 5, 10, 3)], vec![0, 1], vec![], true),
            (vec![], vec![], vec![], false),
        ] {
            let resolved = resolve(records.clone(), false);
            let devices: Vec<usize> = resolved.parts.iter().map(|record| record.device).collect();
            assert_eq!((devices, resolved.left_over, resolved.has_gap), (parts, left_over, has_gap), "{records:?}");
        }
    }
}
