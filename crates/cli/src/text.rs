//! Keys and values as text: escapes, hexadecimal, base64.

use data_encoding::{BASE64, DecodeKind, HEXLOWER_PERMISSIVE};
use std::fmt::Write;
use textwrap::{WordSeparator, WordSplitter, WrapAlgorithm};

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encoding {
    /// Characters as they are; \t \n \r \0 \\ and \xHH for everything that could be mistaken
    #[default]
    Text,
    /// Bytes as they are, without escapes
    Raw,
    /// Two hexadecimal digits per byte
    Hex,
    /// Base64 with padding (RFC 4648)
    Base64,
}

impl Encoding {
    /// Appends `bytes` in this encoding.
    pub(crate) fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::Text => escape(bytes, out),
            Encoding::Raw => out.extend_from_slice(bytes),
            Encoding::Hex => append(&HEXLOWER_PERMISSIVE, bytes, out),
            Encoding::Base64 => append(&BASE64, bytes, out),
        }
    }

    /// Bytes in this encoding as a text; bytes that are no UTF-8 are only possible in [`Encoding::Raw`].
    pub(crate) fn to_text(self, bytes: &[u8]) -> String {
        let mut out = Vec::with_capacity(bytes.len());
        self.encode(bytes, &mut out);
        String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Undoes [`Encoding::encode`]; a sentence about what is wrong if it cannot be.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Encoding::Text => unescape(text),
            Encoding::Raw => Ok(text.to_vec()),
            Encoding::Hex => decode_hex(text),
            Encoding::Base64 => decode_base64(text),
        }
    }
}

/// Appends `bytes` so that they are safe to print, and [`unescape`] reads them back exactly.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\0' => out.extend_from_slice(b"\\0"),
                // Controls, the characters that change the direction of the text after them, and the byte order mark, which a
                // reader drops at the begin of a file.
                _ if character.is_control()
                    || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
                {
                    let mut buffer = [0; 4];
                    character.encode_utf8(&mut buffer).bytes().for_each(|byte| escape_byte(byte, out));
                }
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape_byte(byte, out));
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    Encoding::Hex.encode(&[byte], out);
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (byte, length) = match rest {
            [b'\\', ..] => (b'\\', 1),
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b'0', ..] => (0, 1),
            [b'x', high, low, ..] => {
                let mut byte = [0];
                if HEXLOWER_PERMISSIVE.decode_mut(&[*high, *low], &mut byte).is_err() {
                    return Err(unknown_escape(rest));
                }
                (byte[0], 3)
            }
            _ => return Err(unknown_escape(rest)),
        };
        out.push(byte);
        rest = &rest[length..];
    }
    Ok(out)
}

fn unknown_escape(rest: &[u8]) -> String {
    let shown = rest[..rest.len().min(3)].escape_ascii();
    format!(
        "'\\{shown}' is no escape (those are \\t \\n \\r \\0 \\\\ \\xHH); with --encoding raw a backslash is a backslash"
    )
}

fn append(encoding: &data_encoding::Encoding, bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoding.encode_len(bytes.len()), 0);
    encoding.encode_mut(bytes, &mut out[start..]);
}

fn decode_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    HEXLOWER_PERMISSIVE.decode(text).map_err(|error| match error.kind {
        DecodeKind::Length => format!("hexadecimal text has an even number of digits, found {}", text.len()),
        _ => {
            let pair = text.chunks(2).nth(error.position / 2).unwrap_or_default();
            format!("'{}' are not two hexadecimal digits", pair.escape_ascii())
        }
    })
}

fn decode_base64(text: &[u8]) -> Result<Vec<u8>, String> {
    // The library reads several texts, each with its padding, in a row.
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 || text[..text.len() - padding].contains(&b'=') {
        return Err("'=' in base64 stands at the end, at most twice".to_owned());
    }
    BASE64.decode(text).map_err(|error| match error.kind {
        DecodeKind::Trailing => "the last base64 character has bits that stand for nothing".to_owned(),
        DecodeKind::Symbol => {
            let found = text.get(error.position..=error.position).unwrap_or_default();
            format!("'{}' is not a base64 character", found.escape_ascii())
        }
        DecodeKind::Length | DecodeKind::Padding => {
            format!("base64 text has a multiple of 4 characters, found {}", text.len())
        }
    })
}

/// `text` in lines of at most `width` columns of a terminal, broken at blanks where it has some; all but the first begin with
/// `indent` blanks. The blanks it begins with stay.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let body = text.trim_start();
    let (first, others) = (&text[..text.len() - body.len()], " ".repeat(indent));
    // A few words to a line, however narrow the terminal.
    let options = textwrap::Options::new(width.max(indent + 20))
        .initial_indent(first)
        .subsequent_indent(&others)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::fill(body, options)
}

