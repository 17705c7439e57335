//! Several changes at once, durable when the call returns, and a moment that stays as it was.
//! `cargo run -p varve --example batch_and_snapshot`

use varve::{Varve, WriteBatch, WriteOptions};

/// Moves an amount from one account to another: both entries are there after a crash, or none.
fn transfer(db: &Varve, from: &str, to: &str, amount: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut batch = WriteBatch::new();
    batch.put(from, (balance(db, from)? - amount).to_le_bytes())?;
    batch.put(to, (balance(db, to)? + amount).to_le_bytes())?;
    Ok(db.write_with(batch, &WriteOptions { sync: true })?)
}

fn balance(db: &Varve, account: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let value = db.get(account)?.unwrap_or_else(|| vec![0; 8].into());
    Ok(u64::from_le_bytes(value.as_ref().try_into()?))
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let db = Varve::open(place.path().join("db"))?;
    db.put("anna", 100u64.to_le_bytes())?;

    let before = db.snapshot();
    transfer(&db, "anna", "bo", 30)?;

    assert_eq!((balance(&db, "anna")?, balance(&db, "bo")?), (70, 30));
    // The snapshot is of the moment before, for gets and for iterators.
    assert_eq!(before.get("anna")?.as_deref(), Some(&100u64.to_le_bytes()[..]));
    assert_eq!(before.get("bo")?, None);
    assert_eq!((before.iter().count(), db.iter().count()), (1, 2));

    // It keeps what was overwritten, and the database open: let go of it.
    drop(before);
    Ok(db.close()?)
}
