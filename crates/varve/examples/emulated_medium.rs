//! A database on a disk that is not there: hours of it pass in seconds, and every run is the same.
//! `cargo run -p varve --release --example emulated_medium`

use varve::env::Env;
use varve::{Options, Spec, Varve};

/// Virtual time that loading takes on an emulated disk, in seconds, and bytes the disk wrote.
fn load(spec: &Spec, seed: u64) -> varve::Result<(f64, u64)> {
    let env = Env::sim(seed);
    let options = Options { write_buffer_size: 256 << 10, ..Options::default() };
    let db = Varve::builder().env(&env).options(options).open_spec(spec)?;
    let begin = env.now();
    for number in 0..2_000u64 {
        // In an order that is not that of the keys.
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        db.put(key, [number as u8; 400])?;
    }
    db.flush()?;
    db.wait_idle()?;
    let seconds = env.now().duration_since(begin).as_secs_f64();
    let written = db.stack().devices().iter().map(|device| device.device().block.counters().written_bytes).sum();
    db.close()?;
    Ok((seconds, written))
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec: Spec = "disk:10GB?model=ST500DM002".parse()?;
    let (seconds, written_bytes) = load(&spec, 1)?;
    println!("{spec}: {seconds:.3} s of the disk, {written_bytes} bytes written");
    assert!(seconds > 0.0 && written_bytes > 0);
    assert_eq!(load(&spec, 1)?, (seconds, written_bytes), "the same seed gives the same run");
    Ok(())
}
