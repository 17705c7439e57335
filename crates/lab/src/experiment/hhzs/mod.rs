//! `hhzs/*`: the experiments of HHZS (Li and others, "Efficient LSM-Tree Key-Value Data Management on Hybrid SSD/HDD Zoned
//! Storage").
//!
//! Each scheme is loaded once; every workload begins with what the devices held then. What an earlier experiment of the same
//! run measured is not measured again.

mod ablation;
mod authors;
mod breakdown;
mod clients;
mod devices;
mod drive_size;
mod equal_memory;
mod fig2;
mod fig5;
mod film;
mod load;
mod migration_rate;
mod one_at_a_time;
mod reading;
mod runs;
mod scheme;
mod seeds;
mod sensitivity;
mod settings;
mod similarity;
mod steady;
mod table1;
mod workload;

pub(crate) use film::{LoadOnTiers, film_tiers, tier_schemes};

use super::{Experiment, Scale};

/// In the order they are listed.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    table1::TABLE_1,
    fig2::FIG_2A,
    fig2::FIG_2B,
    fig2::FIG_2C,
    fig2::FIG_2D,
    fig2::FIG_2E,
    fig2::FIG_2F,
    fig2::FIG_2G,
    fig2::FIG_2H,
    fig2::FIG_2I,
    fig5::FIG_5A,
    fig5::FIG_5B,
    breakdown::FIG_6,
    sensitivity::FIG_7,
    sensitivity::FIG_8,
    drive_size::FIG_9A,
    drive_size::FIG_9B,
    migration_rate::FIG_10,
    devices::DEVICES,
    clients::EIGHT_CLIENTS,
    steady::STEADY,
    ablation::ABLATION,
    one_at_a_time::FULL_B3,
    one_at_a_time::FULL_AUTO,
    one_at_a_time::FULL_HHZS,
    one_at_a_time::FULL_OURS,
    authors::AUTHORS_LOAD,
    authors::AUTHORS_YCSB,
    authors::AUTHORS_BREAKDOWN,
    authors::AUTHORS_TERMS,
    authors::FULL_AUTHORS_B3,
    authors::FULL_AUTHORS_AUTO,
    authors::FULL_AUTHORS_HHZS,
    authors::FULL_AUTHORS_OURS,
    equal_memory::EQUAL_MEMORY,
    equal_memory::TECHNIQUES_OF_OURS,
    seeds::SEEDS_OF_TIERS,
];

/// The scale of loads and YCSB unless told otherwise. Table 1 runs in full.
const DEFAULT_SCALE: Scale = Scale::one_in(64);

/// That of experiments with many runs, ...
const MANY_RUNS_SCALE: Scale = Scale::one_in(128);

/// and with many loads, or with runs that go on for long: so all of them take about as long as those of YCSB.
const MANY_LOADS_SCALE: Scale = Scale::one_in(256);

#[cfg(test)]
mod tests {
    use super::load::load;
    use super::runs::{Begin, Task, run_tasks};
    use super::scheme::{Scheme, Term};
    use super::settings::{Setting, Setup};
    use super::steady::steady_task;
    use super::workload::{Memory, Workload};
    use crate::experiment::{Run, Scale, Settings, run, select};
    use std::sync::Arc;

    const SMALL: Scale = Scale::one_in(8192);

    #[test]
    fn the_devices_do_what_table_1_says() {
        let experiment = select(&["hhzs/table1".to_owned()]).unwrap()[0];
        let report = run(experiment, &Settings { scale: Some(Scale::one_in(10)), ..Settings::default() }).unwrap();
        let beside: Vec<_> = report.rows.iter().filter(|row| row.paper.is_some()).collect();
        assert_eq!(beside.len(), 6);
        assert!(beside.iter().all(|row| row.note.as_deref() == Some("within 5 %")), "{}", report.to_text());
    }

