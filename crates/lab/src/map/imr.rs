//! The map of an interlaced disk: the load of KVIMR, filmed.

use super::Caption;
use super::loads::{DrawnMap, draw, known};
use crate::error::LabError;
use crate::experiment::kvimr::{LoadOnInterlaced, PAIRS, film_load};
use crate::experiment::{Progress, Scale};
use std::sync::Arc;

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

/// What the store's option of this name takes.
fn words(option: &str) -> Vec<&'static str> {
    let known = varve::spec::common_options().find(|(store, known)| *store == "imr" && known.name == option);
    known.map(|(_, known)| known.value.words()).unwrap_or_default()
}

/// Allocation policies there are.
pub fn policies() -> Vec<&'static str> {
    [&words("allocation"), varve::spec::lab_words("allocation")].concat()
}

/// Ways to save tops there are.
pub fn rewrites() -> Vec<&'static str> {
    words("rewrite")
}

impl ImrMap {
    fn check(&self) -> Result<(), LabError> {
        known("policy", &self.policies, &policies())?;
        known("rewrite", &self.rewrites, &rewrites())
    }

    /// Runs the loads, two at a time, and draws them. The same map gives the same bytes.
    ///
    /// # Errors
    /// A policy or rewrite that is not known, too many frames, and what a load says.
    pub fn draw(&self) -> Result<DrawnMap, LabError> {
        self.scale.at_least(crate::experiment::SMALLEST_OF_TRACKS)?;
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
            look_for:
                "To be seen: where tables of each level lie, and, as squares, the tracks that had to be saved and \
                       restored for them; fewer squares are better."
                    .to_owned(),
            explanation:
                "A track with a small square in it was saved and restored in the interval that ends with this \
                          frame, because one beside it was written."
                    .to_owned(),
            scale_denominator: self.scale.denominator(),
        };
        let total = pairs * loads.len() as u64;
        draw(&caption, &loads, self.frames, &self.progress, total, film_load)
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
        super::super::loads::tests::check(&first);
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
