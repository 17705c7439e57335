//! Devices that were formatted together, and others.

use super::*;
use crate::band::{DeviceFiles, Reserve};
use crate::identity::{self, Identity};

/// Says on devices that a store of them is made, and makes it on the first so many of them.
fn format_cut(env: &Env, devices: &[Device], store_id: u64, finished: usize) {
    let mut random = env.random(&format!("members {store_id}"));
    let members: Vec<identity::Member> = devices
        .iter()
        .map(|device| identity::Member::draw(&mut random, device.block.geometry().capacity_bytes))
        .collect();
    let begun: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| {
            let identity =
                Identity { shape: DeviceFiles::opened_as(device, KIND).shape, members: members.clone(), index };
            DeviceFiles::begin_format(device, KIND, store_id, identity).unwrap()
        })
        .collect();
    let reserve = Reserve { compaction_tables: 1, log_bands: Some(1) };
    for (device, formatting) in devices.iter().zip(begun).take(finished) {
        DeviceFiles::finish_format(device, formatting, reserve, None).unwrap();
    }
}

/// A format that was cut between its devices is made anew.
#[test]
fn a_set_that_was_not_made_to_the_end_holds_nothing() {
    for finished in 0..2 {
        let env = Env::sim(1);
        let devices = vec![slow(&env, 60), fast(&env, 12, 8)];
        format_cut(&env, &devices, 7, finished);
        assert!(!HybridStore::probe(&devices).unwrap(), "{finished} of 2 were made");
        HybridStore::format(&env, &devices, &format_options()).unwrap();
        assert_sound(&open(&env, &devices));
    }
}

/// The store of one set is not taken for what the interrupted format of another left behind.
#[test]
fn a_store_beside_an_unfinished_device_of_another_set_is_not_made_anew() {
    let env = Env::sim(1);
    let devices = formatted(&env, 60, 12, 8);
    let store = open(&env, &devices);
    write(&store, "t-1", FileKind::Table, Some(0), &content(1, 0, 10_000)).unwrap();
    drop(store);
    for kept in 0..2 {
        let mut others = vec![slow(&env, 60), fast(&env, 12, 8)];
        format_cut(&env, &others, 9, 0);
        others[kept] = devices[kept].clone();
        let error = HybridStore::probe(&others).unwrap_err().to_string();
        assert!(error.contains("another set"), "{error}");
        HybridStore::format(&env, &others, &format_options()).unwrap_err();
    }
    assert_content(&read(&open(&env, &devices), "t-1").unwrap(), 1, 10_000);
}

/// Every device is needed, and none but those of the set is taken.
#[test]
fn a_set_is_opened_whole_or_not_at_all() {
    let env = Env::sim(1);
    let devices = formatted(&env, 60, 12, 8);
    // What two formats draw at one moment is the same.
    env.sleep(std::time::Duration::from_secs(1));
    let others = formatted(&env, 60, 12, 8);
    for wrong in [
        vec![devices[0].clone()],
        vec![devices[1].clone()],
        vec![devices[0].clone(), others[1].clone()],
        vec![others[0].clone(), devices[1].clone()],
        vec![devices[0].clone(), devices[1].clone(), others[1].clone()],
    ] {
        let options = HybridOpenOptions { tiers: None, ..open_options() };
        let error = HybridStore::open(&env, wrong, &options).err().expect("an error");
        assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
    }
    assert_sound(&open(&env, &devices));
}
