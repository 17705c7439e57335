//! Specs become stacks: on directories, on devices, with layers, or errors that say why not.

use varve::env::Env;
use varve::media::{BlockDeviceExt, FlushQueue, IoContext, ZoneId};
use varve::spec::SpecErrorKind;
use varve::stack::StackBuilder;
use varve::{Error, ErrorKind, Spec};

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

#[test]
fn a_directory_is_made_only_when_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let place = path(&directory, "a/b");
    let env = Env::real();
    let builder = StackBuilder::new(&env);
    let error = builder.clone().create(false).build(&spec(&place)).unwrap_err();
    assert!(matches!(&error, Error::Missing { name, .. } if *name == place), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!directory.path().join("a").exists());
    let stack = builder.build(&spec(&place)).unwrap();
    assert!(directory.path().join("a/b").is_dir());
    assert!(stack.devices().is_empty());
    assert_eq!(stack.description().spec, format!("file:{place}"));
}

#[test]
fn bytes_of_a_backing_file_last() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("ram:64MiB?backing=file:{}", path(&directory, "image"));
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let context = IoContext::default();
    assert_eq!(builder.clone().create(false).devices(&spec(&text)).err().unwrap().kind(), ErrorKind::NotFound);
    {
        let devices = builder.devices(&spec(&text)).unwrap();
        devices[0].device().block.write_at(4096, &[7; 4096], &context).unwrap();
        let second = builder.devices(&spec(&text)).err().unwrap();
        assert_eq!(second.kind(), ErrorKind::Locked, "{second}");
    }
    let devices = builder.create(false).devices(&spec(&text)).unwrap();
    let mut data = [0; 4096];
    devices[0].device().block.read_at(4096, &mut data, &context).unwrap();
    assert_eq!(data, [7; 4096]);
    assert_eq!(devices[0].description().time, "virtual");
}

#[test]
fn files_serve_as_real_devices() {
    let directory = tempfile::tempdir().unwrap();
    let image = path(&directory, "image");
    let env = Env::real();
    let builder = StackBuilder::new(&env);
    let missing = builder.devices(&spec(&format!("dev:{image}"))).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let text = format!("dev:{image}?size=8MiB,engine=positional");
    let devices = builder.devices(&spec(&text)).unwrap();
    assert_eq!(devices[0].geometry().capacity_bytes, 8 << 20);
    assert_eq!(devices[0].description().time, "real");
    let bad = builder.devices(&spec(&format!("dev:{image}?depth=9999"))).err().unwrap();
    assert!(bad.to_string().contains("a depth from 1 to 4096"), "{bad}");
}

#[test]
fn faults_strike_and_traces_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let trace = path(&directory, "trace");
    let place = path(&directory, "db");
    let env = Env::real();
    let text = format!("file:{place}?faults=open/no-space@0,trace={trace}");
    let stack = StackBuilder::new(&env).build(&spec(&text)).unwrap();
    let files = stack.files();
    let create = |name| files.create(name, &Default::default()).map(drop);
    assert!(create("first").unwrap_err().to_string().contains("no space"));
    create("second").unwrap();
    assert_eq!(stack.faults()[0].injected(), 1);
    stack.flush_traces().unwrap();
    let lines = std::fs::read_to_string(&trace).unwrap();
    assert!(lines.lines().any(|line| line.contains(" open ") && line.contains("NoSpace")), "{lines}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let place = path(&directory, "db");
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    for (text, expected) in [
        (format!("file:{place}+ram:1GiB"), "a directory alone, or devices only"),
        ("ram:1GiB+ram:1GiB".to_owned(), "media that a file store can stand on, not 2 devices"),
        ("ram:1GiB?store=plain".to_owned(), "'plain' needs one directory"),
        (format!("file:{place}?logs=(file:{place}?logs={place})"), "no further medium of logs"),
        (format!("file:{place}?faults=fly/io@1"), "an operation in 'fly/io@1'"),
        (format!("file:{place}?faults=read/die@1"), "an effect in 'read/die@1'"),
        (format!("file:{place}?faults=read/io"), "a fault such as"),
        ("ram:1000B".to_owned(), "a capacity of at least one sector of 4096 bytes"),
        ("disk:1GB?model=nvme-ssd".to_owned(), "a model for disk:, found 'nvme-ssd'; known: "),
        ("disk:1GB?model=".to_owned(), "a model for disk:"),
        (format!("file:{place}?layout=ext4"), "an option of the store 'plain', not of 'extent'"),
    ] {
        let error = builder.build(&spec(&text)).err().unwrap_or_else(|| panic!("{text} was built"));
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert!(matches!(error, Error::Spec(_)), "{text}: {error}");
    }
    let Err(Error::Spec(error)) = builder.devices(&spec(&place)) else { panic!("a directory has no devices") };
    assert_eq!(error.kind(), SpecErrorKind::Combination);
}

