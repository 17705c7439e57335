//! Several drives and disks: what they do together.

use super::clients::run_at_once;
use super::fig2::described;
use super::load::{Loaded, Rested, loads_of, open, rests};
use super::scheme::Scheme;
use super::settings::Setup;
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::together::{Wanted, measure};
use crate::experiment::{Experiment, Run, simulate};
use std::sync::Arc;
use varve::Varve;
use varve::store::PieceUsage;

/// Drives and disks.
const SETS: [(usize, usize); 4] = [(1, 1), (1, 2), (2, 2), (2, 4)];

/// Clients that read at once: one, and as many as leave none of the devices without a request.
const CLIENTS: [u64; 2] = [1, 32];

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
        let workload = Workload::YCSB[2].at(setup.scale);
        Wanted {
            key: format!("hhzs gets {setup:?} by {clients}"),
            operations: workload.reads,
            run: Box::new(move |advance| {
                simulate(setup.seed, move |env| {
                    let db = Arc::new(open(env, &setup, setup.options(workload.cache_bytes), Some(&rested.image))?);
                    let rate = run_at_once(env, &db, &setup, &workload, clients, advance)?;
                    Ok(Gets { rate, table_bytes: table_bytes(&db) })
                })
            }),
        }
    });
    measure(run, &format!("reading, {clients} at once"), wanted.collect())
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
