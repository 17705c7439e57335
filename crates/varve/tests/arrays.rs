//! Arrays by spec: databases on them, members that fail, are gone and are replaced.

use varve::env::Env;
use varve::media::{BlockDeviceExt, IoContext};
use varve::stack::StackBuilder;
use varve::{Error, ErrorKind, Options, Spec, Varve};

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a client in virtual time.
fn in_simulation<T: Send + 'static>(run: impl FnOnce(&Env) -> T + Send + 'static) -> T {
    let env = Env::sim(5);
    let of_client = env.clone();
    env.spawn("client", move || run(&of_client)).join().unwrap_or_else(|panicked| panicked.resume())
}

fn open(env: &Env, text: &str) -> Result<Varve, Error> {
    let options = Options { write_buffer_size: 128 << 10, ..Default::default() };
    Varve::builder().env(env).options(options).open_spec(&spec(text))
}

fn write(db: &Varve, salt: u8) {
    for number in 0..600_u32 {
        db.put(format!("key{number}").as_bytes(), [number as u8 ^ salt; 700]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
}

fn check(db: &Varve, salt: u8) {
    for number in 0..600_u32 {
        let found = db.get(format!("key{number}").as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&[number as u8 ^ salt; 700][..]), "key{number}");
    }
}

#[test]
fn a_database_lives_on_every_level() {
    for text in [
        "raid0:(ram:32MiB)?members=3",
        "raid1:(ram:32MiB)?members=2",
        "raid4:(disk:32MiB)?members=3,chunk=16KiB",
        "raid5:(disk:32MiB)?members=4,chunk=16KiB",
        "raid6:(ssd:32MiB+ssd:32MiB+ssd:32MiB+ssd:32MiB)",
        "raid0:(raid1:(ram:32MiB)?members=2+raid1:(ram:32MiB)?members=2)",
    ] {
        assert!(spec(text).is_emulated() && spec(text).suitable_env(1).is_virtual(), "{text}");
        in_simulation(move |env| {
            let db = open(env, text).unwrap_or_else(|error| panic!("{text}: {error}"));
            write(&db, 1);
            check(&db, 1);
            let device = &db.stack().devices()[0];
            let members = device.members();
            assert!(members.len() >= 2 && members.len() == device.description().members.len(), "{text}");
            let written: Vec<u64> =
                members.iter().map(|member| member.device().block.counters().written_bytes).collect();
            assert!(written.iter().all(|bytes| *bytes > 10_000), "{text}: {written:?}");
            assert!(device.description().to_string().contains(&members[0].description().name), "{text}");
            assert_eq!(device.description().backing, "ram");
            let report = device.array().unwrap().scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{text}: {report:?}");
            db.close().unwrap();
        });
    }
}

#[test]
fn faults_of_a_part_strike_that_member_and_the_array_goes_on() {
    in_simulation(|env| {
        let text = "raid5:(ram:32MiB+ram:32MiB?faults=write/io@40..+ram:32MiB)?chunk=16KiB";
        let db = open(env, text).unwrap();
        write(&db, 2);
        check(&db, 2);
        let array = db.stack().devices()[0].array().unwrap().clone();
        assert_eq!(array.degraded_members(), 1);
        assert_eq!(array.members()[1].1, varve::block::raid::MemberState::Lost);
        db.close().unwrap();
    });
    // Behind the parentheses they strike the array.
    let env = Env::sim(1);
    let devices = StackBuilder::new(&env).devices(&spec("raid1:(ram:1MiB)?members=2,faults=write/io@0")).unwrap();
    assert!(devices[0].device().block.write_at(0, &[1; 512], &IoContext::default()).is_err());
    assert_eq!(devices[0].array().unwrap().degraded_members(), 0);
}

#[test]
fn a_member_is_lost_replaced_and_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let part = |name: &str| format!("ram:32MiB?backing=file:{}", directory.path().join(name).display());
    let whole = format!("raid5:({}+{}+{})", part("a"), part("b"), part("c"));
    let degraded = format!("raid5:({}+{})?missing=1", part("a"), part("c"));
    let replaced = format!("raid5:({}+{}+{})?replace=2", part("a"), part("d"), part("c"));
    let rebuilt = format!("raid5:({}+{}+{})", part("c"), part("a"), part("d"));
    let alone = part("a");
    let image = directory.path().join("b");
    in_simulation(move |env| {
        let db = open(env, &whole).unwrap();
        write(&db, 3);
        db.close().unwrap();
        std::fs::remove_file(&image).unwrap();
        let new = open(env, &whole).unwrap_err();
        assert!(matches!(new, Error::Array(_)) && new.kind() == ErrorKind::Foreign, "{new}");
        assert!(new.to_string().contains("it is blank, expected member 1"), "{new}");
        let few = open(env, &format!("raid5:({alone})?missing=2")).unwrap_err();
        assert!(few.to_string().contains("needs 2 of 3 members, found 1"), "{few}");

        let db = open(env, &degraded).unwrap();
        check(&db, 3);
        write(&db, 4);
        db.close().unwrap();
        let db = open(env, &replaced).unwrap();
        check(&db, 4);
        let array = db.stack().devices()[0].array().unwrap().clone();
        array.wait_for_maintenance();
        assert_eq!(array.degraded_members(), 0);
        write(&db, 5);
        db.close().unwrap();
        drop(array);
        let db = open(env, &rebuilt).unwrap();
        check(&db, 5);
        let array = db.stack().devices()[0].array().unwrap().clone();
        let report = array.scrub(false, &IoContext::default()).unwrap();
        assert_eq!((report.mismatched_stripes, report.unchecked_stripes), (0, 0), "{report:?}");
        array.fail(0).unwrap();
        check(&db, 5);
        db.close().unwrap();
        drop(array);

        // A member without its array is named, and not changed.
        let refused = open(env, &alone).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("a member of an array (Varve)") && text.contains("raid5:"), "{text}");
    });
}

