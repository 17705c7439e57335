//! Arguments commands share.

use crate::console::Console;
use crate::failure::Failure;
use crate::text::Encoding;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use varve::env::Env;
use varve::options::Configuration;
use varve::spec::SpecError;
use varve::stack::Stack;
use varve::{Options, ReadOptions, Spec, Varve};

/// Heading of the options every command has, apart from its own.
const COMMON: &str = "Common options";

/// Options every command has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Global {
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,
    /// Print results and errors only
    #[arg(short, long, global = true, help_heading = COMMON)]
    pub(crate) quiet: bool,
    /// Read options of the database from this TOML file
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON)]
    config: Option<PathBuf>,
    /// Set one option of the database, as in -o write_buffer_size=128MiB
    #[arg(short = 'o', long = "option", global = true, value_name = "NAME=VALUE", help_heading = COMMON)]
    options: Vec<String>,
}

impl Global {
    /// Refuses options of the database where `command` would not heed them.
    pub(crate) fn without_options(&self, command: &str) -> Result<(), Failure> {
        match (self.options.first(), &self.config) {
            (None, None) => Ok(()),
            (Some(option), _) => {
                Err(Failure::usage(format!("{command} takes no options of a database, found -o {option}")))
            }
            (None, Some(path)) => {
                let path = path.display();
                Err(Failure::usage(format!("{command} takes no options of a database, found --config {path}")))
            }
        }
    }

    /// Options of the database on the medium `spec`, from the file and the command line.
    pub(crate) fn options(&self, spec: &Spec) -> Result<Options, Failure> {
        let mut configuration = match &self.config {
            None => Configuration::default(),
            Some(path) => {
                let text = crate::input::read_options_file(path)?;
                let configuration = Configuration::from_toml(&text).map_err(|error| error.in_file(path))?;
                // Options that were chosen for one medium are not silently taken for another.
                if let Some(other) = configuration.media.spec.as_ref().filter(|other| *other != spec) {
                    let path = path.display();
                    return Err(Failure::usage(format!(
                        "{path}: [media] spec: expected the medium of the command line, {spec}, found {other}"
                    )));
                }
                configuration
            }
        };
        for option in &self.options {
            let Some((name, value)) = option.split_once('=') else {
                return Err(Failure::usage(format!("-o {option}: expected NAME=VALUE")));
            };
            configuration.set(name, value)?;
        }
        Ok(configuration.options)
    }
}

/// A database by the name of its medium.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Database {
    /// Medium of the database: a path, or a spec such as disk:10GB?backing=file:/tmp/image
    /// ('varve media list' shows all kinds)
    #[arg(value_name = "DB", value_parser = spec_parser())]
    pub(crate) spec: Spec,
}

/// What a command does to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads: nothing is written, and what is not there is an error.
    Read,
    /// Changes what is there: what is not there is an error.
    Change,
    /// Writes: what is not there is made, unless the options say otherwise.
    Write,
}

impl Database {
    pub(crate) fn open(&self, global: &Global, access: Access, console: &Console) -> Result<Varve, Failure> {
        let mut options = global.options(&self.spec)?;
        options.create_if_missing &= access == Access::Write;
        let builder = Varve::builder().env(&self.env()).options(options);
        let db = match access {
            Access::Read => builder.read_only(true).open_spec(&self.spec)?,
            Access::Change | Access::Write => builder.open_spec(&self.spec)?,
        };
        if access == Access::Read
            && let Some(unreadable) = db.property("varve.unreadable")
        {
            // A line for each range, and one for logs.
            let ranges = unreadable.lines().count().saturating_sub(1);
            console.warn(format!("a device is missing, and {ranges} ranges of keys cannot be read"));
            unreadable.lines().last().into_iter().for_each(|line| console.warn(line));
        }
        if access == Access::Write {
            warn_of_lost_bytes(db.stack(), console);
        }
        for option in db.options_without_effect() {
            console.warn(format!("option {} has no effect here: {}", option.name, option.reason));
        }
        if let Some(error) = db.unsaved_options() {
            console.warn(format!("the options are not kept with the database: {error}"));
        }
        Ok(db)
    }

    /// Virtual time on emulated media, the wall clock otherwise.
    pub(crate) fn env(&self) -> Env {
        self.spec.suitable_env(0)
    }
}

/// Whether a database may be made where other things are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Making {
    /// Make a database in a directory that holds other things, without asking
    #[arg(long)]
    allow_non_empty: bool,
}

