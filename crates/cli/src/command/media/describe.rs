//! `varve media describe`

use super::timing::Constants;
use crate::arguments::spec_parser;
use crate::console::Console;
use crate::failure::{Failure, Status};
use varve::options::Choice;
use varve::stack::{DeviceDescription, StackBuilder};
use varve::{Options, Spec};

/// What a spec stands for: model, capacity, promises, constants of the timing model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media describe disk:100GB
  varve media describe 'disk:1TB?model=st8000as0022,scale=1/64' --timing
  varve media describe dev:/dev/sdb --json

The last lines name the store that a new database gets, and the options that follow from the medium. Nothing is written, and nothing is made. An emulated device is described whether or not its image
file is there yet; real hardware has to be.")]
pub(crate) struct Describe {
    /// The medium
    #[arg(value_parser = spec_parser())]
    spec: Spec,
    /// Print the constants of the timing model too
    #[arg(long)]
    timing: bool,
}

impl Describe {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let env = self.spec.suitable_env(0);
        let builder = StackBuilder::new(&env);
        let devices = builder.describe(&self.spec)?;
        let store = builder.store_of(&self.spec)?;
        let choices = match store {
            Some(_) => builder.choices_of(&self.spec, &Options::default())?,
            None => None,
        };
        if console.json {
            let describe = |device: &DeviceDescription| {
                let mut described = serde_json::to_value(device).unwrap_or_default();
                described["timing"] = match device.timing.as_str() {
                    "" => serde_json::Value::Null,
                    timing => Constants::of(timing).json(),
                };
                described
            };
            let described: Vec<_> = devices.iter().map(describe).collect();
            let choices: Option<Vec<_>> = choices.map(|choices| {
                let of = |choice: &Choice| serde_json::json!({"name": choice.name, "value": choice.value, "reason": choice.reason});
                choices.iter().map(of).collect()
            });
            let store = store.map(|(name, _)| name);
            console.json(&serde_json::json!({
                "spec": self.spec.to_string(), "store": store, "options": choices, "devices": described,
            }))?;
            return Ok(Status::Done);
        }
        for device in &devices {
            console.write(device.to_string().as_bytes())?;
            if self.timing && !device.timing.is_empty() {
                console.line("  timing:")?;
                console.write(Constants::of(&device.timing).text(4).as_bytes())?;
            }
        }
        if let Some((store, is_named)) = store {
            let origin = match is_named {
                true => "named by store=",
                false => "the default of this medium; store= names another",
            };
            console.line(format!("store of a new database: {store}, {origin}"))?;
            for choice in choices.iter().flatten() {
                console.line(format!("  {} = {}: {}", choice.name, choice.value, choice.reason))?;
            }
        }
        Ok(Status::Done)
    }
}