#[test]
fn an_array_is_as_emulated_as_its_members() {
    assert!(!spec("raid1:(dev:/dev/a+dev:/dev/b)").is_emulated());
    assert!(!spec("raid1:(disk:1GB+dev:/dev/b)").is_emulated());
    assert!(!spec("raid0:(raid1:(disk:1GB+dev:/dev/b)+disk:1GB)").is_emulated());
    assert!(spec("raid0:(raid1:(disk:1GB)?members=2+disk:1GB)").is_emulated());
    assert!(spec("raid1:(disk:1GB)?members=2").suitable_env(1).is_virtual());
    assert!(!spec("raid1:(disk:1GB?pace)?members=2").suitable_env(1).is_virtual());
    let paths: Vec<String> = spec("raid1:(dev:/dev/a+disk:1GB?backing=file:/b)")
        .paths()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(paths, ["/dev/a", "/b"]);
}

#[test]
fn refuses_specs_that_make_no_array() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    for (text, expected) in [
        ("raid5:(ram:1MiB)?members=2", "RAID 5 needs 3 to 64 members, found 2"),
        ("raid1:(ram:1MiB+ram:2MiB)", "expected a member of 1048576 bytes, found 2097152"),
        ("raid1:(ram:1MiB)?members=65", "at most 64"),
        ("raid1:(ram:1MiB+ram:1MiB)?members=4", "the number of devices that are named"),
        ("raid1:(ram:1MiB?backing=file:/nowhere/x)?members=2", "each device by name"),
        ("raid1:(ram:1MiB)?members=2,chunk=5000B", "a multiple of 4096 bytes"),
        ("raid1:(zns:40MiB?zone=256KiB)?members=2", "sectors that can be written at any time"),
        ("raid1:/tmp", "not a directory"),
        ("raid1:(file:/nowhere/x)", "not a directory"),
        ("raid1:(ram:1MiB)?members=2,replace=3", "one of the devices"),
        ("raid1:(raid1:(raid1:(ram:1MiB)?members=64)?members=64)?members=64", "at most 256 devices"),
    ] {
        let parsed: Result<Spec, _> = text.parse();
        let error = match parsed {
            Ok(spec) => builder.devices(&spec).err().unwrap_or_else(|| panic!("{text} was built")),
            Err(error) => error.into(),
        };
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
    }
}

