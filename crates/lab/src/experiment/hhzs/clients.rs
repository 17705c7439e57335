//! Several clients at once.

use super::fig2::described;
use super::load::{SETTLE_STEP, failed, get_verified, loads, open, rests};
use super::scheme::Scheme;
use super::settings::{COMPRESSION_RATIO, KEYS, Setup, VALUE_BYTES};
use super::workload::{Memory, ScaledWorkload, Workload};
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::together::{Advance, Wanted, measure};
use crate::experiment::{Experiment, simulate};
use crate::generator::ValueGenerator;
use std::sync::Arc;
use varve::Varve;
use varve::env::{Env, Random};

/// The paper does not say how many there were. One is what its other figures have here.
const CLIENTS: [u64; 2] = [1, 8];

/// A and C: half of it reads, and all of it.
const WORKLOADS: [Workload; 2] = [Workload::YCSB[0], Workload::YCSB[2]];

pub(in crate::experiment) const EIGHT_CLIENTS: Experiment = Experiment {
    id: "hhzs/clients",
    title: "YCSB A and C by one client and by eight at once",
    description: "On what the loads of B3, AUTO, HHZS and ours left after rest. Gets and puts are those of the full size divided by the \
                  scale, and each stands for itself: so there are more first touches than at full size. Not in the paper.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let loaded = loads(run, &Scheme::COMPARED_WITH_OURS)?;
        let rested = rests(run, &loaded)?;
        let mut report = described(run, &loaded);
        for workload in WORKLOADS {
            let wanted = loaded.iter().zip(&rested).flat_map(|(loaded, rested)| {
                CLIENTS.map(|clients| {
                    let (setup, rested) = (loaded.setup.clone(), Arc::clone(rested));
                    let workload = ScaledWorkload::long(&workload, setup.scale, Memory::Paper);
                    Wanted {
                        key: format!("hhzs run {setup:?} of {workload:?} by {clients}"),
                        operations: workload.reads + workload.writes,
                        run: Box::new(move |advance: Advance| {
                            simulate(setup.seed, move |env| {
                                let options = setup.options(workload.cache_bytes);
                                let db = Arc::new(open(env, &setup, options, Some(&rested.image))?);
                                run_at_once(env, &db, &setup, &workload, clients, advance)
                            })
                        }),
                    }
                })
            });
            let rates: Vec<Arc<f64>> = measure(run, "running workloads", wanted.collect())?;
            for (loaded, of_scheme) in loaded.iter().zip(rates.chunks(CLIENTS.len())) {
                let scheme = loaded.setup.scheme.name();
                for (clients, rate) in CLIENTS.iter().zip(of_scheme) {
                    let metric = format!("{}: throughput with {clients} at once (full size)", workload.name);
                    ours(&mut report, &scheme, &metric, "op/s", **rate);
                }
            }
        }
        Ok(report)
    },
};

/// Runs a workload of gets and updates by so many clients at once; operations a second of the full size.
///
/// # Errors
/// The first one that failed, and a value that is not what was put.
pub(super) fn run_at_once(
    env: &Env,
    db: &Arc<Varve>,
    setup: &Setup,
    workload: &ScaledWorkload,
    clients: u64,
    advance: Advance,
) -> Result<f64, LabError> {
    let from = env.now();
    let workers: Vec<_> = (0..clients)
        .map(|client| {
            let (db, setup, workload, env) = (Arc::clone(db), setup.clone(), workload.clone(), env.clone());
            let advance = Arc::clone(&advance);
            env.clone().spawn("client", move || {
                let [reads, writes] = [workload.reads / clients, workload.writes / clients];
                let outcome = run_client(&env, &db, &setup, &workload, client, [reads, writes]);
                advance(reads + writes);
                outcome
            })
        })
        .collect();
    let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
    outcomes.into_iter().try_for_each(|outcome| outcome?)?;
    let seconds = (env.now() - from).as_secs_f64();
    let operations = (workload.reads / clients + workload.writes / clients) * clients;
    Ok(operations as f64 / seconds / setup.scale.denominator() as f64)
}

/// One client's gets and puts, evenly mixed.
fn run_client(
    env: &Env,
    db: &Varve,
    setup: &Setup,
    workload: &ScaledWorkload,
    client: u64,
    [reads, writes]: [u64; 2],
) -> Result<(), LabError> {
    let values = ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?;
    let (places, mut random) = (setup.places(), Random::named(setup.seed, &format!("client {client}")));
    let mut chooser = workload.workload.choice.chooser(setup.pairs(), setup.scale)?;
    let (mut key, mut value, mut written) = (Vec::new(), Vec::new(), 0);
    for number in 0..reads.max(writes) {
        if number < reads {
            KEYS.write(places.of(chooser.next(setup.pairs(), &mut random)), &mut key);
            get_verified(db, &key, &values)?;
        }
        let due = (u128::from(writes) * u128::from(number + 1) / u128::from(reads.max(writes))) as u64;
        while written < due {
            KEYS.write(places.of(chooser.next(setup.pairs(), &mut random)), &mut key);
            values.write(&key, 1, VALUE_BYTES, &mut value);
            db.put(&key, &value).map_err(failed("put"))?;
            written += 1;
        }
        if number % SETTLE_STEP == 0 {
            env.settle();
        }
    }
    env.settle();
    Ok(())
}
