//! `smrdb/another-disk`: the goals of SMRDB's figures on the other disk that there is a preset of.

use super::floor;
use super::random_puts::{PACED_SCALE, goals, loads};
use super::scheme::{Scheme, Term};
use super::sequential_puts::{cells, rates};
use super::settings::{OTHER_MODEL, Setup};
use super::ycsb::{self, beside, not_below, phases_of, steadiness};
use crate::experiment::comparison::ours;
use crate::experiment::{Experiment, Scale};
use crate::target::Durability;

/// In figure 8 puts are so many times fewer, as they are in the figure itself.
const FEWER_IN_ORDER: u64 = 2;

pub(in crate::experiment) const ANOTHER_DISK: Experiment = Experiment {
    id: "smrdb/another-disk",
    title: "the goals of SMRDB's figures 8, 9, 10, 14 and 15 on another disk",
    description: "What ours is to SMRDB-SOC and LevelDB-like with the same input and output, and to itself without pacing, as in these figures, on \
                  a disk of 7200 revolutions a minute whose seek curve was measured.",
    default_scale: PACED_SCALE,
    run: |run| {
        let setup = |scheme: Scheme| Setup { model: OTHER_MODEL, ..Setup::new(scheme, run.scale, run.settings.seed) };
        let setups = [Scheme::SocSameIo, Scheme::Ours].map(setup);
        let (puts, mut report) = loads(run, &setups)?;
        setup(Scheme::Ours).describe(&mut report);
        let [base, own] = &puts[..] else { return Ok(report) };
        for goal in goals() {
            goal.wanted.judge(&mut report, &goal.ratio_metric(), goal.ratio(own, base));
        }
        let schemes = [Scheme::LevelDbSameIo, Scheme::Ours];
        let fewer = Scale::one_in(run.scale.denominator() * FEWER_IN_ORDER);
        let cells = cells();
        for (cell, rates) in cells.iter().zip(rates(run, (fewer, OTHER_MODEL), &cells, |_| schemes.to_vec())?) {
            cell.judge(&mut report, &schemes, &rates);
        }
        let disk = floor::disk_of(OTHER_MODEL);
        let append_millis = floor::measure(&disk)?.append;
        let records = ycsb::options(run.scale, run.settings.seed, Durability::Synced).records;
        let appends_millis = floor::slowest_appends_millis(&disk, records)?;
        ours(&mut report, "disk", "append of 8 KiB and flush", "ms", append_millis);
        ours(&mut report, "disk", "append of 8 KiB and flush, p99.9 of as many as puts", "ms", appends_millis);
        let schemes = vec![Scheme::SocSameIo, Scheme::Ours, Scheme::OursWithout(Term::Pacing)];
        for (durability, what) in [(Durability::Synced, ""), (Durability::Buffered, ", no put synced")] {
            let all = phases_of(run, schemes.clone(), OTHER_MODEL, durability)?;
            not_below(&mut report, &all, what);
            let load = format!("load{what}");
            for (scheme, phases) in &all {
                steadiness(&mut report, *scheme, &load, &phases[0]);
            }
            let floor = (durability == Durability::Synced).then_some((append_millis, appends_millis));
            beside(&mut report, &all, &load, floor);
        }
        Ok(report)
    },
};
