//! Standard output and standard error, as people and programs want them.

use crate::failure::Failure;
use crate::progress::Progress;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;
use varve_lab::report::Report;

/// Where a command writes. Results go to standard output, all else to standard error.
pub(crate) struct Console {
    out: BufWriter<StdoutLock<'static>>,
    /// Programs read: JSON instead of tables.
    pub(crate) json: bool,
    quiet: bool,
}

impl Console {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Console { out: BufWriter::with_capacity(64 << 10, std::io::stdout().lock()), json, quiet }
    }

    /// Standard output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Columns of the terminal that standard output is; none where it is something else, which has no width.
    pub(crate) fn width(&self) -> Option<usize> {
        let stdout = std::io::stdout();
        terminal_size::terminal_size_of(stdout).map(|(width, _)| usize::from(width.0)).filter(|&width| width > 0)
    }

    /// Writes a line to standard output, with what does not fit the terminal below it, `indent` columns in.
    pub(crate) fn wrapped(&mut self, line: &str, indent: usize) -> Result<(), Failure> {
        match self.width() {
            Some(width) => self.line(crate::text::wrap(line, width, indent)),
            None => self.line(line),
        }
    }

    /// Writes bytes to standard output.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::io("standard output", error))
    }

    /// Writes a line to standard output.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> Result<(), Failure> {
        self.write(line.as_ref().as_bytes())?;
        self.write(b"\n")
    }

    /// Writes a value to standard output, on one line.
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        self.line(value.to_string())
    }

    /// Everything written so far is out.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::io("standard output", error))
    }

    /// Shows a report as it was asked for, and writes it into `directory` too, if there is one.
    pub(crate) fn report(&mut self, report: &Report, directory: Option<&Path>) -> Result<(), Failure> {
        let text = match (self.json, self.width()) {
            (true, _) => report.to_json(),
            (false, Some(width)) => report.to_text_within(width),
            (false, None) => report.to_text(),
        };
        self.write(text.as_bytes())?;
        // What is done is shown, however long what comes next takes.
        self.flush()?;
        if let Some(directory) = directory {
            for path in report.write(directory)? {
                self.note(format!("wrote {}", path.display()));
            }
        }
        Ok(())
    }

    /// Tells people something beside the result; not programs.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            eprintln!("{}", text.as_ref());
        }
    }

    /// Warns, whoever listens.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        eprintln!("varve: warning: {}", text.as_ref());
    }

    /// A progress display on standard error, for terminals.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(self.shows_progress())
    }

    /// The same for the lab, which reports from any thread.
    pub(crate) fn lab_progress(&self) -> std::sync::Arc<dyn varve_lab::experiment::Progress> {
        std::sync::Arc::new(crate::progress::LabProgress::new(self.shows_progress()))
    }

    fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }
}
