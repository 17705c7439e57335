//! Entry points for fuzzing: any bytes, no panic.

use crate::spec::{ByteSize, Spec};
use crate::stack::StackBuilder;
use varve_env::Env;

/// Zones or tracks of a device that is opened, beside being described.
const OPENED_PARTS_MAX: u32 = 256;

/// Bytes of a device that is opened.
const OPENED_BYTES_MAX: u64 = 1 << 34;

/// Parses a spec; what parses is written and parses to the same.
pub fn spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    match Spec::parse_unchecked(text) {
        Ok(spec) => {
            let canonical = spec.to_string();
            assert_eq!(Spec::parse_unchecked(&canonical).as_ref(), Ok(&spec), "{text:?} is written {canonical:?}");
            match text.parse::<Spec>() {
                Ok(spec) => build(&spec),
                Err(error) => {
                    assert!(error.position() <= error.spec().len());
                    let _ = (error.to_string(), error.pointer());
                }
            }
        }
        Err(error) => {
            assert!(error.position() <= text.len());
            let _ = (error.to_string(), error.pointer());
        }
    }
}

/// Describes what is emulated in memory, and opens it with its store where that is not too much for one input.
fn build(spec: &Spec) {
    if !spec.is_emulated() || !spec.paths().is_empty() {
        return;
    }
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let devices = match builder.describe(spec) {
        Ok(devices) => devices,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let is_small = devices.iter().all(|device| {
        let zones = device.zones.as_ref().map_or(0, |zones| zones.zones);
        let tracks = device.tracks.as_ref().map_or(0, |tracks| tracks.tracks);
        let _ = device.to_string();
        device.capacity_bytes <= OPENED_BYTES_MAX && zones.max(tracks) <= OPENED_PARTS_MAX
    });
    if is_small && let Err(error) = builder.build(spec) {
        let _ = error.to_string();
    }
}

/// Parses a configuration, and the file that keeps options.
pub fn configuration(data: &[u8]) {
    crate::saved_options::fuzz(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = crate::options::Configuration::from_toml(text);
    }
}