    #[test]
    fn loads_repeat_to_the_event_and_workloads_begin_where_they_ended() {
        let setup = Setup::new(Scheme::Hhzs, SMALL, 3);
        let [first, second] = [0, 1].map(|_| load(&setup, Arc::new(|_| {})).unwrap());
        assert_eq!((first.event_hash, &first.end.drive), (second.event_hash, &second.end.drive));
        assert!(!first.samples.is_empty() && first.whereabouts.tables[1].iter().sum::<u64>() > 0);
        // Tables that compactions open are no reads of users, for whom they would be slowed down.
        assert_eq!(first.end.disk.reads_by_class[crate::media::IoClass::UserRead.index()], 0);
        let settings = Settings { seed: 3, ..Settings::default() };
        let experiment = select(&["hhzs/fig5a".to_owned()]).unwrap()[0];
        let run = Run { experiment, scale: SMALL, settings: &settings };
        let task = |workload: &Workload, begin| Task {
            setup: setup.clone(),
            begin,
            workload: workload.at(SMALL),
            warm_up: None,
        };
        // Every value that is read is verified.
        let tasks = vec![task(&Workload::YCSB[0], Begin::Debt), task(&Workload::YCSB[4], Begin::Rest)];
        for ran in run_tasks(&run, tasks).unwrap() {
            assert_eq!(ran.read_nanos.len() as u64, ran.task.workload.reads);
            assert!(ran.throughput() > 0.0 && ran.disk_reads() > 0.0, "{ran:?}");
        }
    }

    /// Runs tasks on the load of a setup.
    fn runs_of(setup: &Setup, tasks: Vec<Task>) -> Vec<Arc<super::runs::Ran>> {
        let settings = Settings { seed: setup.seed, ..Settings::default() };
        let experiment = select(&["hhzs/fig5a".to_owned()]).unwrap()[0];
        run_tasks(&Run { experiment, scale: SMALL, settings: &settings }, tasks).unwrap()
    }

    #[test]
    #[ignore = "the soak runs it"]
    fn gets_read_more_blocks_with_the_authors_settings() {
        let reads = |setting: Setting| {
            let setup = Setup::under(setting, Scheme::Basic(3), SMALL, 1);
            let workload = setting.workload(&Workload::YCSB[2]).at(SMALL);
            let task = Task { setup: setup.clone(), begin: Begin::Debt, workload, warm_up: None };
            let ran = runs_of(&setup, vec![task]);
            assert_eq!(ran[0].task.setup.name_with_setting(), format!("B3, {}", setting.name));
            (ran[0].device_reads(0) + ran[0].device_reads(1)) as f64 / ran[0].task.workload.reads as f64
        };
        let [with, authors] = [Setting::WITH_FILTERS, Setting::AUTHORS].map(reads);
        assert!(authors > 1.3 * with, "{authors} reads of devices to a get, {with} with filters");
    }

    #[test]
    fn index_memory_enlarges_the_cache_and_keeps_the_reads() {
        let [paper, more] = [Memory::Paper, Memory::OfIndex].map(|memory| Workload::YCSB[2].at_with(SMALL, memory));
        assert!(more.cache_bytes > 4 * paper.cache_bytes && more.cache_hits > paper.cache_hits + 0.1, "{more:?}");
        assert_eq!(more.reads, paper.reads);
        let megabytes = Memory::OfIndex.cache_bytes() / 1_000_000;
        assert!((285..300).contains(&megabytes), "{megabytes}");
    }

    #[test]
    #[ignore = "the soak runs it"]
    fn without_kept_copies_no_copy_is_written_again() {
        let kept = |scheme| {
            let setup = Setup::new(scheme, SMALL, 1);
            let ran = runs_of(&setup, vec![steady_task(&setup, &Workload::YCSB[2])]);
            assert!(ran[0].to.stored("blocks cached") > 0);
            ran[0].to.stored("cached blocks written again")
        };
        assert!(kept(Scheme::Adaptive) > 0);
        assert_eq!(kept(Scheme::Without(Term::KeptCopies)), 0);
    }

    /// What several devices do together grows with them.
    #[test]
    #[ignore = "the soak runs it"]
    fn several_devices_do_more_than_one() {
        let experiment = select(&["hhzs/devices".to_owned()]).unwrap()[0];
        let report = run(experiment, &Settings { scale: Some(SMALL), ..Settings::default() }).unwrap();
        let of = |set: &str, metric: &str| {
            let row = report.rows.iter().find(|row| row.scheme == set && row.metric == metric);
            row.and_then(|row| row.ours).unwrap_or_else(|| panic!("no '{metric}' of {set}"))
        };
        for (set, load, reads) in [("1+1", 1.0, 1.0), ("1+2", 1.4, 1.8), ("2+2", 1.8, 1.8), ("2+4", 2.5, 3.2)] {
            let found = [of(set, "load, times that of 1+1"), of(set, "C, 32 at once, times that of 1+1")];
            assert!(found[0] >= load && found[1] >= reads, "{set}: {found:?}");
        }
    }
}
