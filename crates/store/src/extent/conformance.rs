//! What this store is tested on.

use super::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore, decode_anything};
use crate::conformance::{DeviceSubject, Effort, Ending, Fixture, Ground, TestedStore, TestedSubject};
use crate::error::StoreError;
use crate::file_store::FileStore;
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::devices::{DISK, MEMORY, PROTECTED, USED_DISK};
use varve_media::{BlockDeviceExt, Device, Emulated, Geometry, IoContext};

/// For the table of stores.
pub(crate) const TESTED: TestedStore =
    TestedStore { name: "extent", subjects, fixtures: FIXTURES, decode_anything, open_anything };

const SUBJECT: DeviceSubject = DeviceSubject {
    name: "extent",
    device: DISK,
    capacity_bytes: 16 << 20,
    physical_sector_bytes: 4096,
    ending: Ending::Forget,
    format: |env, device| format(env, device, ExtentLayout::FirstFit),
    open,
};

fn subjects() -> Vec<TestedSubject> {
    let next_fit =
        DeviceSubject { name: "nextfit", format: |env, device| format(env, device, ExtentLayout::NextFit), ..SUBJECT };
    let ext4 = DeviceSubject { name: "ext4", ending: Ending::Keep, format: format_ext4, ..SUBJECT };
    vec![
        TestedSubject::new(DeviceSubject { physical_sector_bytes: 512, ..SUBJECT }, Effort::FULL),
        // Every call fails once.
        TestedSubject::new(DeviceSubject { device: USED_DISK, ..SUBJECT }, Effort { fault_stride: 1, ..Effort::FULL }),
        TestedSubject::new(next_fit, Effort::FULL),
        TestedSubject::new(DeviceSubject { device: USED_DISK, physical_sector_bytes: 512, ..ext4 }, Effort::FULL),
        TestedSubject::new(ext4, Effort::FULL),
        TestedSubject::new(DeviceSubject { device: PROTECTED, ..SUBJECT }, Effort::SOME),
        TestedSubject::new(DeviceSubject { device: MEMORY, physical_sector_bytes: 512, ..SUBJECT }, Effort::SOME),
    ]
}

const FIXTURES: &[Fixture] = &[
    fixture("Extent", |env, name, _, space_bytes| made(env, name, ExtentLayout::FirstFit, space_bytes)),
    fixture("ExtentNextFit", |env, name, _, space_bytes| made(env, name, ExtentLayout::NextFit, space_bytes)),
    Fixture {
        share: 2,
        ..fixture("ExtentExt4", |env, name, _, space_bytes| {
            let options = Ext4Options { group_bytes: 8 << 20, journal_bytes: Some(1 << 20) };
            made(env, name, ExtentLayout::Ext4(options), space_bytes)
        })
    },
    Fixture {
        logs_apart: true,
        ..fixture("ExtentLogsApart", |env, name, _, space_bytes| made(env, name, ExtentLayout::FirstFit, space_bytes))
    },
    fixture("ExtentMemory", |env, name, _, space_bytes| made_in_memory(env, name, space_bytes)),
];

/// Persistent memory with an empty store; of the real world like [`made`].
fn made_in_memory(env: &Env, name: &str, space_bytes: u64) -> Device {
    const SECTOR_BYTES: u32 = 512;
    let capacity_bytes = space_bytes / u64::from(SECTOR_BYTES) * u64::from(SECTOR_BYTES);
    let geometry = Geometry { capacity_bytes, sector_bytes: SECTOR_BYTES, physical_sector_bytes: SECTOR_BYTES };
    let device = (MEMORY.make)(&Env::real(), name, &geometry);
    format(env, &device, ExtentLayout::FirstFit).expect("format");
    device
}

const fn fixture(name: &'static str, make: fn(&Env, &str, usize, u64) -> Device) -> Fixture {
    Fixture::new(name, Ground::Device { make, open })
}

/// Of the real world, where it takes no time: images read it from other simulations.
fn made(env: &Env, name: &str, layout: ExtentLayout, space_bytes: u64) -> Device {
    let device = Device::of_blocks(Arc::new(Emulated::immediate(&Env::real(), name, space_bytes)));
    ExtentStore::format(env, &device, &ExtentFormatOptions { layout, ..ExtentFormatOptions::default() })
        .expect("format");
    device
}

fn open(env: &Env, device: Device) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(ExtentStore::open(env, device)?))
}

fn format(env: &Env, device: &Device, layout: ExtentLayout) -> Result<(), StoreError> {
    ExtentStore::format(env, device, &ExtentFormatOptions { layout, overwrite: true, ..ExtentFormatOptions::default() })
}

fn format_ext4(env: &Env, device: &Device) -> Result<(), StoreError> {
    let options = Ext4Options { group_bytes: 1 << 20, journal_bytes: Some(256 << 10) };
    format(env, device, ExtentLayout::Ext4(options))
}

fn open_anything(bytes: &[u8]) {
    let env = Env::real();
    let emulated = Arc::new(Emulated::immediate(&env, "fuzz", 1 << 20));
    let mut image = bytes[..bytes.len().min(1 << 20)].to_vec();
    image.resize(image.len().next_multiple_of(512), 0);
    if emulated.write_at(0, &image, &IoContext::default()).is_err() {
        return;
    }
    let device = Device::of_blocks(emulated);
    let _ = ExtentStore::inspect(&device);
    let _ = ExtentStore::open(&env, device);
}
