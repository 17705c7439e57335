//! What a drive, its cache and control do over time, while requests of proj_1 are replayed.

use super::drive::{Control, Drive, Workload, fill};
use super::traces::{PROJ_1, calibrated_at};
use crate::error::LabError;
use crate::experiment::{Scale, simulate};
use crate::replay::{BlockRequest, Pace, replay};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Controls that there are timelines of, by the names that specs have for them.
const CONTROLS: [(&str, Control); 4] = [
    ("none", Control::None),
    ("at-ic", Control::Fixed(5000, 2000)),
    ("idler", Control::Idler),
    ("relocate", Control::Relocating),
];

/// Names of controls.
pub(crate) fn controls() -> Vec<&'static str> {
    CONTROLS.iter().map(|(name, _)| *name).collect()
}

/// A replay that is looked at.
#[derive(Clone, Debug)]
pub(crate) struct WatchedReplay {
    pub(crate) control: String,
    pub(crate) threads: usize,
    pub(crate) is_buffered: bool,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    /// Spans of time that it is divided into.
    pub(crate) spans: u32,
}

/// What happened in a span of time, and what stood at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Span {
    /// Its end, from the begin.
    pub(crate) seconds: f64,
    /// Longest response of the requests that were made in it.
    pub(crate) longest_seconds: f64,
    pub(crate) requests: u64,
    /// Of the cache's bytes and of its map's extents in use, at its end.
    pub(crate) bytes_share: f64,
    pub(crate) extents_share: f64,
    /// Shares of the span.
    pub(crate) idle_cleaning_share: f64,
    pub(crate) blocking_share: f64,
    /// Requests whose holding back ended.
    pub(crate) held: u64,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) name: String,
    pub(crate) spans: Vec<Span>,
    pub(crate) finish_nanos: u64,
    pub(crate) requests: u64,
    pub(crate) counters: Vec<(String, u64)>,
}

impl WatchedReplay {
    /// Requests of it.
    pub(crate) fn requests(&self) -> u64 {
        calibrated_at(self.scale, self.seed, &Drive::new(self.scale), PROJ_1).requests()
    }
}

/// Runs a replay and looks at it. `advance` is told of requests when all are done.
///
/// # Errors
/// An unknown control, and what the replay says.
pub(crate) fn watch(watched: &WatchedReplay, advance: Box<dyn Fn(u64) + Send>) -> Result<Timeline, LabError> {
    let found = CONTROLS.iter().find(|(name, _)| *name == watched.control);
    let Some(&(_, control)) = found else {
        return Err(LabError::invalid(
            "control",
            format!("'{}' is none of {}", watched.control, controls().join(", ")),
        ));
    };
    let watched = watched.clone();
    let timeline = simulate(watched.seed, move |env| {
        let bare = Drive::new(watched.scale);
        let workload = calibrated_at(watched.scale, watched.seed, &bare, PROJ_1);
        let drive = if watched.is_buffered { bare.with_buffer(watched.scale) } else { bare };
        let span_nanos = (workload.duration_seconds * 1_000_000_000 / u64::from(watched.spans.max(1))).max(1);
        let cache = drive.translation.media_cache;
        let workload = Workload::Calibrated(workload);
        let (disk, handles) = drive.build(env, control)?;
        let handle = handles.control.clone();
        fill(&disk, &workload.non_sequential_zones()?)?;
        let device = match &drive.buffer {
            Some(parameters) => drive.buffered(env, &disk, handle.clone(), parameters)?.0,
            None => disk.clone(),
        };
        let trace: Arc<[BlockRequest]> = workload.generate()?.into();
        let is_done = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (own, env, is_done, handle) = (disk.clone(), env.clone(), Arc::clone(&is_done), handle.clone());
            let begin = env.now();
            env.clone().spawn("watcher", move || {
                let mut seen = Vec::new();
                while !is_done.load(Ordering::Relaxed) {
                    let at_nanos = (seen.len() as u64 + 1).saturating_mul(span_nanos);
                    env.sleep_until(begin + Duration::from_nanos(at_nanos));
                    let cleaning = own.block.counters().cleaning;
                    let held = handle.as_ref().map_or(0, |handle| handle.statistics().delayed);
                    seen.push((cleaning, held));
                }
                seen
            })
        };
        let replayed = replay(env, &device, &trace, Pace::Intervals { threads: watched.threads });
        is_done.store(true, Ordering::Relaxed);
        let seen = watcher.join()?;
        let replayed = replayed?;
        let mut spans = vec![Span::default(); seen.len()];
        let (mut before, mut held_before) = (Default::default(), 0);
        for (number, (span, (cleaning, held))) in spans.iter_mut().zip(seen).enumerate() {
            let share = |nanos: u64, before: u64| nanos.saturating_sub(before) as f64 / span_nanos as f64;
            let crate::media::CleaningCounters { idle_cleaning_nanos, blocking_cleaning_nanos, .. } = before;
            *span = Span {
                seconds: (number as u64 + 1) as f64 * span_nanos as f64 / 1e9,
                bytes_share: (cleaning.cached_bytes - cleaning.released_bytes) as f64 / cache.bytes.max(1) as f64,
                extents_share: cleaning.extents as f64 / f64::from(cache.extents_max.max(1)),
                idle_cleaning_share: share(cleaning.idle_cleaning_nanos, idle_cleaning_nanos),
                blocking_share: share(cleaning.blocking_cleaning_nanos, blocking_cleaning_nanos),
                held: held - held_before,
                ..Span::default()
            };
            (before, held_before) = (cleaning, held);
        }
        for response in &replayed.responses {
            let number = (response.begun_nanos / span_nanos) as usize;
            let Some(span) = spans.get_mut(number) else { continue };
            span.requests += 1;
            span.longest_seconds = span.longest_seconds.max(response.nanos as f64 / 1e9);
        }
        let micros = |share: f64| (replayed.seconds(share) * 1e6) as u64;
        let counters = vec![
            ("P99.9 (us)".to_owned(), micros(0.999)),
            ("longest (us)".to_owned(), micros(1.0)),
            ("times blocked".to_owned(), before.blocking_cleanings),
            ("zones cleaned".to_owned(), before.idle_cleaned_zones + before.blocking_cleaned_zones),
            ("held back".to_owned(), held_before),
        ];
        let (finish_nanos, requests) = (replayed.finish_nanos, replayed.responses.len() as u64);
        Ok(Timeline { name: control.name(), spans, finish_nanos, requests, counters })
    })?;
    advance(timeline.requests);
    Ok(timeline)
}
