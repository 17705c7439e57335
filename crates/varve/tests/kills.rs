//! Processes that are killed: at every n-th system call that changes a medium, on directories and on every medium whose
//! bytes are in a file, while they write, open, recover, close, check-point, repair and format.
//!
//! A power cut is another suite's: here the operating system lives on, so whatever a process had handed to it is there.
//! After each kill the database opens, holds whole batches only, all that was acknowledged (on a raw device, of what was
//! not synced, as much as the log does not hold back), nothing that was never begun, and `check` finds nothing.
//!
//! The regular run draws kills by seed (`VARVE_SEED`). `VARVE_SOAK_SECONDS` gives it time to try every call in order.

#[path = "processes/history.rs"]
mod history;
#[path = "processes/tracer.rs"]
mod tracer;
#[path = "processes/victim.rs"]
mod victim;

use history::{Counts, WRITERS};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tracer::{End, Plan};
use varve::env::Random;
use varve::{Options, Spec, Varve};
use victim::{Said, Task};

/// Media, with `@` where the temporary directory goes.
const MEDIA: &[(&str, &str)] = &[
    ("directory", "file:@/db"),
    ("logs in a directory of their own", "file:@/db?logs=file:@/logs"),
    ("disk", "disk:96MiB?account,backing=file:@/disk"),
    ("disk, ext4's layout", "disk:96MiB?account,layout=ext4,backing=file:@/disk"),
    ("ssd", "ssd:96MiB?account,backing=file:@/ssd"),
    ("ssd, logs apart", "ssd:96MiB?account,backing=file:@/ssd,logs=(ssd:32MiB?account,backing=file:@/logs)"),
    ("file as a device", "dev:@/device?size=96MiB"),
    ("imr, logs inside", "imr:96MiB?account,track=64KiB,backing=file:@/imr,logs=inside"),
    ("imr, logs apart", "imr:96MiB?account,track=64KiB,backing=file:@/imr"),
    ("smr", "smr:96MiB?account,band=256KiB,conventional=16MiB,backing=file:@/smr"),
    (
        "smr, variable bands",
        "smr:96MiB?account,band=64KiB,zoned-table-size=256KiB,conventional=16MiB,backing=file:@/smr",
    ),
    ("zns", "zns:96MiB?account,zone=512KiB,zone-capacity=384KiB,backing=file:@/zns"),
    ("hybrid, one device", "zns:96MiB?account,zone=512KiB,zone-capacity=384KiB,store=hybrid,backing=file:@/zns"),
    (
        "hybrid, two devices",
        "zns:32MiB?account,zone=512KiB,store=hybrid,tiers=01,backing=file:@/fast\
         +smr:96MiB?account,band=256KiB,conventional=16MiB,backing=file:@/slow",
    ),
    ("host-aware disk", "hasmr:64MiB?account,zone=1MiB,cache=2MiB,extents=100,store=extent,backing=file:@/disk"),
    ("host-aware disk, bands", "hasmr:64MiB?account,zone=256KiB,cache=2MiB,extents=100,store=band,backing=file:@/disk"),
    (
        "host-aware disk, relocation",
        "hasmr:64MiB?account,zone=1MiB,cache=2MiB,extents=100,store=extent,relocate=on,relocate-spares=1,backing=file:@/disk",
    ),
    (
        "host-aware disk, write buffer",
        "hasmr:64MiB?account,zone=1MiB,cache=2MiB,extents=100,store=extent,backing=file:@/disk,\
         buffer=(ssd:8MB?account,backing=file:@/buffer),buffer-size=400KiB",
    ),
    (
        "host-aware disk, write buffer and relocation",
        "hasmr:64MiB?account,zone=1MiB,cache=2MiB,extents=100,store=extent,relocate=on,relocate-spares=1,backing=file:@/disk,\
         buffer=(ssd:8MB?account,backing=file:@/buffer),buffer-size=400KiB",
    ),
];

/// What killed processes owe.
#[derive(Clone, Debug, Default)]
struct Owed {
    /// Batches of each writer that must be there.
    least: Counts,
    /// Batches of each writer that were acknowledged.
    acknowledged: Counts,
    /// Bytes of acknowledged batches that logs held back, at most.
    held_back_bytes: u64,
}

