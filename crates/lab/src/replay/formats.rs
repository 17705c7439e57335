//! Traces as text: one request a line.

use super::request::BlockRequest;

/// Sectors of traces that count in them.
const SECTOR_BYTES: u64 = 512;
/// Longest request of a trace; longer ones are taken for damage.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Most of a line that an error shows.
const SHOWN_CHARACTERS: usize = 80;

/// A way to write traces down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Microsoft Research Cambridge, as SNIA has them: `timestamp(100 ns),host,disk,Read|Write,offset,size,response(100 ns)`.
    Msr,
    /// `blkparse` in its usual form; of its lines those of requests that are issued (`D`).
    Blkparse,
    /// SSDsim: `time(ns) device sector sectors 0|1`, where 0 is a write.
    Ssdsim,
    /// DiskSim's validation traces: `R|W Hit|Miss sector sectors measured(us) pause(us)`.
    DiskSimValidation,
    /// A first line of names, among them `time`, `op`, `size` and `lbn` (sectors) or `offset` (bytes). Times are seconds, or in `time_us`,
    /// `time_ms` and `time_ns` what these say; operations begin with `r` or `w` in either case, or are SCSI's `28` and `2a`.
    Csv,
    /// What `trace=` of a spec writes.
    Varve,
}

/// Every format, with its name.
pub const FORMATS: [(&str, TraceFormat); 6] = [
    ("msr", TraceFormat::Msr),
    ("blkparse", TraceFormat::Blkparse),
    ("ssdsim", TraceFormat::Ssdsim),
    ("disksim", TraceFormat::DiskSimValidation),
    ("csv", TraceFormat::Csv),
    ("varve", TraceFormat::Varve),
];

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
    /// Requests that came before the one before them; they are put in order.
    pub out_of_order: u64,
}

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum TraceError {
    #[error("line {line}: expected {expected}, found '{found}'; name another format, or skip such lines")]
    Line { line: usize, expected: String, found: String },
    #[error("the trace holds no request ({skipped} lines were skipped); is it of another format?")]
    Empty { skipped: u64 },
    #[error("line {line}: {length_bytes} bytes do not fit on a device of {device_bytes}")]
    TooLarge { line: usize, length_bytes: u64, device_bytes: u64 },
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

/// A line that says nothing of a request, or one.
type Found = Option<Option<Line>>;

fn sectors(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
}

/// Seconds, or units of which one is `unit_nanos`, perhaps with a fraction.
fn nanos(text: &str, unit_nanos: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit_nanos)?;
    let mut place = unit_nanos;
    let mut part = 0;
    for digit in fraction.chars() {
        place /= 10;
        part += u64::from(digit.to_digit(10)?) * place;
    }
    whole.checked_add(part)
}

fn is_write(text: &str) -> Option<bool> {
    match text.chars().next()?.to_ascii_lowercase() {
        'w' => Some(true),
        'r' => Some(false),
        _ if text.eq_ignore_ascii_case("2a") => Some(true),
        _ if text == "28" => Some(false),
        _ => None,
    }
}

fn msr(line: &str) -> Found {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, _, _, operation, offset, size, response] = fields.as_slice() else { return None };
    Some(Some(Line {
        nanos: time.parse::<u64>().ok()?.checked_mul(100)?,
        is_write: is_write(operation)?,
        offset_bytes: offset.parse().ok()?,
        length_bytes: size.parse().ok()?,
        latency_nanos: Some(response.parse::<u64>().ok()?.checked_mul(100)?),
    }))
}

fn blkparse(line: &str) -> Found {
    let mut fields = line.split_whitespace();
    // major,minor cpu sequence time pid action rwbs sector + sectors [process]
    let device = fields.next()?;
    if !device.contains(',') {
        // The summary at the end.
        return Some(None);
    }
    let (_, _, time, _) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (action, kind) = (fields.next()?, fields.next()?);
    let wanted = action == "D" && (kind.contains('R') || kind.contains('W'));
    if !wanted {
        return Some(None);
    }
    let (sector, plus, count) = (fields.next()?, fields.next()?, fields.next()?);
    (plus == "+").then_some(())?;
    Some(Some(Line {
        nanos: nanos(time, 1_000_000_000)?,
        is_write: kind.contains('W'),
        offset_bytes: sectors(sector)?,
        length_bytes: sectors(count)?,
        latency_nanos: None,
    }))
}

