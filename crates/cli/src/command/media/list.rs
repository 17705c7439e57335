//! `varve media list`

use crate::console::Console;
use crate::failure::{Failure, Status};
use serde_json::{Value, json};
use varve::media::presets::Preset;
use varve::spec::{ByteSize, OptionDescription, common_options, file_stores, media_kinds};
use varve_lab::report::{Align, Table};

/// What a table is set off from the margin by.
const INDENT: &str = "    ";

/// Kinds of media, their options, and the models with their numbers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media list
  varve media list --json | jq '.models[] | .name'

A spec is KIND:ARGUMENT?OPTION=VALUE,OPTION=VALUE. Quote it: the shell knows '?' and '&' too.
A value may be a spec itself, in parentheses when it has options: logs=(nvme:10GB?model=zn540).")]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let mut presets = Preset::all();
        presets.sort_by(|a, b| a.name().cmp(b.name()));
        if console.json {
            let option = |option: &OptionDescription| json!({"name": option.name, "value": option.value.placeholder(), "default": option.default, "meaning": option.meaning});
            let kinds: Vec<Value> = media_kinds()
                .map(|kind| {
                    json!({
                        "name": kind.name,
                        "summary": kind.summary,
                        "argument": {
                            "value": kind.argument.value.placeholder(),
                            "default": kind.argument.default,
                            "meaning": kind.argument.meaning,
                        },
                        "options": kind.options.iter().map(option).collect::<Vec<_>>(),
                        "examples": kind.examples,
                    })
                })
                .collect();
            let common: Vec<Value> = common_options()
                .map(|(store, description)| {
                    let mut value = option(description);
                    value["store"] = if store.is_empty() { Value::Null } else { json!(store) };
                    value
                })
                .collect();
            let stores: Vec<Value> =
                file_stores().map(|(name, summary)| json!({"name": name, "summary": summary})).collect();
            let models: Vec<Value> = presets.iter().map(model_json).collect();
            console.json(&json!({"kinds": kinds, "common_options": common, "stores": stores, "models": models}))?;
            return Ok(Status::Done);
        }
        console.line("Kinds of media:")?;
        for kind in media_kinds() {
            let placeholder = kind.argument.value.placeholder();
            let argument = match kind.argument.default {
                Some(default) => format!("[{placeholder}, default {default}]"),
                None => placeholder,
            };
            console.line("")?;
            console.wrapped(&format!("  {}:{argument}  {}", kind.name, kind.summary), 6)?;
            kind.options.iter().try_for_each(|option| print_option(console, option, ""))?;
            for example in kind.examples {
                console.line(format!("      as in {example}"))?;
            }
        }
        console.line("\nOptions of all media:")?;
        for (store, option) in common_options() {
            let origin = if store.is_empty() { String::new() } else { format!(" (store {store})") };
            print_option(console, option, &origin)?;
        }
        console.line("\nFile stores:")?;
        for (name, summary) in file_stores() {
            console.wrapped(&format!("    {name:<10} {summary}"), 15)?;
        }
        console.line("\nModels:")?;
        let models = model_table(&presets);
        let text = match console.width() {
            Some(width) => models.to_text_within(width.saturating_sub(INDENT.len())),
            None => models.to_text(),
        };
        for line in text.lines() {
            console.line(format!("{INDENT}{line}").trim_end())?;
        }
        Ok(Status::Done)
    }
}

fn model_table(presets: &[Preset]) -> Table {
    let mut table = Table::new([
        ("model", Align::Left),
        ("capacity", Align::Right),
        ("read MB/s", Align::Right),
        ("write MB/s", Align::Right),
        ("random reads/s", Align::Right),
        ("what it is", Align::Left),
    ]);
    for preset in presets {
        let nominal = preset.nominal();
        table.row([
            preset.name().to_owned(),
            short_capacity(preset.geometry().capacity_bytes),
            (nominal.sequential_read_bytes_per_second / 1_000_000).to_string(),
            (nominal.sequential_write_bytes_per_second / 1_000_000).to_string(),
            nominal.random_reads_per_second.to_string(),
            preset.description().to_owned(),
        ]);
    }
    table
}

fn print_option(console: &mut Console, option: &OptionDescription, origin: &str) -> Result<(), Failure> {
    let placeholder = option.value.placeholder();
    let form = if placeholder.is_empty() { option.name.to_owned() } else { format!("{}={placeholder}", option.name) };
    console.wrapped(&format!("    {form:<28} {}; default: {}{origin}", option.meaning, option.default), 33)
}

/// In the units of data sheets, three digits.
fn short_capacity(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1_000_000_000_000 { (1_000_000_000_000, "TB") } else { (1_000_000_000, "GB") };
    let hundredths = bytes / (unit / 100);
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, fraction) => format!("{whole}.{fraction:02} {name}"),
    }
}

fn model_json(preset: &Preset) -> Value {
    let (geometry, nominal, promises) = (preset.geometry(), preset.nominal(), preset.promises());
    json!({
        "name": preset.name(),
        "summary": preset.description(),
        "capacity_bytes": geometry.capacity_bytes,
        "capacity": ByteSize(geometry.capacity_bytes).to_string(),
        "sector_bytes": geometry.sector_bytes,
        "physical_sector_bytes": geometry.physical_sector_bytes,
        "sequential_read_bytes_per_second": nominal.sequential_read_bytes_per_second,
        "sequential_write_bytes_per_second": nominal.sequential_write_bytes_per_second,
        "random_reads_per_second": nominal.random_reads_per_second,
        "promises": {
            "outer_read_bytes_per_second": promises.outer_read_bytes_per_second,
            "outer_write_bytes_per_second": promises.outer_write_bytes_per_second,
            "average_read_bytes_per_second": promises.average_read_bytes_per_second,
            "average_write_bytes_per_second": promises.average_write_bytes_per_second,
            "random_reads_per_second": promises.random_reads_per_second,
        },
    })
}