impl Owed {
    /// Learns what a victim said. What it says it found must have been allowed.
    fn hear(&mut self, said: &[Said], held_back_bytes: u64, seed: u64) -> Result<(), String> {
        let mut opened = 0;
        for said in said {
            match *said {
                Said::Opened { writer, count } => {
                    self.check(writer, count, seed)?;
                    (self.least[writer], self.acknowledged[writer]) = (count, count);
                    opened += 1;
                    if opened == WRITERS {
                        self.held_back_bytes = held_back_bytes;
                    }
                }
                Said::Acknowledged { writer, number, synced } => {
                    if number != self.acknowledged[writer] + 1 {
                        return Err(format!("batch {number} of {writer} came after {}", self.acknowledged[writer]));
                    }
                    self.acknowledged[writer] = number;
                    if synced || self.held_back_bytes == 0 {
                        self.least[writer] = number;
                    }
                }
                Said::Durable { writer, count } => self.least[writer] = self.least[writer].max(count),
                Said::Done => {}
            }
        }
        Ok(())
    }

    fn check(&self, writer: usize, found: u64, seed: u64) -> Result<(), String> {
        // One more may have been on its way.
        let (least, most) = (self.least[writer], self.acknowledged[writer] + 1);
        if !(least..=most).contains(&found) {
            return Err(format!("{found} batches of {writer} are there, it must be {least} to {most}"));
        }
        let lost: u64 = (found + 1..most).map(|number| history::batch_bytes(seed, writer, number)).sum();
        if lost > self.held_back_bytes {
            let held_back = self.held_back_bytes;
            return Err(format!("{lost} bytes of {writer} are not there, at most {held_back} may be held back"));
        }
        Ok(())
    }
}

/// What the suite reached.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    processes: u64,
    kills: u64,
    torn: u64,
    verified: u64,
}

/// One medium and what happens to it.
struct Case {
    medium: &'static str,
    spec: Spec,
    seed: u64,
    round: u64,
    is_traced: bool,
    on_directory: bool,
    /// A layer of the process keeps what was written until the next sync: the page cache of a file system that is emulated, or the map
    /// of a write buffer, without which its pages are not found.
    is_volatile: bool,
    owed: Owed,
    reached: Reached,
    // Removed last.
    place: tempfile::TempDir,
}

