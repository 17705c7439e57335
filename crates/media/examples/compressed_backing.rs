//! Prints what the memory of a compressed device costs, in time and in space.
//!
//! `cargo run --release -p varve-media --example compressed_backing [MiB] [request KiB]`
//!
//! The data has the shape of table blocks of 1 KiB pairs whose values are alike: a head of 40 bytes of the
//! pair's own, then a text that all pairs share. Files of 64 MiB are written in sequence, read, and then
//! replaced in random order, so that what the process occupies can be compared with what the backing says it stores.

use varve_env::{Env, Random};
use varve_media::{Backing, CompressedBacking};

const PAIR_BYTES: usize = 1024;
const HEAD_BYTES: usize = 40;
const FILE_BYTES: u64 = 64 << 20;

/// Fills `data` with pairs.
fn fill(random: &mut Random, text: &[u8], data: &mut [u8]) {
    for pair in data.chunks_mut(PAIR_BYTES) {
        pair.copy_from_slice(&text[..pair.len()]);
        random.fill_bytes(&mut pair[..HEAD_BYTES]);
    }
}

/// Resident bytes of this process, where the system tells.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let files = (arguments.next().transpose()?.unwrap_or(2048) << 20) / FILE_BYTES;
    let request_bytes = arguments.next().transpose()?.unwrap_or(2048) << 10;
    let (env, backing, mut random) = (Env::real(), CompressedBacking::new(), Random::seeded(1));
    let mut text = vec![0; PAIR_BYTES];
    random.fill_bytes(&mut text);
    let mut data = vec![0; request_bytes as usize];
    let mut nanos = [0; 2];
    let mut write = |file: u64, nanos: &mut u64| {
        for at in (0..FILE_BYTES).step_by(request_bytes as usize) {
            fill(&mut random, &text, &mut data);
            let begin = env.now();
            backing.write_at(file * FILE_BYTES + at, &data)?;
            *nanos += env.now().as_nanos() - begin.as_nanos();
        }
        Ok::<_, std::io::Error>(())
    };
    let base = resident_bytes();
    for file in 0..files {
        write(file, &mut nanos[0])?;
    }
    let mut order = Random::seeded(2);
    for _ in 0..2 * files {
        let file = order.below(files);
        backing.discard(file * FILE_BYTES, FILE_BYTES)?;
        write(file, &mut nanos[0])?;
    }
    let stored = backing.stored_bytes();
    let resident = resident_bytes() - base;
    for at in (0..files * FILE_BYTES).step_by(request_bytes as usize) {
        let begin = env.now();
        backing.read_at(at, &mut data)?;
        nanos[1] += env.now().as_nanos() - begin.as_nanos();
    }
    let total = files * FILE_BYTES;
    let rate = |bytes: u64, nanos: u64| bytes as f64 / nanos.max(1) as f64;
    println!("{:>8.2} GB/s written, {} KiB at once", rate(3 * total, nanos[0]), request_bytes >> 10);
    println!("{:>8.2} GB/s read", rate(total, nanos[1]));
    println!("{:>8.1} bytes stored for each pair of {PAIR_BYTES}", (stored * PAIR_BYTES as u64) as f64 / total as f64);
    println!("{:>8.1} MB stored, {:.1} MB resident", stored as f64 / 1e6, resident as f64 / 1e6);
    Ok(())
}
