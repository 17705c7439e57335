//! Several drives and disks: what they do together.

use super::fig2::described;
use super::load::{Loaded, Rested, SETTLE_STEP, failed, loads_of, open, rests};
use super::scheme::Scheme;
use super::settings::{COMPRESSION_RATIO, KEYS, Setup};
use super::together::{Wanted, measure};
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::{Experiment, Run, simulate};
use crate::generator::{Distribution, RecordChooser, ValueGenerator};
use std::sync::Arc;
use varve::Varve;
use varve::env::{Env, Random};
use varve::store::PieceUsage;

/// Drives and disks.
const SETS: [(usize, usize); 4] = [(1, 1), (1, 2), (2, 2), (2, 4)];

/// Clients that read at once: one, and as many as leave none of the devices without a request.
const CLIENTS: [u64; 2] = [1, 32];

/// How skewed the gets of C are.
const EXPONENT: f64 = 0.9;

/// What reading gave.
#[derive(Debug)]
struct Gets {
    /// A second of the full size.
    rate: f64,
    /// Bytes of tables on each device.
    table_bytes: Vec<u64>,
}

pub(in crate::experiment) const DEVICES: Experiment = Experiment {
    id: "hhzs/devices",
    title: "several drives and disks to a tier: throughput of the load and of YCSB C",
    description: "Loads 200 GiB under HHZS onto one drive and one disk, one and two, two and two, and two and four, and reads it as YCSB C \
                  does, with one client and with 32 at once, when nothing is left to compact. Every drive has 20 zones. Not in the paper.",
    default_scale: super::MANY_LOADS_SCALE,
    run: |run| {
        let setup = |(drives, disks)| Setup { drives, disks, ..Setup::new(Scheme::Hhzs, run.scale, run.settings.seed) };
        let all: Vec<Arc<Loaded>> = loads_of(run, &SETS.map(setup))?;
        let rested = rests(run, &all)?;
        let mut report = described(run, &all);
        let gets: Vec<Vec<Arc<Gets>>> =
            CLIENTS.iter().map(|clients| gets(run, &all, &rested, *clients)).collect::<Result<_, LabError>>()?;
        for (place, loaded) in all.iter().enumerate() {
            let (drives, disks) = SETS[place];
            let name = format!("{drives}+{disks}");
            let mut beside_first = |metric: &str, of: &dyn Fn(usize) -> f64| {
                ours(&mut report, &name, &format!("{metric} (full size)"), "op/s", of(place));
                ours(&mut report, &name, &format!("{metric}, times that of 1+1"), "1", of(place) / of(0).max(1e-9));
            };
            beside_first("load", &|place| all[place].throughput());
            for (clients, gets) in CLIENTS.iter().zip(&gets) {
                beside_first(&format!("C, {clients} at once"), &|place| gets[place].rate);
            }
            let bytes = &gets[0][place].table_bytes;
            for (tier, of_tier) in [("drives", &bytes[..drives]), ("disks", &bytes[drives..])] {
                let (least, most) = (of_tier.iter().min(), of_tier.iter().max());
                let gibibytes = |bytes: Option<&u64>| loaded.gibibytes(bytes.copied().unwrap_or(0));
                ours(&mut report, &name, &format!("tables on the {tier}: least (full size)"), "GiB", gibibytes(least));
                ours(&mut report, &name, &format!("tables on the {tier}: most (full size)"), "GiB", gibibytes(most));
            }
        }
        Ok(report)
    },
};

/// Gets of C by so many clients on what each load left, once it rested.
fn gets(run: &Run<'_>, all: &[Arc<Loaded>], rested: &[Arc<Rested>], clients: u64) -> Result<Vec<Arc<Gets>>, LabError> {
    let wanted = all.iter().zip(rested).map(|(loaded, rested)| {
        let (setup, rested) = (loaded.setup.clone(), Arc::clone(rested));
        let each = Workload::YCSB[2].at(setup.scale).reads / clients;
        Wanted {
            key: format!("hhzs gets {setup:?} by {clients}"),
            operations: each * clients,
            run: Box::new(move |advance| {
                simulate(setup.seed, move |env| {
                    let scaled = Workload::YCSB[2].at(setup.scale);
                    let db = Arc::new(open(env, &setup, setup.options(scaled.cache_bytes), Some(&rested.image))?);
                    let from = env.now();
                    let workers: Vec<_> = (0..clients)
                        .map(|client| {
                            let (db, setup, env) = (Arc::clone(&db), setup.clone(), env.clone());
                            let advance = Arc::clone(&advance);
                            env.clone().spawn("client", move || {
                                let read = client_reads(&env, &db, &setup, client, each);
                                advance(each);
                                read
                            })
                        })
                        .collect();
                    let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
                    outcomes.into_iter().try_for_each(|outcome| outcome?)?;
                    let seconds = (env.now() - from).as_secs_f64();
                    let rate = (each * clients) as f64 / seconds / setup.scale.denominator() as f64;
                    Ok(Gets { rate, table_bytes: table_bytes(&db) })
                })
            }),
        }
    });
    measure(run, &format!("reading, {clients} at once"), wanted.collect())
}

/// One client's gets.
fn client_reads(env: &Env, db: &Varve, setup: &Setup, client: u64, count: u64) -> Result<(), LabError> {
    let values = ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?;
    let (places, mut random) = (setup.places(), Random::named(setup.seed, &format!("client {client}")));
    let mut chooser = RecordChooser::new(Distribution::Zipf { exponent: EXPONENT }, setup.pairs(), 0, 0, 1)?;
    let mut key = Vec::new();
    for number in 0..count {
        KEYS.write(places.of(chooser.next(setup.pairs(), &mut random)), &mut key);
        let found = db.get(&key).map_err(failed("get"))?;
        if !found.as_ref().is_some_and(|found| values.verify(&key, found)) {
            return Err(LabError::WrongValue {
                target: "varve".to_owned(),
                key: key.escape_ascii().to_string(),
                found_bytes: found.as_ref().map_or(0, |found| found.len()),
                found: if found.is_some() { "something else" } else { "nothing" }.to_owned(),
            });
        }
        if number % SETTLE_STEP == 0 {
            env.settle();
        }
    }
    env.settle();
    Ok(())
}

/// Bytes of tables on each device.
fn table_bytes(db: &Varve) -> Vec<u64> {
    let occupancy = db.stack().files().occupancy();
    let mut bytes = vec![0; occupancy.devices.len()];
    for piece in occupancy.pieces.iter().filter(|piece| piece.usage == PieceUsage::Table) {
        bytes[usize::from(piece.device)] += piece.used_bytes;
    }
    bytes
}
