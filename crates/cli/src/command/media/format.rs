//! `varve media format`

use crate::arguments::{Global, spec_parser};
use crate::console::Console;
use crate::failure::{Failure, Status};
use varve::{Spec, StackBuilder};

/// Lay out an empty file store on a device
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media format dev:/srv/varve.img?size=10GiB
  varve media format 'dev:/dev/sdb?layout=next-fit' --overwrite
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
    pub(crate) fn run(&self, _global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let env = self.spec.suitable_env(0);
        let builder = StackBuilder::new(&env);
        // A directory has no devices, and is refused here.
        drop(builder.devices(&self.spec)?);
        let stack = builder.format(self.overwrite).build(&self.spec)?;
        let media = stack.media();
        let stores = [Some(&media.files), media.logs.as_ref()];
        for store in stores.into_iter().flatten() {
            let files = store.list().map_err(varve::Error::from)?.len();
            if files > 0 {
                let name = store.name();
                return Err(Failure::usage(format!("{name} holds a store with {files} files; --overwrite loses it")));
            }
        }
        if console.json {
            let stack = serde_json::to_value(stack.description()).unwrap_or_default();
            console.json(&serde_json::json!({"formatted": true, "stack": stack}))?;
        } else {
            console.note(format!("{}: an empty store", self.spec));
        }
        Ok(Status::Done)
    }
}