impl Making {
    /// Asks whether a database is to be made among other things, if that is what opening `spec` for writing would do.
    ///
    /// # Errors
    /// It is not, or nobody is there to be asked.
    pub(crate) fn allow(&self, spec: &Spec, console: &Console) -> Result<(), Failure> {
        let Some(path) = spec.directory().filter(|_| !self.allow_non_empty) else { return Ok(()) };
        let Some(others) = OtherThings::of(&path) else { return Ok(()) };
        let what = format!("{} holds {others} and no database", path.display());
        let refused = || {
            Failure::usage(format!("{what}; name an empty or new directory, or make one there with --allow-non-empty"))
        };
        if console.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(refused());
        }
        eprint!("varve: {what}. Make one there all the same? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map_err(|error| Failure::io("standard input", error))?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(refused()),
        }
    }
}

/// What a directory holds that is no database.
struct OtherThings {
    names: Vec<String>,
    is_more: bool,
}

impl OtherThings {
    /// Names that are shown.
    const SHOWN: usize = 3;

    /// None where there is a database, nothing, or no directory that can be read: opening it says what is wrong then.
    fn of(directory: &Path) -> Option<OtherThings> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory).ok()? {
            let name = entry.ok()?.file_name();
            match name.to_str() {
                // A database, whole or not, is for opening to judge; and so is what a crash left of making one.
                Some("CURRENT") => return None,
                Some("LOCK" | "OPTIONS" | "OPTIONS.tmp" | "lost+found") => continue,
                Some(name) if is_file_of_database(name) => return None,
                _ => names.push(name.to_string_lossy().escape_debug().to_string()),
            }
        }
        names.sort_unstable();
        let is_more = names.len() > Self::SHOWN;
        names.truncate(Self::SHOWN);
        (!names.is_empty()).then_some(OtherThings { names, is_more })
    }
}

/// `000012.log` and the like, and `MANIFEST-000001`.
fn is_file_of_database(name: &str) -> bool {
    let is_number = |digits: &str| digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let numbered =
        name.split_once('.').is_some_and(|(number, kind)| is_number(number) && matches!(kind, "log" | "sst" | "tmp"));
    numbered || name.strip_prefix("MANIFEST-").is_some_and(is_number)
}

impl std::fmt::Display for OtherThings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.names.join(", "), if self.is_more { " and more" } else { "" })
    }
}

/// Warns of devices that forget what is written to them.
pub(crate) fn warn_of_lost_bytes(stack: &Stack, console: &Console) {
    for device in stack.devices() {
        let description = device.description();
        if !description.keeps_bytes() {
            console.warn(format!(
                "the bytes of {} are gone when this command ends; backing=file:PATH keeps them",
                description.name
            ));
        }
    }
}

/// Parses specs, and paths of any bytes.
pub(crate) fn spec_parser() -> impl TypedValueParser<Value = Spec> {
    OsStringValueParser::new().try_map(|text: OsString| match text.to_str() {
        Some(text) => text.parse(),
        None => Ok::<Spec, SpecError>(Spec::of_path(Path::new(&text))),
    })
}

/// Decodes a key or value of the command line.
pub(crate) fn decode_argument(what: &str, argument: &OsString, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    encoding.decode(argument.as_os_str().as_bytes()).map_err(|reason| Failure::usage(format!("{what}: {reason}")))
}

/// Bytes of a path.
pub(crate) fn path_bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_vec()
}

/// Which keys a command is about.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Range {
    /// Keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End of the keys, itself not included
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

impl Range {
    /// About how many pairs a walk over the range visits, where that can be told without one.
    pub(crate) fn expected_pairs(&self, db: &Varve) -> Option<u64> {
        let is_all = self.prefix.is_none() && self.from.is_none() && self.to.is_none();
        db.property("varve.estimate-num-keys").filter(|_| is_all)?.parse().ok()
    }

    /// The range as options of a read, with keys written in `encoding`.
    pub(crate) fn read_options(&self, encoding: Encoding) -> Result<ReadOptions, Failure> {
        let decode = |what: &str, key: &Option<OsString>| {
            key.as_ref().map(|key| decode_argument(what, key, encoding)).transpose()
        };
        let mut options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        if let Some(prefix) = decode("--prefix", &self.prefix)? {
            options = options.with_prefix(&prefix);
        } else {
            options.lower_bound = decode("--from", &self.from)?;
            options.upper_bound = decode("--to", &self.to)?;
            if let (Some(from), Some(to)) = (&options.lower_bound, &options.upper_bound)
                && from > to
            {
                let [from, to] = [from, to].map(|key| encoding.to_text(key).escape_debug().to_string());
                return Err(Failure::usage(format!("--to: expected a key at or after --from '{from}', found '{to}'")));
            }
        }
        Ok(options)
    }
}
