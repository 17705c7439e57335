//! The entry point for fuzzing: any bytes, no panic.

use super::{
    FORMATS, HEAD_LINES_MAX, ParseOptions, ParsedTrace, REQUEST_BYTES_MAX, TraceError, TraceFormat, detect,
    header_lines, parse_trace,
};

/// Bytes of devices onto which is folded: one that takes every request, and one that is too small for many.
const FOLDS: [u64; 2] = [REQUEST_BYTES_MAX, 4096];

/// Reads any bytes in every format, with what is malformed refused and skipped, and checks what was read against the text, and what is
/// folded against what is not.
///
/// # Panics
/// If something that was read cannot be so.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let head: Vec<&str> = text.lines().take(HEAD_LINES_MAX).collect();
    let detected = detect(&head);
    assert!(detected.is_ok() || detected.is_err_and(|reason| !reason.is_empty()));
    assert!(FORMATS.into_iter().all(|format| header_lines(format, &head) <= head.len()));
    for format in FORMATS {
        let strict = read(&text, format, false, 0);
        let skipping = read(&text, format, true, 0);
        if strict.is_ok() {
            assert_eq!(strict, skipping, "{}: there was nothing to skip", format.name());
        }
        for fold_bytes in FOLDS {
            for skips_malformed in [false, true] {
                let whole = if skips_malformed { &skipping } else { &strict };
                let folded = read(&text, format, skips_malformed, fold_bytes);
                check_folding(format, whole, &folded);
            }
        }
    }
}

/// Folding changes where requests lie, and refuses those that are larger than the device.
fn check_folding(
    format: TraceFormat,
    whole: &Result<ParsedTrace, TraceError>,
    folded: &Result<ParsedTrace, TraceError>,
) {
    let (whole, folded) = match (whole, folded) {
        (Ok(whole), Ok(folded)) => (whole, folded),
        (_, Err(TraceError::TooLarge { .. })) => return,
        (whole, folded) => return assert_eq!(whole, folded, "{}", format.name()),
    };
    assert_eq!((whole.skipped, whole.out_of_order), (folded.skipped, folded.out_of_order));
    assert_eq!(whole.requests.len(), folded.requests.len());
    for (whole, folded) in whole.requests.iter().zip(&folded.requests) {
        let mut moved = *whole;
        moved.offset_bytes = folded.offset_bytes;
        assert_eq!(moved, *folded, "{}", format.name());
    }
}

fn read(text: &str, format: TraceFormat, skips_malformed: bool, fold_bytes: u64) -> Result<ParsedTrace, TraceError> {
    let parsed = parse_trace(text, format, &ParseOptions { skips_malformed, fold_bytes });
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count() as u64;
    match &parsed {
        Ok(ParsedTrace { requests, skipped, first_skipped, out_of_order }) => {
            assert_eq!(*skipped > 0, first_skipped.is_some());
            assert!(skips_malformed || *skipped == 0);
            assert!(*out_of_order < requests.len() as u64);
            assert!(requests.len() as u64 + skipped <= lines);
            assert_eq!(requests.first().map(|request| request.arrival_nanos), Some(0));
            assert!(requests.windows(2).all(|pair| pair[0].arrival_nanos <= pair[1].arrival_nanos));
            for request in requests {
                let length_bytes = u64::from(request.length_bytes);
                assert!((1..=REQUEST_BYTES_MAX).contains(&length_bytes));
                if fold_bytes > 0 {
                    assert!(length_bytes <= fold_bytes && request.offset_bytes <= fold_bytes - length_bytes);
                }
            }
        }
        Err(error) => {
            match error {
                TraceError::Line { line, expected, malformed, .. } => {
                    assert!((1..=lines).contains(malformed));
                    assert!(!skips_malformed || format.header == Some(*expected));
                    assert!((1..=text.lines().count()).contains(line));
                }
                TraceError::Empty { skipped } => assert!(*skipped <= lines && (skips_malformed || *skipped == 0)),
                TraceError::TooLarge { length_bytes, device_bytes, .. } => {
                    assert!(*device_bytes == fold_bytes && length_bytes > device_bytes);
                }
            }
            assert!(!error.to_string().is_empty());
        }
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::env::Random;

    #[test]
    fn any_text_is_read_or_refused() {
        let pieces = [
            "1",
            "0",
            ",",
            " ",
            "\n",
            "R",
            "w",
            "2a",
            "+",
            "8,0",
            "D",
            "time,op,size,lbn",
            "9999999999999999999",
            ".",
            "read",
        ];
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
