//! `smrdb/seeds`: the goals of the random puts with several seeds.

use super::random_puts::{Loaded, PACED_SCALE, goals, loads};
use super::scheme::Scheme;
use super::settings::Setup;
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;

/// How many seeds, from the run's own on.
const SEEDS: u64 = 3;

pub(in crate::experiment) const SEEDS_OF_PUTS: Experiment = Experiment {
    id: "smrdb/seeds",
    title: "the goals of SMRDB's random puts, with three seeds",
    description: "The puts and gets of smrdb/fig9 under ours and SMRDB-SOC with the same input and output. Which merge comes when differs with everything, \
                  so one run says little where a goal is missed or reached by a few percent.",
    default_scale: PACED_SCALE,
    run: |run| {
        let schemes = [Scheme::SocSameIo, Scheme::Ours];
        let of_seed = |seed: u64| schemes.map(|scheme| Setup::new(scheme, run.scale, seed));
        let setups: Vec<Setup> = (0..SEEDS).map(|step| run.settings.seed + step).flat_map(of_seed).collect();
        let (all, mut report) = loads(run, &setups)?;
        let name = Scheme::Ours.name();
        for goal in goals() {
            let ratio = |pair: &[Loaded]| goal.ratio(&pair[1], &pair[0]);
            let ratios: Vec<f64> = all.chunks(schemes.len()).map(ratio).collect();
            let metric = goal.ratio_metric();
            for (setup, ratio) in setups.chunks(schemes.len()).zip(&ratios) {
                ours(&mut report, name, &format!("{metric}, seed {}", setup[0].seed), "1", *ratio);
            }
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            goal.wanted.judge(&mut report, &format!("{metric}, mean"), mean);
        }
        Ok(report)
    },
};
