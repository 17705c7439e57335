//! What the disk takes for a table alone, without a store: of tracks behind each other, of tracks of two tiers, and of one.

use super::settings::{DISK_BYTES, MODEL, TABLE_BYTES, TRACK_BYTES};
use crate::error::LabError;
use crate::experiment::emulated::bare;
use crate::experiment::{Scale, simulate};
use crate::media::{BlockDevice, IoContext, Request};
use std::io::{IoSlice, IoSliceMut};
use varve::env::Env;

/// Places at which a table is written, evenly apart.
const PLACES: u64 = 64;

/// Part of the disk that the load fills.
const FILLED: f64 = 0.75;

/// Tracks of a table: a track more than its bytes for its index and filter.
const TRACKS: u64 = TABLE_BYTES / TRACK_BYTES + 1;

/// Milliseconds of a table, those of the full size by the scale, on average over the places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Floors {
    /// Every track behind the one before it, and a sync: a table on a conventional disk.
    pub(super) contiguous: f64,
    /// Every second track and a sync, and then the others and a sync, through the cache of the disk: the least that an
    /// interlaced disk allows, for a bottom that reaches the medium after a top beside it destroys that.
    pub(super) cached: f64,
    /// The same by forced unit access, all of a tier at once, so that the disk writes next what is nearest.
    pub(super) forced: f64,
    /// What the last takes beyond the first where that is least: it differs with how far a track of the disk is from two of these.
    pub(super) least_gaps: f64,
}

/// Milliseconds of a track of a table, those of the full size by the scale, when finding the first one and that one cost nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Least {
    /// Written, on tracks of two tiers that follow each other or on tracks of one, whichever takes less.
    pub(super) write_ms: f64,
    /// Read, on tracks that follow each other.
    pub(super) read_ms: f64,
}

/// Measures them on the disk of the experiments at this scale. The same numbers for every seed: nothing is random.
///
/// # Errors
/// What the device says.
pub(super) fn measure(scale: Scale) -> Result<Floors, LabError> {
    let contiguous = written(scale, vec![(0..TRACKS).collect()], false, FILLED)?;
    let (cached, forced) = (written(scale, two_tiers(), false, FILLED)?, written(scale, two_tiers(), true, FILLED)?);
    let mean = |millis: &[f64]| millis.iter().sum::<f64>() / PLACES as f64;
    let gaps = forced.iter().zip(&contiguous).map(|(forced, contiguous)| forced - contiguous);
    Ok(Floors {
        contiguous: mean(&contiguous),
        cached: mean(&cached),
        forced: mean(&forced),
        least_gaps: gaps.fold(f64::INFINITY, f64::min),
    })
}

/// The same of a track at the outer end of each of as many equal parts of the whole disk, outermost first.
///
/// # Errors
/// What the device says.
pub(super) fn by_place(scale: Scale) -> Result<Vec<Least>, LabError> {
    let one_tier = || vec![(0..2 * TRACKS).step_by(2).collect()];
    let shapes = [(two_tiers(), true), (one_tier(), true), (one_tier(), false)];
    let shapes = shapes.map(|(steps, is_forced)| written(scale, steps, is_forced, 1.0));
    let shapes = shapes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (first, all) = (read(scale, 1)?, read(scale, TRACKS)?);
    let first_written = written(scale, vec![vec![0]], true, 1.0)?;
    let least = |place: usize| {
        let table = shapes.iter().map(|millis| millis[place]).fold(f64::INFINITY, f64::min);
        let of_track = |table: f64, first: f64| (table - first) / TRACKS as f64;
        Least { write_ms: of_track(table, first_written[place]), read_ms: of_track(all[place], first[place]) }
    };
    Ok((0..PLACES as usize).map(least).collect())
}

/// Steps of a table on tracks that follow each other.
fn two_tiers() -> Vec<Vec<u64>> {
    [0, 1].map(|tier| (tier..TRACKS).step_by(2).collect()).into()
}

/// Milliseconds of writing these tracks of a table, step by step, at each place of this part of the disk.
fn written(scale: Scale, steps: Vec<Vec<u64>>, is_forced: bool, part: f64) -> Result<Vec<f64>, LabError> {
    at_each_place(scale, part, move |env, device, track_bytes, at| {
        write(env, device, track_bytes, at, &steps, is_forced)
    })
}

