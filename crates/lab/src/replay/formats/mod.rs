//! Traces as text: one request a line.
//!
//! A format is a [`TraceFormat`] in the file of its family and a line of [`FORMATS`]. Where lines name a device, a volume or a storage
//! unit, that is not looked at: the requests of all of them fall on one device, by their addresses.
//!
//! These files need `std`, `thiserror` and `request.rs` beside them, and nothing else of this crate: the fuzz target includes
//! them by path.

mod columns;
mod detection;
mod fields;
mod fuzzing;
mod published;
mod simulators;
mod tracers;

pub use columns::CSV;
pub use detection::{HEAD_LINES_MAX, detect, header_lines};
pub use fuzzing::fuzz;
pub use published::{ALIBABA, FIU, MSR, SPC, TENCENT};
pub use simulators::{DISKSIM_VALIDATION, SSDSIM};
pub use tracers::{BLKPARSE, VARVE};

use super::request::BlockRequest;
use columns::Columns;

/// Longest request of a trace; longer ones are taken for damage.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Most of a line that an error shows.
const SHOWN_CHARACTERS: usize = 80;

/// Every format.
pub const FORMATS: [TraceFormat; 10] =
    [MSR, FIU, SPC, ALIBABA, TENCENT, BLKPARSE, VARVE, SSDSIM, DISKSIM_VALIDATION, CSV];

/// A way to write traces down.
#[derive(Clone, Copy, Debug)]
pub struct TraceFormat {
    name: &'static str,
    /// What a line is, for errors.
    line: &'static str,
    /// What the first line is, if it is another.
    header: Option<&'static str>,
    read: fn(&str, &mut Before) -> Found,
}

impl TraceFormat {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The format called `name`.
    pub fn find(name: &str) -> Option<TraceFormat> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Without the line that says what the others are, none of them can be read.
    fn needs_header(&self, before: &Before) -> bool {
        self.header.is_some() && before.columns.is_none()
    }
}

/// What to do with what is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Lines that are not of the format, and requests longer than any device takes, are left out and counted, not refused.
    pub skips_malformed: bool,
    /// Bytes of the device: what lies behind them is folded back, by the remainder; 0 takes addresses as they are.
    pub fold_bytes: u64,
}

/// A trace that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedTrace {
    /// In order of arrival, from 0.
    pub requests: Vec<BlockRequest>,
    /// Lines that were left out as they are not of the format.
    pub skipped: u64,
    /// Number of the first of them, from 1.
    pub first_skipped: Option<usize>,
    /// Requests that came before the one before them; they are put in order.
    pub out_of_order: u64,
}

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum TraceError {
    #[error(
        "line {line}: expected {expected}, found '{found}' (malformed lines: {malformed}); name another format, or skip such lines"
    )]
    Line { line: usize, expected: &'static str, found: String, malformed: u64 },
    #[error("the trace holds no request ({skipped} lines were skipped); is it of another format?")]
    Empty { skipped: u64 },
    #[error("line {line}: {length_bytes} bytes do not fit on a device of {device_bytes}")]
    TooLarge { line: usize, length_bytes: u64, device_bytes: u64 },
}

impl TraceError {
    fn is_malformed(&self) -> bool {
        matches!(self, TraceError::Line { .. })
    }
}

/// A line as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    nanos: u64,
    is_write: bool,
    offset_bytes: u64,
    length_bytes: u64,
    latency_nanos: Option<u64>,
}

/// A line that is malformed, says nothing of a request, or is one.
type Found = Option<Option<Line>>;

/// What the lines before said that this one's meaning hangs on.
#[derive(Clone, Debug, Default)]
struct Before {
    /// When the last request ended.
    end_nanos: u64,
    columns: Option<Columns>,
}

/// Reads a trace line by line.
///
/// Empty lines, and requests of no bytes, are passed over. The first request comes at 0; a request that comes before its predecessor is
/// put in order and counted. A request that reaches behind the end of a folded device is moved before it.
#[derive(Clone, Debug)]
pub struct TraceParser {
    format: TraceFormat,
    options: ParseOptions,
    before: Before,
    /// State of the first line until it is read.
    header: Option<&'static str>,
    lines: Vec<Line>,
    number: usize,
    parsed: ParsedTrace,
    failed: Option<TraceError>,
}

