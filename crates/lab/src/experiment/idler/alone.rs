//! Table 4.1, figures 4.2 and 4.3: the drive by itself.

use super::drive::{Control, Drive, ZONE_BYTES, fill};
use super::told::{MEDIUM, described};
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, goal, ours};
use crate::experiment::{Experiment, Run, Scale, simulate};
use crate::media::{BlockDeviceExt, Device, IoClass, IoContext, ZoneId};
use crate::replay::{BlockRequest, Pace, replay};
use crate::report::{Axis, Figure, Lines, Plot, Report};
use std::sync::Arc;
use std::time::Duration;
use varve::env::{Env, Random};

pub(in crate::experiment) const TABLE_4_1: Experiment = Experiment {
    id: "idler/table4.1",
    title: "Idler, table 4.1: how long a drive must be left alone to clean",
    description: "A write of 4 KiB out of order to each of eight zones, so long between them, and a report right after the \
                  last pause; three times. The trigger of the drive is fitted to this table, in full: zones of a smaller drive are \
                  farther apart for its arm.",
    default_scale: Scale::FULL,
    run: table_4_1,
};

pub(in crate::experiment) const FIG_4_2A: Experiment = Experiment {
    id: "idler/fig4.2a",
    title: "Idler, figure 4.2a: requests during an idle cleaning",
    description: "Writes out of order, a pause until reports tell of fewer non-sequential zones, and then reads, writes in \
                  order and writes out of order, one at a time: as fast as before by the thesis. By the logs of its author \
                  they take 0.1 to 0.5 s until the zone is done, and so they do here.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| cleanings(run, false),
};

pub(in crate::experiment) const FIG_4_2B: Experiment = Experiment {
    id: "idler/fig4.2b",
    title: "Idler, figure 4.2b: requests during a blocking cleaning",
    description: "Writes out of order until the cache is full, and then reads, writes in order and writes out of order, one at \
                  a time: each waits for seconds, writes for longer than reads. Scale divides zones, cache and extents.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| cleanings(run, true),
};

pub(in crate::experiment) const FIG_4_3: Experiment = Experiment {
    id: "idler/fig4.3",
    title: "Idler, figure 4.3: response times in a blocking cleaning by the number of threads",
    description: "Reads, writes in order and writes out of order of 1 MB in equal numbers, by threads that do not pause, while \
                  the cache is full.",
    default_scale: super::DEFAULT_SCALE,
    run: fig_4_3,
};

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;

/// Zones that are not sequential, as the drive says.
fn non_sequential(device: &Device) -> Result<usize, LabError> {
    let (Some(control), Some(geometry)) = (&device.zones, &device.block.capabilities().zones) else { return Ok(0) };
    let zones = control.report(ZoneId(0), geometry.zone_count, &IoContext::default());
    let zones = zones.map_err(|error| LabError::invalid("report", error.to_string()))?;
    Ok(zones.iter().filter(|zone| zone.non_sequential).count())
}

fn table_4_1(run: &Run<'_>) -> Result<Report, LabError> {
    const PAPER: [(u64, [f64; 3]); 4] =
        [(240, [8.0, 8.0, 8.0]), (245, [8.0, 8.0, 8.0]), (250, [7.0, 6.0, 6.0]), (260, [0.0, 0.0, 0.0])];
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    for (idle_ms, paper) in PAPER {
        for (round, paper) in paper.into_iter().enumerate() {
            let drive = drive.clone();
            let left = simulate(run.settings.seed + round as u64, move |env| {
                let (device, _) = drive.build(env, Control::None)?;
                let mut random = env.random("begin");
                env.sleep(Duration::from_nanos(random.below(50_000_000)));
                for zone in 0..8 {
                    write(&device, zone * ZONE_BYTES + SMALL as u64, SMALL)?;
                    env.sleep(Duration::from_millis(idle_ms));
                }
                non_sequential(&device)
            })?;
            let metric = format!("{idle_ms} ms, round {}: non-sequential zones", round + 1);
            match paper > 0.0 {
                true => compare(&mut report, "drive", &metric, "1", paper, left as f64),
                false => goal(&mut report, "drive", &metric, left as f64, "the paper's: 0", left == 0),
            }
        }
    }
    Ok(report)
}

fn write(device: &Device, offset_bytes: u64, length: usize) -> Result<(), LabError> {
    let written = device.block.write_at(offset_bytes, &vec![0; length], &IoContext::default());
    written.map_err(|error| LabError::invalid("write", error.to_string()))
}

/// What is asked of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    OutOfOrder,
    InOrder,
    Read,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::OutOfOrder, Kind::InOrder, Kind::Read];

    fn name(self) -> &'static str {
        match self {
            Kind::OutOfOrder => "NSSW",
            Kind::InOrder => "SSW",
            Kind::Read => "read",
        }
    }
}

/// One thread at a drive: full zones at the begin, which it writes out of order, and a zone at the end, which it writes in order.
struct Host {
    env: Env,
    device: Device,
    zones: u64,
    zone_count: u64,
    random: Random,
    in_order_bytes: u64,
    /// When, what, how long it took.
    asked: Vec<(u64, Kind, u64)>,
    /// When, how many zones were not sequential.
    counted: Vec<(u64, usize)>,
}

