//! Varve, RocksDB, LevelDB, fjall and LMDB measured side by side.
//!
//! Every run is a process of its own, so that no store inherits another's memory, threads or open
//! files. Stores take turns, repetitions are at least five, and a run during which something else
//! used the machine is discarded and done again. All go through the lab's own harness.

mod amplification;
mod benchmark;
mod child;
mod comparison;
mod engine;
mod floor;
mod instructions;
mod parity;
mod quiet;
mod smrdb;
mod summary;
mod tables;

use benchmark::Choice;
use clap::{Args, Parser, Subcommand};
use comparison::Settings;
use engine::Engine;
use std::path::PathBuf;
use std::process::ExitCode;
use varve_lab::LabError;
use varve_lab::experiment::Scale;
use varve_lab::host;
use varve_lab::report::{Report, format_nanos};

/// Varve, RocksDB, LevelDB, fjall and LMDB measured side by side, with the same budget of memory and
/// threads.
#[derive(Parser)]
#[command(name = "varve-peers", version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the comparison, print tables, write JSON.
    ///
    /// Example: `cargo peers bench --data 256MiB --value-sizes 1024 --repetitions 5 --out results`
    Bench(Bench),
    /// Count instructions per operation with valgrind's callgrind (slow: use little data).
    ///
    /// Example: `cargo peers instructions --data 16MiB --value-sizes 1024 --operations 20000`
    Instructions {
        #[command(flatten)]
        bench: Bench,
        /// Operations counted; as many more are run before.
        #[arg(long, default_value_t = 20_000)]
        operations: u64,
    },
    /// Run the loads of SMRDB's figures on real stores, LevelDB with the paper's options among them; those that are not
    /// installed are skipped.
    ///
    /// Example: `cargo peers smrdb --directory /mnt/disk/smrdb --scale 1/64 --out results`
    Smrdb(Smrdb),
    /// Write amplification against space amplification of data of 256 MiB to 16 GiB: Varve, RocksDB leveled and universal.
    ///
    /// Example: `cargo peers amplification --directory /mnt/disk/amplification --scale 1/64`
    Amplification(Amplification),
    /// P and Q of RAID 6 beside ISA-L, where that is installed.
    Parity {
        #[command(flatten)]
        output: Output,
    },
    /// Print the tables of reports written earlier as Markdown.
    ///
    /// Example: `cargo peers tables results/*/peers-db_bench.json`
    Tables {
        /// JSON files of `bench` or `instructions`.
        reports: Vec<PathBuf>,
    },
    /// Measure only the floors: append and fdatasync, direct 4 KiB reads.
    Floors(Floors),
    /// One run of one benchmark; what `bench` starts.
    #[command(hide = true)]
    Child {
        /// What to do, as JSON.
        order: String,
    },
}

/// How a report is told.
#[derive(Args)]
struct Output {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Print only the compact tables, as Markdown.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write JSON and tables into this directory too.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct Bench {
    /// Directory on the file system to be measured; made when missing.
    #[arg(long, default_value = "varve-peers-data")]
    directory: PathBuf,
    /// Stores, by comma; `null` does nothing and shows what the harness costs.
    #[arg(long, value_delimiter = ',', default_values_t = Engine::ALL)]
    engines: Vec<Engine>,
    /// Benchmarks, by comma, or sets of them: fills, synced, writers, cached, past-cache, direct, deletes, all.
    #[arg(long, value_delimiter = ',', default_value = Choice::DEFAULT)]
    benchmarks: Vec<Choice>,
    /// Bytes of a value, by comma.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1024, 4096])]
    value_sizes: Vec<usize>,
    /// Keys and values at each value size, in bytes or with KiB, MiB, GiB.
    #[arg(long, default_value = "1GiB", value_parser = parse_bytes)]
    data: u64,
    /// Reads of the reading benchmarks; seeks and direct reads do fewer.
    #[arg(long, default_value_t = 200_000)]
    reads: u64,
    /// Writes of each thread of fillsync.
    #[arg(long, default_value_t = 1000)]
    sync_writes: u64,
    /// Foreground threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Runs of each benchmark on each store.
    #[arg(long, default_value_t = 5)]
    repetitions: u32,
    /// Runs a repetition may take until one is undisturbed.
    #[arg(long, default_value_t = 3)]
    attempts: u32,
    /// Share of the machine's processor time others may use during a run.
    #[arg(long, default_value_t = 0.05)]
    disturbance_limit: f64,
    /// Load each store once for all repetitions that only read it, not anew for each: large data take minutes to load.
    #[arg(long)]
    load_once: bool,
    /// Verify every value read (costs processor time on every store alike).
    #[arg(long)]
    verify: bool,
    /// Everything random follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Smrdb {
    /// Directory on the file system to be measured; made when missing.
    #[arg(long, default_value = "varve-peers-data")]
    directory: PathBuf,
    /// Stores, by comma.
    #[arg(long, value_delimiter = ',', default_values_t = [Engine::LevelDbUnverified, Engine::RocksDb, Engine::Varve])]
    engines: Vec<Engine>,
    /// How much less than the paper's 10 GB, 2 million records and so on. Write buffers and caches stay as they are: below
    /// 1/100 everything fits into them.
    #[arg(long, value_name = "1/N", default_value = "1/16")]
    scale: Scale,
    /// Everything random follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Amplification {
    /// Directory on the file system to be measured; made when missing.
    #[arg(long, default_value = "varve-peers-data")]
    directory: PathBuf,
    /// How much less than 256 MiB to 16 GiB of data; every size of the stores is divided likewise.
    #[arg(long, value_name = "1/N", default_value = "1/64")]
    scale: Scale,
    /// Everything random follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Floors {
    /// Directory on the file system to be measured.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor: u64 = match &text[digits..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        unit => return Err(format!("'{unit}' is none of B, KiB, MiB, GiB")),
    };
    let number: u64 = text[..digits].parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    number.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"))
}

