//! Verifying the store's structures against each other and the medium.
//!
//! | code | severity | meaning |
//! |---|---|---|
//! | `superblock-damaged` | warning | one of the two superblocks; the next open writes it again |
//! | `metadata-redundancy` | warning | a group of zones with a copy of the band table cannot be used |
//! | `metadata-unreadable` | fatal | the store could not be opened from what is on the medium now |
//! | `metadata-lost` | fatal | the medium lacks commits that were acknowledged |
//! | `band-read-only` | warning | a band that cannot be written any more; what is in it can be read |
//! | `band-offline` | error, or warning when nothing was in it | a band that is lost, with the files that were in it |
//! | `band-overlap` | error | two files have the same bytes of a band, or a file and the logs the same band |
//! | `band-owners` | error | the tables that share a band are not those that say so |
//! | `band-leak` | error | a band belongs to nothing, and is not free |
//! | `pointer-behind` | error | the device says that less of a band was written than a file has in it |
//! | `log-damaged` | error | a part of a log band in which frames are missing that were durable, or may have been |
//! | `file-damaged` | error | a small file of which a part is missing, and from which offset on it cannot be read |

use super::bands::{BandUse, retirement_of};
use super::change::{Fragment, Retirement};
use super::frame::FrameFormat;
use super::geometry::StoreGeometry;
use super::node::Damage;
use super::open_store::OpenStore;
use super::recovery::{replay, report, written_bytes, zones_of};
use super::scan::{LogExtent, scan};
use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::identity::OpenedAs;
use crate::journal::{Journal, StoreKind, corruption};
use std::collections::BTreeMap;
use varve_media::{Device, IoClass, IoContext, ZoneCondition, ZoneDescription};

/// A table as the check sees it.
struct CheckedTable {
    name: String,
    fragments: Vec<Fragment>,
    /// Every band that is the file's.
    bands: Vec<u32>,
}

fn finding(severity: Severity, code: &'static str, message: String) -> Finding {
    Finding { severity, code, message }
}

/// Compares what files have, what logs have and what the device says.
fn band_findings(
    label: &str,
    geometry: &StoreGeometry,
    tables: &[CheckedTable],
    logs: &[u32],
    zones: &BTreeMap<u32, ZoneDescription>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut owners: BTreeMap<u32, &str> = logs.iter().map(|band| (*band, "logs")).collect();
    let mut places: Vec<(Fragment, &str)> = Vec::new();
    for table in tables {
        for band in &table.bands {
            if let Some("logs") = owners.insert(*band, &table.name) {
                let message = format!("{label}: '{}' and the logs have band {band}", table.name);
                findings.push(finding(Severity::Error, "band-overlap", message));
            }
        }
        places.extend(table.fragments.iter().map(|fragment| (*fragment, table.name.as_str())));
        for fragment in &table.fragments {
            let Some(zone) = zones.get(&fragment.band) else { continue };
            let end = fragment.offset_bytes + fragment.length_bytes;
            let written = written_bytes(zone, geometry);
            if end > written {
                let message = format!(
                    "{label}: '{}' has bytes up to {end} of band {}, of which {written} were written",
                    table.name, fragment.band
                );
                findings.push(finding(Severity::Error, "pointer-behind", message));
            }
        }
    }
    places.sort_unstable_by_key(|(fragment, _)| (fragment.band, fragment.offset_bytes));
    for pair in places.windows(2) {
        let [(one, name), (other, other_name)] = pair else { continue };
        if one.band == other.band && other.offset_bytes < one.offset_bytes + one.length_bytes {
            let message =
                format!("{label}: '{name}' and '{other_name}' have byte {} of band {}", other.offset_bytes, other.band);
            findings.push(finding(Severity::Error, "band-overlap", message));
        }
    }
    for (band, zone) in zones {
        let owner = owners.get(band);
        match retirement_of(zone) {
            None => {}
            Some(Retirement::ReadOnly) => {
                let message = format!("{label}: band {band} is read-only and is not written any more");
                findings.push(finding(Severity::Warning, "band-read-only", message));
            }
            Some(Retirement::Offline) => {
                let severity = if owner.is_some() { Severity::Error } else { Severity::Warning };
                let what = owner.map_or_else(String::new, |owner| format!(", with what '{owner}' had in it"));
                findings.push(finding(severity, "band-offline", format!("{label}: band {band} is lost{what}")));
            }
        }
    }
    findings
}