impl Case {
    fn new(medium: usize, seed: u64, is_traced: bool) -> Result<Case, String> {
        let (name, spec) = MEDIA[medium];
        // Memory, where there is some that is named like files: what the operating system keeps is not at stake here.
        let memory = Path::new("/dev/shm");
        let place = match std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
            true => tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()),
            false => tempfile::tempdir(),
        };
        let place = place.map_err(|error| format!("a temporary directory: {error}"))?;
        let text = spec.replace('@', &place.path().display().to_string());
        let spec = text.parse().map_err(|error| format!("{text}: {error}"))?;
        Ok(Case {
            medium: name,
            spec,
            seed,
            round: 0,
            is_traced,
            on_directory: text.starts_with("file:"),
            is_volatile: text.contains("layout=ext4") || text.contains("buffer=("),
            owed: Owed::default(),
            reached: Reached::default(),
            place,
        })
    }

    /// Bytes of unsynced batches that end with the process.
    fn held_back_bytes(&self, options: &Options) -> u64 {
        if self.is_volatile {
            return u64::MAX;
        }
        let buffer_bytes = match options.log_buffer_size {
            None if self.on_directory => 0,
            None => 1 << 20,
            Some(bytes) => bytes as u64,
        };
        match options.log_write_behind_size.unwrap_or_default() as u64 {
            0 => buffer_bytes,
            // One piece may be on its way alone that is larger: what the log held back and the group after that.
            behind_bytes => buffer_bytes + behind_bytes.max(buffer_bytes + WRITERS as u64 * history::BATCH_BYTES_MAX),
        }
    }

    fn make(&self) -> Result<(), String> {
        let said = |error: varve::Error| format!("creation: {error}");
        let db = Varve::builder().options(history::options(self.seed, 0)).open_spec(&self.spec).map_err(said)?;
        db.close().map_err(said)
    }

    /// Starts a victim, kills it as planned, and hears what it said. How many calls it made, and whether it came to its end.
    fn victim(&mut self, task: Task, plan: Plan) -> Result<(u64, bool), String> {
        self.round += 1;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let (seed, round) = (self.seed.to_string(), self.round.to_string());
        let place = self.place.path().display().to_string();
        let traced = if self.is_traced { "traced" } else { "free" };
        let mut child = Command::new(program)
            .args(["victim", &format!("{task:?}"), &self.spec.to_string(), &place, &seed, &round, traced])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a victim: {error}"))?;
        let (Some(mut go), Some(mut stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a victim without pipes".to_owned());
        };
        let listener = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        if self.is_traced {
            tracer::seize(child.id()).map_err(|errno| format!("ptrace: {errno}"))?;
        }
        go.write_all(&[1]).map_err(|error| format!("a victim: {error}"))?;
        let traced = if self.is_traced {
            tracer::run(child.id(), plan)
        } else {
            // Where nobody may trace, time decides.
            std::thread::sleep(Duration::from_micros(plan.kill_at * 200));
            let killed = child.kill().is_ok();
            let status = child.wait().map_err(|error| error.to_string())?;
            let end = status.code().filter(|_| killed).map_or(End::Killed("some call".to_owned()), End::Exited);
            Ok(tracer::Traced { end, calls: plan.kill_at })
        };
        let _ = child.wait();
        let bytes = listener.join().map_err(|_| "the listener panicked")?.map_err(|error| error.to_string())?;
        let traced = traced?;
        self.reached.processes += 1;
        let said = Said::parse(&bytes)?;
        let note = match &traced.end {
            End::Killed(call) => format!("{task:?} killed at call {} ({call})", traced.calls),
            End::Exited(code) => format!("{task:?} ended with {code} after {} calls", traced.calls),
        };
        if std::env::var_os("VARVE_VERBOSE").is_some() {
            println!("{}: {note}", self.note());
        }
        let held_back_bytes = self.held_back_bytes(&history::options(self.seed, self.round));
        self.owed.hear(&said, held_back_bytes, self.seed).map_err(|what| format!("{note}: {what}"))?;
        match traced.end {
            End::Killed(call) => {
                self.reached.kills += 1;
                self.reached.torn += u64::from(call.contains("torn"));
                Ok((traced.calls, false))
            }
            End::Exited(0) => Ok((traced.calls, true)),
            End::Exited(_) => Err(note),
        }
    }

    /// Opens, making it where it may not be there yet, compares everything, and asks `check`.
    fn verify(&mut self, spec: &Spec, makes: bool) -> Result<Counts, String> {
        let options = Options { create_if_missing: makes, ..history::options(self.seed, self.round) };
        let db =
            Varve::builder().options(options).open_spec(spec).map_err(|error| format!("does not open: {error}"))?;
        let counts = history::compare(&db, self.seed)?;
        let findings = db.check().map_err(|error| format!("check: {error}"))?;
        if let Some(finding) = findings.first() {
            return Err(format!("check found {finding:?}"));
        }
        db.close().map_err(|error| format!("close: {error}"))?;
        self.reached.verified += 1;
        Ok(counts)
    }

    /// The medium holds what is owed.
    fn verify_own(&mut self, makes: bool) -> Result<(), String> {
        let counts = self.verify(&self.spec.clone(), makes)?;
        for (writer, &count) in counts.iter().enumerate() {
            self.owed.check(writer, count, self.seed)?;
        }
        (self.owed.least, self.owed.acknowledged) = (counts, counts);
        Ok(())
    }

    fn note(&self) -> String {
        format!("{} seed {} round {}", self.medium, self.seed, self.round)
    }

    /// One more victim with this task, killed as planned, and what must hold then. Whether it came to its end.
    fn step(&mut self, task: Task, plan: Plan, verifies: bool) -> Result<bool, String> {
        let (_, done) = self.victim(task, plan)?;
        match task {
            Task::Write if !verifies => {}
            Task::Write | Task::Create | Task::Lie => self.verify_own(task == Task::Create)?,
            Task::Checkpoint => {
                self.verify_own(false)?;
                let target = victim::checkpoint_of(self.place.path(), self.round)?;
                match self.verify(&target, false) {
                    Ok(counts) if counts != self.owed.acknowledged => {
                        return Err(format!("the checkpoint has {counts:?} of {:?}", self.owed.acknowledged));
                    }
                    Err(what) if done => return Err(format!("a checkpoint that was done: {what}")),
                    Err(what) if !what.starts_with("does not open") => return Err(format!("a checkpoint: {what}")),
                    _ => {}
                }
                let _ = std::fs::remove_dir_all(self.place.path().join(format!("checkpoint-{}", self.round)));
            }
            Task::Repair => {
                let options = history::options(self.seed, self.round);
                let again = Varve::builder().options(options).repair(&self.spec);
                let _ = again.map_err(|error| format!("a repair after one that was killed: {error}"))?;
                self.verify_own(false)?;
            }
            Task::Format => {
                // Everything is given up; what matters is that the medium can be used again.
                self.owed = Owed::default();
                let said = |error: varve::Error| format!("formatting after one that was killed: {error}");
                let builder = Varve::builder().options(history::options(self.seed, self.round)).format(true);
                builder.open_spec(&self.spec).map_err(said)?.close().map_err(said)?;
            }
        }
        Ok(done)
    }
}

