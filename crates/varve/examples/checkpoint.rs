//! A copy of a database that is in use. `cargo run -p varve --example checkpoint`

use varve::Varve;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let (path, copy) = (place.path().join("db"), place.path().join("copy"));
    let db = Varve::open(&path)?;
    for year in 1700..1800u32 {
        db.put(year.to_string(), "a layer")?;
    }

    // Tables are shared by hard links here; onto another medium, with `checkpoint_spec`, they are copied.
    db.checkpoint(&copy)?;
    db.put("1800", "a layer")?;
    db.close()?;

    let copy = Varve::open(&copy)?;
    assert_eq!(copy.iter().count(), 100);
    assert!(copy.check()?.is_empty());
    Ok(copy.close()?)
}
