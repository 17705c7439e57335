//! The examples run: each is a program of its own, and here a module.

#[path = "../examples/batch_and_snapshot.rs"]
mod batch_and_snapshot;
#[path = "../examples/checkpoint.rs"]
mod checkpoint;
#[path = "../examples/embed.rs"]
mod embed;
#[path = "../examples/emulated_medium.rs"]
mod emulated_medium;
#[path = "../examples/read_only.rs"]
mod read_only;

#[test]
fn embed_runs() {
    embed::main().unwrap();
}

#[test]
fn batch_and_snapshot_runs() {
    batch_and_snapshot::main().unwrap();
}

#[test]
fn emulated_medium_runs() {
    emulated_medium::main().unwrap();
}

#[test]
fn checkpoint_runs() {
    checkpoint::main().unwrap();
}

#[test]
fn read_only_runs() {
    read_only::main().unwrap();
}

/// None was forgotten above.
#[test]
fn every_example_is_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names {
        assert!(include_str!("examples.rs").contains(&format!("../examples/{name}")), "{name} is not run");
    }
}