fn plan(random: &mut Random, calls: u64) -> Plan {
    // Openings and recoveries are at the beginning.
    let kill_at = if random.chance(1, 2) { 1 + random.below(40) } else { 1 + random.below(calls) };
    Plan { kill_at, torn_blocks: random.chance(1, 3).then(|| 1 + random.below(4)) }
}

/// A sequence of victims on one medium, each killed somewhere, looked at after most of them.
fn sampled(medium: usize, seed: u64, is_traced: bool, victims: u64) -> Result<Reached, String> {
    let mut case = Case::new(medium, seed, is_traced)?;
    let mut random = Random::named(seed, MEDIA[medium].0);
    let mut run = || -> Result<(), String> {
        case.make()?;
        // Formatting a directory is making one.
        let may_format = !case.on_directory;
        for _ in 0..victims {
            let task = match random.below(16) {
                0 => Task::Checkpoint,
                1 => Task::Repair,
                2 if may_format => Task::Format,
                _ => Task::Write,
            };
            let verifies = random.chance(1, 2);
            case.step(task, plan(&mut random, 400), verifies)?;
        }
        case.step(Task::Write, Plan::default(), true)?;
        Ok(())
    };
    run().map_err(|what| format!("{}: {what}", case.note())).map(|()| case.reached)
}

/// Creations on media of their own, killed somewhere, some of them begun again and killed again before anybody looks.
fn created(medium: usize, seed: u64, is_traced: bool, creations: u64) -> Result<Reached, String> {
    let mut random = Random::named(seed, &format!("creation of {}", MEDIA[medium].0));
    let mut reached = Reached::default();
    for _ in 0..creations {
        let mut case = Case::new(medium, seed, is_traced)?;
        let mut run = || -> Result<(), String> {
            while random.chance(1, 2) {
                case.victim(Task::Create, plan(&mut random, CREATION_CALLS))?;
            }
            case.step(Task::Create, plan(&mut random, CREATION_CALLS), true)?;
            Ok(())
        };
        run().map_err(|what| format!("creation: {}: {what}", case.note()))?;
        reached = reached.and(case.reached);
    }
    Ok(reached)
}

/// About how many calls a creation makes before it is written to as any database is.
const CREATION_CALLS: u64 = 120;

/// Kills `task` at its first call, its second, and so on until it comes to its end, each on a medium of its own.
fn at_every_call(medium: usize, seed: u64, task: Task, deadline: Instant) -> Result<Reached, String> {
    let mut reached = Reached::default();
    for kill_at in 1.. {
        let mut case = Case::new(medium, seed, true)?;
        let mut run = || -> Result<bool, String> {
            if task != Task::Create {
                case.make()?;
                // Something to open.
                case.step(Task::Write, Plan { kill_at: 60, torn_blocks: None }, false)?;
            }
            case.step(task, Plan { kill_at, torn_blocks: (kill_at % 3 == 0).then_some(kill_at % 4) }, true)
        };
        let done = run().map_err(|what| format!("{}: {what}", case.note()))?;
        reached = reached.and(case.reached);
        if done || Instant::now() > deadline {
            break;
        }
    }
    Ok(reached)
}