#[test]
fn a_store_on_a_backing_file_lasts_and_is_not_laid_over_others() {
    let directory = tempfile::tempdir().unwrap();
    let image = path(&directory, "image");
    let text = format!("disk:1GB?backing=file:{image}");
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let context = IoContext::default();
    {
        let stack = builder.build(&spec(&text)).unwrap();
        let mut file = stack.files().create("name", &Default::default()).unwrap();
        file.append(b"contents", &context).unwrap();
        file.sync(&context).unwrap();
        file.finish(&context).unwrap();
    }
    {
        let stack = builder.clone().create(false).build(&spec(&text)).unwrap();
        assert_eq!(stack.files().list().unwrap()[0].size_bytes, 8);
        assert!(stack.description().to_string().contains("st500dm002") || stack.description().devices[0].rotational);
    }
    {
        let stack = builder.clone().format(true).build(&spec(&text)).unwrap();
        assert!(stack.files().list().unwrap().is_empty());
    }
    std::fs::write(&image, [7; 1 << 20]).unwrap();
    assert_eq!(builder.build(&spec(&text)).unwrap_err().kind(), ErrorKind::Foreign);
    std::fs::remove_file(&image).unwrap();
    let missing = builder.create(false).build(&spec(&text)).unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
}

#[test]
fn sizes_models_and_scales() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let devices = |text| builder.devices(&spec(text)).unwrap();
    let disk = &devices("disk:100GB?model=ST500DM002")[0];
    assert_eq!(disk.geometry().capacity_bytes, 100_000_000_000 / 4096 * 4096);
    assert_eq!(disk.description().model, "st500dm002");
    assert!(disk.device().block.capabilities().rotational);
    let scaled = &devices("disk:64GiB?scale=1/64")[0];
    assert_eq!(scaled.geometry().capacity_bytes, 1 << 30);
    assert_eq!(scaled.description().scale_divisor, 64);
    assert!(!devices("nvme:1GB")[0].device().block.capabilities().rotational);
    assert_eq!(devices("ssd:")[0].description().model, "sata-ssd");
}

#[test]
fn logs_may_live_elsewhere() {
    let env = Env::sim(1);
    let stack = StackBuilder::new(&env).build(&spec("disk:1GB?logs=(nvme:1GB?model=nvme-ssd)")).unwrap();
    let roles: Vec<&str> = stack.devices().iter().map(|device| device.role().name()).collect();
    assert_eq!(roles, ["files", "logs"]);
    assert_eq!(stack.description().logs.as_deref(), Some("nvme:1GB?model=nvme-ssd"));
}

#[test]
fn emulated_media_get_virtual_time() {
    assert!(spec("ram:1GiB").is_emulated());
    assert!(!spec("/a").is_emulated());
    assert!(!spec("ram:1GiB?logs=/a").is_emulated());
    assert!(spec("ram:1GiB?logs=ram:1GiB").suitable_env(3).is_virtual());
}

#[test]
fn a_spec_tells_its_paths() {
    let paths = |spec: &str| -> Vec<String> {
        let paths = spec.parse::<varve::Spec>().unwrap().paths();
        paths.iter().map(|path| path.display().to_string()).collect()
    };
    assert_eq!(paths("/a/plain/path"), ["/a/plain/path"]);
    assert_eq!(paths("disk:10GB"), [""; 0]);
    assert_eq!(paths("disk:10GB?backing=file:/i,trace=/t"), ["/i", "/t"]);
    assert_eq!(paths("file:/d?logs=(disk:1GB?backing=file:/l)"), ["/d", "/l"]);
    assert_eq!(paths("file:/d?logs=/l"), ["/d", "/l"]);
    assert_eq!(paths("dev:/dev/sdb?size=1GiB"), ["/dev/sdb"]);
}

#[test]
fn interlaced_disks_by_spec() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let describe = |text: &str| builder.describe(&spec(text)).unwrap().remove(0);
    let plain = describe("imr:100GB");
    let tracks = plain.tracks.as_ref().unwrap();
    assert_eq!((tracks.tracks, tracks.bottom_tracks, tracks.top_tracks), (47_683, 23_842, 23_841));
    assert_eq!((tracks.top_track_bytes, tracks.bottom_track_bytes, tracks.strict), (2 << 20, 2 << 20, false));
    assert_eq!((plain.model.as_str(), plain.capacity_bytes), ("st500dm002", 47_683 * (2 << 20)));
    let text = plain.to_string();
    assert!(text.contains("47683 interlaced tracks: 23842 bottom of 2MiB, together 50.00 GB"), "{text}");
    let tracks = describe("imr:8GiB?scale=1/64,ratio=1.25,strict").tracks.unwrap();
    assert_eq!((tracks.top_track_bytes, tracks.bottom_track_bytes, tracks.strict), (32 << 10, 40 << 10, true));
    for (text, complaint) in [
        ("imr:1MB", "a capacity of one bottom track of 2MiB"),
        ("imr:1GB?track=512", "a track of at least one physical sector of 4096 bytes"),
        ("imr:1GB?model=nvme-ssd", "a model for imr:"),
    ] {
        let error = builder.devices(&spec(text)).err().unwrap().to_string();
        assert!(error.contains(complaint), "{text}: {error}");
    }
    for text in ["imr:1GB?ratio=9", "imr:1GB?ratio=a", "imr:1GB?backing=disk:1GB", "imr:1GB?backing=(dev:/x?trace=/y)"]
    {
        assert!(text.parse::<Spec>().is_err(), "{text}");
    }
    // Stores for plain disks do not mistake tracks for one, nor the other way round.
    for (text, complaint) in [
        ("imr:1GB?store=extent", "'extent' needs one device that can be written anywhere"),
        ("imr:1GB?store=plain", "'plain' needs one directory"),
        ("file:/nowhere?store=imr", "'imr' needs one device with interlaced tracks, or a conventional one"),
        ("imr:1GB?track-size=1MiB", "no track size for an interlaced disk"),
    ] {
        let error = builder.build(&spec(text)).unwrap_err().to_string();
        assert!(error.contains(complaint), "{text}: {error}");
    }
}

