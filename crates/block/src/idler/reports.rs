//! When a device is asked about its zones, and what becomes of its answers.

use super::ghost::GhostCache;
use varve_media::ZoneDescription;

/// Reports of zones, one in so long, until one fails: a device that does not say what it must is left to itself.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    every_nanos: u64,
    last_nanos: Option<u64>,
    has_failed: bool,
}

/// What a report said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cleaned {
    /// Time since the one before.
    pub(super) since_nanos: u64,
    /// Share of the cache that became free meanwhile.
    pub(super) given_back: f64,
}

impl Reports {
    pub(super) fn each(every_nanos: u64) -> Self {
        Reports { every_nanos, last_nanos: None, has_failed: false }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether one is due, now that requests are served.
    pub(super) fn is_due(&self, now_nanos: u64) -> bool {
        let due = |last: u64| now_nanos >= last.saturating_add(self.every_nanos);
        !self.has_failed && self.last_nanos.is_none_or(due)
    }

    /// Takes one over into the ghost; `None` of the first one, and of one that failed.
    pub(super) fn take(
        &mut self,
        now_nanos: u64,
        zones: Option<&[ZoneDescription]>,
        ghost: &mut GhostCache,
    ) -> Option<Cleaned> {
        let Some(given_back) = zones.and_then(|zones| ghost.reported(zones)) else {
            self.has_failed = true;
            return None;
        };
        let last = self.last_nanos.replace(now_nanos)?;
        Some(Cleaned { since_nanos: now_nanos.saturating_sub(last), given_back })
    }
}
