//! Finding the files of measurements that users bring.

use crate::error::LabError;
use crate::host;
use crate::replay::formats::{HEAD_LINES_MAX, detect, header_lines};
use crate::replay::{ParseOptions, ParsedTrace, TraceFormat, TraceParser};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Most a compressed file may grow to.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// Compressions of files that users bring, by the ends of their names.
const COMPRESSIONS: [(&str, Compression); 2] = [(".zst", Compression::Zstd), (".gz", Compression::Gzip)];

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Zstd,
    Gzip,
}

impl Compression {
    fn decoder<'a>(self, input: impl Read + 'a) -> std::io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Compression::Zstd => Box::new(zstd::Decoder::new(input)?),
            Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(input)),
        })
    }
}

/// The text of the first of `names` that is in `directory`, plain or compressed (`.zst`, `.gz`); with the name of the file. `None` when
/// there is none.
///
/// # Errors
/// A file that cannot be read, decompressed or is not text.
pub(super) fn find_text(directory: &Path, names: &[&str]) -> Result<Option<(String, String)>, LabError> {
    for name in names {
        let plain = directory.join(name);
        if let Some(bytes) = host::read_file(&plain)? {
            return Ok(Some(((*name).to_owned(), text(&plain, bytes)?)));
        }
        for (end, compression) in COMPRESSIONS {
            let compressed = directory.join(format!("{name}{end}"));
            if let Some(bytes) = host::read_file(&compressed)? {
                let text = text(&compressed, decompress(&compressed, compression, &bytes)?)?;
                return Ok(Some((format!("{name}{end}"), text)));
            }
        }
    }
    Ok(None)
}

