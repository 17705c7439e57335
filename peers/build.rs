//! Refuses to build a RocksDB that would compute checksums in software.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let has_rocksdb = std::env::var_os("CARGO_FEATURE_ROCKSDB").is_some();
    if !has_rocksdb || variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return;
    }
    let features = variable("CARGO_CFG_TARGET_FEATURE");
    for wanted in ["sse4.2", "pclmulqdq"] {
        if !features.split(',').any(|feature| feature == wanted) {
            println!(
                "cargo::error=RocksDB would compute checksums in software ({wanted} is off). Build with `cargo peers` \
                 from the root of the repository, or inside peers/, where .cargo/config.toml turns it on."
            );
        }
    }
}
