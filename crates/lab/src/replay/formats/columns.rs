//! Traces of which the first line says what their columns are.

use super::fields::{SECTOR_BYTES, is_write, nanos, separated};
use super::{Before, Found, Line, TraceFormat};

/// A first line of names, among them `time`, `op`, `size` and `lbn` (sectors) or `offset` (bytes). Times are seconds, or in `time_us`,
/// `time_ms` and `time_ns` what these say; operations begin with `r` or `w` in either case, or are SCSI's `28` and `2a`.
pub const CSV: TraceFormat = TraceFormat {
    name: "csv",
    line: "as many fields as names, with numbers where they belong",
    header: Some("a first line of names with time, op, size and lbn or offset"),
    read: csv,
};

/// Where the columns are.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    time: usize,
    time_unit_nanos: u64,
    operation: usize,
    size: usize,
    offset: usize,
    offset_unit_bytes: u64,
}

impl Columns {
    fn of(line: &str) -> Option<Columns> {
        let names: Vec<String> = separated(line).into_iter().map(str::to_ascii_lowercase).collect();
        let position = |wanted: &str| names.iter().position(|name| name == wanted);
        let units = [("time", 1_000_000_000), ("time_ms", 1_000_000), ("time_us", 1000), ("time_ns", 1)];
        let (time, time_unit_nanos) = units.into_iter().find_map(|(name, unit)| Some((position(name)?, unit)))?;
        let places = [("lbn", SECTOR_BYTES), ("offset", 1)];
        let (offset, offset_unit_bytes) = places.into_iter().find_map(|(name, unit)| Some((position(name)?, unit)))?;
        let (operation, size) = (position("op")?, position("size")?);
        Some(Columns { time, time_unit_nanos, operation, size, offset, offset_unit_bytes })
    }

    fn line(&self, line: &str) -> Found {
        let fields = separated(line);
        Some(Some(Line {
            nanos: nanos(fields.get(self.time)?, self.time_unit_nanos)?,
            is_write: is_write(fields.get(self.operation)?)?,
            offset_bytes: fields.get(self.offset)?.parse::<u64>().ok()?.checked_mul(self.offset_unit_bytes)?,
            length_bytes: fields.get(self.size)?.parse().ok()?,
            latency_nanos: None,
        }))
    }
}

fn csv(line: &str, before: &mut Before) -> Found {
    if let Some(columns) = &before.columns {
        return columns.line(line);
    }
    before.columns = Some(Columns::of(line)?);
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refuses};
    use super::super::{ParseOptions, parse_trace};
    use super::*;

    #[test]
    fn columns_are_where_the_first_line_says() {
        let text = "version,time,op,size,lbn\n1,5,2a,512,7\n1,6.25,28,1024,8\n";
        let expected = [(0, true, 3584, 512, None), (1_250_000_000, false, 4096, 1024, None)];
        assert_eq!(parse(text, CSV), expected);
        assert_eq!(parse("time_us,offset,op,size\n10,4096,READ,512\n", CSV), [(0, false, 4096, 512, None)]);
        refuses(CSV, &["time,op,size,lbn\n1,r,512", "time,op,size,lbn\n1,r,512,x"]);
    }

    #[test]
    fn without_names_nothing_can_be_skipped() {
        let skipping = ParseOptions { skips_malformed: true, fold_bytes: 0 };
        let error = parse_trace("a,b\n1,2\n", CSV, &skipping).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("names"), "{error}");
        let parsed = parse_trace("time,op,size,lbn\na,b\n1,w,512,0\n", CSV, &skipping).unwrap();
        assert_eq!((parsed.skipped, parsed.requests.len()), (1, 1));
    }
}
