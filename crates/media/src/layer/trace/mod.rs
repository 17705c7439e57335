//! Traces: every call, with its time, place, context and outcome.

mod bytes;
mod device;
mod directory;
#[cfg(test)]
mod tests;
mod zones;

pub(crate) use bytes::TraceBytes;
pub use device::TraceDevice;
pub use directory::TraceDirectory;
pub(crate) use zones::TraceZones;

use crate::context::IoContext;
use crate::error::{MediaError, MediaErrorKind, Operation};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use varve_env::{Env, Instant};

/// One call of a device or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it began.
    pub begin: Instant,
    /// When it ended. Requests of one batch begin and end together.
    pub end: Instant,
    /// What was done. Operations map as in [`crate::Fault::operation`].
    pub operation: Operation,
    /// Device, or file of a directory, or the directory itself.
    pub name: String,
    /// First byte; the new length of a truncate or reservation; the zone of a zone command.
    pub offset_bytes: u64,
    /// Bytes asked for.
    pub length_bytes: u64,
    /// Label of the I/O, for calls that have one.
    pub context: Option<IoContext>,
    /// How it ended.
    pub outcome: Result<(), MediaErrorKind>,
}

impl std::fmt::Display for TraceRecord {
    /// Begin and duration in nanoseconds, operation, offset, length, class, cause, level and job
    /// (`-` where not said), outcome, and to the end of the line the name; separated by spaces, in
    /// names control characters escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let duration_nanos = self.end.as_nanos().saturating_sub(self.begin.as_nanos());
        let operation = self.operation.to_string().replace(' ', "_");
        write!(f, "{} {duration_nanos} {operation} ", self.begin.as_nanos())?;
        write!(f, "{} {} ", self.offset_bytes, self.length_bytes)?;
        match &self.context {
            Some(context) => {
                write!(f, "{} {:?} ", context.class.name(), context.cause)?;
                match context.level {
                    Some(level) => write!(f, "{level} ")?,
                    None => f.write_str("- ")?,
                }
                match context.job {
                    Some(job) => write!(f, "{} ", job.0)?,
                    None => f.write_str("- ")?,
                }
            }
            None => f.write_str("- - - - ")?,
        }
        match self.outcome {
            Ok(()) => f.write_str("ok ")?,
            Err(kind) => write!(f, "{kind:?} ")?,
        }
        for character in self.name.chars() {
            match character.is_control() {
                true => write!(f, "{}", character.escape_default())?,
                false => write!(f, "{character}")?,
            }
        }
        Ok(())
    }
}

/// Where trace records go. Called after each call, from the calling thread; must be quick and must
/// not call what it traces.
pub trait TraceSink: Send + Sync {
    /// Takes one record.
    fn record(&self, record: TraceRecord);
}

/// Keeps records in memory. A clone is another handle of the same records.
#[derive(Clone, Default)]
pub struct MemoryTrace {
    records: Arc<Mutex<Vec<TraceRecord>>>,
}

impl MemoryTrace {
    /// No records yet.
    pub fn new() -> Self {
        MemoryTrace::default()
    }

    /// The records since the last take, in the order the calls ended.
    pub fn take(&self) -> Vec<TraceRecord> {
        std::mem::take(&mut *self.records.lock())
    }
}

impl TraceSink for MemoryTrace {
    fn record(&self, record: TraceRecord) {
        self.records.lock().push(record);
    }
}

/// Writes records as text, one line each, in the form of [`TraceRecord`]'s `Display`.
pub struct TextTrace<W: Write + Send> {
    output: Mutex<TextOutput<W>>,
}

struct TextOutput<W> {
    writer: W,
    failure: Option<std::io::Error>,
}

/// A trace in a file.
pub type FileTrace = TextTrace<BufWriter<File>>;

impl FileTrace {
    /// Writes to the file at `path`, in place of what it held.
    ///
    /// # Errors
    /// What the operating system says when it creates the file.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(TextTrace::new(BufWriter::new(File::create(path)?)))
    }
}

impl<W: Write + Send> TextTrace<W> {
    /// Writes to `writer`, best a buffered one.
    pub fn new(writer: W) -> Self {
        TextTrace { output: Mutex::new(TextOutput { writer, failure: None }) }
    }

    /// Flushes, and says whether any record could not be written: the first error, once.
    pub fn flush(&self) -> std::io::Result<()> {
        let mut output = self.output.lock();
        match output.failure.take() {
            Some(failure) => Err(failure),
            None => output.writer.flush(),
        }
    }
}

impl<W: Write + Send> TraceSink for TextTrace<W> {
    fn record(&self, record: TraceRecord) {
        let mut output = self.output.lock();
        if output.failure.is_none()
            && let Err(failure) = writeln!(output.writer, "{record}")
        {
            output.failure = Some(failure);
        }
    }
}

/// What layers share: a clock and a sink.
#[derive(Clone)]
pub(crate) struct Tracer {
    env: Env,
    sink: Arc<dyn TraceSink>,
}

/// What is known of a call before it is made.
struct Call<'a> {
    operation: Operation,
    name: &'a str,
    offset_bytes: u64,
    length_bytes: u64,
    context: Option<&'a IoContext>,
}

impl Tracer {
    fn around<T>(&self, call: Call<'_>, perform: impl FnOnce() -> Result<T, MediaError>) -> Result<T, MediaError> {
        let begin = self.env.now();
        let outcome = perform();
        self.record(call, begin, outcome.as_ref().map(|_| ()));
        outcome
    }

    fn record(&self, call: Call<'_>, begin: Instant, outcome: Result<(), &MediaError>) {
        self.sink.record(TraceRecord {
            begin,
            end: self.env.now(),
            operation: call.operation,
            name: call.name.to_owned(),
            offset_bytes: call.offset_bytes,
            length_bytes: call.length_bytes,
            context: call.context.copied(),
            outcome: outcome.map_err(MediaError::kind),
        });
    }
}