fn ssdsim(line: &str) -> Found {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [time, _, sector, count, operation] = fields.as_slice() else { return None };
    let is_write = match *operation {
        "0" => true,
        "1" => false,
        _ => return None,
    };
    let nanos = time.parse().ok()?;
    let (offset_bytes, length_bytes) = (sectors(sector)?, sectors(count)?);
    Some(Some(Line { nanos, is_write, offset_bytes, length_bytes, latency_nanos: None }))
}

/// Times of these traces are pauses: `now` is where the last request ended.
fn disksim(line: &str, now_nanos: &mut u64) -> Found {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [operation, _, sector, count, measured, pause] = fields.as_slice() else { return None };
    let latency = nanos(measured, 1000)?;
    let begin = *now_nanos;
    *now_nanos = begin.checked_add(latency)?.checked_add(nanos(pause, 1000)?)?;
    Some(Some(Line {
        nanos: begin,
        is_write: is_write(operation)?,
        offset_bytes: sectors(sector)?,
        length_bytes: sectors(count)?,
        latency_nanos: Some(latency),
    }))
}

/// Where the columns of a CSV are.
#[derive(Clone, Debug)]
struct Columns {
    time: usize,
    time_unit_nanos: u64,
    operation: usize,
    size: usize,
    offset: usize,
    offset_unit_bytes: u64,
}

impl Columns {
    fn of(line: &str) -> Option<Columns> {
        let names: Vec<String> = line.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let position = |wanted: &str| names.iter().position(|name| name == wanted);
        let units = [("time", 1_000_000_000), ("time_ms", 1_000_000), ("time_us", 1000), ("time_ns", 1)];
        let (time, time_unit_nanos) = units.into_iter().find_map(|(name, unit)| Some((position(name)?, unit)))?;
        let places = [("lbn", SECTOR_BYTES), ("offset", 1)];
        let (offset, offset_unit_bytes) = places.into_iter().find_map(|(name, unit)| Some((position(name)?, unit)))?;
        let (operation, size) = (position("op")?, position("size")?);
        Some(Columns { time, time_unit_nanos, operation, size, offset, offset_unit_bytes })
    }

    fn line(&self, line: &str) -> Found {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        Some(Some(Line {
            nanos: nanos(fields.get(self.time)?, self.time_unit_nanos)?,
            is_write: is_write(fields.get(self.operation)?)?,
            offset_bytes: fields.get(self.offset)?.parse::<u64>().ok()?.checked_mul(self.offset_unit_bytes)?,
            length_bytes: fields.get(self.size)?.parse().ok()?,
            latency_nanos: None,
        }))
    }
}

fn varve(line: &str) -> Found {
    // begin duration operation offset length class cause level job outcome name
    let fields: Vec<&str> = line.splitn(11, ' ').collect();
    let [begin, duration, operation, offset, length, ..] = fields.as_slice() else { return None };
    let nanos = begin.parse().ok()?;
    let is_write = match *operation {
        "write" => true,
        "read" => false,
        // Syncs, commands and files are no requests.
        _ => return Some(None),
    };
    Some(Some(Line {
        nanos,
        is_write,
        offset_bytes: offset.parse().ok()?,
        length_bytes: length.parse().ok()?,
        latency_nanos: Some(duration.parse().ok()?),
    }))
}

