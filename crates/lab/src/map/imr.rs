//! The map of an interlaced disk: the load of KVIMR, filmed.

use super::{Caption, Film, page, still};
use crate::error::LabError;
use crate::experiment::kvimr::{LoadOnInterlaced, PAIRS, film_load};
use crate::experiment::{Progress, Scale};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve::env::Env;

/// Loads that run at the same time.
const AT_ONCE: usize = 2;

/// Frames of a film, at most.
const FRAMES_MAX: u32 = 1_000;

/// What to draw.
#[derive(Clone)]
pub struct ImrMap {
    /// Allocation policies, each a picture of its own.
    pub policies: Vec<String>,
    /// Ways to save tops; each policy is drawn with each of them.
    pub rewrites: Vec<String>,
    /// How much smaller than full size the load is.
    pub scale: Scale,
    /// Everything random follows from it.
    pub seed: u64,
    /// Pairs at full scale; unset is the load of the paper.
    pub pairs: Option<u64>,
    /// Moments after the first one.
    pub frames: u32,
    /// What is to be said meanwhile.
    pub progress: Arc<dyn Progress>,
}

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
    /// Policy and rewrite.
    pub name: String,
    /// Pairs loaded.
    pub operations: u64,
    /// Virtual time it took.
    pub nanos: u64,
    /// What the store counted, by name.
    pub counters: Vec<(String, u64)>,
}

/// What the store's option of this name takes.
fn words(option: &str) -> Vec<&'static str> {
    let known = varve::common_options().find(|(store, known)| *store == "imr" && known.name == option);
    known.map(|(_, known)| known.value.words()).unwrap_or_default()
}

/// Allocation policies there are.
pub fn policies() -> Vec<&'static str> {
    words("allocation")
}

/// Ways to save tops there are.
pub fn rewrites() -> Vec<&'static str> {
    words("rewrite")
}

impl ImrMap {
    fn check(&self) -> Result<(), LabError> {
        for (what, asked, known) in [("policy", &self.policies, policies()), ("rewrite", &self.rewrites, rewrites())] {
            if asked.is_empty() {
                return Err(LabError::invalid(what, format!("one of {} at least", known.join(", "))));
            }
            if let Some(unknown) = asked.iter().find(|asked| !known.contains(&asked.as_str())) {
                return Err(LabError::invalid(what, format!("'{unknown}' is none of {}", known.join(", "))));
            }
        }
        match self.frames {
            1..=FRAMES_MAX => Ok(()),
            frames => Err(LabError::invalid("frames", format!("{frames} are not 1 to {FRAMES_MAX}"))),
        }
    }

    /// Runs the loads, two at a time, and draws them. The same map gives the same bytes.
    ///
    /// # Errors
    /// A policy or rewrite that is not known, too many frames, and what a load says.
    pub fn draw(&self) -> Result<DrawnMap, LabError> {
        self.check()?;
        let loads: Vec<LoadOnInterlaced> = self
            .policies
            .iter()
            .flat_map(|policy| self.rewrites.iter().map(move |rewrite| (policy, rewrite)))
            .map(|(policy, rewrite)| LoadOnInterlaced {
                allocation: policy.clone(),
                rewrite: rewrite.clone(),
                scale: self.scale,
                seed: self.seed,
                full_pairs: self.pairs.unwrap_or(PAIRS),
                frames: self.frames,
            })
            .collect();
        self.progress.begin("loading", Some(loads.iter().map(LoadOnInterlaced::pairs).sum()));
        let films = self.films(&loads);
        self.progress.end();
        let films = films?;
        let pairs = loads.first().map_or(0, LoadOnInterlaced::pairs);
        let caption = Caption {
            title: "What every track of an interlaced disk holds during a load".to_owned(),
            description: format!(
                "The load of KVIMR at scale {}, seed {}: {pairs} pairs of 1 KB in random order onto a disk of 100 GB \
                 divided by the scale, frames evenly apart by pairs.",
                self.scale, self.seed
            ),
            cell: "track".to_owned(),
            operations: "pairs".to_owned(),
            scale_denominator: self.scale.denominator(),
        };
        let (html, svg) = (page(&caption, &films)?, still(&caption, &films));
        Ok(DrawnMap { html, svg, summaries: films.iter().filter_map(Film::summary).collect() })
    }

    fn films(&self, loads: &[LoadOnInterlaced]) -> Result<Vec<Film>, LabError> {
        let done = Arc::new(AtomicU64::new(0));
        let mut films = Vec::new();
        for together in loads.chunks(AT_ONCE) {
            let workers: Vec<_> = together
                .iter()
                .map(|load| {
                    let (load, progress, done) = (load.clone(), Arc::clone(&self.progress), Arc::clone(&done));
                    Env::real().spawn("map", move || {
                        film_load(&load, move |step| progress.advance(done.fetch_add(step, Ordering::Relaxed) + step))
                    })
                })
                .collect();
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            for outcome in outcomes {
                films.push(outcome??);
            }
        }
        Ok(films)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Silent;

    fn map(policies: &[&str]) -> ImrMap {
        ImrMap {
            policies: policies.iter().map(|&policy| policy.to_owned()).collect(),
            rewrites: vec!["merged".to_owned()],
            scale: Scale::one_in(256),
            seed: 1,
            pairs: Some(6_000 * 256),
            frames: 8,
            progress: Arc::new(Silent),
        }
    }

    #[test]
    fn a_load_is_drawn_and_repeats_to_the_byte() {
        let map = map(&["sequential", "compaction-aware"]);
        let first = map.draw().unwrap();
        let second = map.draw().unwrap();
        assert!(first.html == second.html && first.svg == second.svg);
        let names: Vec<&str> = first.summaries.iter().map(|summary| summary.name.as_str()).collect();
        assert_eq!(names, ["sequential, merged rewrites", "compaction-aware, merged rewrites"]);
        for summary in &first.summaries {
            assert_eq!(summary.operations, 6_000);
            let tables = summary.counters.iter().find(|(name, _)| name == "tables").unwrap().1;
            assert!(summary.nanos > 0 && tables > 10, "{summary:?}");
        }
        assert!(!first.html.contains("http"));
    }

    #[test]
    fn what_is_not_there_is_refused_before_anything_runs() {
        let refused = |map: ImrMap| map.draw().unwrap_err().to_string();
        assert!(refused(map(&["fastest"])).contains("policy: 'fastest' is none of "));
        assert!(refused(map(&[])).contains("one of"));
        assert!(refused(ImrMap { frames: 0, ..map(&["region"]) }).contains("0 are not 1 to 1000"));
        assert!(refused(ImrMap { rewrites: vec!["x".into()], ..map(&["region"]) }).contains("rewrite: 'x' is none of"));
    }
}
