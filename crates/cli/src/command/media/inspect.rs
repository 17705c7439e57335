//! `varve media inspect`

use crate::arguments::spec_parser;
use crate::command::check::severity_name;
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::report::human_bytes;
use serde_json::json;
use varve::{ByteSize, Location, Severity, Spec, StackBuilder};

/// The file store on a medium: its files, its room, its own check
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media inspect /tmp/db
  varve media inspect 'disk:10GB?backing=file:/tmp/disk.img' --json

This looks below the database: at files, not at keys. Exit code 1: the store is damaged.")]
pub(crate) struct Inspect {
    /// The medium
    #[arg(value_parser = spec_parser())]
    spec: Spec,
}

impl Inspect {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let env = self.spec.suitable_env(0);
        let stack = StackBuilder::new(&env).create(false).build(&self.spec)?;
        let media = stack.media();
        let stores = [("files", Some(media.files)), ("logs", media.logs)];
        let mut damaged = false;
        for (role, store) in stores.into_iter().filter_map(|(role, store)| store.map(|store| (role, store))) {
            let entries = store.list().map_err(varve::Error::from)?;
            let space = store.space().map_err(varve::Error::from)?;
            let findings = store.check().map_err(varve::Error::from)?;
            damaged |= findings.iter().any(|finding| finding.severity >= Severity::Error);
            let properties = store.properties();
            if console.json {
                let files: Vec<_> =
                    entries.iter().map(|entry| json!({"name": entry.name, "size_bytes": entry.size_bytes})).collect();
                let findings: Vec<_> = findings
                    .iter()
                    .map(|finding| {
                        let severity = severity_name(finding.severity);
                        json!({"severity": severity, "code": finding.code, "message": finding.message})
                    })
                    .collect();
                let directory = match &properties.location {
                    Location::Directory(path) => Some(path.display().to_string()),
                    _ => None,
                };
                console.json(&json!({
                    "store": store.name(), "role": role, "directory": directory,
                    "rotational": properties.rotational, "read_alignment_bytes": properties.read_alignment_bytes,
                    "total_bytes": space.total_bytes, "available_bytes": space.available_bytes,
                    "files": files, "findings": findings,
                }))?;
                continue;
            }
            let (available, total) =
                (human_bytes(ByteSize(space.available_bytes)), human_bytes(ByteSize(space.total_bytes)));
            console.line(format!("{} ({role}): {available} of {total} available", store.name()))?;
            for entry in &entries {
                console.line(format!("{:>15}  {}", entry.size_bytes, entry.name.escape_debug()))?;
            }
            for finding in &findings {
                let (severity, code, message) = (severity_name(finding.severity), finding.code, &finding.message);
                console.line(format!("{severity}: {code}: {message}"))?;
            }
        }
        Ok(if damaged { Status::Negative } else { Status::Done })
    }
}
