//! What is done while nobody waits for it: moving tables, writing cached blocks, and emptying zones.

use super::core::Core;
use super::options::HybridDriver;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::{Env, JoinHandle};

/// Between two looks whether nobody is in the way: the first time, and when nobody looks any more.
const IDLE_PAUSE_NANOS: u64 = 20_000_000;
const IDLE_PAUSE_NANOS_MAX: u64 = 60_000_000_000;

/// The threads of a store.
pub(super) struct Background {
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Begins what the options ask for.
    pub(super) fn begin(env: &Env, core: &Arc<Core>) -> Background {
        let mut threads = Vec::new();
        let is_driven = core.options.driver == HybridDriver::Thread && !core.is_read_only;
        if is_driven && core.shares_zones() {
            let core = core.clone();
            threads.push(env.spawn("zone cleaning", move || {
                while core.cleaner.wait() {
                    while !core.cleaner.is_stopped() && core.clean() {}
                }
            }));
        }
        if is_driven && core.has_tiers() {
            if core.migration.is_some() {
                let core = core.clone();
                threads.push(env.spawn("migration", move || {
                    while core.migrator.wait() {
                        while !core.migrator.is_stopped() && core.migrate() {}
                        core.migrate_when_idle();
                    }
                }));
            }
            if core.cache.is_some() {
                let core = core.clone();
                threads.push(env.spawn("cached blocks", move || {
                    while core.cacher.wait() {
                        while !core.cacher.is_stopped() && core.fill_cache() {}
                    }
                }));
            }
        }
        Background { threads }
    }

    /// Ends them, and waits until they did.
    pub(super) fn end(&mut self, core: &Core) {
        core.migrator.stop();
        core.cacher.stop();
        core.cleaner.stop();
        // One that panicked has said so.
        self.threads.drain(..).for_each(|thread| _ = thread.join());
        core.end_cache();
    }
}

impl Core {
    /// Looks now and then whether nobody is in the way of what waits for that: space comes back some time after the last job, and
    /// nobody says so. Ends when there is something else to do, and after a time in which there was no such moment.
    fn migrate_when_idle(&self) {
        let mut pause_nanos = IDLE_PAUSE_NANOS;
        while pause_nanos < IDLE_PAUSE_NANOS_MAX && self.awaits_idleness() {
            let until = varve_env::Instant::from_nanos(self.env.now().as_nanos() + pause_nanos);
            if !self.migrator.wait_until(until) {
                return;
            }
            pause_nanos = if self.migrate() { IDLE_PAUSE_NANOS } else { pause_nanos * 2 };
        }
    }

    /// Something changed that policies look at.
    pub(super) fn changed(&self) {
        match self.options.driver {
            HybridDriver::Thread => {
                self.migrator.notify();
                self.cleaner.notify();
            }
            HybridDriver::Caller => {
                // What is done here changes something as well.
                if !self.is_stepping.swap(true, Ordering::AcqRel) {
                    self.fill_cache();
                    self.migrate();
                    self.clean();
                    self.is_stepping.store(false, Ordering::Release);
                }
            }
        }
    }
}
