//! P and Q of RAID 6: Varve beside ISA-L, where that library is installed.

use std::ffi::{c_int, c_void};
use varve::block::raid::parity::{compute_p, compute_q};
use varve::env::Env;
use varve::media::AlignedBuffer;
use varve_lab::report::{Report, Row};

/// Data columns of the stripes of the paper's array.
const COLUMNS: usize = 8;
/// Alignment that `pq_gen` asks for, in bytes.
const ALIGNMENT: usize = 64;
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 512 << 10];
/// Bytes of data of a round.
const ROUND_BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;
const LIBRARIES: [&str; 2] = ["libisal.so.2", "libisal.so"];

/// `int pq_gen(int vects, int len, void **array)` of `raid.h`: the last two buffers get P and Q.
type PqGen = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn buffers(bytes: usize) -> Vec<AlignedBuffer> {
    (0..COLUMNS + 2)
        .map(|column| {
            let mut buffer = AlignedBuffer::new(bytes, ALIGNMENT);
            buffer.iter_mut().enumerate().for_each(|(place, byte)| *byte = (place * (column + 3)) as u8);
            buffer
        })
        .collect()
}

fn ours(buffers: &mut [AlignedBuffer]) {
    let (data, parity) = buffers.split_at_mut(COLUMNS);
    let columns = || data.iter().map(|column| &column[..]);
    let [p, q] = parity else { return };
    compute_p(columns(), p);
    compute_q(columns(), q);
}

fn theirs(pq_gen: PqGen, buffers: &mut [AlignedBuffer]) {
    let bytes = buffers[0].len() as c_int;
    let mut pointers: Vec<*mut c_void> = buffers.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    // SAFETY: `pointers` are as many buffers of `bytes` bytes each, aligned to more than the 32 bytes that the function
    // asks for, and none overlaps another.
    let failed = unsafe { pq_gen(pointers.len() as c_int, bytes, pointers.as_mut_ptr()) };
    assert_eq!(failed, 0, "pq_gen refuses the buffers");
}

/// Bytes of data a second of each, taking turns.
pub(crate) fn measure(seed: u64) -> Report {
    let mut report = Report::new("peers/parity", "P and Q of eight columns: Varve beside ISA-L", "1", seed);
    let library = LIBRARIES.iter().find_map(|name| {
        // SAFETY: the library's initialisation only looks at the processor.
        unsafe { libloading::Library::new(name) }.ok()
    });
    let pq_gen = library.as_ref().and_then(|library| {
        // SAFETY: the type is that of the function in the library's header.
        unsafe { library.get::<PqGen>(b"pq_gen\0") }.ok().map(|symbol| *symbol)
    });
    let env = Env::real();
    if pq_gen.is_none() {
        report.notes.push("ISA-L is not installed (Debian: libisal2)".to_owned());
    }
    for bytes in SIZES {
        let (mut own, mut other) = (buffers(bytes), buffers(bytes));
        ours(&mut own);
        if let Some(pq_gen) = pq_gen {
            theirs(pq_gen, &mut other);
            assert!(own[COLUMNS..].iter().zip(&other[COLUMNS..]).all(|(own, other)| own[..] == other[..]), "another code");
        }
        let stripes = ROUND_BYTES / (bytes * COLUMNS);
        let timed = |work: &mut dyn FnMut()| {
            let begun = env.now();
            (0..stripes).for_each(|_| work());
            (stripes * bytes * COLUMNS) as f64 / (env.now() - begun).as_secs_f64() / 1e9
        };
        let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            of_ours.push(timed(&mut || ours(&mut own)));
            if let Some(pq_gen) = pq_gen {
                of_theirs.push(timed(&mut || theirs(pq_gen, &mut other)));
            }
        }
        let metric = format!("columns of {} KiB", bytes >> 10);
        report.rows.push(Row::new("varve", &metric, "GB/s", median(of_ours)));
        if pq_gen.is_some() {
            report.rows.push(Row::new("ISA-L", &metric, "GB/s", median(of_theirs)));
        }
    }
    report
}
