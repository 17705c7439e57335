//! Traces as simulators take them.

use super::fields::{is_write, nanos, sectors, spaced};
use super::{Before, Found, Line, TraceFormat};

/// SSDsim, and MQSim after it: times are nanoseconds, addresses and sizes sectors; 0 is a write.
pub const SSDSIM: TraceFormat =
    TraceFormat { name: "ssdsim", line: "'nanoseconds device sector sectors 0|1'", header: None, read: ssdsim };

/// DiskSim's validation traces. Times are not there but follow from how long requests took, and pauses after them.
pub const DISKSIM_VALIDATION: TraceFormat = TraceFormat {
    name: "disksim",
    line: "'R|W Hit|Miss sector sectors measured_us pause_us'",
    header: None,
    read: disksim,
};

fn ssdsim(line: &str, _: &mut Before) -> Found {
    let fields = spaced(line);
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

fn disksim(line: &str, before: &mut Before) -> Found {
    let fields = spaced(line);
    let [operation, _, sector, count, measured, pause] = fields.as_slice() else { return None };
    let latency = nanos(measured, 1000)?;
    let begin = before.end_nanos;
    let end = begin.checked_add(latency)?.checked_add(nanos(pause, 1000)?)?;
    let found = Line {
        nanos: begin,
        is_write: is_write(operation)?,
        offset_bytes: sectors(sector)?,
        length_bytes: sectors(count)?,
        latency_nanos: Some(latency),
    };
    before.end_nanos = end;
    Some(Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refuses};
    use super::super::{ParseOptions, parse_trace};
    use super::*;

    #[test]
    fn ssdsim_is_read() {
        let expected = [(0, true, 5120, 1024, None), (5, false, 0, 512, None)];
        assert_eq!(parse("100 0 10 2 0\n105 4 0 1 1\n", SSDSIM), expected);
        refuses(SSDSIM, &["100 0 10 2", "100 0 10 2 7", "100.5 0 10 2 0"]);
    }

    #[test]
    fn disksim_is_read() {
        let text = "W Hit 8 4 663.5 45422.0\nR Miss 16 4 607.0 1.0\n";
        let expected = [(0, true, 4096, 2048, Some(663_500)), (46_085_500, false, 8192, 2048, Some(607_000))];
        assert_eq!(parse(text, DISKSIM_VALIDATION), expected);
        refuses(DISKSIM_VALIDATION, &["W Hit 8 4 663.5", "X Hit 8 4 663.5 1"]);
        // A line that is left out takes no time.
        let skipping = ParseOptions { skips_malformed: true, fold_bytes: 0 };
        let parsed = parse_trace(&format!("X Hit 8 4 99 99\n{text}"), DISKSIM_VALIDATION, &skipping).unwrap();
        assert_eq!((parsed.skipped, parsed.requests[1].arrival_nanos), (1, 46_085_500));
    }
}
