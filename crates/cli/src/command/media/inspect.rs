//! `varve media inspect`

use crate::arguments::spec_parser;
use crate::command::check::severity_name;
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::report::human_bytes;
use serde_json::json;
use std::collections::BTreeMap;
use varve::Spec;
use varve::repair::Severity;
use varve::spec::ByteSize;
use varve::stack::StackBuilder;
use varve::store::{Location, Occupancy};

/// The file store on a medium: its files, its space, its own check
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
        let stack = StackBuilder::new(&env).read_only(true).build(&self.spec)?;
        let stores = [("files", Some(stack.files())), ("logs", stack.logs())];
        let mut damaged = false;
        for (role, store) in stores.into_iter().filter_map(|(role, store)| store.map(|store| (role, store))) {
            let entries = store.list().map_err(varve::Error::from)?;
            let space = store.space().map_err(varve::Error::from)?;
            let findings = store.check().map_err(varve::Error::from)?;
            damaged |= findings.iter().any(|finding| finding.severity >= Severity::Error);
            let properties = store.properties();
            let regions = regions(&store.occupancy());
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
                    "layout": store.layout().into_iter().map(|(what, how)| (what.to_owned(), json!(how)))
                        .collect::<serde_json::Map<_, _>>(),
                    "regions": regions.iter().map(Region::json).collect::<Vec<_>>(),
                    "files": files, "findings": findings,
                }))?;
                continue;
            }
            let (available, total) =
                (human_bytes(ByteSize(space.available_bytes)), human_bytes(ByteSize(space.total_bytes)));
            console.line(format!("{} ({role}): {available} of {total} available", store.name()))?;
            for (what, how) in store.layout() {
                console.line(format!("  {what}: {how}"))?;
            }
            for region in &regions {
                console.line(region.line())?;
            }
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

/// Pieces of one device that belong together.
struct Region {
    device: String,
    part: &'static str,
    usage: &'static str,
    pieces: u64,
    bytes: u64,
    used_bytes: u64,
}

/// What is used for what, by device, part and use.
fn regions(occupancy: &Occupancy) -> Vec<Region> {
    let mut sums: BTreeMap<(u16, &'static str, &'static str), [u64; 3]> = BTreeMap::new();
    for piece in &occupancy.pieces {
        let [pieces, bytes, used] = sums.entry((piece.device, piece.part, piece.usage.name())).or_default();
        *pieces += 1;
        *bytes += piece.length_bytes;
        *used += piece.used_bytes;
    }
    let name = |device: u16| occupancy.devices.get(usize::from(device)).map_or("", |device| device.name.as_str());
    let region = |((device, part, usage), [pieces, bytes, used_bytes]): (_, [u64; 3])| Region {
        device: name(device).to_owned(),
        part,
        usage,
        pieces,
        bytes,
        used_bytes,
    };
    sums.into_iter().map(region).collect()
}

impl Region {
    fn json(&self) -> serde_json::Value {
        json!({
            "device": self.device, "part": self.part, "usage": self.usage, "pieces": self.pieces,
            "bytes": self.bytes, "used_bytes": self.used_bytes,
        })
    }

    fn line(&self) -> String {
        let (bytes, used) = (human_bytes(ByteSize(self.bytes)), human_bytes(ByteSize(self.used_bytes)));
        let part = if self.part.is_empty() { String::new() } else { format!("{} ", self.part) };
        format!("  {}: {part}{}: {} pieces, {bytes}, {used} used", self.device, self.usage, self.pieces)
    }
}
