//! The suites over the stores of this crate. A later store joins by one line in [`subjects`].

use super::*;
use crate::extent::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore};
use crate::plain::{PlainOptions, PlainStore};
use varve_media::{Device, Directory, MemoryDirectoryOptions};

const CAPACITY_BYTES: u64 = 16 << 20;

fn plain(env: &Env, directory: Arc<dyn Directory>) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(PlainStore::open(env, directory, PlainOptions::default())))
}

fn extent(env: &Env, device: Device) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(ExtentStore::open(env, device)?))
}

fn format(env: &Env, device: &Device, layout: ExtentLayout) -> Result<(), StoreError> {
    ExtentStore::format(env, device, &ExtentFormatOptions { layout, overwrite: false })
}

fn format_ext4(env: &Env, device: &Device) -> Result<(), StoreError> {
    let options = Ext4Options { group_bytes: 1 << 20, journal_bytes: Some(256 << 10) };
    format(env, device, ExtentLayout::Ext4(options))
}

fn subjects() -> Vec<Box<dyn Subject>> {
    let directory = |name, direct_alignment_bytes| DirectorySubject {
        name,
        options: MemoryDirectoryOptions { capacity_bytes: Some(CAPACITY_BYTES), direct_alignment_bytes },
        open: plain,
    };
    let device = |name, physical_sector_bytes, ending, format| DeviceSubject {
        name,
        capacity_bytes: CAPACITY_BYTES,
        physical_sector_bytes,
        ending,
        format,
        open: extent,
    };
    vec![
        Box::new(directory("plain", 1)),
        Box::new(directory("plain", 512)),
        Box::new(device("extent", 512, Ending::Forget, |env, device| format(env, device, ExtentLayout::FirstFit))),
        Box::new(device("extent", 4096, Ending::Forget, |env, device| format(env, device, ExtentLayout::FirstFit))),
        Box::new(device("extent nextfit", 4096, Ending::Forget, |env, device| {
            format(env, device, ExtentLayout::NextFit)
        })),
        Box::new(device("extent ext4", 512, Ending::Keep, format_ext4)),
        Box::new(device("extent ext4", 4096, Ending::Keep, format_ext4)),
    ]
}

fn assert_conforms(env: &Env) {
    for subject in subjects() {
        let failures = conformance(env, &*subject);
        assert!(failures.is_empty(), "{:#?}", failures);
    }
}

#[test]
fn every_store_keeps_the_contract_in_a_simulation() {
    assert_conforms(&Env::sim(1));
}

#[test]
fn every_store_keeps_the_contract_in_odd_schedules() {
    for seed in 2..5 {
        assert_conforms(&Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..Default::default() }));
    }
}

#[test]
fn every_store_keeps_the_contract_in_the_real_world() {
    assert_conforms(&Env::real());
}

#[test]
fn every_store_survives_power_cuts() {
    for subject in subjects() {
        for seed in [1, 2] {
            let env = Env::sim(seed);
            let suite = CrashSuite { seed, operations: 90, images_of_point: 10, recoveries: 60 };
            let report = suite.run(&env, &*subject);
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            println!(
                "{}: {} points, {} images, {} cuts in recovery, {} in the second",
                subject.name(),
                report.points,
                report.images,
                report.cuts_in_recovery,
                report.cuts_in_second_recovery
            );
            assert!(report.points > 50 && report.images >= report.points * 10);
        }
    }
}
