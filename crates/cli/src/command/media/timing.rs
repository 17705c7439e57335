//! The constants of a timing model, for people and programs.

use crate::report::human_bytes;
use serde_json::Value;
use std::iter::Peekable;
use std::str::Lines;
use varve::spec::ByteSize;

/// Constants as a model prints them: a number or word, named ones, or a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Constants {
    One(String),
    Named(Vec<(String, Constants)>),
    List(Vec<Constants>),
}

impl Constants {
    /// Reads what `{:#?}` of a model's parameters prints: one constant, or the beginning or end of a group, to a line.
    pub(super) fn of(printed: &str) -> Constants {
        let mut lines = printed.lines().peekable();
        let first = lines.next().unwrap_or_default();
        Constants::value(first.trim(), &mut lines)
    }

    /// The value that begins with `text`, the last of its line.
    fn value(text: &str, lines: &mut Peekable<Lines<'_>>) -> Constants {
        match text.chars().last() {
            Some('{') => Constants::Named(Constants::group(lines, |line, lines| {
                let (name, value) = line.split_once(": ").unwrap_or(("", line));
                (name.to_owned(), Constants::value(value, lines))
            })),
            Some('[' | '(') => Constants::List(Constants::group(lines, Constants::value)),
            _ => Constants::One(text.trim_end_matches(',').to_owned()),
        }
    }

    fn group<'a, T>(lines: &mut Peekable<Lines<'a>>, read: impl Fn(&str, &mut Peekable<Lines<'a>>) -> T) -> Vec<T> {
        let mut group = Vec::new();
        while let Some(line) = lines.next().map(str::trim) {
            if line.starts_with(['}', ']', ')']) {
                break;
            }
            group.push(read(line, lines));
        }
        group
    }

    /// With the names of the model, and plain numbers.
    pub(super) fn json(&self) -> Value {
        match self {
            Constants::One(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())),
            Constants::Named(group) => group.iter().map(|(name, value)| (name.clone(), value.json())).collect(),
            Constants::List(list) => list.iter().map(Constants::json).collect(),
        }
    }

    /// In words and units of people, one to a line, `indent` blanks in.
    pub(super) fn text(&self, indent: usize) -> String {
        let blanks = " ".repeat(indent);
        match self {
            Constants::One(text) => format!("{blanks}{text}\n"),
            Constants::Named(group) => group.iter().map(|(name, value)| named(name, value, indent)).collect(),
            Constants::List(list) if list.iter().all(|value| matches!(value, Constants::One(_))) => {
                let ones: Vec<String> = list.iter().map(|value| value.text(0).trim_end().to_owned()).collect();
                format!("{blanks}{}\n", ones.join(", "))
            }
            Constants::List(list) => list
                .iter()
                .enumerate()
                .map(|(index, value)| match value {
                    Constants::Named(_) => format!("{blanks}{}:\n{}", index + 1, value.text(indent + 2)),
                    _ => value.text(indent),
                })
                .collect(),
        }
    }
}

fn named(name: &str, value: &Constants, indent: usize) -> String {
    let blanks = " ".repeat(indent);
    let (words, unit) = unit_of(name);
    let words = words.replace('_', " ");
    match value {
        Constants::One(text) => format!("{blanks}{words}: {}\n", shown(text, unit)),
        _ => format!("{blanks}{words}:\n{}", value.text(indent + 2)),
    }
}

/// What a constant counts, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Nanos,
    Bytes,
    BytesPerSecond,
    None,
}

/// The name without its unit.
fn unit_of(name: &str) -> (&str, Unit) {
    let units = [("_bytes_per_second", Unit::BytesPerSecond), ("_nanos", Unit::Nanos), ("_bytes", Unit::Bytes)];
    let found = units.into_iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
    found.unwrap_or((name, Unit::None))
}

fn shown(text: &str, unit: Unit) -> String {
    let inner = text.strip_prefix("Some(").and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    match (inner, inner.replace('_', "").parse::<u64>(), unit) {
        ("None", ..) => "none".to_owned(),
        ("true", ..) => "yes".to_owned(),
        ("false", ..) => "no".to_owned(),
        (_, Ok(nanos), Unit::Nanos) => time(nanos),
        (_, Ok(bytes), Unit::Bytes) => human_bytes(ByteSize(bytes)),
        (_, Ok(rate), Unit::BytesPerSecond) => format!("{}.{} MB/s", rate / 1_000_000, rate / 100_000 % 10),
        _ => inner.to_owned(),
    }
}

/// A time in the unit in which it is a number of people.
fn time(nanos: u64) -> String {
    let (unit_nanos, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let thousandths = u128::from(nanos) * 1000 / unit_nanos;
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::media::presets::Preset;

    #[test]
    fn constants_are_read_and_shown_in_units() {
        let printed = "A {\n    flush_nanos: 8333333,\n    cache_bytes: 67108864,\n    rate_bytes_per_second: 125000000,\n    \
                       is_quick: true,\n    zones: [\n        B {\n            cylinders: 7,\n        },\n    ],\n    curve: [\n        \
                       (\n            1,\n            2,\n        ),\n    ],\n    kind: Forward,\n}";
        let constants = Constants::of(printed);
        let text = "flush: 8.333 ms\ncache: 64.0 MiB\nrate: 125.0 MB/s\nis quick: yes\nzones:\n  1:\n    cylinders: 7\n\
                    curve:\n  1, 2\nkind: Forward\n";
        assert_eq!(constants.text(0), text);
        assert_eq!(constants.json()["zones"][0]["cylinders"], 7);
        assert_eq!(constants.json()["curve"][0][1], 2);
        for (nanos, text) in
            [(0, "0 ns"), (999, "999 ns"), (5_500, "5.5 us"), (16_190_000, "16.19 ms"), (1 << 40, "1099.511 s")]
        {
            assert_eq!(time(nanos), text);
        }
    }

    #[test]
    fn every_model_is_shown_without_the_names_of_its_types() {
        for preset in Preset::all() {
            let constants = Constants::of(&format!("{:#?}", preset.parameters()));
            assert!(matches!(&constants, Constants::Named(named) if named.len() > 3), "{}", preset.name());
            let text = constants.text(0);
            assert!(!text.contains(['{', '[', '(', '_']) && !text.contains("Parameters"), "{}: {text}", preset.name());
        }
    }
}
