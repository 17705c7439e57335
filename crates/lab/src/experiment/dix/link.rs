//! `dix/fig5.8`: an array behind a link, whose client makes and checks the guards (Zhang, figures 5.8 and 5.10).

use super::array::Dix;
use super::{Experiment, KIB, Run, Scale, growth};
use crate::error::LabError;
use crate::experiment::emulated::bare;
use crate::experiment::simulate;
use crate::report::{Report, Row};
use std::time::Duration;
use varve::block::raid::cost;
use varve::env::{Env, Random};
use varve::media::{
    BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry, IoContext, MediaError, Operation, Request,
    Transfer,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "dix/fig5.8",
    title: "bandwidth of a client behind a link that makes and checks guards, by request size",
    description: "The paper's figure 5.8: writes and rewrites (each synced), reads and rereads, random writes and reads of 4 to 256 KiB, one at a time, \
                  by a client of an array of RAM drives with protection information (the paper's scsi_debug) behind a link. With protection information \
                  the client generates tuples, sends them with the data, and verifies those that it reads. The paper names no link, so several \
                  stand here. Scale divides the requests of a cell (65,536).",
    default_scale: Scale::one_in(64),
    run,
};

const REQUESTS: u64 = 65_536;
/// The paper's request sizes, in bytes.
const SIZES: [u64; 4] = [4 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];
/// Bytes that a pattern goes over: less than the array has.
const SPAN_BYTES: u64 = 64 << 20;

/// Time of a link.
#[derive(Clone, Copy, Debug)]
struct LinkModel {
    name: &'static str,
    bytes_per_second: u64,
    /// From one end to the other.
    one_way: Duration,
}

const LINKS: [LinkModel; 4] = [
    LinkModel { name: "1 Gb/s", bytes_per_second: 117_000_000, one_way: Duration::from_micros(50) },
    LinkModel { name: "10 Gb/s", bytes_per_second: 1_170_000_000, one_way: Duration::from_micros(20) },
    LinkModel { name: "40 Gb/s", bytes_per_second: 4_000_000_000, one_way: Duration::from_micros(3) },
    LinkModel { name: "no link", bytes_per_second: u64::MAX, one_way: Duration::ZERO },
];

/// A device at the other end of a link.
struct Link {
    env: Env,
    inner: Device,
    model: LinkModel,
}

impl Link {
    fn carry(&self, bytes: u64) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.model.bytes_per_second);
        let time = self.model.one_way + Duration::from_nanos(nanos as u64);
        if !time.is_zero() {
            self.env.sleep(time);
        }
    }
}

/// Bytes that go to the device, and those that come back, tuples among them.
fn carried(request: &Request<'_>) -> [u64; 2] {
    let tuples = match &request.transfer {
        Transfer::Read { protection, .. } => protection.as_ref().map_or(0, |tuples| tuples.len() as u64),
        Transfer::Write { protection, .. } => protection.map_or(0, |tuples| tuples.len() as u64),
        Transfer::Discard { .. } => 0,
    };
    match &request.transfer {
        Transfer::Read { .. } => [0, request.length_bytes() + tuples],
        Transfer::Write { .. } => [request.length_bytes() + tuples, 0],
        Transfer::Discard { .. } => [0, 0],
    }
}

impl BlockDevice for Link {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let bytes = requests.iter().map(carried).fold([0, 0], |sum, [there, back]| [sum[0] + there, sum[1] + back]);
        self.carry(bytes[0]);
        let result = self.inner.block.execute(requests, context);
        self.carry(bytes[1]);
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.carry(0);
        let result = self.inner.block.sync(context);
        self.carry(0);
        result
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Write,
    Rewrite,
    Read,
    Reread,
    RandomWrite,
    RandomRead,
}

