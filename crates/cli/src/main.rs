//! The varve command.

mod arguments;
mod command;
mod console;
mod failure;
mod help;
mod input;
mod pairs;
mod progress;
mod report;
mod text;
mod unreadable;

use arguments::Global;
use clap::{FromArgMatches, Parser};
use command::Command;
use console::Console;
use failure::{EXIT_CODES, Failure, Status};
use std::process::ExitCode;

/// Emulated worlds allocate in one thread what another frees, by the gigabyte: the C library's allocator keeps
/// that apart by thread and gives neither to the next world nor back to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A key-value store that knows what it is written on.
///
/// A database lives on a medium. A path is a directory; disk:10GB, ssd:10GB and the like are
/// emulated devices, in virtual time; dev:/dev/sdb is a real one. 'varve media list' shows all.
#[derive(Debug, Parser)]
#[command(name = "varve", version, after_help = after_help())]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

fn after_help() -> String {
    let examples = "\
Examples:
  varve put /tmp/db colour blue                  store a pair; makes the database
  varve get /tmp/db colour                       print its value
  varve import-tree /tmp/doc /usr/share/doc      store a tree of files, by path
  varve scan /tmp/doc --prefix bash/ --keys-only list what was stored
  varve bench disk:10GB fillrandom readrandom    measure an emulated disk in virtual time";
    let options = "\
Options of the database have the names RocksDB users know; 'varve options' shows them all. In a file:
  [options]
  write_buffer_size = \"128MiB\"
  compression = \"lz4\"";
    format!("{examples}\n\n{options}\n\n{EXIT_CODES}\n\n'varve COMMAND --help' shows examples of each command.")
}

fn main() -> ExitCode {
    let mut command = help::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed =
        parsed.and_then(|matches| Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            let message = error.to_string();
            Failure::usage(message.trim_start_matches("error: ").trim_end()).report(true);
            return ExitCode::from(2);
        }
        // Help and version too; ends the process.
        Err(error) => error.exit(),
    };
    let mut console = Console::new(arguments.global.json, arguments.global.quiet);
    let outcome = arguments.command.run(&arguments.global, &mut console);
    // What was printed before a failure is still wanted.
    let outcome = outcome.and_then(|status| console.flush().map(|()| status)).inspect_err(|_| {
        let _ = console.flush();
    });
    match outcome {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Negative) => ExitCode::from(1),
        Ok(Status::NoSpace) => ExitCode::from(7),
        Err(failure) => {
            failure.report(arguments.global.json);
            ExitCode::from(failure.code())
        }
    }
}
