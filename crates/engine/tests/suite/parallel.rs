//! Images side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_env::Env;

/// Threads that verify images.
const THREADS: usize = 2;

/// Calls `work` for each number below `count`, on several threads.
pub(crate) fn in_parallel(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let env = Env::real();
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (work, next) = (work.clone(), next.clone());
            env.spawn("verifier", move || {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap_or_else(|panic| panic.resume());
    }
}