/// The first two blanks or more between words of `line`: where they begin and where they end.
pub(crate) fn gap(line: &str) -> Option<(usize, usize)> {
    let body = line.trim_start();
    let begin = line.len() - body.len() + body.find("  ")?;
    Some((begin, line.len() - line[begin..].trim_start().len()))
}

/// Bytes as fields of a JSON object: `name` when they are UTF-8 and `encoding` does not say
/// otherwise, else `name_hex` or `name_base64`.
pub(crate) fn json_field(name: &str, bytes: &[u8], encoding: Encoding) -> (String, serde_json::Value) {
    let (suffix, text) = match (encoding, std::str::from_utf8(bytes)) {
        (Encoding::Text | Encoding::Raw, Ok(text)) => ("", text.to_owned()),
        (Encoding::Hex, _) => ("_hex", Encoding::Hex.to_text(bytes)),
        _ => ("_base64", Encoding::Base64.to_text(bytes)),
    };
    let mut field = String::with_capacity(name.len() + suffix.len());
    // Writing to a string cannot fail.
    let _ = write!(field, "{name}{suffix}");
    (field, serde_json::Value::String(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::env::Random;

    #[test]
    fn every_encoding_reads_back_any_bytes() {
        for seed in 0..2000 {
            let mut random = Random::seeded(seed);
            let mut bytes = vec![0; random.below(20) as usize];
            random.fill_bytes(&mut bytes);
            for encoding in [Encoding::Text, Encoding::Raw, Encoding::Hex, Encoding::Base64] {
                let mut text = Vec::new();
                encoding.encode(&bytes, &mut text);
                assert_eq!(encoding.decode(&text).as_ref(), Ok(&bytes), "seed {seed} {encoding:?}");
                if encoding != Encoding::Raw {
                    let text = std::str::from_utf8(&text).unwrap();
                    assert!(!text.contains(|c: char| c.is_control()), "seed {seed} {encoding:?}: {text:?}");
                }
            }
        }
    }

    #[test]
    fn every_text_is_refused_or_written_back() {
        for seed in 0..20_000 {
            let mut random = Random::seeded(seed);
            let length = random.index(10);
            for (encoding, alphabet) in [
                (Encoding::Text, b"\\xtnr019afAFgq\xff".as_slice()),
                (Encoding::Hex, b"0123456789abcdefABCDEFg"),
                (Encoding::Base64, b"AaBbQgZz019+/-=="),
            ] {
                let text: Vec<u8> = (0..length).map(|_| alphabet[random.index(alphabet.len())]).collect();
                let Ok(bytes) = encoding.decode(&text) else { continue };
                let mut again = Vec::new();
                encoding.encode(&bytes, &mut again);
                match encoding {
                    Encoding::Hex => assert_eq!(again, text.to_ascii_lowercase()),
                    Encoding::Base64 => assert_eq!(again, text),
                    // One text of several for the same bytes.
                    Encoding::Text | Encoding::Raw => assert_eq!(encoding.decode(&again), Ok(bytes)),
                }
            }
        }
    }

    #[test]
    fn lines_are_wrapped_at_blanks() {
        assert_eq!(wrap("  one two  three four five six", 24, 4), "  one two  three four\n    five six");
        assert_eq!(wrap("", 24, 4), "");
        assert_eq!(wrap(&"x".repeat(50), 24, 4), "x".repeat(50));
        // Two columns of the terminal to a character.
        assert_eq!(
            wrap(&"\u{6c34}\u{6708} ".repeat(6), 24, 4).lines().next(),
            Some(&"\u{6c34}\u{6708} ".repeat(5)[..34])
        );
        let text = "words of several lengths, in a sentence that is long enough to be broken more than once";
        for width in 0..100 {
            let wrapped = wrap(text, width, 2);
            assert!(wrapped.lines().all(|line| line.len() <= width.max(22)), "{width}: {wrapped}");
            assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>().join(" "), text);
        }
    }

    #[test]
    fn golden() {
        assert_eq!(Encoding::Text.to_text(b"a\tb\\\xff\x1b\xc3\xa9"), "a\\tb\\\\\\xff\\x1b\u{e9}");
        assert_eq!(Encoding::Hex.to_text(b"\x00\xab"), "00ab");
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(Encoding::Base64.to_text(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for (encoding, text) in [
            (Encoding::Text, "\\"),
            (Encoding::Text, "\\q"),
            (Encoding::Text, "\\x1"),
            (Encoding::Text, "\\xzz"),
            (Encoding::Hex, "abc"),
            (Encoding::Hex, "zz"),
            (Encoding::Base64, "abc"),
            (Encoding::Base64, "a==="),
            (Encoding::Base64, "Zg==Zg=="),
            (Encoding::Base64, "Zh=="),
            (Encoding::Base64, "Zm9-"),
        ] {
            assert!(encoding.decode(text.as_bytes()).is_err(), "{encoding:?} {text}");
        }
    }
}