impl TraceParser {
    /// Reads lines of `format`.
    pub fn new(format: TraceFormat, options: ParseOptions) -> TraceParser {
        let (before, header) = (Before::default(), format.header);
        let parsed = ParsedTrace::default();
        TraceParser { format, options, before, header, lines: Vec::new(), number: 0, parsed, failed: None }
    }

    /// Counts a line that is no part of the trace, such as a header.
    pub fn pass(&mut self) {
        self.number += 1;
    }

    /// Reads the next line.
    pub fn line(&mut self, line: &str) {
        self.number += 1;
        // After another error only malformed lines are of interest: they are counted.
        if line.trim().is_empty() || self.failed.as_ref().is_some_and(|failed| !failed.is_malformed()) {
            return;
        }
        let header = self.header.take();
        let found = (self.format.read)(line, &mut self.before);
        let found = found.filter(|found| found.is_none_or(|line| line.length_bytes <= REQUEST_BYTES_MAX));
        let Some(found) = found else { return self.malformed(line, header) };
        let Some(mut line) = found.filter(|line| line.length_bytes > 0) else { return };
        if self.failed.is_some() {
            return;
        }
        if self.options.fold_bytes > 0 {
            let device_bytes = self.options.fold_bytes;
            if line.length_bytes > device_bytes {
                let length_bytes = line.length_bytes;
                self.failed = Some(TraceError::TooLarge { line: self.number, length_bytes, device_bytes });
                return;
            }
            line.offset_bytes = (line.offset_bytes % device_bytes).min(device_bytes - line.length_bytes);
        }
        self.parsed.out_of_order += u64::from(self.lines.last().is_some_and(|last| last.nanos > line.nanos));
        self.lines.push(line);
    }

    /// Counts a malformed line; the first one is an error unless such are skipped. One that should say what the others are is the only
    /// error that is reported: without it all lines are malformed.
    fn malformed(&mut self, line: &str, header: Option<&'static str>) {
        match &mut self.failed {
            Some(TraceError::Line { malformed, .. }) => {
                *malformed += u64::from(!self.format.needs_header(&self.before))
            }
            _ if self.options.skips_malformed && header.is_none() => {
                self.parsed.skipped += 1;
                self.parsed.first_skipped.get_or_insert(self.number);
            }
            _ => {
                let expected = header.unwrap_or(self.format.line);
                self.failed = Some(TraceError::Line { line: self.number, expected, found: shown(line), malformed: 1 });
                self.lines = Vec::new();
            }
        }
    }

    /// The trace.
    ///
    /// # Errors
    /// [`TraceError`]: the first line that is not of the format, unless such are skipped (but for one that should say what the others
    /// are); a request that is larger than the device; no request.
    pub fn finish(mut self) -> Result<ParsedTrace, TraceError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.lines.sort_by_key(|line| line.nanos);
        let Some(first) = self.lines.first().map(|line| line.nanos) else {
            return Err(TraceError::Empty { skipped: self.parsed.skipped });
        };
        let request = |line: Line| BlockRequest {
            arrival_nanos: line.nanos - first,
            is_write: line.is_write,
            offset_bytes: line.offset_bytes,
            length_bytes: line.length_bytes as u32,
            latency_nanos: line.latency_nanos,
        };
        self.parsed.requests = self.lines.into_iter().map(request).collect();
        Ok(self.parsed)
    }
}

/// Reads a trace, as [`TraceParser`] does.
///
/// # Errors
/// As [`TraceParser::finish`].
pub fn parse_trace(text: &str, format: TraceFormat, options: &ParseOptions) -> Result<ParsedTrace, TraceError> {
    let mut parser = TraceParser::new(format, *options);
    text.lines().for_each(|line| parser.line(line));
    parser.finish()
}

