//! The map of a shingled disk: random puts of SMRDB, filmed.

use super::Caption;
use super::loads::{DrawnMap, draw, known};
use crate::error::LabError;
use crate::experiment::smrdb::{LoadOnBands, band_schemes, film_bands};
use crate::experiment::{Progress, Scale};
use std::sync::Arc;

/// What to draw.
#[derive(Clone)]
pub struct SmrMap {
    /// Schemes of `smrdb/*`, each a picture of its own.
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

/// Schemes there are.
pub fn schemes() -> Vec<&'static str> {
    band_schemes()
}

impl SmrMap {
    /// Runs the loads, two at a time, and draws them. The same map gives the same bytes.
    ///
    /// # Errors
    /// A scheme that is not known, too many frames, and what a load says.
    pub fn draw(&self) -> Result<DrawnMap, LabError> {
        self.scale.at_least(crate::experiment::SMALLEST_OF_BANDS)?;
        known("scheme", &self.schemes, &schemes())?;
        let load = |scheme: &String| LoadOnBands {
            scheme: scheme.clone(),
            scale: self.scale,
            seed: self.seed,
            full_pairs: self.pairs,
            frames: self.frames,
        };
        let loads: Vec<LoadOnBands> = self.schemes.iter().map(load).collect();
        let pairs = loads.first().map_or(0, LoadOnBands::pairs);
        let caption = Caption {
            title: "What every band of a shingled disk holds during random puts".to_owned(),
            description: format!(
                "The random puts of SMRDB at scale {}, seed {}: {pairs} pairs of 4 KiB under keys drawn from as many, frames \
                 evenly apart by pairs. The disk is cut to what the load can use.",
                self.scale, self.seed
            ),
            cell: "band".to_owned(),
            operations: "pairs".to_owned(),
            look_for: "To be seen: how compactions gather tables of the same keys, and how many bands hold what still counts; \
                       fewer and fuller bands are better."
                .to_owned(),
            explanation:
                "A band is filled as far as what it holds counts: a table counts whole until it is removed, of a \
                          band of logs only what is not yet in tables does. Strength is the age of a table or, when \
                          chosen, how many other tables hold keys of its range: those a scan has to merge with it."
                    .to_owned(),
            scale_denominator: self.scale.denominator(),
        };
        let total = pairs * loads.len() as u64;
        draw(&caption, &loads, self.frames, &self.progress, total, film_bands)
    }
}

#[cfg(test)]
mod tests {
    use super::super::well_formed;
    use super::*;
    use crate::experiment::Silent;

    fn map(schemes: &[&str]) -> SmrMap {
        SmrMap {
            schemes: schemes.iter().map(|&scheme| scheme.to_owned()).collect(),
            scale: Scale::one_in(512),
            seed: 1,
            pairs: None,
            frames: 8,
            progress: Arc::new(Silent),
        }
    }

    #[test]
    fn random_puts_are_drawn_and_repeat_to_the_byte() {
        let map = map(&["SMRDB-SOC", "SMRDB-LOC"]);
        let first = map.draw().unwrap();
        let second = map.draw().unwrap();
        assert!(first.html == second.html && first.svg == second.svg);
        super::super::loads::tests::check(&first);
        well_formed::check(&first.svg).unwrap();
        assert!(first.svg.contains("SMRDB-SOC, by age") && first.svg.contains("SMRDB-LOC, by overlap"));
        for summary in &first.summaries {
            let counter = |wanted: &str| summary.counters.iter().find(|(name, _)| name == wanted).unwrap().1;
            assert!(counter("zone resets") > 20 && counter("compactions") > 5, "{summary:?}");
        }
        let data = first.html.split_once("id=\"films-data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let states = &data["films"][0]["states"];
        assert_eq!((&data["overlaps"], &data["cell"]), (&true.into(), &"band".into()));
        // Level 0 overlaps, and the last table of a compaction does not fill its band.
        let overlap = super::super::numbers::read(states["overlap"].as_str().unwrap()).unwrap();
        assert!(overlap.iter().any(|&tables| tables > 2), "{overlap:?}");
        assert!(states["live"].as_str().unwrap().contains(|eighths| eighths != '8'));
    }

    #[test]
    fn schemes_without_bands_are_refused() {
        let error = map(&["LevelDB-like"]).draw().unwrap_err().to_string();
        assert!(error.contains("scheme: 'LevelDB-like' is none of SMRDB-LOC, SMRDB-SOC"), "{error}");
    }
}
