//! `varve array`

use crate::arguments::{Global, spec_parser};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::report::human_bytes;
use serde_json::json;
use varve::Spec;
use varve::block::raid::{Array, ArrayStatus, Incident, MemberState, ProtectionPlace, StripeJournal};
use varve::media::{IoClass, IoContext};
use varve::spec::ByteSize;
use varve::stack::{StackBuilder, StackDevice};

/// Show, scrub and repair arrays
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve array status 'raid5:(dev:/dev/sdb+dev:/dev/sdc+dev:/dev/sdd)'
  varve array scrub 'raid5:(dev:/dev/sdb+dev:/dev/sdc+dev:/dev/sdd)' --repair
  varve array fail 'raid5:(dev:/dev/sdb+dev:/dev/sdc+dev:/dev/sdd)' --slot 1
  varve array replace 'raid5:(dev:/dev/sdb+dev:/dev/sde+dev:/dev/sdd)?replace=2'

No database may have the array open meanwhile.")]
pub(crate) struct ArrayCommand {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// State of each member, and what is to be resynced; writes nothing
    #[command(after_help = "Exit code 1: a member is lost or being rebuilt, or regions are to be resynced.")]
    Status(Medium),
    /// Read everything, and compare redundancy and protection information
    #[command(after_help = "Exit code 1: something does not fit, or cannot be read, and was not repaired.")]
    Scrub(Scrub),
    /// Take a member out of use
    Fail(FailMember),
    /// Rebuild the member that the option replace= of the spec names, and wait for it
    Replace(Medium),
}

/// Access that a command needs to the members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// Writes, and the image file of the new member may be made.
    Replace,
}

#[derive(Debug, clap::Args)]
struct Medium {
    /// The array
    #[arg(value_parser = spec_parser())]
    spec: Spec,
}

#[derive(Debug, clap::Args)]
struct Scrub {
    #[command(flatten)]
    medium: Medium,
    /// Make redundancy right, and rewrite what cannot be read
    #[arg(long)]
    repair: bool,
}

#[derive(Debug, clap::Args)]
struct FailMember {
    #[command(flatten)]
    medium: Medium,
    /// Slot of the member, as status shows it
    #[arg(long, value_name = "NUMBER")]
    slot: usize,
}

impl ArrayCommand {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        global.without_options("array")?;
        match &self.command {
            Action::Status(medium) => {
                let arrays = medium.open(Access::Read)?;
                let statuses: Vec<ArrayStatus> = arrays.iter().map(|(_, array)| array.status()).collect();
                show(&arrays, &statuses, console)?;
                Ok(if statuses.iter().all(ArrayStatus::is_whole) { Status::Done } else { Status::Negative })
            }
            Action::Scrub(scrub) => scrub.run(console),
            Action::Fail(fail) => {
                let arrays = fail.medium.open(Access::Write)?;
                if let Some((_, array)) = arrays.first() {
                    array.fail(fail.slot).map_err(varve::Error::from)?;
                }
                finish(&arrays, console)
            }
            Action::Replace(medium) => {
                let arrays = medium.open(Access::Replace)?;
                for (_, array) in &arrays {
                    let stripes = array.status().stripes;
                    let watched = array.clone();
                    let progress = console.progress().count(Some(stripes), "stripes").named("rebuilding");
                    let busy = progress.watch(move || watched.statistics().rebuilt_stripes);
                    array.wait_for_maintenance();
                    drop(busy);
                }
                finish(&arrays, console)
            }
        }
    }
}

/// Shows the arrays as they are now. A member that is not in use is no failure of the command that made it so.
fn finish(arrays: &[(String, Array)], console: &mut Console) -> Result<Status, Failure> {
    let statuses: Vec<ArrayStatus> = arrays.iter().map(|(_, array)| array.status()).collect();
    show(arrays, &statuses, console)?;
    Ok(Status::Done)
}

impl Medium {
    /// The arrays of the spec, outer ones first, with their names.
    fn open(&self, access: Access) -> Result<Vec<(String, Array)>, Failure> {
        let env = self.spec.suitable_env(0);
        let builder = StackBuilder::new(&env).create(access == Access::Replace).read_only(access == Access::Read);
        let devices = builder.devices(&self.spec)?;
        let mut arrays = Vec::new();
        collect(&devices, &mut arrays);
        if arrays.is_empty() {
            return Err(Failure::usage(format!("'{}' has no array; it begins with raid0: to raid6:", self.spec)));
        }
        Ok(arrays)
    }
}

fn collect(devices: &[StackDevice], arrays: &mut Vec<(String, Array)>) {
    for device in devices {
        arrays.extend(device.array().map(|array| (device.description().name.clone(), array.clone())));
        collect(device.members(), arrays);
    }
}

fn state_name(state: &MemberState) -> &'static str {
    match state {
        MemberState::InUse => "in use",
        MemberState::Rebuilding { .. } => "rebuilding",
        _ => "lost",
    }
}

