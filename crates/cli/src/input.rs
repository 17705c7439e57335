//! Bounded reading of input: lines, values and small files.

use crate::failure::Failure;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;
use varve::VALUE_BYTES_MAX;
use varve::env::Pages;
use varve::spec::ByteSize;

/// Byte order mark of UTF-8. It is no part of the text.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Byte order marks of the encodings that are refused, longest first: that of UTF-16 begins that of UTF-32.
const FOREIGN_MARKS: [(&str, &[u8]); 4] = [
    ("UTF-32LE", b"\xff\xfe\0\0"),
    ("UTF-32BE", b"\0\0\xfe\xff"),
    ("UTF-16LE", b"\xff\xfe"),
    ("UTF-16BE", b"\xfe\xff"),
];

/// Bytes of the longest mark.
const MARK_BYTES_MAX: usize = 4;

/// Largest file of options, in bytes.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// Memory of a value of unknown size at first, in bytes. It doubles when it is full.
const VALUE_BYTES_AT_FIRST: u64 = 64 << 10;

/// Buffer of a [`Lines`], in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Returns the length of the byte order mark that `start` begins with, 0 without one.
///
/// # Errors
/// A sentence about the encoding if it is not UTF-8.
fn mark_length(start: &[u8]) -> Result<usize, String> {
    match FOREIGN_MARKS.iter().find(|(_, mark)| start.starts_with(mark)) {
        Some((name, mark)) => Err(format!(
            "expected UTF-8, found the byte order mark of {name} ({}); convert it, as with 'iconv -f {} -t UTF-8'",
            mark.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
            &name[..6],
        )),
        None if start.starts_with(UTF8_MARK) => Ok(UTF8_MARK.len()),
        None => Ok(0),
    }
}

/// A line of a [`Lines`], without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Its bytes.
    Whole(&'a [u8]),
    /// Longer than the limit. Its bytes were passed over.
    TooLong,
}

/// Reads lines of a bounded length. A byte order mark before the first line is dropped.
pub(crate) struct Lines<'a> {
    input: BufReader<Box<dyn Read + 'a>>,
    /// Longest line that is returned, in bytes, without its end.
    limit_bytes: u64,
    /// A carriage return before the line feed belongs to the line.
    keeps_returns: bool,
    /// The first bytes of the input without a mark, once they were read.
    start: Option<Cursor<Vec<u8>>>,
    line: Vec<u8>,
    number: u64,
    read_bytes: u64,
}

impl<'a> Lines<'a> {
    /// Reads lines from `input`. Nothing is read yet.
    pub(crate) fn new(input: Box<dyn Read + 'a>, limit_bytes: u64, keeps_returns: bool) -> Lines<'a> {
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        Lines { input, limit_bytes, keeps_returns, start: None, line: Vec::new(), number: 0, read_bytes: 0 }
    }

    /// Reads the start of the input, called `name` in messages, and drops its byte order mark. Must precede the first line.
    ///
    /// # Errors
    /// The input cannot be read, or begins with the byte order mark of an encoding other than UTF-8.
    pub(crate) fn begin(&mut self, name: &str) -> Result<(), Failure> {
        if self.start.is_some() {
            return Ok(());
        }
        let mut start = Vec::with_capacity(MARK_BYTES_MAX);
        let read = self.input.by_ref().take(MARK_BYTES_MAX as u64).read_to_end(&mut start);
        read.map_err(|error| Failure::io(name, error))?;
        let mark = mark_length(&start).map_err(|reason| Failure::usage(format!("{name}: {reason}")))?;
        start.drain(..mark);
        self.read_bytes = mark as u64;
        self.start = Some(Cursor::new(start));
        Ok(())
    }

    /// Number of the line that [`Lines::next_line`] returned last, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far, with line ends.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Releases the memory of the last line if it is larger than `bytes`.
    pub(crate) fn release_beyond(&mut self, bytes: usize) {
        if self.line.capacity() > bytes {
            self.line = Vec::new();
        }
    }

    /// The next line; none at the end of the input. The last line needs no end.
    pub(crate) fn next_line(&mut self) -> std::io::Result<Option<Line<'_>>> {
        self.line.clear();
        // The limit, a carriage return and a line feed.
        let bound = self.limit_bytes.saturating_add(2);
        let start = self.start.get_or_insert_default();
        let mut length = start.chain(&mut self.input).take(bound).read_until(b'\n', &mut self.line)? as u64;
        if length == 0 {
            return Ok(None);
        }
        let has_end = self.line.pop_if(|last| *last == b'\n').is_some();
        if !has_end && length == bound {
            length += start.chain(&mut self.input).skip_until(b'\n')? as u64;
        }
        self.number += 1;
        self.read_bytes += length;
        if !self.keeps_returns {
            self.line.pop_if(|last| *last == b'\r');
        }
        if self.line.len() as u64 > self.limit_bytes {
            self.line = Vec::new();
            return Ok(Some(Line::TooLong));
        }
        Ok(Some(Line::Whole(&self.line)))
    }
}

