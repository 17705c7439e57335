//! `varve completions` and `varve manual`

use crate::Arguments;
use crate::console::Console;
use crate::failure::{Failure, Status};
use clap::CommandFactory;
use std::path::PathBuf;

/// Print what a shell needs to complete this command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve completions bash > ~/.local/share/bash-completion/completions/varve
  varve completions zsh > ~/.local/share/zsh/site-functions/_varve
  varve completions fish > ~/.config/fish/completions/varve.fish

'cargo xtask install' does that for all three.")]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "varve", &mut script);
        console.write(&script)?;
        Ok(Status::Done)
    }
}

/// Write the pages of the manual, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve manual ~/.local/share/man/man1             then: man varve-media-describe

'cargo xtask install' does that too.")]
pub(crate) struct Manual {
    /// The directory they go into, which is there
    directory: PathBuf,
}

impl Manual {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let failed = |error| Failure::io(self.directory.display().to_string(), error);
        std::fs::read_dir(&self.directory).map_err(failed)?;
        // Its own help pages would be one more for each of them.
        let command = Arguments::command().disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.directory).map_err(failed)?;
        console.note(format!("wrote varve.1 and the pages of its commands into {}", self.directory.display()));
        Ok(Status::Done)
    }
}