/// Reads what is sealed of the log bands, and what is known to be written of the last one. Gives the damage of each extent.
fn log_findings(
    device: &Device,
    label: &str,
    frame: &FrameFormat,
    geometry: &StoreGeometry,
    extents: &[LogExtent],
    zones: &BTreeMap<u32, ZoneDescription>,
) -> Vec<(LogExtent, Finding)> {
    let context = IoContext::of(IoClass::Check);
    let is_lost = |band| zones.get(&band).is_some_and(|zone| zone.condition == ZoneCondition::Offline);
    let read = extents.iter().filter(|extent| !is_lost(extent.band));
    let errors = read.flat_map(|extent| {
        let damaged = scan(device, frame, geometry, extent, &context).damaged;
        damaged.into_iter().map(|part| (*extent, part.error(label, geometry, extent.band)))
    });
    errors.map(|(extent, error)| (extent, finding(Severity::Error, "log-damaged", error.to_string()))).collect()
}

/// What the band table knows of each table, by the number of its file.
fn recorded_fragments(core: &OpenStore) -> BTreeMap<u64, Vec<Fragment>> {
    let state = core.state.lock();
    let nodes = state.names.values().chain(state.names.unnamed());
    let tables = nodes.filter(|node| !node.is_packed);
    tables.map(|node| (node.file, node.fragments.read().recorded_fragments().to_vec())).collect()
}

/// Checks an open store, beside its writers.
///
/// A finding that a writer may have caused by going on is confirmed: damage is reported if a second look finds the same.
pub(super) fn check(core: &OpenStore) -> Vec<Finding> {
    let mut findings = look(core);
    if findings.iter().any(|finding| finding.severity > Severity::Warning) {
        let again = look(core);
        findings.retain(|finding| finding.severity == Severity::Warning || again.contains(finding));
    }
    findings
}

/// Looks at the medium and at memory once.
fn look(core: &OpenStore) -> Vec<Finding> {
    let (label, geometry) = (&core.label, &core.geometry);
    // No frame, no commit between the look at the medium and the look at memory.
    let appender = core.appender.lock();
    let committer = core.committer.lock();
    let mut findings = committer.journal.check_medium();
    // Writers go on, and bands are given back: only what belongs to a file before and after the zones are looked at is
    // known to have been in them.
    let before = recorded_fragments(core);
    let zones = match report(label, &*core.zones, geometry) {
        Ok(zones) => zones,
        Err(error) => {
            findings.push(Finding::unreadable(&error));
            return findings;
        }
    };
    let state = core.state.lock();
    let named = state.names.iter().map(|(name, node)| (name.clone(), node));
    let removed = state.names.unnamed().map(|node| (format!("removed file {}", node.file), node));
    let tables: Vec<CheckedTable> = named
        .chain(removed)
        .filter(|(_, node)| !node.is_packed)
        .map(|(name, node)| CheckedTable {
            name,
            fragments: before.get(&node.file).map_or_else(Vec::new, |before| {
                let fragments = node.fragments.read();
                let is_still =
                    |fragment: &&Fragment| fragments.recorded_fragments().iter().any(|now| now.begins_as(fragment));
                before.iter().filter(is_still).copied().collect()
            }),
            bands: node.bands.lock().iter().copied().collect(),
        })
        .collect();
    let extents: Vec<LogExtent> = state
        .log_bands
        .iter()
        .filter_map(|(band, log)| {
            let end_bytes = log.sealed_bytes?;
            Some(LogExtent { band: *band, first_sequence: log.first_sequence, end_bytes, is_sealed: true })
        })
        .chain(appender.written_extent(&state))
        .collect();
    let found = core.found_damaged.iter();
    findings.extend(found.map(|error| finding(Severity::Error, "log-damaged", error.to_string())));
    for (name, node) in state.names.iter() {
        if let Some(Damage { from_bytes, expected, found, .. }) = node.damage.get() {
            let error = corruption(label, &format!("file '{name}'"), *from_bytes, expected, found);
            findings.push(finding(Severity::Error, "file-damaged", error.to_string()));
        }
    }
    let logs: Vec<u32> = state.log_bands.keys().copied().collect();
    let releasing: Vec<u32> = state.releasing.iter().map(|(_, band)| *band).collect();
    let mut of_tables: BTreeMap<u32, usize> = BTreeMap::new();
    tables.iter().flat_map(|table| &table.bands).for_each(|band| *of_tables.entry(*band).or_default() += 1);
    for band in state.pool.bands() {
        let (known, owners) = (state.pool.owners(band), of_tables.get(&band).copied().unwrap_or(0));
        if known != owners {
            let message = format!("{label}: {owners} tables have band {band}, and {known} are known to share it");
            findings.push(finding(Severity::Error, "band-owners", message));
        }
    }
    for (band, band_use) in state.bands.iter() {
        let is_owned = logs.contains(&band) || releasing.contains(&band) || of_tables.contains_key(&band);
        let is_used = matches!(band_use, BandUse::Table | BandUse::Log);
        // One that was just taken is being reset for its owner.
        let is_known = band_use == BandUse::Retired || (is_used && state.bands.is_active(band));
        if is_used != is_owned && !is_known {
            let message = format!("{label}: band {band} is told as {band_use:?}, and its owner says otherwise");
            findings.push(finding(Severity::Error, "band-leak", message));
        }
    }
    drop(state);
    drop(committer);
    findings.extend(band_findings(label, geometry, &tables, &logs, &zones));
    let damaged = log_findings(&core.device, label, &core.frame, geometry, &extents, &zones);
    // Frames are not written meanwhile, but log bands are given back, and others use them.
    let state = core.state.lock();
    let is_still_log = |extent: &LogExtent| {
        state.log_bands.get(&extent.band).is_some_and(|log| log.first_sequence == extent.first_sequence)
    };
    findings.extend(damaged.into_iter().filter(|(extent, _)| is_still_log(extent)).map(|(_, finding)| finding));
    drop(state);
    drop(appender);
    findings
}

