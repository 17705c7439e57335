//! Table 1: what the devices do without a store.

use super::settings::{DISK_READS_PER_SECOND, PAIR_BYTES, PAIRS};
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::emulated::bare;
use crate::experiment::{Experiment, Run, Scale, simulate};
use crate::media::ZoneId;
use crate::media::probe::{Pattern, Probe};
use crate::report::{Report, Row};

/// The devices in full, of which only the time is wanted.
const DRIVE: &str = "zns:4TiB?model=zn540,backing=none";
const DISK: &str = "smr:14TB?model=st14000nm0007,band=256MiB,conventional=4GiB,backing=none";

/// Requests of 1 MiB of a sequential job: as many as a zone of the drive has room for.
const SEQUENTIAL_REQUESTS: u64 = 1077;

/// Random reads of a job.
const RANDOM_REQUESTS: u64 = 20_000;

/// How far from the paper's value counts as the same.
const TOLERANCE: f64 = 0.05;

pub(in crate::experiment) const TABLE_1: Experiment = Experiment {
    id: "hhzs/table1",
    title: "HHZS, table 1: what the zoned drive and the shingled disk do without a store",
    description: "Sequential reads and writes of 1 MiB and random reads of 4 KiB, one at a time, as fio does, on the drive and \
                  on the disk in full; then random reads of the part of the disk that 200 GiB take. Scale divides the number of \
                  random reads.",
    default_scale: Scale::FULL,
    run: |run| {
        let mut report = run.report();
        report.condition("drive", DRIVE);
        report.condition("disk", DISK);
        for (name, spec, paper) in [
            ("ZN540", DRIVE, [1039.6, 1002.8, 16_928.3]),
            ("ST14000NM0007", DISK, [210.0, 210.0, DISK_READS_PER_SECOND]),
        ] {
            let mebibytes = |rate: f64| rate / f64::from(1 << 20);
            let written = sequential(run, spec, Pattern::SequentialWrite)?;
            let read = sequential(run, spec, Pattern::SequentialRead)?;
            beside(&mut report, name, "sequential reads, 1 MiB", "MiB/s", paper[0], mebibytes(read));
            beside(&mut report, name, "sequential writes, 1 MiB", "MiB/s", paper[1], mebibytes(written));
            beside(&mut report, name, "random reads, 4 KiB", "1/s", paper[2], random(run, spec, None)?);
        }
        let near = random(run, DISK, Some(PAIRS * PAIR_BYTES))?;
        ours(&mut report, "ST14000NM0007", "random reads of its first 200 GiB, 4 KiB", "1/s", near);
        report.notes.push(
            "the paper reads all of the disk; 200 GiB are 1.5 % of it, between which its arm moves less: what the stores \
             read comes faster than table 1 says"
                .to_owned(),
        );
        Ok(report)
    },
};

/// Adds a number that is to be within a twentieth of the paper's.
fn beside(report: &mut Report, scheme: &str, metric: &str, unit: &str, paper: f64, ours: f64) {
    let off = ours / paper - 1.0;
    let verdict = if off.abs() <= TOLERANCE { "within 5 %".to_owned() } else { format!("{:+.1} %", off * 100.0) };
    report.rows.push(Row::new(scheme, metric, unit, ours).with_paper(paper).with_note(verdict));
}

/// Bytes a second in one zone.
fn sequential(run: &Run<'_>, spec: &'static str, pattern: Pattern) -> Result<f64, LabError> {
    simulate(run.settings.seed, move |env| {
        let device = bare(env, spec)?.block;
        let zones = device.capabilities().zones.as_ref();
        let start = zones.map_or(0, |zones| zones.start_bytes(ZoneId(zones.conventional_zones)));
        let request_bytes = 1 << 20;
        let requests = SEQUENTIAL_REQUESTS;
        let probe = Probe {
            pattern,
            request_bytes,
            depth: 1,
            requests,
            region: start..start + requests * request_bytes,
            seed: 1,
        };
        Ok(probe.run(env, &device)?.bytes_per_second())
    })
}

/// Random reads a second, of all of the device or of its first bytes.
fn random(run: &Run<'_>, spec: &'static str, bytes: Option<u64>) -> Result<f64, LabError> {
    let requests = run.scale.of(RANDOM_REQUESTS);
    let seed = run.settings.seed;
    simulate(seed, move |env| {
        let device = bare(env, spec)?.block;
        let end = bytes.unwrap_or(device.geometry().capacity_bytes);
        let probe =
            Probe { pattern: Pattern::RandomRead, request_bytes: 4096, depth: 1, requests, region: 0..end, seed };
        Ok(probe.run(env, &device)?.requests_per_second())
    })
}
