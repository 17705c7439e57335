//! `varve repair`

use crate::arguments::{Database, Global};
use crate::command::check::severity_name;
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::progress::process_bytes_read;
use serde_json::{Value, json};
use varve::repair::Finding;
use varve::{Options, Varve};

/// Make a damaged database usable again with what can be read of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve check /tmp/db || varve repair /tmp/db
  varve repair /tmp/db --dry-run
  varve repair /tmp/db --json
  varve repair /tmp/db --discard-originals
  varve repair 'smr:14TB?backing=dev:/dev/sdb,store=hybrid,missing-devices=give-up'

Everything readable goes into a fresh database in the same place. Every file of the old one is kept
beside it: as damaged-... what was damaged or not used, as replaced-... what was sound. They take as
much space as before and can be deleted when the database holds what it should; on a device
--discard-originals does that for the sound ones. What is not known to be a Varve database, or is of
another version, is refused and not changed. Of a damaged table every block whose checksum is right
is used. Keys whose newest value was lost may show an older one, and deleted keys whose deletion was
lost may come back: findings called keys-may-be-stale say which.

Without space for a fresh database, sound tables and logs stay where they are.

Of several devices of which one is lost, the spec names the others and says missing-devices=give-up:
they are the database from then on, and the lost one is never taken back. A repair that fails, or is
interrupted, before the fresh database holds leaves the set as it was: the lost one may come back.

Exit code 0: nothing was damaged. 1: something was damaged, and what could be read of it is there. 3:
the medium failed; every file stays, run it again when the medium works. 5: another process has the
database open. 6: there is no database, or one of another program or version. 7: there is no space for it;
nothing was changed. --dry-run ends the same way, but takes no lock and changes nothing.")]
pub(crate) struct Repair {
    #[command(flatten)]
    database: Database,
    /// Print what would be done with each file, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the sound files whose entries are in fresh ones, of earlier repairs too; damaged ones are kept
    #[arg(long, conflicts_with = "dry_run")]
    discard_originals: bool,
}

impl Repair {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let options = global.options(&self.database.spec)?;
        if self.dry_run {
            return self.plan(options, console);
        }
        // How much is there is only known afterwards.
        let busy = console.progress().bytes(None).named("repairing").watch(process_bytes_read);
        let (builder, spec) = (Varve::builder().env(&self.database.env()).options(options), &self.database.spec);
        let report = match self.discard_originals {
            true => builder.repair_and_discard(spec),
            false => builder.repair(spec),
        };
        drop(busy);
        let report = report?;
        let lost = !report.findings.is_empty();
        if console.json {
            let findings = listed(&report.findings);
            console.json(&json!({
                "tables_kept": report.tables_kept, "tables_salvaged": report.tables_salvaged,
                "tables_lost": report.tables_lost, "logs_read": report.logs_read, "tables": report.tables,
                "entries": report.entries, "set_aside": report.set_aside, "findings": findings,
            }))?;
        } else {
            print(&report.findings, console)?;
            let (kept, salvaged, missing) = (report.tables_kept, report.tables_salvaged, report.tables_lost);
            console.line(format!(
                "tables: {kept} sound, {salvaged} salvaged in part, {missing} lost; logs read: {}",
                report.logs_read
            ))?;
            console.line(format!("now {} entries in {} tables", report.entries, report.tables))?;
            if !report.set_aside.is_empty() {
                console.line(format!("set aside as {}", report.set_aside.join(", ")))?;
                console.line("they can be deleted when the database holds what it should")?;
            }
        }
        Ok(if lost { Status::Negative } else { Status::Done })
    }

    fn plan(&self, options: Options, console: &mut Console) -> Result<Status, Failure> {
        let busy = console.progress().bytes(None).named("reading").watch(process_bytes_read);
        let plan = Varve::builder().env(&self.database.env()).options(options).plan_repair(&self.database.spec);
        drop(busy);
        let plan = plan?;
        if console.json {
            let steps: Vec<_> =
                plan.steps.iter().map(|step| json!({"file": step.file, "action": step.action.description()})).collect();
            let space = plan
                .space
                .map(|space| json!({"needed_bytes": space.needed_bytes, "available_bytes": space.available_bytes}));
            let (findings, fits) = (listed(&plan.findings), plan.fits());
            console.json(&json!({"steps": steps, "findings": findings, "space": space, "fits": fits}))?;
        } else {
            print(&plan.findings, console)?;
            for step in &plan.steps {
                console.line(format!("{}: {}", step.file, step.action.description()))?;
            }
            if let Some(space) = plan.space {
                let (needed, available) = (space.needed_bytes, space.available_bytes);
                let fits = if plan.fits() { "" } else { ": it would not fit, and would change nothing" };
                console.line(format!("space: up to {needed} bytes are written, {available} are available{fits}"))?;
            }
        }
        if !plan.fits() {
            return Ok(Status::NoSpace);
        }
        Ok(if plan.findings.is_empty() { Status::Done } else { Status::Negative })
    }
}

fn listed(findings: &[Finding]) -> Vec<Value> {
    let one = |finding: &Finding| {
        let severity = severity_name(finding.severity);
        json!({"severity": severity, "code": finding.code, "message": finding.message})
    };
    findings.iter().map(one).collect()
}

fn print(findings: &[Finding], console: &mut Console) -> Result<(), Failure> {
    for finding in findings {
        let (severity, code, message) = (severity_name(finding.severity), finding.code, &finding.message);
        console.line(format!("{severity}: {code}: {message}"))?;
    }
    Ok(())
}
