//! `docs/options.md` says what the table of options says.

use varve::Options;

const PAGE: &str = include_str!("../../../docs/options.md");

#[test]
fn the_page_of_options_has_every_option_as_it_is() {
    let mut rows = String::new();
    for option in Options::ALL {
        let (name, default, unit) = (option.name, option.default, option.unit);
        rows.push_str(&format!("| `{name}` | `{default}` | {unit} | {} | {} |\n", option.meaning(), option.store));
    }
    let (_, table) = PAGE.split_once("## All options").expect("a heading");
    let found = table.find("| `").map_or("", |start| &table[start..]);
    assert!(found == rows, "the rows of docs/options.md should be:\n{rows}");
}
