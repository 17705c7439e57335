//! `varve repair`

use crate::arguments::{Database, Global};
use crate::command::check::severity_name;
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::progress::process_bytes_read;
use serde_json::json;

/// Make a damaged database usable again with what can be read of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve check /tmp/db || varve repair /tmp/db
  varve repair /tmp/db --json

Everything readable goes into a fresh database in the same place. Damaged files are kept beside it,
renamed. Keys whose newest value was lost may show an older one, and deleted keys whose deletion
was lost may come back. Exit code 1: something was lost.")]
pub(crate) struct Repair {
    #[command(flatten)]
    database: Database,
}

impl Repair {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let options = global.options(&self.database.spec)?;
        // How much is there is only known afterwards.
        let busy = console.progress().bytes(None).named("repairing").watch(process_bytes_read);
        let report = varve::repair(&self.database.env(), &self.database.spec, options);
        drop(busy);
        let report = report?;
        let lost = !report.findings.is_empty();
        if console.json {
            let findings: Vec<_> = report
                .findings
                .iter()
                .map(|finding| {
                    let severity = severity_name(finding.severity);
                    json!({"severity": severity, "code": finding.code, "message": finding.message})
                })
                .collect();
            console.json(&json!({
                "tables_kept": report.tables_kept, "tables_salvaged": report.tables_salvaged,
                "tables_lost": report.tables_lost, "logs_read": report.logs_read, "tables": report.tables,
                "entries": report.entries, "set_aside": report.set_aside, "findings": findings,
            }))?;
        } else {
            for finding in &report.findings {
                let (severity, code, message) = (severity_name(finding.severity), finding.code, &finding.message);
                console.line(format!("{severity}: {code}: {message}"))?;
            }
            let (kept, salvaged, missing) = (report.tables_kept, report.tables_salvaged, report.tables_lost);
            console.line(format!(
                "tables: {kept} sound, {salvaged} salvaged in part, {missing} lost; logs read: {}",
                report.logs_read
            ))?;
            console.line(format!("now {} entries in {} tables", report.entries, report.tables))?;
            if !report.set_aside.is_empty() {
                console.line(format!("damaged files kept as {}", report.set_aside.join(", ")))?;
            }
        }
        Ok(if lost { Status::Negative } else { Status::Done })
    }
}
