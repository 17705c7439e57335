//! `varve options`

use crate::arguments::spec_parser;
use crate::console::Console;
use crate::failure::{Failure, Status};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use varve::options::{DatabaseOption, SavedOptions, moved_option, nearest_name, saved_options};
use varve::stack::StackBuilder;
use varve::{Options, Spec};

/// Show the options of databases: defaults, units, what they do, what the medium changes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve options                                    all of them
  varve options write_buffer_size compression      these
  varve options --of /tmp/db                       what a database was last opened with
  varve options --json | jq -r '.[].name'

Options are set with -o NAME=VALUE, or in a file given by --config:
  [options]
  write_buffer_size = \"128MiB\"
  compression = \"lz4\"

An option that is unset follows from the medium and from two dials: -o favour=writes, balanced or scans, and
-o profile=paper for the configuration of the paper. --of says what was chosen, and why.

They hold for as long as the database is open. With those of --of, what the medium made of them is said; they
are kept in a file beside the database, for people: opening one takes at most the kind of tree from it.")]
pub(crate) struct OptionsCommand {
    /// These only
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// What this database was last opened with
    #[arg(long, value_name = "DB", value_parser = spec_parser())]
    of: Option<Spec>,
}

impl OptionsCommand {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let mut chosen: Vec<&DatabaseOption> = Vec::new();
        for name in &self.names {
            let all = || Options::ALL.iter();
            let Some(option) = all().find(|option| option.name == name) else {
                let hint = nearest_name(name, all().map(|option| option.name));
                let hint = hint.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
                return Err(Failure::usage(format!("there is no option '{name}'{hint} ('varve options' lists all)")));
            };
            chosen.push(option);
        }
        if chosen.is_empty() {
            chosen = Options::ALL.iter().collect();
        }
        match &self.of {
            None => describe(&chosen, console),
            Some(spec) => {
                let env = spec.suitable_env(0);
                let stack = StackBuilder::new(&env).read_only(true).build(spec)?;
                let Some(saved) = saved_options(&**stack.files())? else {
                    return Err(Failure::Store(varve::Error::Missing {
                        name: spec.to_string(),
                        advice: "no options are kept there: the database was never opened for writing, or is none",
                    }));
                };
                show(&saved, &chosen, self.names.is_empty(), console)
            }
        }
    }
}

fn describe(chosen: &[&DatabaseOption], console: &mut Console) -> Result<Status, Failure> {
    if console.json {
        let of = |option: &&DatabaseOption| {
            json!({
                "name": option.name, "default": option.default, "unit": option.unit.name(),
                "meaning": option.meaning(), "medium": option.store,
            })
        };
        console.json(&chosen.iter().map(of).collect())?;
        return Ok(Status::Done);
    }
    for (index, option) in chosen.iter().enumerate() {
        if index > 0 {
            console.line("")?;
        }
        console.line(format!("{} = {}  ({})", option.name, option.default, option.unit))?;
        paragraph(option.meaning(), console)?;
        if !option.store.is_empty() {
            paragraph(&format!("On the medium: {}.", option.store), console)?;
        }
    }
    Ok(Status::Done)
}

/// An indented paragraph, as wide as the terminal and never too wide to read.
fn paragraph(text: &str, console: &mut Console) -> Result<(), Failure> {
    let width = console.width().unwrap_or(98).min(98);
    console.line(crate::text::wrap(&format!("    {text}"), width, 4))
}

/// The options that were saved, and those they did not have; `rest` adds what was saved under names of other versions.
fn show(
    saved: &SavedOptions,
    chosen: &[&DatabaseOption],
    rest: bool,
    console: &mut Console,
) -> Result<Status, Failure> {
    let known: BTreeSet<&str> = chosen.iter().map(|option| option.name).collect();
    let others = || saved.values().filter(|(name, _)| rest && !known.contains(name));
    let to_json = |value: &varve::options::OptionValue| serde_json::to_value(value).unwrap_or_default();
    if console.json {
        let of =
            |option: &&DatabaseOption| (option.name.to_owned(), saved.get(option.name).map_or(Value::Null, to_json));
        let mut values: serde_json::Map<String, Value> = chosen.iter().map(of).collect();
        values.extend(others().map(|(name, value)| (name.to_owned(), to_json(value))));
        console.json(&Value::Object(values))?;
        return Ok(Status::Done);
    }
    for option in chosen {
        let value = saved.get(option.name).map_or("unset".to_owned(), |value| option.unit.show(value));
        let note = match saved.reason(option.name) {
            Some(reason) => format!("  (chosen: {reason})"),
            None if value == option.default => String::new(),
            None => format!("  (default {})", option.default),
        };
        console.line(format!("{} = {value}{note}", option.name))?;
    }
    for (name, value) in others() {
        let note = match moved_option(name) {
            Some(_) => "moved to the lab, without effect",
            None => "unknown to this version",
        };
        console.line(format!("{name} = {value}  ({note})"))?;
    }
    Ok(Status::Done)
}