impl Host {
    fn new(env: &Env, drive: &Drive, zones: u64) -> Result<Host, LabError> {
        let (device, _) = drive.build(env, Control::None)?;
        fill(&device, &(0..zones).collect::<Vec<_>>())?;
        let (asked, counted, random) = (Vec::new(), Vec::new(), env.random("host"));
        let zone_count = drive.zone_count.into();
        Ok(Host { env: env.clone(), device, zones, zone_count, random, in_order_bytes: 0, asked, counted })
    }

    fn place(&mut self, kind: Kind) -> u64 {
        match kind {
            Kind::InOrder => {
                let at = (self.zone_count - 8) * ZONE_BYTES + self.in_order_bytes;
                self.in_order_bytes += LARGE as u64;
                at
            }
            Kind::OutOfOrder | Kind::Read => {
                let places = ZONE_BYTES / LARGE as u64;
                self.random.below(self.zones) * ZONE_BYTES + self.random.below(places) * LARGE as u64
            }
        }
    }

    fn ask(&mut self, kind: Kind) -> Result<u64, LabError> {
        let (at, begun) = (self.place(kind), self.env.now());
        if kind == Kind::Read {
            let mut data = vec![0; LARGE];
            let read = self.device.block.read_at(at, &mut data, &IoContext::of(IoClass::UserRead));
            read.map_err(|error| LabError::invalid("read", error.to_string()))?;
        } else {
            write(&self.device, at, LARGE)?;
        }
        let nanos = (self.env.now() - begun).as_nanos() as u64;
        self.asked.push((begun.as_nanos(), kind, nanos));
        Ok(nanos)
    }

    fn count(&mut self) -> Result<usize, LabError> {
        let found = non_sequential(&self.device)?;
        self.counted.push((self.env.now().as_nanos(), found));
        Ok(found)
    }

    /// Mean seconds of the last `count` requests of a kind.
    fn mean(&self, kind: Kind, count: usize) -> f64 {
        let of_kind = self.asked.iter().rev().filter(|asked| asked.1 == kind).take(count);
        of_kind.map(|asked| asked.2 as f64 / 1e9).sum::<f64>() / count.max(1) as f64
    }
}

/// Requests of each kind that are looked at.
const LOOKED_AT: usize = 40;

fn cleanings(run: &Run<'_>, blocks: bool) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let zones = if blocks { run.scale.of(1024) } else { 40 };
    let (quiet, cleaning, host) = simulate(run.settings.seed, move |env| {
        let mut host = Host::new(env, &drive, zones)?;
        let each = |host: &mut Host| {
            for kind in [Kind::InOrder, Kind::Read, Kind::OutOfOrder] {
                for _ in 0..LOOKED_AT {
                    host.ask(kind)?;
                    env.sleep(Duration::from_millis(20));
                }
                host.count()?;
            }
            Ok::<_, LabError>(Kind::ALL.map(|kind| host.mean(kind, LOOKED_AT)))
        };
        let quiet = each(&mut host)?;
        if blocks {
            // Nothing but a full cache makes a write wait for half a second.
            while host.ask(Kind::OutOfOrder)? < 500_000_000 {
                if host.asked.len() % 500 == 0 {
                    host.count()?;
                }
            }
        } else {
            let before = host.count()?;
            while host.count()? >= before {
                env.sleep(Duration::from_secs(10));
            }
            env.sleep(Duration::from_millis(300));
        }
        let cleaning = each(&mut host)?;
        Ok((quiet, cleaning, (host.asked, host.counted)))
    })?;
    let name = if blocks { "in a blocking cleaning" } else { "in an idle cleaning" };
    for (place, kind) in Kind::ALL.into_iter().enumerate() {
        drawn(&mut report, kind.name(), "mean before", "s", quiet[place]);
        drawn(&mut report, kind.name(), &format!("mean {name}"), "s", cleaning[place]);
        let ratio = cleaning[place] / quiet[place];
        match blocks {
            true => goal(&mut report, kind.name(), "as long as before", ratio, "the paper's: longer", ratio > 2.0),
            false => goal(&mut report, kind.name(), "as long as before", ratio, "the paper's: the same", ratio < 1.5),
        }
    }
    if blocks {
        let longest = cleaning[0].max(cleaning[1]) / cleaning[2];
        goal(&mut report, "drive", "writes to reads", longest, "the paper's: above 1", longest > 1.0);
        let most = host.0.iter().map(|asked| asked.2).max().unwrap_or(0) as f64 / 1e9;
        compare(&mut report, "drive", "longest wait (about, by the text)", "s", 2.0, most);
    }
    report.plots.push(timeline(&host.0, &host.1));
    Ok(report)
}

