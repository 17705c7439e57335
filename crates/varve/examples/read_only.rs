//! A reader beside a writer: it changes nothing and sees one moment. `cargo run -p varve --example read_only`

use varve::{ErrorKind, Varve};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("db");

    // What is not there is not made.
    let error = Varve::builder().read_only(true).open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);

    let writer = Varve::open(&path)?;
    writer.put("layer", "light")?;

    // In a directory this may be another process.
    let reader = Varve::builder().read_only(true).open(&path)?;
    writer.put("layer", "dark")?;
    assert_eq!(reader.get("layer")?.as_deref(), Some(&b"light"[..]));
    assert_eq!(reader.put("layer", "grey").unwrap_err().kind(), ErrorKind::ReadOnly);

    // A second writer is refused.
    assert_eq!(Varve::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    reader.close()?;
    Ok(writer.close()?)
}
