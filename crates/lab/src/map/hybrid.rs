//! The map of a zoned drive and a shingled disk: the load of HHZS and reads after it, filmed.

use super::Caption;
use super::loads::{DrawnMap, draw, known};
use crate::error::LabError;
use crate::experiment::hhzs::{LoadOnTiers, film_tiers, tier_schemes};
use crate::experiment::{Progress, Scale};
use std::sync::Arc;

/// What to draw.
#[derive(Clone)]
pub struct HybridMap {
    /// Schemes of `hhzs/*`, each a picture of its own.
    pub schemes: Vec<String>,
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

impl HybridMap {
    /// Runs the loads, two at a time, and draws them. The same map gives the same bytes.
    ///
    /// # Errors
    /// A scheme that is not known, too many frames, and what a load says.
    pub fn draw(&self) -> Result<DrawnMap, LabError> {
        self.scale.at_least(crate::experiment::SMALLEST_OF_ZONES)?;
        let schemes = tier_schemes();
        known("scheme", &self.schemes, &schemes.iter().map(String::as_str).collect::<Vec<_>>())?;
        let load = |scheme: &String| LoadOnTiers {
            scheme: scheme.clone(),
            scale: self.scale,
            seed: self.seed,
            full_pairs: self.pairs,
            frames: self.frames,
        };
        let loads: Vec<LoadOnTiers> = self.schemes.iter().map(load).collect();
        let (pairs, operations) = loads.first().map_or((0, 0), |load| (load.pairs(), load.operations()));
        let caption = Caption {
            title: "What every zone of a zoned drive and a shingled disk holds during a load and reads after it".to_owned(),
            description: format!(
                "The load of HHZS at scale {}, seed {}: {pairs} pairs of 1 KiB in random order, and, once all are in tables, {} gets of Zipf 0.9, frames \
                 evenly apart by operations. The disk is cut to what the load can use.",
                self.scale,
                self.seed,
                operations - pairs
            ),
            cell: "zone".to_owned(),
            operations: "operations".to_owned(),
            look_for: "To be seen: which levels the drive (above) holds and which the disk, what is moved between them, and how \
                       many zones of the drive cached blocks have while the gets run."
                .to_owned(),
            explanation:
                "A table takes one zone of the drive or four of the disk. Zones of logs are small files; a zone of \
                          cached blocks holds copies of what lies on the disk."
                    .to_owned(),
            scale_denominator: self.scale.denominator(),
        };
        let total = operations * loads.len() as u64;
        draw(&caption, &loads, self.frames, &self.progress, total, film_tiers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::well_formed;
    use super::*;
    use crate::experiment::Silent;

    fn map(schemes: &[&str]) -> HybridMap {
        HybridMap {
            schemes: schemes.iter().map(|&scheme| scheme.to_owned()).collect(),
            // At smaller ones the manifest takes the zones of the cache.
            scale: Scale::one_in(1024),
            seed: 1,
            pairs: Some(40 << 20),
            frames: 20,
            progress: Arc::new(Silent),
        }
    }

    #[test]
    fn a_load_and_reads_are_drawn_and_repeat_to_the_byte() {
        let map = map(&["B3", "Adaptive"]);
        let first = map.draw().unwrap();
        let second = map.draw().unwrap();
        assert!(first.html == second.html && first.svg == second.svg);
        super::super::loads::tests::check(&first);
        well_formed::check(&first.svg).unwrap();
        let counter = |film: usize, wanted: &str| {
            let counters = &first.summaries[film].counters;
            counters.iter().find(|(name, _)| name == wanted).unwrap().1
        };
        for film in 0..2 {
            assert!(counter(film, "tables placed on the fast tier") > 10, "{:?}", first.summaries[film]);
            assert!(counter(film, "tables placed on the slow tier") > 10, "{:?}", first.summaries[film]);
        }
        assert_eq!(counter(0, "blocks cached"), 0);
        let cached = [counter(1, "blocks cached"), counter(1, "user reads of cached blocks")];
        assert!(cached.iter().all(|count| *count > 0), "{:?}", first.summaries[1]);
        let data = first.html.split_once("id=\"films-data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        // A row for each device, whose cells are its zones.
        let devices = |film: &serde_json::Value| -> Vec<u64> {
            film["rows"].as_array().unwrap().iter().map(|row| row["device"].as_u64().unwrap()).collect()
        };
        let films = data["films"].as_array().unwrap();
        assert!(films.iter().all(|film| devices(film) == [0, 1]));
        // What a film shows: levels, logs, and, with a cache, its zones.
        let cached = |film: &serde_json::Value| film["states"]["usage"].as_str().unwrap().contains('8');
        assert_eq!(films.iter().map(cached).collect::<Vec<bool>>(), [false, true]);
        assert!(films.iter().all(|film| film["states"]["usage"].as_str().unwrap().contains('5')), "logs");
        assert!(first.svg.contains("cached blocks: copies of blocks of a slower device"));
    }

    #[test]
    fn schemes_that_are_not_known_are_refused() {
        let error = map(&["B9"]).draw().unwrap_err().to_string();
        assert!(error.contains("scheme: 'B9' is none of B1, B2"), "{error}");
    }
}
