use super::*;
use varve_env::Random;

fn parse(text: &str) -> Spec {
    Spec::parse_unchecked(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Position and expectation of the error of `text`.
fn error(text: &str) -> (usize, String) {
    let error = match Spec::parse_unchecked(text) {
        Ok(_) => text.parse::<Spec>().unwrap_err(),
        Err(error) => error,
    };
    (error.position(), error.to_string())
}

#[test]
fn golden() {
    for (text, canonical) in [
        ("file:/var/lib/varve", "file:/var/lib/varve"),
        ("/var/lib/varve", "file:/var/lib/varve"),
        ("data", "file:data"),
        ("./a:b?c=(d", "file:./a:b%3Fc=%28d"),
        ("disk:100GB?model=ST500DM002", "disk:100GB?model=ST500DM002"),
        ("disk:10GB?a=1&b=2,c", "disk:10GB?a=1,b=2,c"),
        ("ram:", "ram:"),
        ("ram:?account", "ram:?account"),
        ("disk:1GB?backing=file:/tmp/x.img", "disk:1GB?backing=file:/tmp/x.img"),
        ("disk:1GB?backing=(file:/tmp/x.img)", "disk:1GB?backing=file:/tmp/x.img"),
        ("disk:1GB?logs=(nvme:1GB?model=a,b),c=d", "disk:1GB?logs=(nvme:1GB?model=a,b),c=d"),
        ("zns:21GiB+smr:1TiB?band=80MiB", "zns:21GiB+smr:1TiB?band=80MiB"),
        ("raid6:8+2?pi=1,disk=hdd", "raid6:8+2?pi=1,disk=hdd"),
        ("idler:(smr:8TiB?band=80MiB)?x=y", "idler:(smr:8TiB?band=80MiB)?x=y"),
        ("raid6:(disk:1GB+disk:2GB)", "raid6:(disk:1GB+disk:2GB)"),
        ("file:/a%20b%3f", "file:/a b%3F"),
        ("file:/c++%2Bd:e", "file:/c++%2Bd:e"),
        ("file:/%ff%00", "file:/%FF%00"),
        ("a:?b=c%3Ad", "a:?b=c%3Ad"),
        ("a:?b=C:d", "a:?b=C:d"),
    ] {
        let spec = parse(text);
        assert_eq!(spec.to_string(), canonical, "{text}");
        assert_eq!(parse(canonical), spec, "{text}");
    }
}

#[test]
fn errors_point_at_the_trouble() {
    for (text, position, expected) in [
        ("", 0, "expected a path, or a kind of medium"),
        ("ram:10XB", 4, "expected a size such as"),
        ("dsk:10GB", 0, "known: file:, "),
        ("ram:1GiB+ram", 4, "found '1GiB+ram'"),
        ("ram:1GiB,a", 8, "expected the end"),
        ("ram:1GiB)", 8, "expected the end"),
        ("ram:1(GiB", 5, "write %28"),
        ("ram:?", 5, "expected the name of an option, found the end"),
        ("ram:?=a", 5, "expected the name of an option, found '='"),
        ("ram:?a=1,a=2", 9, "expected each option once, found 'a'"),
        ("ram:?model=x%2", 12, "'%' and two hexadecimal digits"),
        ("ram:?logs=(ram:1GiB", 19, "expected ')', found the end"),
        ("ram:?logs=ram:1GiB?account", 18, "parentheses around a spec with options"),
        ("ram:?logs=(ram:1XB)", 15, "expected a size such as"),
        ("ram:?logs=(rom:1MB)", 11, "expected a kind of medium"),
        ("ram:?colour=red", 5, "expected an option of ram:, found 'colour'; known: "),
        ("ram:?backing=paper", 13, "one of the known words or file:PATH for 'backing'"),
        ("ram:?store=paper", 11, "known: plain, band, extent"),
        ("ram:?logs", 5, "expected a medium or one of the known words for 'logs'"),
        ("file:", 5, "expected a path"),
        ("file:/a?rotational=yes", 19, "expected no value for 'rotational'"),
        ("file:/a?fault-seed=-1", 19, "expected a whole number"),
    ] {
        let (found_position, message) = error(text);
        assert!(message.contains(expected), "{text}: {message}");
        assert_eq!(found_position, position, "{text}: {message}");
    }
    let deep = "a:(".repeat(20);
    assert!(error(&deep).1.contains("at most 8 specs within each other"));
    assert!(error(&"a".repeat(100_000)).1.contains("at most 65536 bytes"));
    let pointer = "ram:10XB".parse::<Spec>().map_err(|error| error.pointer());
    assert!(pointer.is_err_and(|pointer| pointer.contains("\n  ") && pointer.ends_with('^')));
}

#[test]
fn paths_of_any_bytes_survive() {
    let path = Path::new(OsStr::from_bytes(b"/tmp/\xff ?%+a:b,(\n"));
    let spec = Spec::of_path(path);
    let again: Spec = spec.to_string().parse().unwrap();
    assert_eq!(again, spec);
    assert_eq!(again.parts()[0].argument_path().as_deref(), Some(path));
}

#[test]
fn serde_speaks_text() {
    let spec: Spec = "file:/a b".parse().unwrap();
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(json, "\"file:/a b\"");
    assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
    assert!(serde_json::from_str::<Spec>("\"ram:1XB\"").is_err());
}

fn random_text(random: &mut Random) -> Vec<u8> {
    const ALPHABET: &[u8] = b"abz09:/+=?,&()%_-. \n\x00\xc3\xa9\xff";
    (0..random.below(12)).map(|_| ALPHABET[random.index(ALPHABET.len())]).collect()
}

fn random_word(random: &mut Random) -> String {
    let rest: String = (0..random.below(4)).map(|_| char::from(b"ab1_-"[random.index(5)])).collect();
    format!("{}{rest}", char::from(b"abc"[random.index(3)]))
}

/// What is parsed can be written and parsed again, however deep it is: a spec within another counts
/// with and without parentheses.
#[test]
fn depth_counts_alike_in_both_spellings() {
    for depth in 1..20 {
        for (open, close) in [("ab:(", ")"), ("a:1?b=c:(", ")"), ("a:?b=(c:(", "))"), ("a:?b=c:(d:?e=f:(", "))")] {
            let text = format!("{}a:1{}", open.repeat(depth), close.repeat(depth));
            if let Ok(spec) = Spec::parse_unchecked(&text) {
                let written = spec.to_string();
                assert_eq!(Spec::parse_unchecked(&written).as_ref(), Ok(&spec), "{text} is written {written}");
            }
        }
    }
}

fn random_value(random: &mut Random, depth: u64) -> Value {
    if depth > 0 && random.below(3) == 0 {
        Value::Spec(random_spec(random, depth - 1))
    } else {
        Value::Text(random_text(random))
    }
}

fn random_spec(random: &mut Random, depth: u64) -> Spec {
    let source: Arc<str> = Arc::from("");
    let parts = (0..1 + random.below(3)).map(|_| {
        let mut options: Vec<SpecOption> = Vec::new();
        for _ in 0..random.below(4) {
            let name = random_word(random);
            let value = (random.below(4) > 0).then(|| random_value(random, depth));
            if options.iter().all(|option| option.name != name) {
                options.push(SpecOption { name, value, position: 0, value_position: 0, value_length: 0 });
            }
        }
        Part {
            kind: random_word(random),
            argument: Some(random_value(random, depth)).filter(|value| *value != Value::Text(Vec::new())),
            options,
            position: 0,
            argument_position: 0,
            argument_length: 0,
            source: source.clone(),
        }
    });
    let parts = parts.collect();
    Spec { parts, source }
}

#[test]
fn what_is_written_reads_back() {
    for seed in 0..3000 {
        let spec = random_spec(&mut Random::seeded(seed), 3);
        let text = spec.to_string();
        let again = Spec::parse_unchecked(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(again, spec, "seed {seed}: {text}");
        assert_eq!(again.to_string(), text, "seed {seed}");
    }
}

#[test]
fn any_text_is_a_spec_or_an_error() {
    const PIECES: [&str; 22] = [
        "ram:",
        "disk:",
        "file:",
        "1GiB",
        "?",
        ",",
        "&",
        "=",
        "(",
        ")",
        "+",
        "%",
        "%41",
        "logs",
        "backing",
        "a",
        "/x",
        ":",
        "\u{e9}",
        "store=extent",
        "\0",
        "1/64",
    ];
    for seed in 0..20_000 {
        let mut random = Random::seeded(seed);
        let text: String = (0..random.below(12)).map(|_| PIECES[random.index(PIECES.len())]).collect();
        crate::fuzzing::spec(text.as_bytes());
    }
}

/// Every kind with its own options and the common ones, and values no device was made for: refused or built, never a panic,
/// and never more memory than a machine has.
#[test]
fn specs_nobody_means_are_refused_or_built() {
    const VALUES: [&str; 28] = [
        "",
        "0",
        "1",
        "-1",
        "7",
        "511",
        "4095",
        "4096",
        "1MiB",
        "3MiB",
        "1GiB",
        "1TiB",
        "256TiB",
        "257TiB",
        "18446744073709551615",
        "99999999999999999999",
        "1/1",
        "1/3",
        "1/18446744073709551615",
        "0/0",
        "8/1",
        "inside",
        "none",
        "compressed",
        "\u{e9}%00%ff",
        "ram:1MiB",
        "(zns:1MiB?zone=4KiB+ram:)",
        "read/io@0..",
    ];
    let media: Vec<_> = registry::media_kinds().filter(|kind| !matches!(kind.name, "file" | "dev")).collect();
    for seed in 0..1500 {
        let mut random = Random::seeded(seed);
        let mut value = || {
            let value = VALUES[random.index(VALUES.len())];
            (value, random.next_u64())
        };
        let (argument, choice) = value();
        let kind = media[choice as usize % media.len()];
        let mut text = format!("{}:{argument}", kind.name);
        let known: Vec<_> = kind.options.iter().chain(registry::common_options().map(|(_, option)| option)).collect();
        let options = choice / 16 % 4;
        for number in 0..options {
            let (mut value, choice) = value();
            let option = known[choice as usize % known.len()];
            let words = option.value.words();
            // A word that is known, every other time.
            if choice / 512 % 2 == 0 && !words.is_empty() {
                value = words[choice as usize / 1024 % words.len()];
            }
            let separator = if number == 0 { '?' } else { ',' };
            // No test writes into a directory that happens to have such a name.
            if matches!(option.value, registry::ValueForm::Path) {
                continue;
            }
            match option.value {
                registry::ValueForm::Flag => text.push_str(&format!("{separator}{}", option.name)),
                _ => text.push_str(&format!("{separator}{}={value}", option.name)),
            }
        }
        crate::fuzzing::spec(text.as_bytes());
    }
}

#[test]
fn specs_too_long_or_too_deep_are_refused() {
    let nested = |depth: usize| format!("{}ram:1MiB{}", "ram:1MiB?logs=(".repeat(depth), ")".repeat(depth));
    for text in [
        nested(1000),
        format!("ram:1MiB?{}", "store=extent,".repeat(10_000)),
        format!("ram:{}", "9".repeat(60_000)),
        "ram:1MiB+".repeat(7000),
        format!("{}:1GiB", "k".repeat(60_000)),
    ] {
        let error = text.parse::<Spec>().unwrap_err();
        assert!(error.to_string().len() < 4000, "{:.100}", text);
    }
}
