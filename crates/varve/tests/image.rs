//! Databases that begin with what the devices of another one held.

use varve::env::Env;
use varve::{Options, Spec, Varve};

const ONE: &str = "disk:64MiB?backing=compressed";
const SEVERAL: &str = "zns:24MiB?zone=1MiB,store=hybrid,migration=none,backing=compressed\
                       +smr:128MiB?band=256KiB,conventional=1MiB,backing=compressed";

fn open(env: &Env, spec: &str, image: Option<&varve::MediaImage>) -> varve::Result<Varve> {
    let options = Options { write_buffer_size: 64 << 10, ..Options::default() };
    let builder = Varve::builder().env(env).options(options);
    let builder = match image {
        Some(image) => builder.begin_with(image),
        None => builder,
    };
    builder.open_spec(&spec.parse::<Spec>()?)
}

/// A promise of a device that policies see.
#[test]
fn random_reads_are_promised_as_asked() {
    let spec = |option: &str| format!("smr:1GiB?band=1MiB,scale=1/16{option}").parse::<Spec>().unwrap();
    let promised = |spec: &Spec| {
        let devices = varve::stack::StackBuilder::new(&Env::sim(1)).devices(spec).unwrap();
        devices[0].device().block.capabilities().nominal.map(|nominal| nominal.random_reads_per_second)
    };
    assert_eq!(promised(&spec(",random-reads=115")), Some(115));
    assert!(promised(&spec("")).is_some_and(|reads| reads > 1000));
}

fn key(number: u32) -> String {
    format!("key{:06}", number.wrapping_mul(2_654_435_761) % 1_000_000)
}

/// Loads and closes a database, and gives what its devices hold.
fn loaded(spec: &'static str) -> varve::MediaImage {
    let env = Env::sim(1);
    let db = open(&env, spec, None).unwrap();
    for number in 0..3000 {
        db.put(key(number), [number as u8; 500]).unwrap();
    }
    db.close_into_image().unwrap()
}

#[test]
fn databases_begin_where_another_one_was_closed_and_go_their_own_ways() {
    for spec in [ONE, SEVERAL] {
        let image = std::thread::spawn(move || loaded(spec)).join().unwrap();
        let runs: Vec<_> = (0..2u8)
            .map(|run| {
                let image = image.clone();
                std::thread::spawn(move || {
                    let db = open(&Env::sim(2), spec, Some(&image)).unwrap();
                    for number in 0..3000 {
                        let found = db.get(key(number)).unwrap();
                        assert_eq!(found.as_deref(), Some(&[number as u8; 500][..]), "{spec}: {number}");
                    }
                    for number in 0..2000 {
                        db.put(key(number), [run; 300]).unwrap();
                    }
                    db.flush().unwrap();
                    db.wait_idle().unwrap();
                    assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(&[run; 300][..]));
                    assert!(db.check().unwrap().is_empty(), "{spec}");
                    db.close().unwrap();
                })
            })
            .collect();
        runs.into_iter().for_each(|run| run.join().unwrap());
        // Nothing of that is in the image.
        std::thread::spawn(move || {
            let db = open(&Env::sim(2), spec, Some(&image)).unwrap();
            assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(&[1; 500][..]));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let image = std::thread::spawn(|| loaded(ONE)).join().unwrap();
    let other = std::thread::spawn(move || {
        let refused =
            open(&Env::sim(1), "disk:65MiB?backing=compressed", Some(&image)).err().map(|error| error.to_string());
        let plain = open(&Env::sim(1), "disk:64MiB", None).unwrap();
        let held = open(&Env::sim(1), ONE, None).unwrap();
        let handle = held.clone();
        let errors = [held.close_into_image(), plain.close_into_image()];
        drop(handle);
        (refused, errors.map(|image| image.err().map(|error| error.to_string())))
    });
    let (refused, [held, plain]) = other.join().unwrap();
    assert!(held.is_some_and(|text| text.contains("there are others")));
    assert!(refused.is_some_and(|text| text.contains("as the image has")));
    assert!(plain.is_some_and(|text| text.contains("backing=compressed")));
}
