//! The project's verbs: `cargo xtask VERB`.

mod figures;
mod fuzz;
mod install;
mod programs;
mod quickstart;
mod reached;
mod run;
mod sanitize;
mod scsi_debug;
mod silence;
mod soak;
mod suites;
mod test;
mod tidy;

use std::process::ExitCode;

/// A verb: its name, what it does, and how.
type Verb = (&'static str, &'static str, fn(&[String]) -> Result<(), String>);

const VERBS: &[Verb] = &[
    ("quickstart", "build, store a real tree, query it, benchmark on an emulated disk", quickstart::run),
    ("install", "build, and install the command, its completions and manual: [--prefix DIR]", install::run),
    ("test", "everything that has to hold", test::run),
    (
        "suites",
        "the tests alone, what they took and what they reached: [--package NAME] [--test NAME]",
        test::run_only_suites,
    ),
    ("fuzz", "fuzz every decoder: [--seconds N] [TARGET...]", fuzz::run),
    (
        "figures",
        "whether tables of the documentation say what experiments print: [--write] [--results DIR] [ID...]",
        figures::run,
    ),
    ("soak", "every suite drawn by seed, without bounds: [--minutes N] [--seed S] [--only TEXT]", soak::run),
    ("scsi-debug", "zones of SCSI disks of a kernel in a virtual machine: [--kernel DIR]...", scsi_debug::run),
    ("miri", "what threads share without locks, under Miri (nightly)", sanitize::miri),
    ("tsan", "what threads share, under ThreadSanitizer (nightly)", sanitize::tsan),
    ("tidy", "check what the compiler does not: dependency directions, names, links", tidy::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let verb = arguments.first().map(String::as_str).unwrap_or_default();
    let Some((_, _, run)) = VERBS.iter().find(|(name, ..)| *name == verb) else {
        eprintln!("usage: cargo xtask VERB");
        for (name, what, _) in VERBS {
            eprintln!("  {name:<10} {what}");
        }
        return ExitCode::from(2);
    };
    match run(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
