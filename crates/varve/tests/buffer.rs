//! Disks with a write buffer, by specs.

use varve::env::Env;
use varve::media::{BlockDeviceExt, IoContext};
use varve::spec::Spec;
use varve::stack::StackBuilder;
use varve::{Error, ErrorKind, Options, Varve};

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

const SMALL: &str = "hasmr:64MiB?zone=1MiB,cache=2MiB,extents=100";

/// With and without control of the disk, by zones and by pages, before a host-aware, a device-managed and a conventional disk, a
/// database is the same; and again after it is opened anew.
#[test]
fn a_database_on_a_disk_with_a_write_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for (number, (disk, options)) in [
        (SMALL, ""),
        (SMALL, ",buffer-ahead=off"),
        (SMALL, ",control=idler"),
        (SMALL, ",control=idler,buffer-rewrite=20"),
        ("hasmr:64MiB?zone=1MiB,cache=2MiB,extents=100,device-managed", ""),
        ("disk:64MiB?model=st8000as0022", ",buffer-order=pages"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = |name: &str| directory.path().join(format!("{name}{number}")).display().to_string();
        let text = format!(
            "{disk},backing=file:{},buffer=(ssd:8MB?backing=file:{}),buffer-size=400KiB{options}",
            path("disk"),
            path("ssd")
        );
        let env = Env::sim(5);
        let of_client = env.clone();
        let client = env.spawn("client", move || {
            let options = || Options { write_buffer_size: 128 << 10, ..Default::default() };
            let open = || Varve::builder().env(&of_client).options(options()).open_spec(&spec(&text)).unwrap();
            let db = open();
            let mut random = of_client.random("keys");
            for step in 0..3000u64 {
                let key = format!("{:04}", random.below(1500));
                db.put(key.as_bytes(), vec![step as u8; 300]).unwrap();
            }
            db.flush().unwrap();
            db.wait_idle().unwrap();
            let pairs = |db: &Varve| {
                db.iter().map(|pair| pair.unwrap()).map(|(key, value)| (key.to_vec(), value[0])).collect::<Vec<_>>()
            };
            let before = pairs(&db);
            let capabilities = db.stack().devices()[0].device().block.capabilities().clone();
            assert!(capabilities.zones.is_none());
            db.close().unwrap();
            let db = open();
            assert_eq!(pairs(&db), before);
            db.close().unwrap();
            before
        });
        found.push(client.join().unwrap_or_else(|error| panic!("{disk} {options}: {error:?}")));
    }
    assert!(found[0].len() > 1000 && found.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_disk_is_not_opened_without_the_buffer_that_has_its_newest_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let disk = format!("{SMALL},backing=file:{}", path("disk"));
    let with = |ssd: &str, more: &str| {
        format!("{disk},buffer=(ssd:8MB?backing=file:{}),buffer-size=400KiB,buffer-rewrite=0{more}", path(ssd))
    };
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    let context = IoContext::default();
    let absent = builder.clone().create(false).devices(&spec(&with("a", ""))).err().unwrap();
    assert_eq!(absent.kind(), ErrorKind::NotFound, "{absent}");
    {
        let device = builder.devices(&spec(&with("a", ""))).unwrap().remove(0);
        assert_eq!(device.geometry().capacity_bytes, 63 << 20);
        assert!(device.description().summary.contains("with a write buffer of 400KiB on ssd:8MB"));
        let block = &device.device().block;
        block.write_at(5 << 20 | 4096, &[7; 4096], &context).unwrap();
        block.sync(&context).unwrap();
    }
    let error = builder.devices(&spec(&with("b", ""))).err().unwrap();
    assert!(matches!(error, Error::Buffer(_)), "{error}");
    assert!(error.to_string().contains("it has a write buffer of 100 pages") && error.kind() == ErrorKind::NotFound);
    // Looking changes nothing.
    let described = builder.describe(&spec(&with("a", ""))).unwrap();
    assert_eq!((described[0].capacity_bytes, &described[0].zones), (63 << 20, &None));
    let read = |text: &str, builder: &StackBuilder| {
        let device = builder.devices(&spec(text)).unwrap().remove(0);
        let mut data = [0; 4096];
        device.device().block.read_at(5 << 20 | 4096, &mut data, &context).unwrap();
        data[0]
    };
    assert_eq!(read(&with("a", ""), &builder.clone().read_only(true)), 7);
    assert_eq!(read(&with("a", ""), &builder), 7);
    assert_eq!(read(&with("b", ",buffer-lost=accepted"), &builder), 0);
    let lost = builder.devices(&spec(&with("a", ""))).err().unwrap();
    assert!(lost.to_string().contains("the buffer of another"), "{lost}");
    for (text, expected) in [
        (format!("{SMALL},buffer=(ssd:100KB)"), "98304 bytes do not hold a write buffer"),
        (format!("{SMALL},buffer=(zns:1GiB)"), "a device without zones for its pages"),
        ("zns:1GiB?buffer=(ssd:1GB)".to_owned(), "zones that may be written anywhere"),
        ("imr:1GB?buffer=(ssd:1GB)".to_owned(), "tracks that do not overlap"),
        (format!("file:{}?buffer=(ssd:1GB)", path("place")), "one device, under a buffer"),
        (format!("{SMALL},buffer=(ssd:1GB+ssd:1GB)"), "one device, under a buffer"),
    ] {
        let error = builder.devices(&spec(&text)).err().unwrap_or_else(|| panic!("{text} was built"));
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}