#[test]
fn describing_and_reading_write_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let part = |name: &str| format!("ram:32MiB?backing=file:{}", directory.path().join(name).display());
    let whole = format!("raid6:({}+{}+{}+{})", part("a"), part("b"), part("c"), part("d"));
    let images = || ["a", "b", "c", "d"].map(|name| std::fs::read(directory.path().join(name)).unwrap());
    let env = Env::sim(1);
    let described = StackBuilder::new(&env).describe(&spec(&whole)).unwrap();
    assert_eq!(described[0].members.len(), 4);
    assert!(!directory.path().join("a").exists());
    let written = whole.clone();
    in_simulation(move |env| {
        let db = open(env, &written).unwrap();
        write(&db, 6);
        db.close().unwrap();
    });
    let before = images();
    let described = StackBuilder::new(&env).describe(&spec(&whole)).unwrap();
    assert_eq!(described[0].capacity_bytes, 2 * ((32 << 20) - (128 << 10)) / (128 << 10) * (128 << 10));
    in_simulation(move |env| {
        let db = Varve::builder().env(env).read_only(true).open_spec(&spec(&whole)).unwrap();
        check(&db, 6);
    });
    assert!(images() == before, "an image was changed");
}

/// Few, as each write of a journaled array waits for the files that it lies on.
fn write_few(db: &Varve) {
    for number in 0..40_u32 {
        db.put(format!("key{number}").as_bytes(), [number as u8; 6000]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
}

fn check_few(db: &Varve) {
    for number in 0..40_u32 {
        let found = db.get(format!("key{number}").as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&[number as u8; 6000][..]), "key{number}");
    }
}

/// Flips a bit of one sector in some hundred behind the superblocks of an image.
fn rot(path: &std::path::Path, seed: u64) -> u64 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut random = varve::env::Random::named(seed, "rot");
    let mut flips = 0;
    let mut at = 4 << 20;
    while at < file.metadata().unwrap().len() {
        let mut byte = [0];
        let place = at + random.below(512);
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << random.below(8)], place).unwrap();
        flips += 1;
        at += 512 * (1 + random.below(200));
    }
    flips
}

#[test]
fn plain_disks_that_return_other_data_are_found_out_and_repaired() {
    for (level, journal) in [("raid5", ""), ("raid1", ",journal=(ram:8MiB?backing=file:J)")] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let count = 3;
        let named = (0..count).map(|slot| format!("ram:12MiB?backing=file:{}", path(&format!("m{slot}")).display()));
        let members = named.collect::<Vec<_>>().join("+");
        let journal = journal.replace('J', &path("journal").display().to_string());
        let text = format!("{level}:({members})?chunk=16KiB,pi=beside{journal}");
        let env = spec(&text).suitable_env(5);
        let db = open(&env, &text).unwrap();
        write_few(&db);
        db.close().unwrap();
        let flips = rot(&path("m1"), 3);
        let db = open(&env, &text).unwrap();
        check_few(&db);
        let device = &db.stack().devices()[0];
        assert_eq!(device.members().len(), count + usize::from(!journal.is_empty()), "{text}");
        let array = device.array().unwrap().clone();
        array.scrub(true, &IoContext::default()).unwrap();
        let repaired = array.statistics().rewritten_columns + array.incidents().len() as u64;
        assert!(flips > 30 && repaired > 5, "{text}: {flips} flips, {repaired} parts");
        let report = array.scrub(false, &IoContext::default()).unwrap();
        assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{text}: {report:?}");
        assert_eq!(array.degraded_members(), 0);
        check_few(&db);
        db.close().unwrap();
        drop(array);
        // An array is opened with the protection information that it has.
        let error = open(&env, &text.replace(",pi=beside", ",pi=members")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        if !journal.is_empty() {
            let error = open(&env, &text.replace(&journal, "")).err().unwrap();
            assert!(error.to_string().contains("lies on a device of its own"), "{error}");
        }
    }
    let error = open(&Env::sim(1), "raid5:(ram:16MiB)?members=3,pi=beside,journal=none").err().unwrap();
    assert!(error.to_string().contains("need a journal of stripes"), "{error}");
    let error = open(&Env::sim(1), "raid5:(ram:16MiB)?members=3,journal=here").err().unwrap();
    assert!(error.to_string().contains("none, members, or a device in parentheses"), "{error}");
}
