//! Callers of a device's sync: stores and layers sync through `varve_media::SyncOrder` alone.

use super::lexer;
use super::{Finding, Source};
use std::collections::BTreeSet;

/// Folders whose code stands on devices and syncs them on its own account.
const FOLDERS: &[&str] = &["crates/block/src/", "crates/store/src/", "crates/engine/src/", "crates/varve/src/"];

/// Layers that pass their caller's sync on and never sync on their own account: the order is the caller's.
const FORWARDS: &[&str] = &["crates/block/src/idler/control.rs", "crates/block/src/raid/beside.rs"];

/// Checks the sources of `FOLDERS`, without their tests.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let is_checked =
        |source: &&Source| source.path.ends_with(".rs") && FOLDERS.iter().any(|folder| source.path.starts_with(folder));
    let mut found = Vec::new();
    let mut test_files = BTreeSet::new();
    for source in sources.iter().filter(is_checked) {
        let divided = lexer::without_tests(lexer::tokens(&source.text).unwrap_or_default());
        let folder = folder_of(&source.path);
        test_files.extend(divided.test_modules.iter().map(|module| format!("{folder}{module}")));
        for window in divided.tokens.windows(4) {
            let is_call = window[0].name() == Some("block")
                && window[1].is('.')
                && window[2].name() == Some("sync")
                && window[3].is('(');
            if is_call && !FORWARDS.contains(&source.path.as_str()) {
                let message = "calls a device's sync: hold a varve_media::SyncOrder for the device and sync through it";
                found.push(Finding { file: source.path.clone(), line: window[2].line, message: message.to_owned() });
            }
        }
    }
    let is_test = |path: &str| {
        test_files.iter().any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")))
    };
    found.retain(|finding| !is_test(&finding.file));
    found
}

/// Where the modules that a file declares lie.
fn folder_of(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => format!("{folder}/"),
        _ => format!("{folder}/{}/", name.trim_end_matches(".rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| Source { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
        check(&sources).iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
    }

    #[test]
    fn finds_calls_outside_of_tests() {
        let call = "fn f() {\n    self.block.sync(&context);\n}";
        assert_eq!(found(&[("crates/block/src/raid/mod.rs", call)]), ["crates/block/src/raid/mod.rs:2"]);
        assert_eq!(found(&[("crates/store/src/a.rs", "fn f() { block.sync(c) }")]), ["crates/store/src/a.rs:1"]);
        assert!(found(&[("crates/media/src/a.rs", call), (FORWARDS[0], call)]).is_empty());
        assert!(found(&[("crates/block/src/a.rs", "fn f() { order.sync(c); block.synced(); }")]).is_empty());
        assert!(found(&[("crates/block/src/a.rs", &format!("#[cfg(test)] mod t {{ {call} }}"))]).is_empty());
        let declares = "#[cfg(test)] mod tests;";
        for (file, tests) in [
            ("crates/block/src/a/mod.rs", "crates/block/src/a/tests.rs"),
            ("crates/block/src/a.rs", "crates/block/src/a/tests/deep.rs"),
        ] {
            assert!(found(&[(file, declares), (tests, call)]).is_empty(), "{tests}");
        }
        assert_eq!(found(&[("crates/block/src/a/tests.rs", call)]).len(), 1);
    }
}
