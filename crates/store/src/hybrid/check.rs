//! Verifying an open store: what each device says, and what lies between them.
//!
//! | code | severity | meaning |
//! |---|---|---|
//! | `device-refuses` | error | a sync or a commit of a device failed: it is written no more, and what was not durable on it is not |
//! | `device-missing` | fatal | a device of the set is not there |
//! | `device-foreign` | fatal | a device is of another set, there twice, or was given up |
//! | `device-given-up` | warning | a device was given up, with what lay on it |
//! | `file-gap` | error | a file misses bytes before a part that is there, or behind the last one |
//! | `file-overlap` | error | a part of a file begins before the end of the one before it |
//! | `stamp-twice` | error, or warning where they were not compared | two devices have different files of one name and stamp |
//! | `part-nobodys` | warning | a device has a record of a file that is not the file; the next open takes it away |
//!
//! Beside those of each device, which are those of a store of [bands](crate::BandStore).

use super::core::{Core, Member};
use super::records::{gap_finding, missing_findings, rival_finding};
use crate::file_store::{Finding, Severity};
use std::sync::atomic::Ordering;

/// Checks an open store, beside its writers: damage is reported if a second look finds the same.
pub(super) fn check(core: &Core) -> Vec<Finding> {
    let mut findings = look(core);
    if findings.iter().any(|finding| finding.severity > Severity::Warning) {
        let again = look(core);
        findings.retain(|finding| finding.severity == Severity::Warning || again.contains(finding));
    }
    findings
}

fn look(core: &Core) -> Vec<Finding> {
    let mut findings = missing_findings(&core.label, &core.set);
    for member in &core.members {
        findings.extend(
            member.files.check_open().err().map(|refusal| Finding::error("device-refuses", refusal.to_string())),
        );
        findings.extend(member.files.check());
    }
    findings.extend(files_of(core));
    findings
}

/// What is wrong between records of one name.
fn files_of(core: &Core) -> Vec<Finding> {
    // Nobody changes a name meanwhile.
    let _naming = core.naming.lock();
    let label = |device: &usize| core.members.get(*device).map_or("", |member| member.files.label());
    let mut findings = Vec::new();
    let files = core.files.read();
    for (name, file) in files.iter() {
        if !file.rivals.is_empty() {
            let devices: Vec<&str> = file.rivals.iter().map(|(device, _)| label(device)).collect();
            findings.push(rival_finding(&core.label, name, &devices.join("' and '")));
        } else if !file.is_whole() && !file.state.is_writing.load(Ordering::Acquire) {
            findings.push(gap_finding(&core.label, name));
        }
    }
    // One that refuses keeps what it has.
    for (device, member) in core.members.iter().enumerate().filter(|(_, member)| !Member::is_refusing(member)) {
        for name in member.files.names().into_iter().filter(|name| !name.starts_with('\0')) {
            let is_known = files.get(&name).is_some_and(|file| {
                file.parts().iter().any(|part| part.device == device)
                    || file.supersedes.lock().contains(&device)
                    || file.rivals.iter().any(|(rival, _)| *rival == device)
            });
            if !is_known {
                let message = format!("{}: '{name}' on '{}' is no part of a file", core.label, member.files.label());
                findings.push(Finding { severity: Severity::Warning, code: "part-nobodys", message });
            }
        }
    }
    findings
}
