//! A database in a directory: put, get, walk from both ends, close. `cargo run -p varve --example embed`

use varve::Varve;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let db = Varve::open(place.path().join("db"))?;

    db.put("lake/suigetsu", "annual layers back to 50 000 years")?;
    db.put("lake/van", "annual layers back to 600 000 years")?;
    db.put("sea/cariaco", "annual layers back to 15 000 years")?;

    // What is read derefs to its bytes; `into_vec` keeps them.
    let value = db.get("lake/van")?.expect("it was put");
    assert!(value.starts_with(b"annual"));
    assert!(db.get("lake/atlantis")?.is_none());

    for pair in db.prefix("lake/") {
        let (key, value) = pair?;
        println!("{}: {}", key.escape_ascii(), value.escape_ascii());
    }
    let (last, _) = db.iter().next_back().expect("there are three")?;
    assert_eq!(last, "sea/cariaco");
    assert_eq!(db.range("lake/t".."sea").count(), 1);

    db.delete("sea/cariaco")?;
    assert_eq!(db.iter().count(), 2);
    Ok(db.close()?)
}
