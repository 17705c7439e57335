//! The process that is killed. It says on its standard output what was acknowledged to it.

use super::history::{self, Counts, WRITERS};
use super::tracer;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use varve::env::{Env, Random};
use varve::{Spec, Varve};

/// What a victim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Opens, writes with several threads while it flushes and compacts, closes.
    Write,
    /// The same on what is not there yet.
    Create,
    /// Writes a checkpoint of the database into a directory beside it.
    Checkpoint,
    /// Repairs.
    Repair,
    /// Lays the store out anew and opens.
    Format,
    /// Writes, and says that batches were acknowledged before they are written: whoever looks must notice.
    Lie,
}

impl Task {
    /// What honest victims do.
    pub(crate) const ALL: &[Task] = &[Task::Write, Task::Create, Task::Checkpoint, Task::Repair, Task::Format];
}

/// Something a victim says; 16 bytes on the pipe, written at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    /// Opened, with so many batches of this writer.
    Opened { writer: usize, count: u64 },
    /// A batch of this writer was acknowledged, as synced or not.
    Acknowledged { writer: usize, number: u64, synced: bool },
    /// So many batches of this writer are durable: a flush ended, or closing.
    Durable { writer: usize, count: u64 },
    /// What it was started for is done.
    Done,
}

/// Bytes of what is said.
const SAID_BYTES: usize = 16;

impl Said {
    fn say(self) {
        let (kind, writer, number, flag) = match self {
            Said::Opened { writer, count } => (1, writer, count, false),
            Said::Acknowledged { writer, number, synced } => (2, writer, number, synced),
            Said::Durable { writer, count } => (3, writer, count, false),
            Said::Done => (4, 0, 0, false),
        };
        let mut bytes = [0; SAID_BYTES];
        (bytes[0], bytes[1], bytes[2]) = (kind, writer as u8, u8::from(flag));
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        // Whoever listened is gone: nobody will look at what this process does.
        if nix::unistd::write(std::io::stdout(), &bytes) != Ok(SAID_BYTES) {
            std::process::exit(9);
        }
    }

    /// Everything a victim said.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Said>, String> {
        let mut all = Vec::new();
        for bytes in bytes.chunks(SAID_BYTES) {
            let bytes: [u8; SAID_BYTES] = bytes.try_into().map_err(|_| "half of something was said".to_owned())?;
            let [kind, writer, flag, _, _, _, _, _, number @ ..] = bytes;
            let (writer, number) = (usize::from(writer), u64::from_le_bytes(number));
            all.push(match kind {
                1 => Said::Opened { writer, count: number },
                2 => Said::Acknowledged { writer, number, synced: flag == 1 },
                3 => Said::Durable { writer, count: number },
                4 => Said::Done,
                _ => return Err(format!("{kind} was said")),
            });
        }
        Ok(all)
    }
}

/// The victim, once its parent lets it begin: `TASK SPEC PLACE SEED ROUND TRACED`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let [task, spec, place, seed, round, traced] = arguments else {
        return Err("a victim takes six arguments".to_owned());
    };
    let task =
        Task::ALL.iter().chain([&Task::Lie]).find(|known| format!("{known:?}") == *task).ok_or("no such task")?;
    let number = |text: &String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (seed, round) = (number(seed)?, number(round)?);
    let mut go = [0];
    std::io::stdin().read_exact(&mut go).map_err(|error| format!("nobody lets it begin: {error}"))?;
    if traced == "traced" {
        tracer::stop_at_calls()?;
    }
    let spec: Spec = spec.parse().map_err(|error| format!("{spec}: {error}"))?;
    let options = varve::Options { create_if_missing: *task == Task::Create, ..history::options(seed, round) };
    let said = |error: varve::Error| error.to_string();
    match task {
        Task::Write | Task::Create | Task::Lie => {
            let db = Varve::builder().options(options).open_spec(&spec).map_err(said)?;
            write(&db, seed, round, *task == Task::Lie)?;
        }
        Task::Checkpoint => {
            let db = Varve::builder().options(options).open_spec(&spec).map_err(said)?;
            say_opened(&db)?;
            let target = checkpoint_of(Path::new(place), round)?;
            db.checkpoint_spec(&target).map_err(said)?;
            db.close().map_err(said)?;
        }
        Task::Repair => drop(Varve::builder().options(options).repair(&spec).map_err(said)?),
        Task::Format => {
            let options = varve::Options { create_if_missing: true, ..options };
            Varve::builder().options(options).format(true).open_spec(&spec).map_err(said)?.close().map_err(said)?;
        }
    }
    Said::Done.say();
    Ok(())
}

/// Where the checkpoint of a round goes: a directory beside the medium.
pub(crate) fn checkpoint_of(place: &Path, round: u64) -> Result<Spec, String> {
    let target = place.join(format!("checkpoint-{round}"));
    format!("file:{}", target.display()).parse().map_err(|error| format!("{error}"))
}

fn say_opened(db: &Varve) -> Result<Counts, String> {
    let (counts, _) = history::counts(db)?;
    for (writer, &count) in counts.iter().enumerate() {
        Said::Opened { writer, count }.say();
    }
    Ok(counts)
}

fn write(db: &Varve, seed: u64, round: u64, lies: bool) -> Result<(), String> {
    let env = Env::real();
    let mut random = Random::named(seed ^ round, "victim");
    let opened = say_opened(db)?;
    let acknowledged: Arc<[AtomicU64; WRITERS]> = Arc::new(opened.map(AtomicU64::new));
    let batches = 20 + random.below(60);
    let left = Arc::new(AtomicUsize::new(WRITERS));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, acknowledged, left) = (db.clone(), acknowledged.clone(), left.clone());
            env.spawn("writer", move || {
                let mut result = Ok(());
                for number in opened[writer] + 1..=opened[writer] + batches {
                    let known = std::array::from_fn(|other| acknowledged[other].load(Ordering::SeqCst));
                    if lies {
                        Said::Acknowledged { writer, number, synced: true }.say();
                    }
                    let written = history::write_batch(seed, writer, number, &known).and_then(|(batch, sync)| {
                        db.write_with(batch, &varve::WriteOptions { sync })?;
                        Ok(sync)
                    });
                    match written {
                        Ok(_) if lies => {}
                        Ok(synced) => Said::Acknowledged { writer, number, synced }.say(),
                        Err(error) => {
                            result = Err(format!("write: {error}"));
                            break;
                        }
                    }
                    acknowledged[writer].store(number, Ordering::SeqCst);
                }
                left.fetch_sub(1, Ordering::SeqCst);
                result
            })
        })
        .collect();
    while left.load(Ordering::SeqCst) > 0 {
        let before = std::array::from_fn(|writer| acknowledged[writer].load(Ordering::SeqCst));
        let result = match random.below(12) {
            0 => db.flush().map(|()| say_durable(&before)),
            1 => db.compact().map(|()| say_durable(&before)),
            2 => db.wait_idle(),
            _ => {
                env.sleep(Duration::from_micros(300));
                Ok(())
            }
        };
        result.map_err(|error| format!("maintenance: {error}"))?;
    }
    for writer in writers {
        writer.join().map_err(|panic| panic.message().to_owned())??;
    }
    let before = std::array::from_fn(|writer| acknowledged[writer].load(Ordering::SeqCst));
    db.clone().close().map_err(|error| format!("close: {error}"))?;
    say_durable(&before);
    Ok(())
}

fn say_durable(counts: &Counts) {
    for (writer, &count) in counts.iter().enumerate() {
        Said::Durable { writer, count }.say();
    }
}
