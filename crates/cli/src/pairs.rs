//! Pairs as lines of text: what `dump` writes and `load` reads.

use crate::text::{Encoding, json_field};

/// How pairs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Key, tab, value
    Tsv,
    /// One JSON object per line: key or key_hex or key_base64, and likewise value
    Jsonl,
}

impl Format {
    /// The format a file's name suggests.
    pub(crate) fn of_file(path: Option<&std::path::Path>) -> Format {
        let extension = path.and_then(|path| path.extension()).and_then(|extension| extension.to_str());
        match extension {
            Some("json" | "jsonl" | "ndjson") => Format::Jsonl,
            _ => Format::Tsv,
        }
    }

    /// Appends a pair and a line end.
    pub(crate) fn write(self, encoding: Encoding, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            Format::Tsv => {
                encoding.encode(key, out);
                out.push(b'\t');
                encoding.encode(value, out);
            }
            Format::Jsonl => {
                let pair = serde_json::Map::from_iter([
                    json_field("key", key, encoding),
                    json_field("value", value, encoding),
                ]);
                out.extend_from_slice(serde_json::Value::Object(pair).to_string().as_bytes());
            }
        }
        out.push(b'\n');
    }

    /// The pair of a line without its end; a sentence about what is wrong if there is none.
    pub(crate) fn read(self, encoding: Encoding, line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        match self {
            Format::Tsv => {
                let Some(tab) = line.iter().position(|&byte| byte == b'\t') else {
                    return Err("expected KEY, a tab and VALUE, found no tab".to_owned());
                };
                let key = encoding.decode(&line[..tab]).map_err(|reason| format!("key: {reason}"))?;
                let value = encoding.decode(&line[tab + 1..]).map_err(|reason| format!("value: {reason}"))?;
                Ok((key, value))
            }
            Format::Jsonl => {
                let Fields(fields) = serde_json::from_slice(line).map_err(|error| error.to_string())?;
                let known = |name: &str| FIELDS.contains(&name);
                if let Some((name, _)) = fields.iter().find(|(name, _)| !known(name)) {
                    return Err(format!("'{name}' is no field of a pair; those are {}", FIELDS.join(", ")));
                }
                Ok((read_field(&fields, "key", encoding)?, read_field(&fields, "value", encoding)?))
            }
        }
    }
}

/// Every field of a pair in JSON.
const FIELDS: [&str; 6] = ["key", "key_hex", "key_base64", "value", "value_hex", "value_base64"];

/// The fields of a JSON object in their order, each as often as it is there.
struct Fields(Vec<(String, serde_json::Value)>);

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, serde_json::Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
                    if fields.iter().any(|(other, _)| *other == name) {
                        return Err(serde::de::Error::custom(format!("'{name}' twice in one object")));
                    }
                    // More than a pair has are told without keeping them all.
                    if fields.len() <= FIELDS.len() {
                        fields.push((name, value));
                    }
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// `name` as text (or hexadecimal or base64 when `encoding` says so), `name_hex` or `name_base64`.
fn read_field(fields: &[(String, serde_json::Value)], name: &str, encoding: Encoding) -> Result<Vec<u8>, String> {
    let plain = match encoding {
        Encoding::Hex | Encoding::Base64 => encoding,
        Encoding::Text | Encoding::Raw => Encoding::Raw,
    };
    let forms = [("", plain), ("_hex", Encoding::Hex), ("_base64", Encoding::Base64)];
    let mut found = None;
    for (suffix, encoding) in forms {
        let field = format!("{name}{suffix}");
        let Some((_, value)) = fields.iter().find(|(name, _)| *name == field) else { continue };
        let Some(text) = value.as_str() else {
            return Err(format!("'{field}' is a JSON string, found {value}"));
        };
        if found.is_some() {
            return Err(format!("one of '{name}', '{name}_hex' and '{name}_base64', found two"));
        }
        found = Some(encoding.decode(text.as_bytes()).map_err(|reason| format!("'{field}': {reason}"))?);
    }
    found.ok_or_else(|| format!("expected '{name}', '{name}_hex' or '{name}_base64', found none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::env::Random;

    #[test]
    fn every_form_reads_back_any_pair() {
        for seed in 0..1000 {
            let mut random = Random::seeded(seed);
            let mut bytes = || {
                let mut bytes = vec![0; random.below(20) as usize];
                random.fill_bytes(&mut bytes);
                bytes
            };
            let (key, value) = (bytes(), bytes());
            for format in [Format::Tsv, Format::Jsonl] {
                for encoding in [Encoding::Text, Encoding::Hex, Encoding::Base64] {
                    let mut line = Vec::new();
                    format.write(encoding, &key, &value, &mut line);
                    assert_eq!(line.pop(), Some(b'\n'));
                    assert!(!line.contains(&b'\n'));
                    let read = format.read(encoding, &line);
                    assert_eq!(read, Ok((key.clone(), value.clone())), "seed {seed} {format:?} {encoding:?}");
                }
            }
        }
    }

    #[test]
    fn bad_lines_are_refused_with_a_reason() {
        for (format, line, expected) in [
            (Format::Tsv, "no tab", "found no tab"),
            (Format::Tsv, "a\\q\tb", "key: '\\q' is no escape"),
            (Format::Jsonl, "[]", "expected a JSON object"),
            (Format::Jsonl, "{\"key\": \"\", \"value\": \"\", \"ttl\": 1}", "'ttl' is no field of a pair"),
            (Format::Jsonl, "{\"key\": \"\", \"key\": \"\", \"value\": \"\"}", "'key' twice"),
            (Format::Jsonl, "{\"key\": 1, \"value\": \"\"}", "'key' is a JSON string, found 1"),
            (Format::Jsonl, "{\"value\": \"\"}", "expected 'key', 'key_hex' or 'key_base64', found none"),
            (Format::Jsonl, "{\"key\": \"\", \"key_hex\": \"\", \"value\": \"\"}", "found two"),
            (Format::Jsonl, "{\"key_hex\": \"x\", \"value\": \"\"}", "'key_hex': hexadecimal text"),
            (Format::Jsonl, "{", "EOF"),
        ] {
            let reason = format.read(Encoding::Text, line.as_bytes()).unwrap_err();
            assert!(reason.contains(expected), "{line}: {reason}");
        }
    }
}
