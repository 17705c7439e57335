//! `cargo xtask quickstart`: the main job from nothing, on real data, with every command shown.

use crate::run::{self, cargo};
use std::path::Path;
use std::process::Command;

/// Real trees, the first that exists is stored.
const TREES: &[&str] = &["/usr/share/doc", "/usr/share", "/etc"];

/// Builds Varve, stores a real tree, queries it, and measures on an emulated disk.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("cargo xtask quickstart takes no argument, found '{argument}'"));
    }
    run::run("build", cargo().args(["build", "--release", "--package", "varve-cli"]))?;
    let target = run::target();
    let varve = target.join("release/varve");
    let store = target.join("quickstart/docs");
    if store.exists() {
        std::fs::remove_dir_all(&store).map_err(|error| format!("{}: {error}", store.display()))?;
    }
    std::fs::create_dir_all(&store).map_err(|error| format!("{}: {error}", store.display()))?;
    let store = store.display().to_string();
    let plots = target.join("quickstart/bench").display().to_string();
    let tree = TREES.iter().find(|tree| Path::new(tree).is_dir()).ok_or("no tree of files to store")?;

    step(&varve, "store every file below a directory, by its path", &["import-tree", &store, tree])?;
    step(&varve, "walk the first keys", &["scan", &store, "--keys-only", "--limit", "5"])?;
    step(&varve, "count the pairs", &["scan", &store, "--count"])?;
    if let Some(key) = text_key(&varve, &store) {
        step(&varve, "get one", &["get", &store, &key])?;
    }
    step(&varve, "what the store is made of", &["stats", &store])?;
    step(&varve, "verify every byte", &["check", &store])?;
    step(
        &varve,
        "the same store on an emulated 7200 rpm disk, in virtual time",
        &["bench", "disk:100GB?model=st500dm002", "fillrandom", "readrandom", "--num", "200000", "--out", &plots],
    )?;
    step(
        &varve,
        "and on an interlaced disk, which destroys what lies beside the tracks it writes",
        &["bench", "imr:10GB?track=2MiB", "fillrandom", "readrandom", "--num", "200000"],
    )
}

/// A key with a short text under it.
fn text_key(varve: &Path, store: &str) -> Option<String> {
    let output = Command::new(varve).args(["scan", store, "--json", "--limit", "2000"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let is_short = |pair: &serde_json::Value| pair["value"].as_str().is_some_and(|v| (100..1500).contains(&v.len()));
    let mut pairs = text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(is_short);
    pairs.find_map(|pair| pair["key"].as_str().map(str::to_owned))
}

/// Shows a command and runs it.
fn step(varve: &Path, what: &str, arguments: &[&str]) -> Result<(), String> {
    eprintln!("\n# {what}\n$ varve {}", arguments.join(" "));
    let status =
        Command::new(varve).args(arguments).status().map_err(|error| format!("{}: {error}", varve.display()))?;
    if status.success() { Ok(()) } else { Err(format!("varve {}: {status}", arguments.join(" "))) }
}