/// A database fills an interlaced disk that refuses to lose anything, with every policy, and is there
/// when it is opened again.
#[test]
fn a_database_on_an_interlaced_disk() {
    for (number, options) in [
        "allocation=compaction-aware,rewrite=merged",
        "allocation=sequential,rewrite=naive",
        "allocation=three-phase,rewrite=merged",
        "allocation=zigzag,rewrite=naive",
        "allocation=region,rewrite=merged",
    ]
    .iter()
    .enumerate()
    {
        let directory = tempfile::tempdir().unwrap();
        let env = Env::sim(number as u64);
        let image = path(&directory, "image");
        let text =
            format!("imr:128MiB?track=128KiB,strict,table-size=1MiB,small-files=8MiB,{options},backing=file:{image}");
        let small = varve::Options {
            write_buffer_size: 256 << 10,
            target_file_size_base: 512 << 10,
            max_bytes_for_level_base: 2 << 20,
            ..varve::Options::default()
        };
        // Once it is laid out the store knows its policies: the options, two of which only experiments use, can go.
        let without_options = text.replace(&format!("{options},"), "");
        let open = |spec: &Spec| varve::Varve::builder().env(&env).options(small.clone()).open_spec(spec).unwrap();
        let value = |key: u32, round: u32| vec![(key ^ round) as u8; 1000];
        let db = open(&Spec::parse_for_lab(&text).unwrap());
        for round in 0..2 {
            for step in 0..5_000u32 {
                let key = step.wrapping_mul(7919) % 5_000;
                db.put(key.to_le_bytes(), value(key, round)).unwrap();
            }
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let tracks = db.stack().devices()[0].device().tracks.clone().unwrap();
        assert_eq!(tracks.destroyed().writes, 0, "{options}");
        assert_eq!(db.check().unwrap(), [], "{options}");
        db.close().unwrap();
        drop(tracks);
        let db = open(&spec(&without_options));
        for key in 0..5_000u32 {
            assert_eq!(db.get(key.to_le_bytes()).unwrap(), Some(value(key, 1).into()), "{options}: {key}");
        }
        db.close().unwrap();
    }
}

#[test]
fn store_laid_out_for_an_experiment_opens_without_the_option() {
    let directory = tempfile::tempdir().unwrap();
    let image = format!("backing=file:{}", path(&directory, "image"));
    let laid_out = Spec::parse_for_lab(&format!("ssd:16MiB?layout=next-fit,{image}")).unwrap();
    let db = varve::Varve::builder().env(&Env::sim(1)).open_spec(&laid_out).unwrap();
    db.put("layer", "dark").unwrap();
    db.close().unwrap();
    let db = varve::Varve::builder().env(&Env::sim(2)).open_spec(&spec(&format!("ssd:16MiB?{image}"))).unwrap();
    assert_eq!(db.get("layer").unwrap().as_deref(), Some(&b"dark"[..]));
    db.close().unwrap();
}

#[test]
fn interlaced_disks_on_files_and_real_devices() {
    let directory = tempfile::tempdir().unwrap();
    let context = IoContext::default();
    let image = format!("imr:16MiB?track=1MiB,strict,backing=file:{}", path(&directory, "image"));
    let real = format!("imr:15MiB?track=1MiB,strict,backing=(dev:{}?size=16MiB)", path(&directory, "disk"));
    assert!(spec(&image).is_emulated() && !spec(&real).is_emulated());
    assert_eq!(spec(&real).paths(), [directory.path().join("disk")]);
    for (text, env, used_at_first) in [(&image, Env::sim(1), false), (&real, Env::real(), true)] {
        let builder = StackBuilder::new(&env);
        for round in 0..2 {
            let devices = builder.devices(&spec(text)).unwrap();
            let device = devices[0].device();
            let tracks = device.tracks.as_ref().unwrap();
            assert!(device.block.capabilities().tracks.is_some() && tracks.is_strict());
            assert_eq!(device.block.geometry().capacity_bytes % (1 << 20), 0);
            // What was there before may be somebody's, until the host says otherwise.
            let refused = device.block.write_at(0, &[1; 4096], &context).is_err();
            assert_eq!(refused, round > 0 || used_at_first, "{text} round {round}");
            tracks.mark_free(varve::media::TrackId(1)).unwrap();
            device.block.write_at(0, &[1; 4096], &context).unwrap();
            device.block.write_at(1 << 20, &[round; 8192], &context).unwrap();
            tracks.mark_free(varve::media::TrackId(1)).unwrap();
            device.block.write_at(4096, &[2; 4096], &context).unwrap();
            let mut data = [9; 4096];
            device.block.read_at(1 << 20, &mut data, &context).unwrap();
            assert_eq!(data, [round; 4096]);
            assert!(device.block.read_at((1 << 20) + 4096, &mut data, &context).is_err());
            device.block.sync(&context).unwrap();
        }
    }
    let paced = format!("imr:1MiB?pace,backing=(dev:{})", path(&directory, "disk"));
    let error = StackBuilder::new(&Env::real()).devices(&spec(&paced)).err().unwrap().to_string();
    assert!(error.contains("no option 'pace' with a real device"), "{error}");
    let large = format!("imr:1GiB?backing=(dev:{})", path(&directory, "disk"));
    let error = StackBuilder::new(&Env::real()).devices(&spec(&large)).err().unwrap().to_string();
    assert!(error.contains("at most the 16MiB of the device"), "{error}");
}

#[test]
fn devices_with_zones_by_spec() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let describe = |text: &str| builder.describe(&spec(text)).unwrap().remove(0);
    let disk = describe("smr:8TiB?band=80MiB,conventional=1GiB");
    let zones = disk.zones.as_ref().unwrap();
    assert_eq!((zones.zones, zones.conventional_zones, zones.zone_bytes), (104_857, 13, 80 << 20));
    assert_eq!((zones.open_zones_max, zones.active_zones_max), (128, 0));
    assert_eq!((disk.model.as_str(), disk.rotational), ("barracuda-3tb", true));
    let text = disk.to_string();
    assert!(text.contains("104857 zones of 80MiB: 13 conventional, together 1.09 GB"), "{text}");
    assert!(text.contains("104844 sequential write required"), "{text}");
    // A smaller disk has a smaller region, and a scaled one is similar.
    assert_eq!(describe("smr:1GiB?band=16MiB").zones.unwrap().conventional_zones, 8);
    let scaled = describe("smr:8GiB?scale=1/64,conventional=160MiB,host-aware").zones.unwrap();
    assert_eq!((scaled.zone_bytes, scaled.conventional_zones), (1_310_720 / 4096 * 4096, 2));
    assert_eq!(scaled.sequential_type, "sequential write preferred");
    assert_eq!(describe("smr:1GiB?conventional=0,band=1MiB,open=0").zones.unwrap().conventional_zones, 0);

    let raw = describe("smr:1GiB?band=16MiB,overlap-tracks=3,track=1MiB");
    assert_eq!(raw.zones.as_ref().unwrap().overlap_tracks, 3);
    assert!(raw.to_string().contains("destroys the same span of the 3 tracks after it"), "{raw}");
    let drive = describe("zns:21GiB");
    let zones = drive.zones.as_ref().unwrap();
    assert_eq!((zones.zones, zones.zone_bytes, zones.zone_capacity_bytes), (20, 2 << 30, 1077 << 20));
    assert_eq!((zones.open_zones_max, zones.active_zones_max, drive.model.as_str()), (14, 14, "zn540"));
    assert_eq!(zones.sequential_bytes, 20 * (1077 << 20));
    let scaled = describe("zns:21GiB?scale=1/64").zones.unwrap();
    assert_eq!((scaled.zones, scaled.zone_bytes), (20, 32 << 20));
    let other = describe("zns:1GiB?model=nvme-ssd,zone=64MiB,open=3").zones.unwrap();
    assert_eq!(
        (other.zones, other.zone_capacity_bytes, other.open_zones_max, other.active_zones_max),
        (16, 64 << 20, 3, 14)
    );
    for (text, complaint) in [
        ("smr:1MB", "a capacity of one band of 80MiB"),
        ("smr:1GB?band=512", "a band of at least one physical sector of 4096 bytes"),
        ("smr:1GB?conventional=1GB", "less than the"),
        ("smr:1GB?model=zn540", "a model for smr:"),
        ("smr:1GiB?band=16MiB,overlap-tracks=3,track=3MiB", "a whole number"),
        ("smr:1GiB?track=1MiB", "without overlap-tracks"),
        ("zns:1GB?model=barracuda-3tb", "a model for zns:"),
        ("zns:1GB?zone=1MiB,zone-capacity=2MiB", "from one physical sector"),
    ] {
        let error = builder.devices(&spec(text)).err().unwrap().to_string();
        assert!(error.contains(complaint), "{text}: {error}");
    }
    // Stores for plain disks do not mistake zones for one.
    for (text, complaint) in [
        ("smr:1GB?store=extent", "'extent' needs one device that can be written anywhere"),
        ("zns:1GB?store=imr", "'imr' needs one device with interlaced tracks, or a conventional one"),
    ] {
        let error = builder.build(&spec(text)).unwrap_err().to_string();
        assert!(error.contains(complaint), "{text}: {error}");
    }
}