fn decompress(path: &Path, compression: Compression, bytes: &[u8]) -> Result<Vec<u8>, LabError> {
    let failed = |reason: String| LabError::file(path.display().to_string(), reason);
    let decoder = compression.decoder(bytes).map_err(|error| failed(error.to_string()))?;
    let mut decompressed = Vec::new();
    decoder
        .take(DECOMPRESSED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut decompressed)
        .map_err(|error| failed(error.to_string()))?;
    if decompressed.len() > DECOMPRESSED_BYTES_MAX {
        return Err(failed(format!("decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes")));
    }
    Ok(decompressed)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, LabError> {
    String::from_utf8(bytes).map_err(|error| LabError::file(path.display().to_string(), error))
}

/// A trace read from a file.
#[derive(Debug)]
pub(super) struct ReadTrace {
    pub(super) format: TraceFormat,
    pub(super) trace: ParsedTrace,
    /// Lines before the first request that are a header or comments.
    pub(super) header_lines: usize,
}

/// First bytes of files that are not read, and what these are.
const FOREIGN: [(&[u8], &str); 9] = [
    (b"BZh", "compressed with bzip2; decompress it"),
    (b"\xfd7zXZ\0", "compressed with xz; decompress it"),
    (b"PK\x03\x04", "a zip archive; unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"),
    (b"\x04\x22\x4d\x18", "compressed with lz4; decompress it"),
    (b"\xff\xfe\0\0", "UTF-32 text; convert it to UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 text; convert it to UTF-8"),
    (b"\xff\xfe", "UTF-16 text; convert it to UTF-8"),
    (b"\xfe\xff", "UTF-16 text; convert it to UTF-8"),
];

/// Offset of the magic of a tar archive, in bytes, and the magic.
const ARCHIVE_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// Bytes at the start of a file that are examined.
const START_BYTES: u64 = 512;

/// Bytes of a line that are read; the rest of a longer one is passed over.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Reads a trace from a file of any name: plain, or compressed with gzip or zstd, which its first bytes say. Its format is `asked`, or
/// detected by its first lines.
///
/// # Errors
/// A sentence about the file: it cannot be read, is no text, is of no known format, or is not a trace of the format.
pub(super) fn read_trace(path: &Path, asked: Option<TraceFormat>, options: ParseOptions) -> Result<ReadTrace, String> {
    match host::path_kind(path).map_err(reason)? {
        host::PathKind::File => {}
        host::PathKind::Directory => return Err("a directory; name it to replay its files".to_owned()),
        host::PathKind::Special => return Err("not a regular file".to_owned()),
    }
    let file = host::open_file(path).map_err(reason)?;
    let (start, input) = started(file).map_err(|error| error.to_string())?;
    let compression = match start.as_slice() {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
        _ => None,
    };
    let damaged = |error: std::io::Error| format!("cannot be decompressed: {error}");
    let (start, input) = match compression {
        None => (start, input),
        Some(compression) => {
            let decoder = compression.decoder(input).map_err(damaged)?;
            started(decoder).map_err(damaged)?
        }
    };
    let (magic_offset, magic) = ARCHIVE_MAGIC;
    if start.get(magic_offset..).is_some_and(|after| after.starts_with(magic)) {
        return Err("a tar archive; unpack it".to_owned());
    }
    if let Some((_, what)) = FOREIGN.iter().find(|(begin, _)| start.starts_with(begin)) {
        return Err((*what).to_owned());
    }
    if start.is_empty() {
        return Err("empty".to_owned());
    }
    if start.contains(&0) {
        return Err("binary data, not text".to_owned());
    }
    let failed = |error: std::io::Error| match compression {
        None => error.to_string(),
        Some(_) => damaged(error),
    };
    read_lines(BufReader::new(input), asked, options).map_err(|error| match error {
        LinesError::Io(error) => failed(error),
        LinesError::Trace(reason) => reason,
    })
}

/// Metadata of a file that the caller names.
fn reason(error: LabError) -> String {
    match error {
        LabError::File { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// The first bytes of `input`, and all of it.
fn started<'a>(mut input: impl Read + 'a) -> std::io::Result<(Vec<u8>, Box<dyn Read + 'a>)> {
    let mut start = Vec::new();
    input.by_ref().take(START_BYTES).read_to_end(&mut start)?;
    let all = std::io::Cursor::new(start.clone()).chain(input);
    Ok((start, Box::new(all)))
}

enum LinesError {
    Io(std::io::Error),
    Trace(String),
}

/// Reads the lines of a trace, with the first of them kept until its format is known.
fn read_lines(
    mut input: impl BufRead,
    asked: Option<TraceFormat>,
    options: ParseOptions,
) -> Result<ReadTrace, LinesError> {
    let mut bytes = Vec::new();
    let mut next = || -> std::io::Result<Option<String>> {
        bytes.clear();
        let length = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        if length as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            input.skip_until(b'\n')?;
        }
        let line = String::from_utf8_lossy(&bytes);
        Ok((length > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
    };
    let mut head = Vec::new();
    while head.len() < HEAD_LINES_MAX
        && let Some(line) = next().map_err(LinesError::Io)?
    {
        let line = match head.as_slice() {
            [] => line.trim_start_matches('\u{feff}').to_owned(),
            _ => line,
        };
        head.push(line);
    }
    let first: Vec<&str> = head.iter().map(String::as_str).collect();
    let format = asked.map_or_else(|| detect(&first), Ok).map_err(LinesError::Trace)?;
    let header_lines = header_lines(format, &first);
    let mut parser = TraceParser::new(format, options);
    first[..header_lines].iter().for_each(|_| parser.pass());
    first[header_lines..].iter().for_each(|line| parser.line(line));
    while let Some(line) = next().map_err(LinesError::Io)? {
        parser.line(&line);
    }
    let trace = parser.finish().map_err(|error| LinesError::Trace(format!("as {}: {error}", format.name())))?;
    Ok(ReadTrace { format, trace, header_lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_compressed_files_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| host::write_file(&directory.path().join(name), bytes).unwrap();
        assert_eq!(find_text(directory.path(), &["a", "b"]).unwrap(), None);
        write("b.zst", &zstd::encode_all(&b"packed"[..], 3).unwrap());
        let found = find_text(directory.path(), &["a", "b"]).unwrap();
        assert_eq!(found, Some(("b.zst".to_owned(), "packed".to_owned())));
        write("a", b"plain");
        assert_eq!(find_text(directory.path(), &["a", "b"]).unwrap().unwrap().1, "plain");
        write("e.gz", &gzip(b"packed"));
        let found = find_text(directory.path(), &["e"]).unwrap();
        assert_eq!(found, Some(("e.gz".to_owned(), "packed".to_owned())));
        write("c.zst", b"not zstd");
        assert!(find_text(directory.path(), &["c"]).is_err());
        write("d", &[0xff, 0xfe]);
        assert!(find_text(directory.path(), &["d"]).is_err());
    }
    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    const LINES: &str =
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372003061700,usr,0,Write,0,4096,100\n";
    const HEADER: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";

    fn read(bytes: &[u8], asked: Option<TraceFormat>, skips_malformed: bool) -> Result<ReadTrace, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("any name");
        host::write_file(&path, bytes).unwrap();
        read_trace(&path, asked, ParseOptions { skips_malformed, fold_bytes: 0 })
    }

    #[test]
    fn traces_are_read_whatever_their_names_say() {
        let (plain, halves) = (LINES.as_bytes(), LINES.split_at(54));
        let forms = [
            plain.to_vec(),
            LINES.trim_end().as_bytes().to_vec(),
            LINES.replace('\n', "\r\n").into_bytes(),
            format!("\u{feff}{LINES}").into_bytes(),
            format!("\u{feff}{HEADER}{LINES}").into_bytes(),
            format!("# a comment\n{HEADER}\n{LINES}").into_bytes(),
            gzip(plain),
            gzip(format!("{HEADER}{LINES}").as_bytes()),
            // Several members and frames.
            [gzip(halves.0.as_bytes()), gzip(halves.1.as_bytes())].concat(),
            zstd::encode_all(plain, 3).unwrap(),
            [halves.0, halves.1].map(|half| zstd::encode_all(half.as_bytes(), 3).unwrap()).concat(),
        ];
        for bytes in &forms {
            for asked in [None, TraceFormat::find("msr")] {
                let read = read(bytes, asked, false).unwrap();
                assert_eq!((read.format.name(), read.trace.requests.len(), read.trace.skipped), ("msr", 2, 0));
                assert!(read.header_lines <= 3);
            }
        }
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let archive = [&[b'x'; 257][..], b"ustar\0", &[0; 300]].concat();
        let gzipped = gzip(&LINES.repeat(200).into_bytes());
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (&gzip(b""), "empty"),
            (b"# Notes\n\nDownloaded in 2008.\n", "no known format fits"),
            (b"\x7fELF\x02\0\0", "binary data"),
            (b"\xff\xfe1\x002\0", "UTF-16 text"),
            (b"\xfd7zXZ\0\0", "compressed with xz"),
            (b"BZh91AY", "compressed with bzip2"),
            (b"PK\x03\x04\0", "a zip archive"),
            (&archive, "a tar archive"),
            (&gzip(&archive), "a tar archive"),
            (&gzipped[..gzipped.len() - 12], "cannot be decompressed"),
            (b"\x1f\x8bnot gzip", "cannot be decompressed"),
            (&zstd::encode_all(LINES.as_bytes(), 3).unwrap()[..20], "cannot be decompressed"),
        ] {
            let found = read(bytes, None, false).unwrap_err();
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let found = read(LINES.as_bytes(), TraceFormat::find("fiu"), false).unwrap_err();
        assert!(found.starts_with("as fiu: line 1: expected") && found.contains("(malformed lines: 2)"), "{found}");
        let directory = tempfile::tempdir().unwrap();
        let options = ParseOptions::default();
        assert!(read_trace(directory.path(), None, options).unwrap_err().starts_with("a directory"));
        assert!(read_trace(&directory.path().join("none"), None, options).unwrap_err().contains("No such file"));
        assert_eq!(read_trace(Path::new("/dev/null"), None, options).unwrap_err(), "not a regular file");
    }

    #[test]
    fn malformed_lines_are_counted_from_the_begin_of_the_file() {
        let long = "x".repeat(200_000);
        let text = format!("{HEADER}{LINES}12,usr\n{LINES}{long}\n\n{LINES}");
        let bytes = [text.as_bytes(), b"1,\xff,0,Read,0,x,1\n", LINES.as_bytes()].concat();
        let read = |skips| read(&gzip(&bytes), None, skips);
        let error = read(false).unwrap_err();
        assert!(error.starts_with("as msr: line 4: ") && error.contains("(malformed lines: 3)"), "{error}");
        let trace = read(true).unwrap().trace;
        assert_eq!((trace.requests.len(), trace.skipped, trace.first_skipped), (8, 3, Some(4)));
    }
}
