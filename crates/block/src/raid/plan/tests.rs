//! Scenes from a text file: a request on a stripe in, its plan out.
//!
//! ```text
//! raid5 members=4 write 0..16 absent=D1
//! read-modify-write, reads D0[0..16] P[0..16], writes D0[0..16] P[0..16]
//! ```
//!
//! Chunks have 16 bytes; ranges of requests are bytes of the stripe's data, those of columns bytes of a chunk.
//! `VARVE_REWRITE=1` prints the file with the plans as they are.

use super::*;

const SCENES: &str = include_str!("scenes.txt");

fn column(name: &str) -> Column {
    let place = || name[1..].parse().unwrap_or_else(|_| panic!("column {name}"));
    match &name[..1] {
        "D" => Column::Data(place()),
        "C" => Column::Copy(place()),
        "P" => Column::P,
        "Q" => Column::Q,
        _ => panic!("column {name}"),
    }
}

fn list(ios: &[ColumnIo]) -> String {
    let texts: Vec<String> =
        ios.iter().map(|io| format!("{}[{}..{}]", io.column, io.range.start, io.range.end)).collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(" ") }
}

fn answer(question: &str) -> String {
    let words: Vec<&str> = question.split_whitespace().collect();
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let set = |name: &str| {
        let mut set = ColumnSet::default();
        value(name).into_iter().flat_map(|names| names.split(',')).for_each(|name| set.insert(column(name)));
        set
    };
    let level = RaidLevel::of_number(words[0][4..].parse().unwrap()).unwrap();
    let members = value("members").unwrap().parse().unwrap();
    let geometry = ArrayGeometry { level, members, chunk_bytes: 16, stripes: 100 };
    let damage = Damage { absent: set("absent"), unreadable: set("unreadable") };
    let (start, end) = words[3].split_once("..").unwrap();
    let range = start.parse().unwrap()..end.parse().unwrap();
    let lost = |lost: &[usize]| lost.iter().map(|place| format!(" D{place}")).collect::<String>();
    match words[2] {
        "write" => match plan_write(&geometry, &range, damage) {
            Err(TooManyLost) => "too many lost".to_owned(),
            Ok(plan) => {
                let recovered =
                    if plan.lost.is_empty() { String::new() } else { format!(", recovers{}", lost(&plan.lost)) };
                format!("{}, reads {}{recovered}, writes {}", plan.method, list(&plan.reads), list(&plan.writes))
            }
        },
        "read" => {
            let stripe = value("stripe").map_or(0, |stripe| stripe.parse().unwrap());
            match plan_read(&geometry, stripe, &range, damage) {
                Err(TooManyLost) => "too many lost".to_owned(),
                Ok(plan) => {
                    let recovered = plan.recovery.map_or(String::new(), |recovery| {
                        format!(", recovers{} [{}..{}]", lost(&recovery.lost), recovery.hull.start, recovery.hull.end)
                    });
                    format!("reads {}{recovered}", list(&plan.reads))
                }
            }
        }
        other => panic!("no request is called {other}"),
    }
}

#[test]
fn plans_are_those_of_the_scenes() {
    let mut lines = SCENES.lines();
    let (mut rewritten, mut scenes, mut wrong) = (String::new(), 0, Vec::new());
    while let Some(line) = lines.next() {
        rewritten += &format!("{line}\n");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (expected, found) = (lines.next().unwrap_or_default(), answer(line));
        rewritten += &format!("{found}\n");
        scenes += 1;
        if expected != found {
            wrong.push(format!("{line}\n  expected {expected}\n  found    {found}"));
        }
    }
    if std::env::var_os("VARVE_REWRITE").is_some() {
        println!("{rewritten}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(scenes > 30);
}