fn shown(line: &str) -> String {
    line.chars().take(SHOWN_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each request: arrival, whether a write, offset, length, latency.
    pub(super) fn parse(text: &str, format: TraceFormat) -> Vec<(u64, bool, u64, u32, Option<u64>)> {
        let parsed = parse_trace(text, format, &ParseOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let plain = |request: &BlockRequest| {
            let BlockRequest { arrival_nanos, is_write, offset_bytes, length_bytes, latency_nanos } = *request;
            (arrival_nanos, is_write, offset_bytes, length_bytes, latency_nanos)
        };
        parsed.requests.iter().map(plain).collect()
    }

    /// The last line of each text is refused, and named with what a line is.
    pub(super) fn refuses(format: TraceFormat, texts: &[&str]) {
        for text in texts {
            let error = parse_trace(text, format, &ParseOptions::default()).unwrap_err();
            let found = text.lines().last().unwrap().to_owned();
            let line = text.lines().count();
            assert_eq!(error, TraceError::Line { line, expected: format.line, found, malformed: 1 }, "{text}");
        }
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<&str> = FORMATS.iter().map(TraceFormat::name).collect();
        assert_eq!(names.len(), FORMATS.len());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_or_counted() {
        let text = "1 0 10 2 0\n9 0 10 2 7\n5 0 10 2 1\n3 0 10 2 1\n";
        let error = parse_trace(text, SSDSIM, &ParseOptions::default()).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("9 0 10 2 7"), "{error}");
        let skipping = ParseOptions { skips_malformed: true, fold_bytes: 0 };
        let parsed = parse_trace(text, SSDSIM, &skipping).unwrap();
        assert_eq!((parsed.requests.len(), parsed.skipped, parsed.out_of_order), (3, 1, 1));
        assert_eq!(parsed.first_skipped, Some(2));
        let arrivals: Vec<u64> = parsed.requests.iter().map(|request| request.arrival_nanos).collect();
        assert_eq!(arrivals, [0, 2, 4]);
        let long = format!("1 0 10 2 {}", "x".repeat(100_000));
        let error = parse_trace(&long, SSDSIM, &ParseOptions::default()).unwrap_err().to_string();
        assert!(error.len() < 300, "{}", error.len());
    }

    #[test]
    fn counts_malformed_lines_that_are_not_skipped() {
        let text = "1 0 10 2 0\nx\n\n5 0 10 2 1\ny\n3 0 10 99999999999 1\n";
        let error = parse_trace(text, SSDSIM, &ParseOptions::default()).unwrap_err();
        assert!(matches!(error, TraceError::Line { line: 2, malformed: 3, .. }), "{error}");
        assert!(error.to_string().contains("(malformed lines: 3)"), "{error}");
        // Where the first line should name the columns, it alone is wrong.
        let error = parse_trace("a,b\n1,2\n3,4\n", CSV, &ParseOptions::default()).unwrap_err();
        assert!(matches!(error, TraceError::Line { line: 1, malformed: 1, .. }), "{error}");
    }

    #[test]
    fn nothing_in_a_trace_is_an_error() {
        for (skips_malformed, text, skipped) in
            [(false, "", 0), (true, "", 0), (false, "\n \n", 0), (false, "1 0 10 0 0\n", 0), (true, "a\n\nb\n", 2)]
        {
            let options = ParseOptions { skips_malformed, fold_bytes: 0 };
            let error = parse_trace(text, SSDSIM, &options).unwrap_err();
            assert_eq!(error, TraceError::Empty { skipped });
        }
    }

    #[test]
    fn what_lies_behind_the_device_is_folded_onto_it() {
        let folding = ParseOptions { skips_malformed: false, fold_bytes: 4096 };
        let parsed = parse_trace("1 0 100 2 0\n", SSDSIM, &folding).unwrap();
        assert_eq!(parsed.requests[0].offset_bytes, 100 * 512 % 4096);
        let parsed = parse_trace("1 0 7 2 0\n", SSDSIM, &folding).unwrap();
        assert_eq!(parsed.requests[0].offset_bytes, 3072);
        let error = parse_trace("1 0 7 9 0\n", SSDSIM, &folding).unwrap_err();
        assert_eq!(error, TraceError::TooLarge { line: 1, length_bytes: 9 * 512, device_bytes: 4096 });
    }
}