/// Reads a trace. Empty lines, and requests of no bytes, are passed over. The first request comes at 0; whoever comes before the one before
/// is put in order and counted. A request that reaches behind the end of a folded device is moved before it.
///
/// # Errors
/// [`TraceError`]: the first line that is not of the format, unless such are skipped; a request that is larger than the device.
pub fn parse_trace(text: &str, format: TraceFormat, options: &ParseOptions) -> Result<ParsedTrace, TraceError> {
    let mut parsed = ParsedTrace::default();
    let mut now_nanos = 0;
    let mut columns: Option<Columns> = None;
    let mut lines: Vec<Line> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let found = match (format, &columns) {
            (TraceFormat::Msr, _) => msr(line),
            (TraceFormat::Blkparse, _) => blkparse(line),
            (TraceFormat::Ssdsim, _) => ssdsim(line),
            (TraceFormat::DiskSimValidation, _) => disksim(line, &mut now_nanos),
            (TraceFormat::Varve, _) => varve(line),
            (TraceFormat::Csv, Some(columns)) => columns.line(line),
            (TraceFormat::Csv, None) => {
                columns = Columns::of(line);
                columns.as_ref().map(|_| None)
            }
        };
        let found = found.filter(|found| found.is_none_or(|line| line.length_bytes <= REQUEST_BYTES_MAX));
        let Some(found) = found else {
            // Without the names of its columns nothing of a CSV can be read.
            let is_header = format == TraceFormat::Csv && columns.is_none();
            if options.skips_malformed && !is_header {
                parsed.skipped += 1;
                continue;
            }
            let expected = expected(format, is_header);
            return Err(TraceError::Line { line: number + 1, expected, found: shown(line) });
        };
        let Some(mut line) = found.filter(|line| line.length_bytes > 0) else { continue };
        if options.fold_bytes > 0 {
            let device_bytes = options.fold_bytes;
            if line.length_bytes > device_bytes {
                let length_bytes = line.length_bytes;
                return Err(TraceError::TooLarge { line: number + 1, length_bytes, device_bytes });
            }
            line.offset_bytes = (line.offset_bytes % device_bytes).min(device_bytes - line.length_bytes);
        }
        parsed.out_of_order += u64::from(lines.last().is_some_and(|last| last.nanos > line.nanos));
        lines.push(line);
    }
    lines.sort_by_key(|line| line.nanos);
    let Some(first) = lines.first().map(|line| line.nanos) else {
        return Err(TraceError::Empty { skipped: parsed.skipped });
    };
    parsed.requests = lines
        .into_iter()
        .map(|line| BlockRequest {
            arrival_nanos: line.nanos - first,
            is_write: line.is_write,
            offset_bytes: line.offset_bytes,
            length_bytes: line.length_bytes as u32,
            latency_nanos: line.latency_nanos,
        })
        .collect();
    Ok(parsed)
}

fn shown(line: &str) -> String {
    line.chars().take(SHOWN_CHARACTERS).collect()
}

fn expected(format: TraceFormat, is_header: bool) -> String {
    let text = match format {
        TraceFormat::Msr => "'timestamp,host,disk,Read|Write,offset,size,response'",
        TraceFormat::Blkparse => "'major,minor cpu sequence seconds pid action kind sector + sectors'",
        TraceFormat::Ssdsim => "'nanoseconds device sector sectors 0|1'",
        TraceFormat::DiskSimValidation => "'R|W Hit|Miss sector sectors measured_us pause_us'",
        TraceFormat::Csv if is_header => "a first line of names with time, op, size and lbn or offset",
        TraceFormat::Csv => "as many fields as names, with numbers where they belong",
        TraceFormat::Varve => "'begin duration operation offset length ...', as trace= writes it",
    };
    text.to_owned()
}

