//! Loads that run in worlds of their own, two at a time, and are filmed and drawn.

use super::{Caption, Film, page, still};
use crate::error::LabError;
use crate::experiment::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve::env::Env;

/// Loads that run at the same time.
const AT_ONCE: usize = 2;

/// Frames of a film, at most.
const FRAMES_MAX: u32 = 1_000;

/// A map: two files' contents, and what to say of them.
#[derive(Clone, Debug)]
pub struct DrawnMap {
    /// A page that needs nothing else.
    pub html: String,
    /// The last frames as a picture.
    pub svg: String,
    /// What was filmed, in the order of the pictures.
    pub summaries: Vec<FilmSummary>,
}

/// What a film says in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct FilmSummary {
    /// Of the film.
    pub name: String,
    /// Operations done: pairs put, and what the load does beside that.
    pub operations: u64,
    /// Virtual time it took.
    pub nanos: u64,
    /// What the store counted, by name.
    pub counters: Vec<(String, u64)>,
}

/// What a load says of the operations it did since it said so before.
pub(super) type Advance = Box<dyn Fn(u64) + Send>;

/// Refuses to draw nothing, and what is not known.
pub(super) fn known(what: &'static str, asked: &[String], known: &[&str]) -> Result<(), LabError> {
    if asked.is_empty() {
        return Err(LabError::invalid(what, format!("one of {} at least", known.join(", "))));
    }
    match asked.iter().find(|asked| !known.contains(&asked.as_str())) {
        Some(unknown) => Err(LabError::invalid(what, format!("'{unknown}' is none of {}", known.join(", ")))),
        None => Ok(()),
    }
}

/// Films the loads, `total` operations in all, and draws the films.
///
/// # Errors
/// Too few or too many frames, and what a load says.
pub(super) fn draw<L: Clone + Send + 'static>(
    caption: &Caption,
    loads: &[L],
    frames: u32,
    progress: &Arc<dyn Progress>,
    total: u64,
    film: fn(&L, Advance) -> Result<Film, LabError>,
) -> Result<DrawnMap, LabError> {
    if !(1..=FRAMES_MAX).contains(&frames) {
        return Err(LabError::invalid("frames", format!("{frames} are not 1 to {FRAMES_MAX}")));
    }
    progress.begin("loading", Some(total));
    let films = in_pairs(loads, progress, film);
    progress.end();
    let films = films?;
    let (html, svg) = (page(caption, &films)?, still(caption, &films));
    Ok(DrawnMap { html, svg, summaries: films.iter().filter_map(Film::summary).collect() })
}

/// What each load gives, in their order.
///
/// # Errors
/// The first that a load says.
pub(super) fn in_pairs<L: Clone + Send + 'static, F: Send + 'static>(
    loads: &[L],
    progress: &Arc<dyn Progress>,
    film: fn(&L, Advance) -> Result<F, LabError>,
) -> Result<Vec<F>, LabError> {
    let done = Arc::new(AtomicU64::new(0));
    let mut films = Vec::new();
    for together in loads.chunks(AT_ONCE) {
        let workers: Vec<_> = together
            .iter()
            .map(|load| {
                let (load, progress, done) = (load.clone(), Arc::clone(progress), Arc::clone(&done));
                let advance: Advance =
                    Box::new(move |step| progress.advance(done.fetch_add(step, Ordering::Relaxed) + step));
                Env::real().spawn("map", move || film(&load, advance))
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        for outcome in outcomes {
            films.push(outcome??);
        }
    }
    Ok(films)
}

/// Checks on every map, for tests.
#[cfg(test)]
pub(super) mod tests {
    use super::super::lettering::tests::check_texts;
    use super::super::{numbers, well_formed};
    use super::*;

    /// Checks that captions can be read, and that every film begins with a frame in which there is a table.
    pub(crate) fn check(map: &DrawnMap) {
        well_formed::check(&map.svg).unwrap();
        check_texts(&map.svg);
        let data = map.html.split_once("id=\"films-data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        for film in data["films"].as_array().unwrap() {
            let usages = film["states"]["usage"].as_str().unwrap().as_bytes();
            let first = &film["frames"][0];
            assert!(first["operations"].as_u64() > film["begin"]["operations"].as_u64(), "{first}");
            let runs = numbers::read(first["changes"].as_str().unwrap()).unwrap();
            let states = runs.chunks(3).scan(0, |state, run| {
                *state += numbers::signed(run[2]);
                Some(*state as usize)
            });
            let tables = states.filter(|&state| usages[state] == b'1').count();
            assert!(tables > 0, "no table in the first frame of {}", film["name"]);
        }
    }
}