/// The band device over a conventional disk has the same timing as that disk.
#[test]
fn bands_take_the_time_of_the_disk_they_are_on() {
    let time = |text: &str| {
        let env = Env::sim(1);
        let devices = StackBuilder::new(&env).devices(&spec(text)).unwrap();
        let (block, context) = (devices[0].device().block.clone(), IoContext::default());
        let mut data = vec![1; 1 << 20];
        for index in 0..32u64 {
            block.write_at((index % 4 * 8 + index / 4) << 20, &data, &context).unwrap();
        }
        block.sync(&context).unwrap();
        for index in 0..40u64 {
            block.read_at((index * 7 % 32) << 20, &mut data, &context).unwrap();
        }
        (env.now(), block.counters())
    };
    let disk = time("disk:64MiB?model=barracuda-3tb");
    assert_eq!(disk, time("smr:64MiB?model=barracuda-3tb,band=8MiB,conventional=0,open=2"));
    assert!(disk.1.seeks > 0);
}

#[test]
fn bands_on_files_and_real_devices_are_as_they_were_left() {
    let directory = tempfile::tempdir().unwrap();
    let context = IoContext::default();
    let image = format!("smr:16MiB?band=1MiB,conventional=1MiB,backing=file:{}", path(&directory, "image"));
    let real = format!("smr:15MiB?band=1MiB,conventional=1MiB,backing=(dev:{}?size=16MiB)", path(&directory, "disk"));
    assert!(spec(&image).is_emulated() && !spec(&real).is_emulated());
    for (text, env) in [(&image, Env::sim(1)), (&real, Env::real())] {
        for round in 0..3u64 {
            let devices = StackBuilder::new(&env).devices(&spec(text)).unwrap();
            let device = devices[0].device();
            let zones = device.zones.as_ref().unwrap();
            let zone = zones.report(varve::media::ZoneId(3), 1, &context).unwrap().remove(0);
            assert_eq!(zone.write_pointer_bytes, (3 << 20) + round * 4096, "{text}");
            device.block.write_at(zone.write_pointer_bytes, &[round as u8 + 1; 4096], &context).unwrap();
            let mut data = vec![9; 8 * 4096];
            device.block.read_at(3 << 20, &mut data, &context).unwrap();
            for (sector, bytes) in data.chunks(4096).enumerate() {
                let expected = if sector as u64 <= round { sector as u8 + 1 } else { 0 };
                assert!(bytes.iter().all(|&byte| byte == expected), "{text} round {round}");
            }
        }
    }
    // Without the record the bands would look empty.
    std::fs::remove_file(directory.path().join("image.zones")).unwrap();
    let error = StackBuilder::new(&Env::sim(1)).devices(&spec(&image)).err().unwrap().to_string();
    assert!(error.contains("image.zones") && error.contains("what the zones of the device are in"), "{error}");
    let other = real.replace("band=1MiB", "band=2MiB");
    let error = StackBuilder::new(&Env::real()).devices(&spec(&other)).err().unwrap().to_string();
    assert!(error.contains("disk.zones") && error.contains("number of zones"), "{error}");
    let aware = real.replace("band=1MiB", "host-aware");
    let error = StackBuilder::new(&Env::real()).devices(&spec(&aware)).err().unwrap().to_string();
    assert!(error.contains("no 'host-aware' with a real device"), "{error}");
}

