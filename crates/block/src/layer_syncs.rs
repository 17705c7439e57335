//! Layers over devices of which one sync fails late.

use crate::buffer::{BufferOpening, BufferParameters, EvictionAhead, WriteBuffer};
use crate::raid::{Array, ArrayError, ArrayOpening, ArrayParameters, Dix, RaidLevel};
use crate::relocation::{Formatting, RelocatingDevice, RelocationParameters};
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::devices::{TRANSLATED_ZONES, TestedDevice};
use varve_media::conformance::{LayerSubject, OpenedLayer, check_layer_syncs};
use varve_media::{Device, Emulated, Geometry, MediaCache};

const ZONE: u64 = 64 << 10;

fn device(env: &Env, kind: &TestedDevice, capacity_bytes: u64) -> Device {
    (kind.make)(env, "disk", &Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 })
}

/// Every zone that is out of order is moved at once, so relocation syncs all the time.
fn relocate(env: &Env, disk: &Device) -> Result<(Device, RelocatingDevice), String> {
    let parameters = RelocationParameters {
        utilization: 0.0,
        quiet_nanos: 1000,
        recent_nanos: 0,
        step_bytes: 8 << 10,
        urgent_step_bytes: 12 << 10,
        chunk_bytes: 24 << 10,
        ..RelocationParameters::default()
    };
    let limits = MediaCache { bytes: 1 << 20, extents_max: 200 };
    RelocatingDevice::open(env, disk, limits, parameters, Formatting::IfBlank).map_err(|error| error.to_string())
}

/// So few pages that they leave, and the map is recorded, all the time.
fn buffer(env: &Env, disk: &Device, fast: &Device) -> Result<(Device, WriteBuffer), String> {
    let parameters = BufferParameters {
        page_count: 8,
        rewrite_pages: Some(3),
        evicted_pages_min: 1,
        requests_at_once: 4,
        evictions_at_once: 3,
        ahead: Some(EvictionAhead { reserve_share: 2, urgent_share: 4, quiet_nanos: 0 }),
        ..BufferParameters::paper()
    };
    WriteBuffer::open(env, disk, fast, parameters, BufferOpening::default(), None).map_err(|error| error.to_string())
}

/// An array of four members. The member whose sync failed is older than the others, and is left out.
fn array(env: &Env, members: &[Device]) -> Result<(Device, Array), String> {
    let parameters = ArrayParameters {
        name: "array".to_owned(),
        level: RaidLevel::Raid5,
        chunk_bytes: Some(8 << 10),
        dix: Dix::On,
        journal: None,
        protection: None,
    };
    let mut given: Vec<Option<Device>> = members.iter().cloned().map(Some).collect();
    loop {
        match Array::open(env, &given, &parameters, &ArrayOpening::default()) {
            Err(ArrayError::Stale { slot, .. }) if given.iter().all(Option::is_some) => given[slot] = None,
            opened => return opened.map_err(|error| error.to_string()),
        }
    }
}

/// Three places in each of six zones, out of order.
fn places() -> Vec<u64> {
    (0..6).flat_map(|zone| [8192, 16384, 4096].map(|at| zone * ZONE + at)).collect()
}

pub(crate) fn subjects() -> Vec<LayerSubject> {
    let disk = |env: &Env| device(env, &TRANSLATED_ZONES, 16 * ZONE);
    let pair = move |env: &Env| vec![disk(env), Device::of_blocks(Arc::new(Emulated::immediate(env, "fast", 4 << 20)))];
    let relocation = |env: &Env, devices: &[Device]| -> Result<OpenedLayer, String> {
        let (device, handle) = relocate(env, &devices[0])?;
        Ok((device, Box::new(handle)))
    };
    let buffered = |env: &Env, devices: &[Device]| -> Result<OpenedLayer, String> {
        let (device, handle) = buffer(env, &devices[0], &devices[1])?;
        Ok((device, Box::new(handle)))
    };
    let both = |env: &Env, devices: &[Device]| -> Result<OpenedLayer, String> {
        let (relocated, below) = relocate(env, &devices[0])?;
        let (device, handle) = buffer(env, &relocated, &devices[1])?;
        Ok((device, Box::new((handle, below))))
    };
    let members = |env: &Env| -> Vec<Device> {
        let member = |name| Device::of_blocks(Arc::new(Emulated::immediate(env, name, 1 << 20)));
        ["a", "b", "c", "d"].map(member).into()
    };
    let protected = |env: &Env, devices: &[Device]| -> Result<OpenedLayer, String> {
        let (device, handle) = array(env, devices)?;
        Ok((device, Box::new(handle)))
    };
    vec![
        LayerSubject { name: "array", devices: Arc::new(members), open: Arc::new(protected), places: places() },
        LayerSubject {
            name: "relocation",
            devices: Arc::new(move |env| vec![disk(env)]),
            open: Arc::new(relocation),
            places: places(),
        },
        LayerSubject { name: "buffer", devices: Arc::new(pair), open: Arc::new(buffered), places: places() },
        LayerSubject {
            name: "buffer over relocation",
            devices: Arc::new(pair),
            open: Arc::new(both),
            places: places(),
        },
    ]
}

#[test]
fn no_layer_acknowledges_writes_that_a_late_failing_sync_dropped() {
    for subject in subjects() {
        let report = check_layer_syncs(&subject);
        println!("reached: block {}/late syncs: {} runs", subject.name, report.runs);
        assert!(report.failures.is_empty(), "{} failures, {:#?}", report.failures.len(), report.failures.first());
        assert!(report.runs > 60 && report.acknowledged > 200, "{report:?}");
    }
}