/// Milliseconds of reading as many tracks one after the other, at each place of the disk.
fn read(scale: Scale, tracks: u64) -> Result<Vec<f64>, LabError> {
    at_each_place(scale, 1.0, move |env, device, track_bytes, at| {
        let begin = env.now();
        let pieces = (0..tracks).map(|track| (at + track * track_bytes, track_bytes));
        read_each(device, &pieces.collect::<Vec<_>>())?;
        Ok((env.now() - begin).as_nanos() as u64)
    })
}

/// Milliseconds of work that takes so many nanoseconds from an offset on, at each place of this part of the disk.
fn at_each_place(
    scale: Scale,
    part: f64,
    work: impl Fn(&Env, &dyn BlockDevice, u64, u64) -> Result<u64, LabError> + Send + 'static,
) -> Result<Vec<f64>, LabError> {
    simulate(1, move |env| {
        let device = bare(env, &format!("disk:{DISK_BYTES}B?model={MODEL},scale={scale},backing=none"))?.block;
        let track_bytes = scale.of(TRACK_BYTES);
        let part_bytes = (device.geometry().capacity_bytes as f64 * part) as u64;
        let apart = part_bytes / PLACES / track_bytes * track_bytes;
        let mut millis = Vec::new();
        for place in 0..PLACES {
            // The arm comes from elsewhere, as after a read.
            let elsewhere = (place + PLACES / 3) % PLACES;
            write(env, &*device, track_bytes, elsewhere * apart, &[vec![0]], false)?;
            millis.push(work(env, &*device, track_bytes, place * apart)? as f64 / 1e6);
        }
        Ok(millis)
    })
}

/// Nanoseconds of writing tracks from `at` on.
fn write(
    env: &Env,
    device: &dyn BlockDevice,
    track_bytes: u64,
    at: u64,
    steps: &[Vec<u64>],
    is_forced: bool,
) -> Result<u64, LabError> {
    let begin = env.now();
    for tracks in steps {
        let pieces = tracks.iter().map(|track| (at + track * track_bytes, track_bytes));
        write_step(device, &pieces.collect::<Vec<_>>(), is_forced)?;
    }
    Ok((env.now() - begin).as_nanos() as u64)
}

/// Writes pieces of a device, each an offset and a length, all in flight at once, and syncs; forced, each is durable when it is written.
///
/// # Errors
/// What the device says.
pub(super) fn write_step(device: &dyn BlockDevice, pieces: &[(u64, u64)], is_forced: bool) -> Result<(), LabError> {
    let longest = pieces.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let (context, zeros) = (IoContext::default(), vec![0; longest as usize]);
    let slices: Vec<_> = pieces.iter().map(|(_, length)| [IoSlice::new(&zeros[..*length as usize])]).collect();
    let mut requests: Vec<Request<'_>> = Vec::with_capacity(pieces.len());
    for ((at, _), slices) in pieces.iter().zip(&slices) {
        requests.push(if is_forced { Request::write_durable(*at, slices) } else { Request::write(*at, slices) });
    }
    device.execute(&mut requests, &context)?;
    Ok(device.sync(&context)?)
}

/// Reads pieces of a device, each an offset and a length, one after the other.
///
/// # Errors
/// What the device says.
pub(super) fn read_each(device: &dyn BlockDevice, pieces: &[(u64, u64)]) -> Result<(), LabError> {
    let longest = pieces.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let mut data = vec![0; longest as usize];
    for (at, length) in pieces {
        let mut slices = [IoSliceMut::new(&mut data[..*length as usize])];
        device.execute(&mut [Request::read(*at, &mut slices)], &IoContext::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_cost_what_moving_and_waiting_do() {
        let floors = measure(Scale::FULL).unwrap();
        let gap = |millis: f64| (millis - floors.contiguous) / TRACKS as f64;
        // A movement and its settling take 2 ms, half a revolution 4.2.
        assert!(gap(floors.forced) > 1.0 && gap(floors.cached) > gap(floors.forced), "{floors:?}");
        assert!(gap(floors.cached) < 8.4, "{floors:?}");
        assert!(floors.least_gaps > 0.0 && floors.least_gaps < floors.forced - floors.contiguous, "{floors:?}");
        assert!(floors.contiguous > TABLE_BYTES as f64 / 168e6 * 1e3, "{floors:?}");
    }
}
