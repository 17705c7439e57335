//! `varve media describe`

use crate::arguments::{Global, spec_parser};
use crate::console::Console;
use crate::failure::{Failure, Status};
use varve::{Spec, StackBuilder};

/// What a spec stands for: model, capacity, promises, constants of the timing model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media describe disk:100GB
  varve media describe 'disk:1TB?model=st8000as0022,scale=1/64' --timing
  varve media describe dev:/dev/sdb --json

Nothing is written, and nothing is made: an image file has to be there already.")]
pub(crate) struct Describe {
    /// The medium
    #[arg(value_parser = spec_parser())]
    spec: Spec,
    /// Print the constants of the timing model too
    #[arg(long)]
    timing: bool,
}

impl Describe {
    pub(crate) fn run(&self, _global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let env = self.spec.suitable_env(0);
        let devices = StackBuilder::new(&env).create(false).devices(&self.spec)?;
        if console.json {
            let described: Vec<_> =
                devices.iter().map(|device| serde_json::to_value(device.description()).unwrap_or_default()).collect();
            console.json(&serde_json::json!({"spec": self.spec.to_string(), "devices": described}))?;
            return Ok(Status::Done);
        }
        for device in &devices {
            console.write(device.description().to_string().as_bytes())?;
            if self.timing && !device.description().timing.is_empty() {
                console.line(&device.description().timing)?;
            }
        }
        Ok(Status::Done)
    }
}