/// Checks what is on a device without opening the store.
pub(super) fn inspect(device: &Device, kind: StoreKind) -> Vec<Finding> {
    let label = device.block.name();
    let read = || {
        let control = zones_of(label, device)?;
        let (journal, recovered) = Journal::recover(device, label, &OpenedAs::in_order(kind, device))?;
        let found = replay(label, &journal, &recovered)?;
        let zones = report(label, &*control, &found.geometry)?;
        Ok((journal.store_id(), found, zones, recovered.findings))
    };
    let (store_id, found, zones, mut findings) = match read() {
        Ok(read) => read,
        Err::<_, StoreError>(error) => return vec![Finding::unreadable(&error)],
    };
    let geometry = &found.geometry;
    let frame = FrameFormat { store_id, unit_bytes: geometry.unit_bytes as usize };
    let tables: Vec<CheckedTable> = found
        .files
        .iter()
        .filter(|(_, file)| !file.record.is_packed)
        .map(|(name, file)| {
            let mut bands: Vec<u32> = file.record.fragments.iter().map(|fragment| fragment.band).collect();
            bands.sort_unstable();
            bands.dedup();
            CheckedTable { name: name.clone(), fragments: file.record.fragments.clone(), bands }
        })
        .collect();
    let logs: Vec<u32> = found.log_bands.keys().copied().collect();
    let extents: Vec<LogExtent> = found
        .log_bands
        .values()
        .map(|log| LogExtent {
            band: log.band,
            first_sequence: log.first_sequence,
            end_bytes: log.sealed_bytes.unwrap_or_else(|| written_bytes(&zones[&log.band], geometry)),
            is_sealed: log.sealed_bytes.is_some(),
        })
        .collect();
    findings.extend(band_findings(label, geometry, &tables, &logs, &zones));
    let damaged = log_findings(device, label, &frame, geometry, &extents, &zones);
    findings.extend(damaged.into_iter().map(|(_, finding)| finding));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::geometry::tests::small;
    use super::*;

    fn table(name: &str, band: u32, offset_bytes: u64, length_bytes: u64) -> CheckedTable {
        let fragment = Fragment { band, offset_bytes, length_bytes };
        CheckedTable { name: name.to_owned(), fragments: vec![fragment], bands: vec![band] }
    }

    fn codes(tables: &[CheckedTable], logs: &[u32]) -> Vec<&'static str> {
        let findings = band_findings("test", &small(), tables, logs, &BTreeMap::new());
        findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn tables_share_bands_and_no_byte() {
        let tables = [table("a", 9, 0, 4096), table("b", 9, 4096, 8192), table("c", 10, 0, 4096)];
        assert_eq!(codes(&tables, &[11]), [""; 0]);
        assert_eq!(codes(&tables, &[10]), ["band-overlap"]);
        let overlapping = [table("a", 9, 0, 4097), table("b", 9, 4096, 8192)];
        assert_eq!(codes(&overlapping, &[]), ["band-overlap"]);
    }
}
