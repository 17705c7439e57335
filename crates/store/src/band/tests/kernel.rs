//! The store on a zoned block device of the kernel, where there is one.

use super::*;
use varve_media::{FileDeviceOptions, open_zoned_device};

/// Name a zoned block device in `VARVE_ZONED_DEVICE` to test it; what is on it is lost.
#[test]
fn a_zoned_block_device_holds_a_store() {
    let Some(path) = std::env::var_os("VARVE_ZONED_DEVICE") else {
        eprintln!("no zoned block device tested: VARVE_ZONED_DEVICE names none");
        return;
    };
    let env = Env::real();
    let open = || open_zoned_device(&path, &FileDeviceOptions::default()).unwrap();
    let options = BandFormatOptions { overwrite: true, ..BandFormatOptions::default() };
    BandStore::format(&env, &open(), &options).unwrap();
    for round in 0..3_u64 {
        let store = BandStore::open(&env, open()).unwrap();
        for number in 0..round {
            assert_eq!(read(&store, &format!("{number}.sst")).unwrap(), content(number, 0, 3_000_000));
            assert_eq!(read(&store, &format!("{number}.log")).unwrap(), content(100 + number, 0, 300_000));
        }
        write(&store, &format!("{round}.sst"), FileKind::Table, None, &content(round, 0, 3_000_000)).unwrap();
        write(&store, &format!("{round}.log"), FileKind::Log, None, &content(100 + round, 0, 300_000)).unwrap();
        let findings = store.check().unwrap();
        assert_eq!(codes(&findings, Severity::Error), [""; 0], "{findings:?}");
    }
}