/// Once each took memory for every zone it has, and a spec of some hundred bytes all there is.
#[test]
fn many_devices_of_many_zones_are_described() {
    let text = ["smr:16TiB?band=4MiB", "zns:4GiB?zone=4KiB"].repeat(100).join("+");
    let devices = StackBuilder::new(&Env::sim(1)).describe(&spec(&text)).unwrap();
    assert_eq!(devices.len(), 200);
}

#[test]
fn shingled_disks_with_a_translation_layer_by_spec() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let device = builder.devices(&spec("hasmr:10GiB?cache=64MiB,extents=100")).unwrap().remove(0);
    let zones = device.device().block.capabilities().zones.clone().unwrap();
    assert!(zones.can_be_written_anywhere() && zones.zone_count == 40);
    assert_eq!(zones.media_cache.map(|cache| (cache.bytes, cache.extents_max)), Some((64 << 20, 100)));
    let report = || device.device().zones.as_ref().unwrap().report(ZoneId(0), 40, &IoContext::default()).unwrap();
    device.device().block.write_at(1 << 20, &[1; 4096], &IoContext::default()).unwrap();
    assert!(report()[0].non_sequential);
    env.sleep(std::time::Duration::from_secs(2));
    assert!(!report()[0].non_sequential && report()[0].write_pointer_bytes == (1 << 20) + 4096);
    let managed = builder.devices(&spec("hasmr:10GiB?cache=64MiB,extents=100,device-managed")).unwrap().remove(0);
    assert!(managed.device().block.capabilities().zones.is_none() && managed.device().zones.is_none());
    for (text, expected) in [
        ("hasmr:10GiB?extents=7", "at least 8"),
        ("hasmr:10GiB?cache=4KiB", "cache"),
        ("hasmr:10GiB?blocking-stop=50", "field blocking_stop_percent of media::emulated::TranslationParameters"),
        ("hasmr:10GiB?idle-step=8MiB", "'idle-step' moved to the lab"),
        ("hasmr:10GiB?interrupted=goes-on", "'interrupted' moved to the lab"),
        ("imr:1GiB?allocation=region", "'region' is for experiments only"),
        ("imr:1GiB?allocation=cost-aware-without-cuts", "kvimr/ablation"),
        ("disk:1GiB?layout=next-fit", "opens without the option 'layout'"),
        ("hasmr:100MiB", "zone"),
        ("hasmr:10GiB?order=newest", "oldest"),
        ("disk:10GiB?control=idler", "at-ic"),
        ("disk:10GiB?control=paced", "at-ic"),
        ("hasmr:10GiB?cache=64MiB,extents=100,control=paced", "'paced' was withdrawn: use relocate=on"),
        ("smr:10GiB?host-aware,control=idler", "control-cache"),
        ("file:/nowhere?control=at-ic", "directory"),
        ("disk:10GiB?relocate=on", "written anywhere"),
        ("smr:10GiB?host-aware,relocate=on", "relocate-cache"),
        ("file:/nowhere?relocate=on", "directory"),
        ("hasmr:10GiB?cache=64MiB,extents=100,relocate=on,relocate-utilization=100", "below 100"),
        ("hasmr:10GiB?cache=64MiB,extents=100,relocate=on,relocate-spares=40", "40 spares"),
    ] {
        let told = match text.parse::<Spec>() {
            Ok(spec) => builder.devices(&spec).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        assert!(told.as_ref().is_some_and(|told| told.contains(expected)), "{text}: {told:?}");
    }
}

