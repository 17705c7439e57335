//! The commands, one file each.

mod array;
mod bench;
mod check;
mod checkpoint;
mod compact;
mod completions;
mod delete;
mod dump;
mod get;
mod import_tree;
mod lab;
mod load;
mod media;
mod options;
mod put;
mod repair;
mod scan;
mod stats;

use crate::arguments::Global;
use crate::console::Console;
use crate::failure::{Failure, Status};

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Put(put::Put),
    Get(get::Get),
    Delete(delete::Delete),
    Scan(scan::Scan),
    Load(load::Load),
    Dump(dump::Dump),
    ImportTree(import_tree::ImportTree),
    Bench(bench::BenchCommand),
    Lab(lab::Lab),
    Stats(stats::Stats),
    Check(check::Check),
    Repair(repair::Repair),
    Compact(compact::Compact),
    Checkpoint(checkpoint::Checkpoint),
    Media(media::Media),
    Array(array::ArrayCommand),
    Options(options::OptionsCommand),
    Completions(completions::Completions),
    Manual(completions::Manual),
}

impl Command {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        match self {
            Command::Put(command) => command.run(global, console),
            Command::Get(command) => command.run(global, console),
            Command::Delete(command) => command.run(global, console),
            Command::Scan(command) => command.run(global, console),
            Command::Load(command) => command.run(global, console),
            Command::Dump(command) => command.run(global, console),
            Command::ImportTree(command) => command.run(global, console),
            Command::Bench(command) => command.run(global, console),
            Command::Lab(command) => command.run(global, console),
            Command::Stats(command) => command.run(global, console),
            Command::Check(command) => command.run(global, console),
            Command::Repair(command) => command.run(global, console),
            Command::Compact(command) => command.run(global, console),
            Command::Checkpoint(command) => command.run(global, console),
            Command::Media(command) => command.run(global, console),
            Command::Array(command) => command.run(global, console),
            Command::Options(command) => {
                global.without_options("options")?;
                command.run(console)
            }
            Command::Completions(command) => command.run(console),
            Command::Manual(command) => command.run(console),
        }
    }
}
