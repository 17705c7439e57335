//! Traces as tracers print them.

use super::fields::{nanos, sectors};
use super::{Before, Found, Line, TraceFormat};

/// `blkparse` in its usual form; of its lines those of requests that are issued (`D`).
pub const BLKPARSE: TraceFormat = TraceFormat {
    name: "blkparse",
    line: "'major,minor cpu sequence seconds pid action kind sector + sectors'",
    header: None,
    read: blkparse,
};

/// What `trace=` of a spec writes.
pub const VARVE: TraceFormat = TraceFormat {
    name: "varve",
    line: "'begin duration operation offset length ...', as trace= writes it",
    header: None,
    read: varve,
};

fn blkparse(line: &str, _: &mut Before) -> Found {
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

fn varve(line: &str, _: &mut Before) -> Found {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refuses};
    use super::*;

    #[test]
    fn blkparse_is_read() {
        let text = "  8,0    3        1     0.000000000   697  A   R 223490 + 8 <- (8,1) 223427\n  8,0    3        3     \
                    0.000002000   697  D   WS 223490 + 8 [kjournald]\n  8,0 1 2 0.000009500 0 D R 16 + 16 [x]\n\
                    CPU0 (8,0):\n Reads Queued: 0\n";
        let expected = [(0, true, 223_490 * 512, 4096, None), (7500, false, 8192, 8192, None)];
        assert_eq!(parse(text, BLKPARSE), expected);
        refuses(BLKPARSE, &["8,0 1 2 0.5 0", "8,0 1 2 0.5 0 D R 16 - 16", "8,0 1 2 half 0 D R 16 + 16"]);
    }

    #[test]
    fn our_own_lines_are_read() {
        let text = "1000 50 read 4096 512 user_read Direct 2 - ok disk\n1100 9 sync 0 0 log Direct - - ok disk\n1200 70 write 0 \
                    4096 log Direct - - ok a disk\n";
        let expected = [(0, false, 4096, 512, Some(50)), (200, true, 0, 4096, Some(70))];
        assert_eq!(parse(text, VARVE), expected);
        refuses(VARVE, &["1000 50 read 4096", "1000 - read 4096 512 x", "x 50 read 4096 512 x"]);
    }
}
