//! Parameters of a translation layer that its maker does not publish.

use crate::zones::MediaCache;

/// Order in which non-sequential zones are cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningOrder {
    /// The zone that has been non-sequential for longest.
    Oldest,
    /// The zone with the fewest bytes to read and write.
    Cheapest,
    /// The zone with the most bytes in the media cache.
    Fullest,
}

/// Effect of a command on an idle cleaning under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The cleaning stops, and later continues where it stopped.
    GoesOn,
    /// The cleaning stops; the step under way is done again, steps that were done are not.
    RepeatsStep,
    /// The cleaning stops; its zone is begun again.
    RepeatsZone,
    /// A cleaning that has not done a step stops. Another one continues in idle steps until its zone is done; requests are served between
    /// two steps.
    FinishesZone,
}

/// Condition on which the bytes that a cleaned zone had in the media cache can be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceReclaim {
    /// At once.
    Zone,
    /// When no older piece of the log is in use: the cache is a log that is written round.
    LogTail,
}

/// Parameters of a shingled disk's translation layer.
///
/// The number of extents of the map of the ST8000AS0022 is published, as are the size of the media cache and the shortest pause that
/// triggers an idle cleaning (Zhang, section 4.2). The fields whose documentation says *fitted* are fitted to the number of non-sequential
/// zones of a real drive over time, without control (`idler/calibration`, docs/idler.md). The rest are assumptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslationParameters {
    /// Bytes of the media cache that writes can fill, fitted, and entries of its map.
    pub media_cache: MediaCache,
    /// Size of the cache's region on the disk, in percent of the bytes that writes can fill: the address space begins behind it.
    pub region_percent: u32,
    /// Time without a command after which an idle cleaning begins.
    pub idle_trigger_nanos: u64,
    /// Order of zones, fitted.
    pub order: CleaningOrder,
    /// When the bytes of a cleaned zone can be written again, fitted.
    pub reclaim: SpaceReclaim,
    /// Bytes of a zone that one step of an idle cleaning reads and then writes.
    pub idle_step_bytes: u64,
    /// Bytes of a zone that one step of a blocking cleaning reads and then writes, fitted: the smaller, the longer a zone takes.
    pub blocking_step_bytes: u64,
    /// Requests served between two steps while a blocking cleaning, or an idle cleaning that finishes its zone, is under way.
    pub requests_between_steps: u32,
    /// Use of cache and map at which a blocking cleaning ends, in percent of the capacity; fitted. At 100 it ends as soon as the write that
    /// waits fits.
    pub blocking_stop_percent: u32,
    /// Effect of a command on an idle cleaning.
    pub interrupted: Interrupted,
    /// The cache never fills. For comparisons only.
    pub is_endless: bool,
}

/// Size of the media cache of the ST8000AS0022 by its measurement in Zhang, section 4.2, in bytes. A blocking cleaning begins before as many
/// were written: see [`TranslationParameters::st8000as0022`].
pub const ST8000AS0022_PUBLISHED_CACHE_BYTES: u64 = 28_000_000_000;

impl TranslationParameters {
    /// The ST8000AS0022.
    ///
    /// Published: 182,000 extents; a pause of 250 ms cleans (table 4.1, to which the trigger of 239 ms is fitted). Fitted to the run without
    /// control of the drive's measurements (`idler/calibration`): 18.2 GB of the cache fill before a blocking cleaning begins; the space of
    /// the log comes back at its tail; the zone at the tail is cleaned, in steps of 2 MiB, until 98 % are in use (100 fits as
    /// well, but by figure 4.2b requests wait after the write that blocked). Assumed: idle
    /// steps of 8 MiB, and 8 requests between two steps. An idle cleaning finishes its zone: in `log-dependent-*` of those measurements
    /// requests take 0.1 to 0.5 s for two to three seconds after an idle period.
    pub fn st8000as0022() -> Self {
        TranslationParameters {
            media_cache: MediaCache { bytes: 18_200_000_000, extents_max: 182_000 },
            // 28 GB.
            region_percent: 154,
            idle_trigger_nanos: 239_000_000,
            order: CleaningOrder::Oldest,
            reclaim: SpaceReclaim::LogTail,
            idle_step_bytes: 8 << 20,
            blocking_step_bytes: 2 << 20,
            requests_between_steps: 8,
            blocking_stop_percent: 98,
            interrupted: Interrupted::FinishesZone,
            is_endless: false,
        }
    }

    /// The same drive by the assumptions that stood before it was fitted: all of the published cache fills, the space of a zone comes back
    /// with it, a blocking cleaning works in steps of 128 MiB until the cache is empty, and an idle cleaning stops at a command.
    pub fn st8000as0022_assumed() -> Self {
        TranslationParameters {
            media_cache: MediaCache { bytes: ST8000AS0022_PUBLISHED_CACHE_BYTES, extents_max: 182_000 },
            region_percent: 100,
            reclaim: SpaceReclaim::Zone,
            blocking_step_bytes: 128 << 20,
            blocking_stop_percent: 0,
            interrupted: Interrupted::RepeatsStep,
            ..TranslationParameters::st8000as0022()
        }
    }

    /// The same layer with a cache that is never full. Its place on the disk is as large: its log goes round.
    pub fn endless(&self) -> Self {
        TranslationParameters { is_endless: true, ..self.clone() }
    }

    /// Position on the disk of byte 0 of the address space: behind the region of the cache, in whole MiB, so that sectors stay whole.
    pub(crate) fn home_bytes(&self) -> u64 {
        let bytes = u128::from(self.media_cache.bytes) * u128::from(self.region_percent) / 100;
        u64::try_from(bytes).unwrap_or(u64::MAX >> 1).next_multiple_of(1 << 20)
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