fn show(arrays: &[(String, Array)], statuses: &[ArrayStatus], console: &mut Console) -> Result<(), Failure> {
    if console.json {
        let listed: Vec<_> = arrays.iter().zip(statuses).map(|((name, _), status)| as_json(name, status)).collect();
        return console.json(&json!({"arrays": listed}));
    }
    for ((name, _), status) in arrays.iter().zip(statuses) {
        let state = if status.is_whole() { "whole" } else { "degraded" };
        console.line(format!("{name}: {}, {state}", status.level))?;
        let (capacity, chunk) = (ByteSize(status.capacity_bytes), ByteSize(status.chunk_bytes));
        console.line(format!("  {} of data, chunks of {}", human_bytes(capacity), human_bytes(chunk)))?;
        let protection = match status.protection {
            None => "none".to_owned(),
            Some(format) => {
                let place = if status.protection_place == ProtectionPlace::Beside { ", beside the data" } else { "" };
                format!("type {}, guard {}{place}", format.protection_type.number(), format.guard.name())
            }
        };
        console.line(format!("  protection information: {protection}"))?;
        let journal = match status.journal {
            StripeJournal::None => "none",
            StripeJournal::Members => "on the members",
            StripeJournal::Device => "on a device of its own",
        };
        console.line(format!("  journal of stripes: {journal}"))?;
        if status.due_regions > 0 {
            let region = human_bytes(ByteSize(status.region_bytes));
            console.line(format!("  regions to resync: {}, each {region} of data", status.due_regions))?;
        }
        for (slot, (device, state)) in status.members.iter().enumerate() {
            let device = device.as_deref().unwrap_or("not there");
            console.line(format!("  slot {slot:<3} {:<11} {device}", state_name(state)))?;
        }
    }
    Ok(())
}

fn as_json(name: &str, status: &ArrayStatus) -> serde_json::Value {
    let members: Vec<_> = status
        .members
        .iter()
        .enumerate()
        .map(|(slot, (device, state))| json!({"slot": slot, "device": device, "state": state_name(state)}))
        .collect();
    let protection = status.protection.map(
        |format| json!({"protection_type": format.protection_type.number(), "guard": format.guard.name(), "interval_bytes": format.interval_bytes,
                        "beside": status.protection_place == ProtectionPlace::Beside}),
    );
    let journal = match status.journal {
        StripeJournal::None => "none",
        StripeJournal::Members => "members",
        StripeJournal::Device => "device",
    };
    json!({
        "name": name, "level": status.level.number(), "whole": status.is_whole(), "identity": status.identity,
        "generation": status.generation, "capacity_bytes": status.capacity_bytes, "chunk_bytes": status.chunk_bytes,
        "stripes": status.stripes, "due_regions": status.due_regions, "region_bytes": status.region_bytes,
        "protection": protection, "journal": journal, "members": members,
    })
}

impl Scrub {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let access = if self.repair { Access::Write } else { Access::Read };
        let arrays = self.medium.open(access)?;
        let mut is_sound = true;
        let mut listed = Vec::new();
        for (name, array) in &arrays {
            let watched = array.clone();
            let progress = console.progress().count(Some(array.status().stripes), "stripes").named("scrubbing");
            let busy = progress.watch(move || watched.statistics().scrubbed_stripes);
            let report = array.scrub(self.repair, &IoContext::of(IoClass::Maintenance));
            drop(busy);
            let report = report.map_err(varve::Error::from)?;
            is_sound &= report.mismatched_stripes == report.repaired_stripes && report.unreadable_stripes == 0;
            let incidents = array.incidents();
            if console.json {
                let incident = |incident: &Incident| json!({"slot": incident.slot, "error": incident.error.to_string(), "repaired": incident.is_repaired});
                let incidents: Vec<_> = incidents.iter().map(incident).collect();
                listed.push(json!({
                    "name": name, "stripes": report.stripes, "mismatched_stripes": report.mismatched_stripes,
                    "repaired_stripes": report.repaired_stripes, "unreadable_stripes": report.unreadable_stripes,
                    "unchecked_stripes": report.unchecked_stripes, "mismatched": report.mismatched, "incidents": incidents,
                }));
                continue;
            }
            console.line(format!(
                "{name}: {} stripes compared, {} do not fit, {} repaired, {} cannot be read, {} have no redundancy left",
                report.stripes,
                report.mismatched_stripes,
                report.repaired_stripes,
                report.unreadable_stripes,
                report.unchecked_stripes
            ))?;
            for incident in &incidents {
                let outcome = if incident.is_repaired { "repaired" } else { "not repaired" };
                console.line(format!("  slot {}, {outcome}: {}", incident.slot, incident.error))?;
            }
        }
        if console.json {
            console.json(&json!({"arrays": listed, "sound": is_sound}))?;
        }
        Ok(if is_sound { Status::Done } else { Status::Negative })
    }
}