impl Reached {
    fn and(self, other: Reached) -> Reached {
        Reached {
            processes: self.processes + other.processes,
            kills: self.kills + other.kills,
            torn: self.torn + other.torn,
            verified: self.verified + other.verified,
        }
    }
}

/// Whether processes may be traced here; said aloud if not.
fn may_trace() -> bool {
    let traced = Case::new(0, 1, true).and_then(|mut case| {
        case.make()?;
        case.victim(Task::Write, Plan { kill_at: 1, torn_blocks: None })
    });
    match traced {
        Ok(_) => true,
        Err(what) if what.starts_with("ptrace: EPERM") || what.starts_with("ptrace: ENOSYS") => {
            println!("skipped: kills at chosen calls, as nobody may trace here ({what}); killed by time instead");
            false
        }
        Err(what) => panic!("{what}"),
    }
}

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "victim") {
        return match victim::run(&arguments[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("victim {arguments:?}: {what}");
                ExitCode::FAILURE
            }
        };
    }
    // What a test harness is asked for and this is not.
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-')).cloned().unwrap_or_default();
    let chosen: Vec<usize> = (0..MEDIA.len()).filter(|&medium| MEDIA[medium].0.contains(&filter)).collect();
    let seed = number_of("VARVE_SEED").unwrap_or(1);
    let is_traced = may_trace();
    let noticed = if is_traced { canary(seed) } else { Ok(()) };
    let outcome = noticed.and_then(|()| match number_of("VARVE_SOAK_SECONDS") {
        None => regular(&chosen, seed, is_traced),
        Some(seconds) => soak(&chosen, seed, is_traced, Duration::from_secs(seconds)),
    });
    match outcome {
        Ok(reached) => {
            let Reached { processes, kills, torn, verified } = reached;
            let media = chosen.len();
            println!(
                "reached: kills: {processes} processes, {kills} kills, {torn} of them in a write, {verified} times \
                 everything compared, on {media} media from seed {seed}"
            );
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what} (VARVE_SEED={seed})");
            ExitCode::FAILURE
        }
    }
}

/// Victims of a medium in the regular run.
const VICTIMS: u64 = 40;

/// Creations of a medium in the regular run.
const CREATIONS: u64 = 6;

/// The suite notices a process that was told of batches the database had not taken.
fn canary(seed: u64) -> Result<(), String> {
    let mut random = Random::named(seed, "canary");
    let mut case = Case::new(0, seed, true)?;
    case.make()?;
    for _ in 0..100 {
        if let Err(what) = case.step(Task::Lie, plan(&mut random, 400), true) {
            return if what.contains("it must be") { Ok(()) } else { Err(what) };
        }
    }
    Err("acknowledgements before batches were written were not noticed".to_owned())
}

fn regular(chosen: &[usize], seed: u64, is_traced: bool) -> Result<Reached, String> {
    let mut reached = Reached::default();
    for &medium in chosen {
        reached = reached.and(sampled(medium, seed, is_traced, VICTIMS)?);
        reached = reached.and(created(medium, seed, is_traced, CREATIONS)?);
    }
    Ok(reached)
}

fn soak(chosen: &[usize], seed: u64, is_traced: bool, time: Duration) -> Result<Reached, String> {
    let deadline = Instant::now() + time;
    // Of all tasks only this one, for those who look for something.
    let task = std::env::var("VARVE_KILLED_TASK").ok();
    let task = Task::ALL.iter().copied().find(|known| task.as_deref() == Some(&format!("{known:?}")));
    let mut reached = Reached::default();
    for round in 0.. {
        for &medium in chosen {
            let seed = seed + round * MEDIA.len() as u64;
            if task.is_none() {
                reached = reached.and(sampled(medium, seed, is_traced, 40)?);
                reached = reached.and(created(medium, seed, is_traced, 20)?);
            }
            if is_traced {
                let task = task.unwrap_or(Task::ALL[(round as usize + medium) % Task::ALL.len()]);
                reached = reached.and(at_every_call(medium, seed, task, deadline)?);
            }
            if Instant::now() > deadline {
                return Ok(reached);
            }
        }
    }
    Ok(reached)
}
