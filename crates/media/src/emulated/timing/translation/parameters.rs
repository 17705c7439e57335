//! What of a translation layer makers do not publish.

use crate::zones::MediaCache;

/// Which of the zones that are not sequential is cleaned next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningOrder {
    /// The one that has been so for longest.
    Oldest,
    /// The one with the least to read and write.
    Cheapest,
    /// The one that gives most of the cache back.
    Fullest,
}

/// What becomes of an idle cleaning that a command called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// It goes on where it was.
    GoesOn,
    /// What it was at is done again, steps that were done are not.
    RepeatsStep,
    /// The zone is begun again.
    RepeatsZone,
}

/// A shingled disk's translation layer: what is known of it, and what is not.
///
/// Of the ST8000AS0022 the sizes of the cache and of the map are known (Zhang, section 4.2). What triggers an idle cleaning was
/// measured (table 4.1), as was how long requests wait in a blocking one. The rest are guesses, to be varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslationParameters {
    /// Cache and map.
    pub media_cache: MediaCache,
    /// How long nobody asks anything of the drive before it begins to clean.
    pub idle_trigger_nanos: u64,
    /// Which zone comes next.
    pub order: CleaningOrder,
    /// Bytes of a zone that are read and then written in one go while nobody asks anything of the drive.
    pub idle_step_bytes: u64,
    /// The same while the cache is full: requests wait so long.
    pub blocking_step_bytes: u64,
    /// Requests that are served between two such steps.
    pub requests_between_steps: u32,
    /// A blocking cleaning ends when no more than so many hundredths of cache and map are in use.
    pub blocking_stop_percent: u32,
    /// What becomes of an idle cleaning that is called off.
    pub interrupted: Interrupted,
    /// Nothing fills it: for comparison only.
    pub is_endless: bool,
}

impl TranslationParameters {
    /// That of the ST8000AS0022: a cache of 28 GB, 182,000 extents (Zhang, section 4.2). Cleanings begin 239 ms after the
    /// last command: with one short cleaning, of 6 to 21 ms, that gives table 4.1. Steps of what fits the drive's memory,
    /// 128 MB, take up to 2 s, the longest wait that was seen. Assumed: the oldest zone first, until all are clean,
    /// 8 requests between steps, and that of an idle cleaning that is called off steps of 8 MiB are done again.
    pub fn st8000as0022() -> Self {
        TranslationParameters {
            media_cache: MediaCache { bytes: 28_000_000_000, extents_max: 182_000 },
            idle_trigger_nanos: 239_000_000,
            order: CleaningOrder::Oldest,
            idle_step_bytes: 8 << 20,
            blocking_step_bytes: 128 << 20,
            requests_between_steps: 8,
            blocking_stop_percent: 0,
            interrupted: Interrupted::RepeatsStep,
            is_endless: false,
        }
    }

    /// The same layer with a cache that is never full. Its place on the disk is as large: its log goes round.
    pub fn endless(&self) -> Self {
        TranslationParameters { is_endless: true, ..self.clone() }
    }

    /// Where byte 0 of the address space lies on the disk: behind the cache, in whole MiB, so that sectors stay whole.
    pub(crate) fn home_bytes(&self) -> u64 {
        self.media_cache.bytes.next_multiple_of(1 << 20)
    }

    /// The similar layer with every size, count and time divided by `divisor`.
    pub fn scaled(&self, divisor: u64) -> Self {
        let divisor = divisor.max(1);
        let MediaCache { bytes, extents_max } = self.media_cache;
        let extents_max = (u64::from(extents_max) / divisor) as u32;
        TranslationParameters {
            media_cache: MediaCache { bytes: bytes / divisor, extents_max },
            idle_trigger_nanos: self.idle_trigger_nanos / divisor,
            idle_step_bytes: self.idle_step_bytes / divisor,
            blocking_step_bytes: self.blocking_step_bytes / divisor,
            ..self.clone()
        }
    }
}