/// What zones are in is in a file beside the bytes: also that one is not in order, and where its pointer stood.
#[test]
fn zones_of_a_host_aware_disk_are_as_they_were_left() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("hasmr:64MiB?zone=4MiB,cache=1MiB,extents=100,backing=file:{}", path(&directory, "image"));
    let context = IoContext::default();
    let described = |is_first: bool| {
        let env = Env::sim(1);
        let device = StackBuilder::new(&env).devices(&spec(&text)).unwrap().remove(0);
        let (block, zones) = (device.device().block.clone(), device.device().zones.clone().unwrap());
        if is_first {
            block.write_at(0, &[1; 8192], &context).unwrap();
            block.write_at(1 << 20, &[2; 8192], &context).unwrap();
            block.write_at(4 << 20, &[3; 4096], &context).unwrap();
        }
        let mut data = [0; 4096];
        block.read_at((1 << 20) + 4096, &mut data, &context).unwrap();
        assert_eq!(data, [2; 4096]);
        let report = zones.report(ZoneId(0), 3, &context).unwrap();
        if !is_first {
            env.sleep(std::time::Duration::from_secs(5));
            let cleaned = zones.report(ZoneId(0), 1, &context).unwrap();
            assert_eq!((cleaned[0].non_sequential, cleaned[0].write_pointer_bytes), (false, (1 << 20) + 8192));
        }
        report.iter().map(|zone| (zone.non_sequential, zone.write_pointer_bytes % (4 << 20))).collect::<Vec<_>>()
    };
    let first = described(true);
    assert_eq!(first, [(true, 8192), (false, 4096), (false, 0)]);
    assert_eq!(described(false), first);
    let env = Env::sim(1);
    std::fs::remove_file(directory.path().join("image.zones")).unwrap();
    assert!(StackBuilder::new(&env).devices(&spec(&text)).is_err());
}

/// What lies in the media cache is in a file beside the bytes too: whoever opens the disk again cleans what is left, as long as it takes.
#[test]
fn the_media_cache_of_a_host_aware_disk_is_as_it_was_left() {
    let directory = tempfile::tempdir().unwrap();
    let text = |more: &str| {
        let image = path(&directory, "image");
        spec(&format!("hasmr:64MiB?zone=4MiB,cache=1MiB,extents=100,order=fullest{more},backing=file:{image}"))
    };
    let (env, context) = (Env::sim(1), IoContext::default());
    let builder = StackBuilder::new(&env);
    let counted = |stack: &[varve::stack::StackDevice]| {
        let cleaning = stack[0].device().block.counters().cleaning;
        (cleaning.extents, cleaning.non_sequential_zones)
    };
    let disk = builder.devices(&text("")).unwrap();
    // Three pieces of one zone, one of the next, and so on.
    for (zone, pieces) in [(1, 3), (2, 1), (3, 4), (5, 2)] {
        for piece in 0..pieces {
            let at = (zone << 22) + (1 + 2 * piece) * 4096;
            disk[0].device().block.write_at(at, &[zone as u8; 4096], &context).unwrap();
        }
    }
    let left = counted(&disk);
    assert_eq!(left, (10, 4));
    let (mut extents_before, mut seen) = (left.0, Vec::new());
    // Cleaned in the order of what they hold; closed and opened again after each.
    let mut disk = disk;
    for _ in 0..4 {
        drop(disk);
        disk = builder.devices(&text("")).unwrap();
        assert_eq!(counted(&disk).0, extents_before);
        while counted(&disk).0 == extents_before {
            env.sleep(std::time::Duration::from_millis(1));
        }
        disk[0].device().zones.as_ref().unwrap().report(ZoneId(0), 1, &context).unwrap();
        seen.push(extents_before - counted(&disk).0);
        extents_before = counted(&disk).0;
    }
    assert_eq!((seen, counted(&disk)), (vec![4, 3, 2, 1], (0, 0)));
    let zones = disk[0].device().zones.as_ref().unwrap().report(ZoneId(0), 6, &context).unwrap();
    assert!(zones.iter().all(|zone| !zone.non_sequential));
    disk[0].device().block.write_at((7 << 22) + 8192, &[9; 4096], &context).unwrap();
    drop(disk);
    // Another cache, a damaged record, none.
    let kept = std::fs::read(directory.path().join("image.media-cache")).unwrap();
    for (more, expected) in [("", None), (",conventional=4MiB", Some("conventional zones"))] {
        let told = builder.devices(&text(more)).err().map(|error| error.to_string());
        assert_eq!(told.is_some(), expected.is_some(), "{told:?}");
        assert!(expected.is_none_or(|expected| told.unwrap().contains(expected)));
    }
    for (from, to, expected) in
        [("cache=1MiB", "cache=2MiB", "bytes of the media cache"), ("extents=100", "extents=99", "most extents")]
    {
        let other = text("").to_string().replace(from, to);
        let error = builder.devices(&spec(&other)).err().unwrap().to_string();
        assert!(error.contains("image.media-cache") && error.contains(expected), "{error}");
        assert!(error.contains("name the sizes it was made with") && error.contains("remove this file"), "{error}");
    }
    let mut damaged = kept.clone();
    damaged[30] ^= 1;
    std::fs::write(directory.path().join("image.media-cache"), damaged).unwrap();
    let error = builder.devices(&text("")).err().unwrap().to_string();
    assert!(error.contains("checksum of the header"), "{error}");
    std::fs::remove_file(directory.path().join("image.media-cache")).unwrap();
    let disk = builder.devices(&text("")).unwrap();
    assert_eq!(counted(&disk), (1, 1));
    let mut data = [0; 4096];
    disk[0].device().block.read_at((7 << 22) + 8192, &mut data, &context).unwrap();
    assert_eq!(data, [9; 4096]);
}

