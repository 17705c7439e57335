//! Detection of a trace's format by its first lines.

use super::{Before, FORMATS, MSR, SPC, TraceFormat};

/// Lines that are looked at. In a trace of `blkparse` most lines are none of requests that are issued.
pub const HEAD_LINES_MAX: usize = 1_000;

/// Header lines there can be before the first request; comments do not count.
const HEADERS_MAX: usize = 1;

/// Returns the format of the lines of `head`.
///
/// # Errors
/// A sentence: the lines are of no format, or of several.
pub fn detect(head: &[&str]) -> Result<TraceFormat, String> {
    let scored = FORMATS.map(|format| (requests(format, head), format));
    let best = scored.iter().map(|(requests, _)| *requests).max().unwrap_or(0);
    let mut found: Vec<TraceFormat> =
        scored.into_iter().filter(|(count, _)| *count == best).map(|(_, format)| format).collect();
    // A host whose name is a number makes a line of the one read as one of the other, which takes any fields after its own.
    if found.iter().any(|format| format.name == MSR.name) {
        found.retain(|format| format.name != SPC.name);
    }
    let names = |formats: &[TraceFormat]| formats.iter().map(TraceFormat::name).collect::<Vec<_>>();
    match found.as_slice() {
        _ if best == 0 => Err(format!("no known format fits its lines (known: {})", names(&FORMATS).join(", "))),
        [format] => Ok(*format),
        several => Err(format!("its lines fit several formats ({}); name one", names(several).join(", "))),
    }
}

/// Requests among the lines. Others may be malformed: a trace with many of them is reported as such.
fn requests(format: TraceFormat, head: &[&str]) -> usize {
    let mut before = Before::default();
    let lines = head[header_lines(format, head)..].iter().filter(|line| !line.trim().is_empty());
    lines.filter(|line| matches!((format.read)(line, &mut before), Some(Some(_)))).count()
}

/// Counts the lines at the begin of `head` that are a header or comments, and not of `format`, which has no header of its own.
pub fn header_lines(format: TraceFormat, head: &[&str]) -> usize {
    if format.header.is_some() {
        return 0;
    }
    let (mut headers, mut lines) = (0, 0);
    for line in head {
        let is_comment = line.trim().is_empty() || line.trim_start().starts_with(['#', ';', '%']);
        if !is_comment {
            // Names of columns are words.
            let mut fields = line.split(|c: char| c == ',' || c.is_whitespace()).filter(|field| !field.is_empty());
            let is_header =
                fields.all(|field| !field.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.'));
            let is_of_format = (format.read)(line, &mut Before::default()).is_some_and(|found| found.is_some());
            if !is_header || is_of_format || headers == HEADERS_MAX {
                break;
            }
            headers += 1;
        }
        lines += 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [(&str, &str); 10] = [
        ("msr", "128166372003061629,usr,0,Read,7014609920,24576,41286"),
        ("fiu", "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523"),
        ("spc", "0,303567,3584,w,0.000000"),
        ("alibaba", "0,R,126703661056,4096,1577808000000046"),
        ("tencent", "1538323200,12910952,128,0,1063"),
        ("blkparse", "8,0 3 3 0.000002000 697 D WS 223490 + 8 [kjournald]"),
        ("varve", "1000 50 read 4096 512 user_read Direct 2 - ok disk"),
        ("ssdsim", "100 0 10 2 0"),
        ("disksim", "W Hit 8 4 663.5 45422.0"),
        ("csv", "time,op,size,lbn\n1,w,512,0"),
    ];

    fn name(text: &str) -> Result<&'static str, String> {
        detect(&text.lines().collect::<Vec<_>>()).map(|format| format.name)
    }

    #[test]
    fn every_format_is_detected_with_and_without_a_header() {
        assert_eq!(SAMPLES.map(|(name, _)| name).len(), FORMATS.len());
        for (expected, line) in SAMPLES {
            assert_eq!(name(line), Ok(expected), "{line}");
            assert_eq!(name(&format!("{line}\n")), Ok(expected), "{line}");
            if expected != "csv" {
                for header in
                    ["Timestamp,Hostname,Type", "# a comment of 2007, and more", "ts pid process lba\n", "; x\n% y"]
                {
                    assert_eq!(name(&format!("{header}\n{line}")), Ok(expected), "{header}");
                }
                assert_eq!(name(&format!("{line}\n{line}\nmalformed")), Ok(expected));
            }
        }
    }

    #[test]
    fn other_text_is_of_no_format_and_some_of_several() {
        for text in ["", "\n\n", "hello world", "a,b,c\n1,2,3", "# only a comment", "one two\nthree\nfour", "0.5,1,2"] {
            assert!(name(text).unwrap_err().contains("no known format"), "{text}");
        }
        // 28 may be an address, or SCSI's operation.
        assert!(name("1538323200,28,128,1,1063").unwrap_err().contains("(alibaba, tencent)"));
        assert_eq!(name("1538323200,28,128,1,1063\n1538323201,30,128,1,1063"), Ok("tencent"));
        assert_eq!(name("128166372003061629,17,1,Read,7014609920,24576,41286"), Ok("msr"));
        // Malformed lines do not hide those that are not.
        assert_eq!(name("100 0 10 2 0\nx\ny"), Ok("ssdsim"));
    }

    #[test]
    fn headers_are_words_before_the_first_request() {
        let count = |format, text: &str| header_lines(format, &text.lines().collect::<Vec<_>>());
        let line = SAMPLES[0].1;
        assert_eq!(count(MSR, line), 0);
        assert_eq!(count(MSR, &format!("Timestamp,Hostname\n{line}")), 1);
        assert_eq!(count(MSR, &format!("# 1\n\nTimestamp\n# 2\n{line}")), 4);
        // A second one is malformed, as is one with numbers.
        assert_eq!(count(MSR, &format!("Timestamp\nHostname\n{line}")), 1);
        assert_eq!(count(MSR, &format!("12,usr,x\n{line}")), 0);
        assert_eq!(count(super::super::CSV, "time,op,size,lbn\n1,w,512,0"), 0);
    }
}
