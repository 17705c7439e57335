//! `smrdb/seeds`: the goals of the random puts with several seeds.

use super::random_puts::{Loaded, PACED_SCALE, goals, loads};
use super::scheme::Scheme;
use super::settings::Setup;
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;

/// Number of seeds of a group.
const SEEDS: u64 = 3;

/// Distance from the run's seed to the first of the seeds that no constant was chosen with: those were chosen with seeds 1 to 6.
pub(super) const HELD_OUT_SEEDS: u64 = 10;

/// Groups of seeds: their distance from the run's seed, and the name of their mean.
const GROUPS: [(u64, &str); 2] = [(0, "mean"), (HELD_OUT_SEEDS, "mean of held-out seeds")];

pub(in crate::experiment) const SEEDS_OF_PUTS: Experiment = Experiment {
    id: "smrdb/seeds",
    title: "the goals of SMRDB's random puts, with three seeds that ours was tuned on and three that it was not",
    description: "The puts and gets of smrdb/fig9 under ours and SMRDB-SOC with the same input and output. Which merge comes when differs with everything, \
                  so one run says little where a goal is missed or reached by a few percent.",
    default_scale: PACED_SCALE,
    run: |run| {
        let schemes = [Scheme::SocSameIo, Scheme::Ours];
        let of_seed = |seed: u64| schemes.map(|scheme| Setup::new(scheme, run.scale, seed));
        let seeds = GROUPS.iter().flat_map(|(distance, _)| (0..SEEDS).map(move |step| distance + step));
        let setups: Vec<Setup> = seeds.map(|distance| run.settings.seed + distance).flat_map(of_seed).collect();
        let (all, mut report) = loads(run, &setups)?;
        let name = Scheme::Ours.name();
        for goal in goals() {
            let ratio = |pair: &[Loaded]| goal.ratio(&pair[1], &pair[0]);
            let ratios: Vec<f64> = all.chunks(schemes.len()).map(ratio).collect();
            let metric = goal.ratio_metric();
            for (setup, ratio) in setups.chunks(schemes.len()).zip(&ratios) {
                ours(&mut report, name, &format!("{metric}, seed {}", setup[0].seed), "1", *ratio);
            }
            for ((_, of_group), ratios) in GROUPS.iter().zip(ratios.chunks(SEEDS as usize)) {
                let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
                goal.wanted.judge(&mut report, &format!("{metric}, {of_group}"), mean);
            }
        }
        Ok(report)
    },
};