/// Zones that are moved are found again where the bytes last, and are shown as those of a smaller disk.
#[test]
fn zones_are_relocated_by_spec() {
    let directory = tempfile::tempdir().unwrap();
    let image = path(&directory, "image");
    let plain = format!("hasmr:64MiB?zone=4MiB,cache=1MiB,extents=100,backing=file:{image}");
    let text = format!("{plain},relocate=on,relocate-spares=1,relocate-utilization=0");
    let context = IoContext::default();
    for is_first in [true, false] {
        let env = Env::sim(1);
        let of_client = env.clone();
        let text = text.clone();
        let client = env.spawn("client", move || {
            let env = of_client;
            let device = StackBuilder::new(&env).devices(&spec(&text)).unwrap().remove(0);
            assert_eq!(device.description().capacity_bytes, 13 * (4 << 20));
            assert_eq!(device.description().zones.as_ref().map(|zones| zones.zones), Some(13));
            let block = device.device().block.clone();
            if is_first {
                block.write_at(8192, &[1; 8192], &context).unwrap();
                block.write_at(0, &[2; 4096], &context).unwrap();
                // Too short for the disk to clean by itself.
                env.sleep(std::time::Duration::from_millis(200));
                let cleaning = block.counters().cleaning;
                assert_eq!((cleaning.extents, cleaning.idle_cleaned_zones), (0, 0), "{cleaning:?}");
                assert!(cleaning.cached_writes > 0);
            }
            let mut data = [9; 20480];
            block.read_at(0, &mut data, &context).unwrap();
            assert!(data[..4096] == [2; 4096] && data[8192..16384] == [1; 8192] && data[16384..] == [0; 4096]);
            block.sync(&context).unwrap();
        });
        client.join().unwrap();
        assert_eq!(env.live_actors(), 1);
    }
    // Without the layer the zone is where it was moved to: in the first of the disk, which was the spare.
    let env = Env::sim(1);
    let device = StackBuilder::new(&env).devices(&spec(&plain)).unwrap().remove(0);
    let mut data = [9; 4096];
    device.device().block.read_at(4 << 20, &mut data, &context).unwrap();
    assert_eq!(data, [0; 4096]);
    device.device().block.read_at(0, &mut data, &context).unwrap();
    assert_eq!(data, [2; 4096]);
}