fn main() -> ExitCode {
    match run(Command::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("varve-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<(), LabError> {
    match verb {
        Verb::Child { order } => {
            let order = serde_json::from_str(&order).map_err(|error| LabError::invalid("order", error.to_string()))?;
            let answer = child::run(&order)?;
            let text =
                serde_json::to_string(&answer).map_err(|error| LabError::invalid("answer", error.to_string()))?;
            println!("{text}");
            Ok(())
        }
        Verb::Floors(floors) => {
            let path = floors.directory.join("varve-floor");
            println!("append 1 KiB + fdatasync, p50: {}", format_nanos(floor::durable_append_nanos(&path, 500, 1024)?));
            let read = floor::direct_read_nanos(&path, 256 << 20, 5000, 1)?;
            println!("4 KiB direct read, p50: {}", read.map_or("refused here".to_owned(), format_nanos));
            Ok(())
        }
        Verb::Bench(bench) => {
            let report = comparison::run(&bench.settings(), &mut |line| eprintln!("{line}"))?;
            bench.output.print(&report)
        }
        Verb::Tables { reports } => {
            for path in reports {
                let contents = host::read_file(&path)?
                    .ok_or_else(|| LabError::invalid("report", format!("{} is not there", path.display())))?;
                let report = Report::from_json(&String::from_utf8_lossy(&contents))?;
                println!("{}", tables::markdown(&report));
            }
            Ok(())
        }
        Verb::Smrdb(smrdb) => {
            let Smrdb { directory, engines, scale, seed, output } = smrdb;
            let report =
                smrdb::run(&smrdb::Settings { directory, engines, scale, seed }, &mut |line| eprintln!("{line}"))?;
            output.print(&report)?;
            match report.skipped {
                Some(reason) => Err(LabError::invalid("engines", reason)),
                None => Ok(()),
            }
        }
        Verb::Amplification(amplification) => {
            let Amplification { directory, scale, seed, output } = amplification;
            let report = amplification::run(&directory, scale, seed, &mut |line| eprintln!("{line}"))?;
            output.print(&report)
        }
        Verb::Parity { output } => output.print(&parity::measure(1)),
        Verb::Instructions { bench, operations } => {
            let report = instructions::run(&bench.settings(), operations.max(1), &mut |line| eprintln!("{line}"))?;
            bench.output.print(&report)
        }
    }
}

impl Bench {
    fn settings(&self) -> Settings {
        Settings {
            directory: self.directory.clone(),
            engines: self.engines.clone(),
            benchmarks: Choice::benchmarks(&self.benchmarks),
            value_sizes: self.value_sizes.clone(),
            data_bytes: self.data,
            reads: self.reads,
            sync_writes: self.sync_writes,
            threads: self.threads.max(1),
            repetitions: self.repetitions.max(1),
            attempts: self.attempts.max(1),
            disturbance_limit: self.disturbance_limit,
            load_once: self.load_once,
            verify: self.verify,
            seed: self.seed,
        }
    }
}

impl Output {
    /// Prints a report as asked, and writes it where asked.
    fn print(&self, report: &Report) -> Result<(), LabError> {
        if self.json {
            print!("{}", report.to_json());
        } else if self.markdown {
            print!("{}", tables::markdown(report));
        } else {
            // Every single run is in the JSON; people get the medians.
            print!("{}", Report { phases: Vec::new(), ..report.clone() }.to_text());
            print!("{}", tables::text(report));
        }
        if let Some(directory) = &self.out {
            for path in report.write(directory)? {
                eprintln!("wrote {}", path.display());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("10"), Ok(10));
        assert_eq!(parse_bytes("3MiB"), Ok(3 << 20));
        assert!(parse_bytes("MiB").is_err());
        assert!(parse_bytes("3MB").is_err());
        assert!(parse_bytes("99999999999GiB").is_err());
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Command::command().debug_assert();
    }
}
