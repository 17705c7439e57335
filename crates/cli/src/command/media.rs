//! `varve media`

mod describe;
mod format;
mod inspect;
mod list;
mod probe;
mod timing;

use crate::arguments::Global;
use crate::console::Console;
use crate::failure::{Failure, Status};

/// Show which media there are, what they promise and what they do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media list                                 kinds of media, their options, models with numbers
  varve media describe disk:100GB                  what a spec stands for
  varve media probe nvme:10GB                      measure a device, as fio would
  varve media inspect /tmp/db                      files of a store, without opening the database
  varve media format dev:/dev/sdb --overwrite      lay out a store on a device that holds something")]
pub(crate) struct Media {
    #[command(subcommand)]
    command: MediaCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MediaCommand {
    List(list::List),
    Describe(describe::Describe),
    Probe(probe::ProbeDevice),
    Inspect(inspect::Inspect),
    Format(format::FormatDevice),
}

impl Media {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        global.without_options("media")?;
        match &self.command {
            MediaCommand::List(command) => command.run(console),
            MediaCommand::Describe(command) => command.run(console),
            MediaCommand::Probe(command) => command.run(console),
            MediaCommand::Inspect(command) => command.run(console),
            MediaCommand::Format(command) => command.run(console),
        }
    }
}