/// A value in memory that the system takes back at once when it is dropped, which an allocator need not do: a large value
/// is copied into a batch and from there into the memtable, and must not be held a third time meanwhile.
pub(crate) struct Value {
    memory: Pages,
    length: usize,
}

impl Value {
    /// Reads `input` to its end; none if it has more than `limit_bytes`, of which at most one byte more is read.
    ///
    /// `size_bytes` is its size, where that is known: a larger input is refused before any of it is read.
    pub(crate) fn read(
        mut input: impl Read,
        size_bytes: Option<u64>,
        limit_bytes: u64,
    ) -> std::io::Result<Option<Value>> {
        if size_bytes.is_some_and(|size_bytes| size_bytes > limit_bytes) {
            return Ok(None);
        }
        // One byte more shows the end of the input, or that a file has grown, without other memory.
        let expected_bytes = size_bytes.map_or(VALUE_BYTES_AT_FIRST, |bytes| bytes + 1);
        let mut value = Value { memory: Pages::new(expected_bytes as usize), length: 0 };
        loop {
            if value.length as u64 > limit_bytes {
                return Ok(None);
            }
            if value.length == value.memory.len() {
                let larger_bytes = (2 * value.length as u64).min(limit_bytes + 1);
                let mut larger = Pages::new(larger_bytes as usize);
                larger[..value.length].copy_from_slice(&value.memory);
                value.memory = larger;
            }
            match input.read(&mut value.memory[value.length..]) {
                Ok(0) => return Ok(Some(value)),
                Ok(length) => value.length += length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::ops::Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

/// Reads `input`, called `name` in messages, to its end, as one value; `size_bytes` is its size, where that is known.
///
/// # Errors
/// The input cannot be read, or is larger than a value can be.
pub(crate) fn read_value(name: &str, input: impl Read, size_bytes: Option<u64>) -> Result<Value, Failure> {
    let limit = VALUE_BYTES_MAX as u64;
    let value = Value::read(input, size_bytes, limit).map_err(|error| Failure::io(name, error))?;
    value.ok_or_else(|| {
        let (human, found) = (crate::report::human_bytes(ByteSize(limit)), size_bytes.filter(|&bytes| bytes > limit));
        let found = found.map_or_else(|| "more".to_owned(), |bytes| bytes.to_string());
        Failure::usage(format!("{name}: expected a value of at most {limit} bytes ({human}), found {found}"))
    })
}

/// Reads a file of options as text, without a byte order mark.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or larger than 1 MiB.
pub(crate) fn read_options_file(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let failed = |error| Failure::io(name.clone(), error);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(SMALL_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > SMALL_FILE_BYTES_MAX {
        let limit = ByteSize(SMALL_FILE_BYTES_MAX);
        return Err(Failure::usage(format!("{name}: a file of options has at most {limit}, found more")));
    }
    let mark = mark_length(&bytes).map_err(|reason| Failure::usage(format!("{name}: {reason}")))?;
    bytes.drain(..mark);
    String::from_utf8(bytes).map_err(|error| {
        let offset = mark + error.utf8_error().valid_up_to();
        Failure::usage(format!("{name}: expected UTF-8, found other bytes at offset {offset}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a slow pipe does, and counts them.
    struct Trickle<'a> {
        bytes: &'a [u8],
        given: &'a std::cell::Cell<usize>,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = self.bytes.len().min(buffer.len()).min(1);
            buffer[..length].copy_from_slice(&self.bytes[..length]);
            self.bytes = &self.bytes[length..];
            self.given.set(self.given.get() + length);
            Ok(length)
        }
    }

    /// Lines of `text`, `None` for one that is too long; read at once and byte by byte.
    fn lines(text: &[u8], limit_bytes: u64, keeps_returns: bool) -> Vec<Option<Vec<u8>>> {
        let given = std::cell::Cell::new(0);
        let read = |input: Box<dyn Read + '_>| {
            let mut lines = Lines::new(input, limit_bytes, keeps_returns);
            lines.begin("input").unwrap();
            let mut found = Vec::new();
            while let Some(line) = lines.next_line().unwrap() {
                found.push(match line {
                    Line::Whole(line) => Some(line.to_vec()),
                    Line::TooLong => None,
                });
            }
            assert_eq!((lines.read_bytes(), lines.number()), (text.len() as u64, found.len() as u64));
            found
        };
        let found = read(Box::new(text));
        assert_eq!(read(Box::new(Trickle { bytes: text, given: &given })), found);
        found
    }

    #[test]
    fn ends_lines_at_line_feeds_and_the_end_of_input() {
        let of = |text: &[u8]| lines(text, 100, false).into_iter().map(Option::unwrap).collect::<Vec<_>>();
        assert_eq!(of(b""), Vec::<Vec<u8>>::new());
        assert_eq!(of(b"a\nb"), [b"a", b"b"]);
        assert_eq!(of(b"a\r\n\r\nb\r\n"), [&b"a"[..], b"", b"b"]);
        assert_eq!(of(b"\0\n"), [b"\0"]);
        assert_eq!(lines(b"a\r\nb\r", 100, true), [Some(b"a\r".to_vec()), Some(b"b\r".to_vec())]);
    }

    #[test]
    fn limits_lines_without_their_ends() {
        for limit in 0..5u64 {
            for length in 0..9u64 {
                let line = vec![b'x'; length as usize];
                for (end, keeps_returns) in [("", false), ("\n", false), ("\r\n", false), ("\n", true), ("\r\n", true)]
                {
                    let text = [&line, end.as_bytes(), b"y"].concat();
                    let own = length + u64::from(keeps_returns && end == "\r\n");
                    let found = lines(&text, limit, keeps_returns);
                    let what = format!("{length} bytes, {end:?}, limit {limit}, {keeps_returns}");
                    if end.is_empty() {
                        assert_eq!(found, [(length < limit).then_some(text)], "{what}");
                        continue;
                    }
                    assert_eq!(found[0].is_some(), own <= limit, "{what}");
                    assert_eq!(found[1..], [(limit > 0).then(|| b"y".to_vec())], "{what}");
                }
            }
        }
        // A return at the very end is no end of a line, but belongs to none either.
        assert_eq!(lines(b"xy\r", 2, false), [Some(b"xy".to_vec())]);
        assert_eq!(lines(b"xy\r", 2, true), [None]);
        assert_eq!(lines(b"xy\r\r\n", 2, false), [None]);
    }

    #[test]
    fn drops_a_mark_before_the_first_line_only() {
        assert_eq!(
            lines(b"\xef\xbb\xbfkey\n\xef\xbb\xbfb", 9, false),
            [Some(b"key".to_vec()), Some(b"\xef\xbb\xbfb".to_vec())]
        );
        assert_eq!(lines(b"\xef\xbb\xbf", 9, false), Vec::<Option<Vec<u8>>>::new());
        assert_eq!(lines(b"\xef\xbb", 9, false), [Some(b"\xef\xbb".to_vec())]);
        for keeps_returns in [false, true] {
            assert_eq!(lines(b"\xef\xbb\xbfabc", 3, keeps_returns), [Some(b"abc".to_vec())], "not part of the line");
        }
    }

    #[test]
    fn refuses_other_encodings_by_name() {
        for (text, name) in [
            (&b"\xff\xfea\0"[..], "UTF-16LE"),
            (b"\xff\xfe", "UTF-16LE"),
            (b"\xfe\xff\0a", "UTF-16BE"),
            (b"\xff\xfe\0\0a\0\0\0", "UTF-32LE"),
            (b"\0\0\xfe\xff\0\0\0a", "UTF-32BE"),
        ] {
            let error = Lines::new(Box::new(text), 9, false).begin("input").unwrap_err().to_string();
            assert!(error.starts_with("input: expected UTF-8") && error.contains(name), "{error}");
        }
        assert!(mark_length(b"\xff\0").is_ok() && mark_length(b"\0\0\xfe").is_ok());
    }

    #[test]
    fn reads_no_more_of_a_value_than_its_limit() {
        let given = std::cell::Cell::new(0);
        let bytes = [7; 100];
        let input = || Trickle { bytes: &bytes, given: &given };
        assert!(Value::read(input(), Some(10), 9).unwrap().is_none());
        assert_eq!(given.get(), 0, "its size was known");
        // Its size is unknown, or it grew.
        for size in [None, Some(3), Some(9)] {
            given.set(0);
            assert!(Value::read(input(), size, 9).unwrap().is_none());
            assert_eq!(given.get(), 10);
        }
        for length in [0, 1, 9] {
            for size in [None, Some(0), Some(length as u64)] {
                assert_eq!(*Value::read(&bytes[..length], size, 9).unwrap().unwrap(), bytes[..length]);
            }
        }
        let large: Vec<u8> = (0..300_001u32).map(|number| number as u8).collect();
        for size in [None, Some(5), Some(300_001)] {
            assert!(*Value::read(&large[..], size, 300_001).unwrap().unwrap() == large[..]);
            assert!(Value::read(&large[..], size, 300_000).unwrap().is_none());
        }
    }
}