impl Pattern {
    /// In the order a client does them.
    const ALL: [(Pattern, &'static str); 6] = [
        (Pattern::Write, "write"),
        (Pattern::Rewrite, "rewrite"),
        (Pattern::Read, "read"),
        (Pattern::Reread, "reread"),
        (Pattern::RandomWrite, "random write"),
        (Pattern::RandomRead, "random read"),
    ];

    fn is_read(self) -> bool {
        matches!(self, Pattern::Read | Pattern::Reread | Pattern::RandomRead)
    }
}

/// Bandwidth of each pattern in bytes a second.
fn measure(env: &Env, dix: Dix, bytes: u64, requests: u64, link: LinkModel, seed: u64) -> Result<Vec<f64>, LabError> {
    let spec = format!("raid6:(ram:64MiB?pi=1,guard=ip)?members=10,chunk=512KiB,dix={}", dix.word());
    let inner = bare(env, &spec)?;
    let device = Device::of_blocks(std::sync::Arc::new(Link { env: env.clone(), inner, model: link }));
    let format = device.block.capabilities().protection;
    let mut random = Random::named(seed, "places behind a link");
    let places = SPAN_BYTES / bytes;
    let mut data = vec![0; bytes as usize];
    random.fill_bytes(&mut data);
    let mut tuples = vec![0; format.map_or(0, |format| format.tuples_bytes(bytes)) as usize];
    let context = IoContext::default();
    let mut bandwidths = Vec::new();
    for (pattern, _) in Pattern::ALL {
        let begun = env.now();
        for request in 0..requests {
            let is_random = matches!(pattern, Pattern::RandomWrite | Pattern::RandomRead);
            let at = if is_random { random.below(places) } else { request % places } * bytes;
            if let Some(format) = format {
                env.charge(cost::of_guards(format.guard, bytes));
            }
            match (pattern.is_read(), format) {
                (true, None) => device.block.read_at(at, &mut data, &context)?,
                (true, Some(format)) => {
                    device.block.read_protected_at(at, &mut data, &mut tuples, &context)?;
                    let verified = format.verify(at, None, [&data[..]], &tuples);
                    verified.map_err(|mismatch| mismatch.at("client", Operation::Read))?;
                }
                (false, None) => device.block.write_at(at, &data, &context)?,
                (false, Some(format)) => {
                    format.generate(at, 0, [&data[..]], &mut tuples);
                    device.block.write_protected_at(at, &data, &tuples, &context)?;
                }
            }
            if !pattern.is_read() {
                device.block.sync(&context)?;
            }
            env.settle();
        }
        let seconds = (env.now() - begun).as_secs_f64();
        bandwidths.push((requests * bytes) as f64 / seconds);
    }
    Ok(bandwidths)
}

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    let requests = run.scale.of(REQUESTS);
    report.condition(
        "array",
        "RAID 6 of 8+2 RAM drives without time of their own, chunks of 512 KiB, type 1, Internet checksum",
    );
    report.condition("client", "one request at a time, one processor time for its guards; writes are synced");
    report.condition("requests of a cell", requests);
    let seed = run.settings.seed;
    run.settings.progress.begin("measuring", Some((LINKS.len() * SIZES.len()) as u64));
    let mut done = 0;
    for link in LINKS {
        for bytes in SIZES {
            let cell = |dix| simulate(seed, move |env| measure(env, dix, bytes, requests, link, seed));
            let (off, paper, on) = (cell(Dix::Off)?, cell(Dix::Paper)?, cell(Dix::On)?);
            for (place, (_, name)) in Pattern::ALL.into_iter().enumerate() {
                for (scheme, bandwidths) in [("paper", &paper), ("on", &on)] {
                    let percent = growth(bandwidths[place], off[place]);
                    let note = format!("{:.1} MB/s, {:.1} off", bandwidths[place] / 1e6, off[place] / 1e6);
                    let metric = format!("{scheme}, {name}, {} KiB", bytes / KIB);
                    report.rows.push(Row::new(link.name, metric, "%", percent).with_note(note));
                }
            }
            done += 1;
            run.settings.progress.advance(done);
        }
    }
    run.settings.progress.end();
    report
        .notes
        .push("paper: -5 to -20 % where bandwidth is high, little at 4 KB; reads lose more than writes".to_owned());
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_and_tuples_cost_bandwidth_and_a_slow_link_hides_guards() {
        let of = |dix, link| simulate(1, move |env| measure(env, dix, 64 * KIB, 8, link, 1)).unwrap();
        for link in LINKS {
            for (off, on) in of(Dix::Off, link).into_iter().zip(of(Dix::On, link)) {
                assert!(on < off, "{link:?}: {on} {off}");
            }
        }
        let lost = |link| of(Dix::On, link)[2] / of(Dix::Off, link)[2];
        assert!(lost(LINKS[0]) > lost(LINKS[3]));
    }
}
