//! What a medium gets that is named without further options.

use varve::env::{Env, Random};
use varve::{Spec, Varve};

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn open(env: &Env, text: &str) -> varve::Result<Varve> {
    Varve::builder().env(env).open_spec(&spec(text))
}

fn key(number: u64) -> String {
    format!("key{number:09}")
}

/// A table that took a zone of 1,077 MiB left a drive of ten zones full after a few flushes.
#[test]
fn a_zns_drive_of_few_zones_takes_several_memtables_and_is_found_again() {
    let env = Env::sim(1);
    let text = "zns:10GiB?backing=compressed";
    let db = open(&env, text).unwrap();
    let mut random = Random::named(1, "values");
    let mut value = [0; 1024];
    let count = 300_000;
    for number in 0..count {
        random.fill_bytes(&mut value[..64]);
        db.put(key(number), value).unwrap_or_else(|error| panic!("put {number}: {error}"));
    }
    let image = db.close_into_image().unwrap();
    let begin = |text: &str| Varve::builder().env(&env).begin_with(&image).open_spec(&spec(text));
    let db = begin(text).unwrap();
    assert!(db.get(key(count - 1)).unwrap().is_some() && db.get(key(count)).unwrap().is_none());
    assert!(begin(&format!("{text},store=hybrid")).is_ok());
    assert!(begin(&format!("{text},store=band")).is_err(), "tables share zones");
}

/// What another store has laid out stays that store's, without its name.
#[test]
fn a_store_that_is_there_goes_before_the_default() {
    let env = Env::sim(1);
    let text = "zns:21GiB?backing=compressed";
    let db = open(&env, &format!("{text},store=band")).unwrap();
    db.put("key", "value").unwrap();
    let image = db.close_into_image().unwrap();
    let db = Varve::builder().env(&env).begin_with(&image).open_spec(&spec(text)).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}
