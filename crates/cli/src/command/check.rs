//! `varve check`

use crate::arguments::{Access, Database, Global};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::progress::bytes_read;
use serde_json::json;
use varve::ErrorKind;
use varve::repair::Severity;

/// Read and verify everything
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve check /tmp/db
  varve check /tmp/db --json
  varve check 'disk:10GB?backing=file:/tmp/disk.img' && echo fine

Each finding is a warning (untidy, nothing is lost), an error (something is damaged, the rest is
usable) or fatal.

Exit code 0: nothing is damaged. 1: something is damaged; 'varve repair' salvages what it can. 3: the
medium failed. 4: too damaged to be opened. 6: there is no database, or one of another program or
version. A directory is checked beside a process that writes to it.")]
pub(crate) struct Check {
    #[command(flatten)]
    database: Database,
}

pub(crate) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
    }
}

impl Check {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let db = self.database.open(global, Access::Read, console).inspect_err(|failure| {
            if failure.kind() == ErrorKind::Corruption {
                console.note("too damaged to be opened and checked; 'varve repair' salvages what it can");
            }
        })?;
        let table_bytes = db.statistics().table_bytes();
        let progress = console.progress().bytes(Some(table_bytes)).named("checking");
        let busy = progress.watch(bytes_read(db.stack(), db.env()));
        let findings = db.check();
        drop(busy);
        let findings = findings?;
        db.close()?;
        let damaged = findings.iter().filter(|finding| finding.severity >= Severity::Error).count();
        if console.json {
            let listed: Vec<_> = findings
                .iter()
                .map(|finding| {
                    let severity = severity_name(finding.severity);
                    json!({"severity": severity, "code": finding.code, "message": finding.message})
                })
                .collect();
            console.json(&json!({"clean": damaged == 0, "findings": listed}))?;
        } else {
            for finding in &findings {
                let (severity, code, message) = (severity_name(finding.severity), finding.code, &finding.message);
                console.line(format!("{severity}: {code}: {message}"))?;
            }
            match (damaged, findings.len()) {
                (0, 0) => console.line("clean")?,
                (0, warnings) => console.line(format!("nothing is damaged; {warnings} warnings"))?,
                (damaged, _) => console.line(format!("{damaged} damaged; 'varve repair' salvages what it can"))?,
            }
        }
        Ok(if damaged > 0 { Status::Negative } else { Status::Done })
    }
}
