//! The devices of these rules that stores are tested on.

use super::Interlaced;
use crate::conformance::devices::{TestedDevice, memory};
use crate::device::{Device, Geometry};
use crate::tracks::TrackGeometry;
use varve_env::Env;

/// For the table of devices.
pub(crate) const TESTED: &[TestedDevice] = &[INTERLACED, INTERLACED_OF_TWO_SIZES];

/// Writes that would destroy live data are refused.
pub const INTERLACED: TestedDevice = TestedDevice {
    name: "interlaced tracks",
    make: |env, name, geometry| interlaced(env, name, geometry, 8 << 10, 8 << 10),
};

/// The same with bottoms larger than tops.
pub const INTERLACED_OF_TWO_SIZES: TestedDevice = TestedDevice {
    name: "interlaced tracks of two sizes",
    make: |env, name, geometry| interlaced(env, name, geometry, 20 << 10, 16 << 10),
};

fn interlaced(env: &Env, name: &str, geometry: &Geometry, bottom_bytes: u64, top_bytes: u64) -> Device {
    let tracks = TrackGeometry::fit(geometry.capacity_bytes, bottom_bytes, top_bytes).expect("tracks");
    let rules = Interlaced::new(&tracks, geometry.physical_sector_bytes, true);
    let geometry = rules.cut(geometry);
    rules.device(name, |rules| memory(env, name, geometry, rules))
}