/// Response times of each kind, and the number of non-sequential zones, over time.
fn timeline(asked: &[(u64, Kind, u64)], counted: &[(u64, usize)]) -> Plot {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let of_kind = asked.iter().filter(|asked| asked.1 == kind);
            let points = of_kind.map(|asked| (seconds(asked.0), seconds(asked.2) * 1e3)).collect();
            (format!("{}: response time (ms)", kind.name()), points)
        })
        .collect();
    let zones = counted.iter().map(|&(at, zones)| (seconds(at), zones as f64)).collect();
    series.push(("non-sequential zones".to_owned(), zones));
    Plot {
        name: "timeline".to_owned(),
        title: "response times and non-sequential zones".to_owned(),
        medium: MEDIUM.to_owned(),
        y: Axis::logarithmic("ms, zones"),
        figure: Figure::Lines(Lines { x: Axis::linear("time (s)"), series, paper: Vec::new() }),
    }
}

fn fig_4_3(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let zones = run.scale.of(1024);
    let mut points: Vec<Vec<(f64, f64)>> = vec![Vec::new(); Kind::ALL.len()];
    for threads in [1, 2, 4, 8, 16, 32, 64, 128] {
        let (drive, of_each) = (drive.clone(), 8 * threads.max(4));
        let means = simulate(run.settings.seed, move |env| {
            let mut host = Host::new(env, &drive, zones)?;
            while host.ask(Kind::OutOfOrder)? < 500_000_000 {}
            let mut kinds: Vec<Kind> = Kind::ALL.iter().copied().cycle().take(3 * of_each).collect();
            env.random("kinds").shuffle(&mut kinds);
            let request = |host: &mut Host, kind: Kind| BlockRequest {
                arrival_nanos: 0,
                is_write: kind != Kind::Read,
                offset_bytes: host.place(kind),
                length_bytes: LARGE as u32,
                latency_nanos: None,
            };
            let trace: Arc<[BlockRequest]> = kinds.iter().map(|&kind| request(&mut host, kind)).collect();
            let replayed = replay(env, &host.device, &trace, Pace::Timestamps { threads })?;
            Ok(Kind::ALL.map(|kind| {
                let all = replayed.responses.iter().zip(&kinds).filter(|(_, of)| **of == kind);
                all.map(|(response, _)| response.nanos as f64 / 1e9).sum::<f64>() / of_each as f64
            }))
        })?;
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            drawn(&mut report, kind.name(), &format!("{threads} threads: mean"), "s", means[place]);
            points[place].push((threads as f64, means[place]));
        }
    }
    for (kind, points) in Kind::ALL.into_iter().zip(&points) {
        let grows = points.windows(2).all(|pair| pair[1].1 > pair[0].1 * 0.9);
        let last = points.last().map_or(0.0, |point| point.1) / points.first().map_or(1.0, |point| point.1);
        goal(
            &mut report,
            kind.name(),
            "128 threads to 1",
            last,
            "the paper's: grows with threads",
            grows && last > 4.0,
        );
    }
    ours(&mut report, "drive", "requests between steps", "1", f64::from(drive.translation.requests_between_steps));
    let series = Kind::ALL.iter().zip(points).map(|(kind, points)| (kind.name().to_owned(), points)).collect();
    report.plots.push(Plot {
        name: "threads".to_owned(),
        title: "mean response time in a blocking cleaning".to_owned(),
        medium: MEDIUM.to_owned(),
        y: Axis::logarithmic("response time (s)"),
        figure: Figure::Lines(Lines { x: Axis::logarithmic("threads"), series, paper: Vec::new() }),
    });
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::report::Row;

    fn missed(experiment: &Experiment, scale: Scale) -> Vec<(String, String)> {
        let settings = Settings { scale: Some(scale), ..Settings::default() };
        let report = crate::experiment::run(experiment, &settings).unwrap();
        let is_missed = |row: &&Row| row.note.as_deref().is_some_and(|note| note.contains("not reached"));
        report.rows.iter().filter(is_missed).map(|row| (row.scheme.clone(), row.metric.clone())).collect()
    }

    #[test]
    fn a_pause_of_260_ms_cleans_all_zones() {
        assert_eq!(missed(&TABLE_4_1, Scale::FULL), []);
    }

    /// By the thesis requests during an idle cleaning take as long as before; by its author's logs they wait until its zone is
    /// done. The first request after the pause is a write in order, and waits: over seeds 1 to 6 such writes take 3.8 to 34.9
    /// times as long as before, writes out of order 1.00 and reads 0.90 to 1.07 times. The limit of 1.5 lies between.
    #[test]
    fn requests_wait_until_an_idle_cleaning_has_finished_its_zone() {
        let missed = missed(&FIG_4_2A, super::super::DEFAULT_SCALE);
        assert_eq!(missed, [("SSW".to_owned(), "as long as before".to_owned())]);
    }

    /// Over seeds 1 to 6 writes out of order take 1,400 to 1,700 times as long as before and writes in order 50 to 52 times.
    /// Reads wait for steps of 2 MiB only: 1.6 to 1.8 times, below the limit of 2, where by the thesis they wait longer.
    #[test]
    fn writes_wait_for_a_blocking_cleaning() {
        let missed = missed(&FIG_4_2B, super::super::DEFAULT_SCALE);
        assert_eq!(missed, [("read".to_owned(), "as long as before".to_owned())]);
    }
}