/// Parses any bytes in every format. For fuzzing: must not panic.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (_, format) in FORMATS {
        for (skips_malformed, fold_bytes) in [(false, 0), (true, 1 << 40)] {
            let _ = parse_trace(&text, format, &ParseOptions { skips_malformed, fold_bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::env::Random;

    fn parse(text: &str, format: TraceFormat) -> Vec<(u64, bool, u64, u32, Option<u64>)> {
        let parsed = parse_trace(text, format, &ParseOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let plain = |request: &BlockRequest| {
            let BlockRequest { arrival_nanos, is_write, offset_bytes, length_bytes, latency_nanos } = *request;
            (arrival_nanos, is_write, offset_bytes, length_bytes, latency_nanos)
        };
        parsed.requests.iter().map(plain).collect()
    }

    #[test]
    fn every_format_is_read() {
        let text =
            "128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,138,\n";
        assert!(parse_trace(text, TraceFormat::Msr, &ParseOptions::default()).is_err(), "eight fields");
        let text =
            "128166372003061629,hm,1,Read,383496192,32768,413\n\n128166372016382155,hm,1,Write,2822144,4096,138\n";
        let expected =
            [(0, false, 383_496_192, 32_768, Some(41_300)), (1_332_052_600, true, 2_822_144, 4096, Some(13_800))];
        assert_eq!(parse(text, TraceFormat::Msr), expected);
        let text = "  8,0    3        1     0.000000000   697  A   R 223490 + 8 <- (8,1) 223427\n  8,0    3        3     \
                    0.000002000   697  D   WS 223490 + 8 [kjournald]\n  8,0 1 2 0.000009500 0 D R 16 + 16 [x]\n\
                    CPU0 (8,0):\n Reads Queued: 0\n";
        let expected = [(0, true, 223_490 * 512, 4096, None), (7500, false, 8192, 8192, None)];
        assert_eq!(parse(text, TraceFormat::Blkparse), expected);
        let expected = [(0, true, 5120, 1024, None), (5, false, 0, 512, None)];
        assert_eq!(parse("100 0 10 2 0\n105 4 0 1 1\n", TraceFormat::Ssdsim), expected);
        let text = "W Hit 8 4 663.5 45422.0\nR Miss 16 4 607.0 1.0\n";
        let expected = [(0, true, 4096, 2048, Some(663_500)), (46_085_500, false, 8192, 2048, Some(607_000))];
        assert_eq!(parse(text, TraceFormat::DiskSimValidation), expected);
        let text = "version,time,op,size,lbn\n1,5,2a,512,7\n1,6.25,28,1024,8\n";
        let expected = [(0, true, 3584, 512, None), (1_250_000_000, false, 4096, 1024, None)];
        assert_eq!(parse(text, TraceFormat::Csv), expected);
        let text = "time_us,offset,op,size\n10,4096,READ,512\n";
        assert_eq!(parse(text, TraceFormat::Csv), [(0, false, 4096, 512, None)]);
        let text = "1000 50 read 4096 512 user_read Direct 2 - ok disk\n1100 9 sync 0 0 log Direct - - ok disk\n1200 70 write 0 \
                    4096 log Direct - - ok a disk\n";
        let expected = [(0, false, 4096, 512, Some(50)), (200, true, 0, 4096, Some(70))];
        assert_eq!(parse(text, TraceFormat::Varve), expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_or_counted() {
        let text = "1 0 10 2 0\n9 0 10 2 7\n5 0 10 2 1\n3 0 10 2 1\n";
        let error = parse_trace(text, TraceFormat::Ssdsim, &ParseOptions::default()).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("9 0 10 2 7"), "{error}");
        let skipping = ParseOptions { skips_malformed: true, fold_bytes: 0 };
        let parsed = parse_trace(text, TraceFormat::Ssdsim, &skipping).unwrap();
        assert_eq!((parsed.requests.len(), parsed.skipped, parsed.out_of_order), (3, 1, 1));
        assert!(parsed.requests.windows(2).all(|pair| pair[0].arrival_nanos <= pair[1].arrival_nanos));
        for empty in ["", "\n \n", "1 0 10 0 0\n"] {
            let error = parse_trace(empty, TraceFormat::Ssdsim, &skipping).unwrap_err();
            assert_eq!(error, TraceError::Empty { skipped: 0 });
        }
        let error = parse_trace("a,b\n1,2\n", TraceFormat::Csv, &skipping).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("names"), "{error}");
        let folding = ParseOptions { skips_malformed: false, fold_bytes: 4096 };
        let parsed = parse_trace("1 0 100 2 0\n", TraceFormat::Ssdsim, &folding).unwrap();
        assert_eq!(parsed.requests[0].offset_bytes, 100 * 512 % 4096);
        let parsed = parse_trace("1 0 7 2 0\n", TraceFormat::Ssdsim, &folding).unwrap();
        assert_eq!(parsed.requests[0].offset_bytes, 3072);
        assert!(matches!(parse_trace("1 0 7 9 0\n", TraceFormat::Ssdsim, &folding), Err(TraceError::TooLarge { .. })));
        // Numbers that are too large for what they stand for.
        for text in ["18446744073709551615,a,b,Read,0,512,1", "1,a,b,Read,0,99999999999,1"] {
            assert!(parse_trace(text, TraceFormat::Msr, &ParseOptions::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let pieces =
            ["1", "0", ",", " ", "\n", "R", "w", "2a", "+", "8,0", "D", "time,op,size,lbn", "9999999999999999999", "."];
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let text: String = (0..60).map(|_| pieces[random.index(pieces.len())]).collect();
            fuzz(text.as_bytes());
            let mut bytes = vec![0; 100];
            random.fill_bytes(&mut bytes);
            fuzz(&bytes);
        }
    }
}
