//! What this store is tested on.

use super::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore, decode_anything};
use crate::conformance::devices::{DISK, USED_DISK};
use crate::conformance::{DeviceSubject, Effort, Ending, TestedStore, TestedSubject};
use crate::error::StoreError;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{BlockDeviceExt, Device, Emulated, IoContext};

/// For the table of stores.
pub(crate) const TESTED: TestedStore = TestedStore { name: "extent", subjects, decode_anything, open_anything };

const SUBJECT: DeviceSubject = DeviceSubject {
    name: "extent",
    device: DISK,
    capacity_bytes: 16 << 20,
    physical_sector_bytes: 4096,
    ending: Ending::Forget,
    format: |env, device| format(env, device, ExtentLayout::FirstFit),
    open: |env, device| Ok(Arc::new(ExtentStore::open(env, device)?)),
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
    ]
}

fn format(env: &Env, device: &Device, layout: ExtentLayout) -> Result<(), StoreError> {
    ExtentStore::format(env, device, &ExtentFormatOptions { layout, overwrite: true })
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