/// Where the disk cleans, blocks and is held back, a database is the same.
#[test]
fn a_database_on_a_host_aware_disk() {
    let mut found = Vec::new();
    for (control, store) in [
        ("", "extent"),
        (",control=at-ic,control-execution-ms=500,control-idle-ms=300", "extent"),
        (",control=idler", "extent"),
        (",relocate=on,relocate-utilization=30", "extent"),
        ("", "band"),
        (",control=idler", "band"),
        (",relocate=on,relocate-utilization=30", "band"),
    ] {
        let env = Env::sim(4);
        let of_client = env.clone();
        let text = format!("hasmr:2GiB?zone=4MiB,cache=8MiB,extents=64,store={store}{control}");
        let client = env.spawn("client", move || {
            let options = varve::Options { write_buffer_size: 256 << 10, ..Default::default() };
            let db = varve::Varve::builder().env(&of_client).options(options).open_spec(&spec(&text)).unwrap();
            let mut random = of_client.random("keys");
            for step in 0..4000u64 {
                let key = format!("{:05}", random.below(2000));
                db.put(key.as_bytes(), vec![step as u8; 500]).unwrap();
            }
            db.flush().unwrap();
            db.wait_idle().unwrap();
            let pairs: Vec<_> =
                db.iter().map(|pair| pair.unwrap()).map(|(key, value)| (key.to_vec(), value[0])).collect();
            let cleaning = db.stack().devices()[0].device().block.counters().cleaning;
            assert_eq!(cleaning.cached_writes == 0, store == "band", "{store}{control}: {cleaning:?}");
            db.close().unwrap();
            pairs
        });
        found.push(client.join().unwrap());
    }
    assert!(found[0].len() > 1500 && found.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn persistent_memory_by_spec() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let mut charged = Vec::new();
    for model in ["nvdimm", "pcm", "optane", "cxl"] {
        let text = format!("pmem:64MiB?model={model}");
        let device = builder.devices(&spec(&text)).unwrap().remove(0);
        let (description, memory) = (device.description(), device.device().bytes.clone().expect("memory"));
        assert_eq!((description.model.as_str(), description.time.as_str()), (model, "virtual"));
        assert_eq!((description.capacity_bytes, memory.capacity_bytes()), (64 << 20, 64 << 20));
        let before = env.charged_total_nanos();
        memory.load(0, &mut [0; 64]).unwrap();
        memory.flush(0..64, &mut FlushQueue::default()).unwrap();
        charged.push(env.charged_total_nanos() - before);
    }
    assert_eq!(charged, [50 + 50, 100 + 400, 305 + 90, 200 + 200]);
    assert!(spec("pmem:1GiB").suitable_env(1).is_virtual());
    assert!(!spec("pmem:1GiB?pace").suitable_env(1).is_virtual());
    assert_eq!(builder.store_of(&spec("pmem:1GiB")).unwrap(), Some(("extent", false)));
    for (text, expected) in [
        ("pmem:1GiB?model=dram", "model"),
        ("pmem:100B", "a capacity of at least one sector of 512 bytes"),
        ("pmem:200TiB", "memory"),
    ] {
        let refused = text.parse().map_err(Error::from).and_then(|spec: Spec| builder.devices(&spec).map(drop));
        let error = refused.expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn persistent_memory_in_a_file_lasts_and_is_real() {
    let directory = tempfile::tempdir().unwrap();
    let place = path(&directory, "memory");
    let text = format!("pmem:32MiB?backing=file:{place}");
    assert!(!spec(&text).is_emulated() && !spec(&text).suitable_env(1).is_virtual());
    assert_eq!(spec(&text).paths(), [std::path::PathBuf::from(&place)]);
    let open = |text: &str| varve::Varve::builder().open_spec(&spec(text));
    let builder = StackBuilder::new(&Env::real());
    assert!(matches!(builder.describe(&spec(&text)), Err(Error::Missing { .. })));
    assert!(!directory.path().join("memory").exists());
    let db = open(&text).unwrap();
    db.put(b"key", b"value").unwrap();
    let locked = open(&text).err().unwrap();
    assert_eq!(locked.kind(), ErrorKind::Locked, "{locked}");
    db.close().unwrap();
    let db = open(&format!("pmem:?backing=file:{place}")).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
    let described = builder.describe(&spec(&text)).unwrap().remove(0);
    assert_eq!((described.time.as_str(), described.backing.as_str()), ("real", format!("file:{place}").as_str()));
    let words = described.fence.clone().unwrap();
    assert!(described.to_string().contains(&format!("what a fence buys: {words}")), "{described}");
    let other = path(&directory, "other");
    std::fs::write(&other, [1; 1 << 20]).unwrap();
    for (text, expected) in [
        (format!("pmem:16MiB?backing=file:{place}"), "the file was made with 33554432"),
        (format!("pmem:16MiB?backing=file:{other}"), "without the trailer of persistent memory"),
        (format!("pmem:16MiB?backing=file:{place},model=pcm"), "takes the time it takes"),
        (format!("pmem:1000000TiB?backing=file:{other}"), "at most 256TiB"),
        (format!("pmem:100TiB?backing=file:{}", path(&directory, "large")), "no space"),
        (format!("pmem:16MiB?backing=file:{}", directory.path().display()), "a regular file is needed"),
    ] {
        let refused = text.parse().map_err(Error::from).and_then(|spec: Spec| builder.devices(&spec).map(drop));
        let error = refused.expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let foreign = builder.devices(&spec(&format!("pmem:?backing=file:{other}"))).err().unwrap();
    assert_eq!(foreign.kind(), ErrorKind::Foreign, "{foreign}");
    assert_eq!(std::fs::read(&other).unwrap(), [1; 1 << 20]);
    assert!(!directory.path().join("large").exists());
}

#[test]
fn protected_devices_keep_tuples_and_say_so() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let described = |text: &str| {
        let devices = builder.devices(&spec(text)).unwrap_or_else(|error| panic!("{error}"));
        let device = devices[0].device();
        let (data, mut found) = ([7; 8192], [0; 8192]);
        device.block.write_at(4096, &data, &IoContext::default()).unwrap();
        device.block.read_at(4096, &mut found, &IoContext::default()).unwrap();
        let protection = devices[0].description().protection.clone().unwrap();
        assert!(devices[0].description().to_string().contains(&protection.to_string()));
        (found == data, protection.to_string())
    };
    for (text, line) in [
        ("ram:1MiB?pi=1", "type 1, guard crc: 8 B per 512 B"),
        ("ram:1MiB?backing=compressed,pi=3,guard=ip", "type 3, guard ip: 8 B per 512 B"),
        ("disk:10MB?pi=2", "type 2, guard crc: 8 B per 512 B"),
        ("nvme:10MB?pi=1,guard=ip", "type 1, guard ip: 8 B per"),
    ] {
        let (is_same, shown) = described(text);
        assert!(is_same && shown.contains(line), "{text}: {shown}");
    }
    assert!(!described("ram:1MiB?backing=none,pi=1").0);
    assert!(builder.devices(&spec("ram:1MiB")).unwrap()[0].description().protection.is_none());
}

#[test]
fn protection_that_cannot_be_kept_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let image = path(&directory, "image");
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    for (text, expected) in [
        (format!("ram:1MiB?backing=file:{image},pi=1"), "a file has no place for protection information"),
        ("ram:1MiB?guard=ip".to_owned(), "pi=1, pi=2 or pi=3"),
        ("ram:1MiB?pi=4".to_owned(), "pi"),
    ] {
        let error = match text.parse::<Spec>() {
            Ok(spec) => builder.devices(&spec).err().unwrap().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(!std::path::Path::new(&image).exists());
}
