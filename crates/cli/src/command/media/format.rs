//! `varve media format`

use crate::arguments::spec_parser;
use crate::console::Console;
use crate::failure::{Failure, Status};
use varve::stack::StackBuilder;
use varve::{ErrorKind, Spec};

/// Lay out an empty file store on a device
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media format 'dev:/srv/varve.img?size=10GiB'
  varve media format 'dev:/dev/sdb?layout=ext4' --overwrite
  varve media format 'disk:10GB?backing=file:/tmp/disk.img,layout=ext4'

A blank device needs no formatting: the first write to a database on it does that. A device that
holds anything is refused unless --overwrite says that it may be lost.")]
pub(crate) struct FormatDevice {
    /// The medium
    #[arg(value_parser = spec_parser())]
    spec: Spec,
    /// Lose what the device holds
    #[arg(long)]
    overwrite: bool,
}

impl FormatDevice {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let env = self.spec.suitable_env(0);
        let builder = StackBuilder::new(&env);
        match builder.describe(&self.spec) {
            // A file that is used as a device is made.
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            // A directory, which has no devices, is refused here.
            described => drop(described?),
        }
        if !self.overwrite {
            match builder.clone().create(false).build(&self.spec) {
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                Err(error) => return Err(error.into()),
                Ok(stack) => {
                    let files = stack.files().list().map_err(varve::Error::from)?.len();
                    return Err(Failure::usage(format!(
                        "{} holds a store with {files} files already; --overwrite lays it out anew and loses them",
                        self.spec
                    )));
                }
            }
        }
        let stack = builder.format(self.overwrite).build(&self.spec)?;
        crate::arguments::warn_of_lost_bytes(&stack, console);
        if console.json {
            let stack = serde_json::to_value(stack.description()).unwrap_or_default();
            console.json(&serde_json::json!({"formatted": true, "overwritten": self.overwrite, "stack": stack}))?;
        } else {
            console.note(format!("{}: an empty store", self.spec));
        }
        Ok(Status::Done)
    }
}
