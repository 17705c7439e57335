//! Which package may depend on which.

use super::Finding;
use serde_json::Value;

/// A package of the workspace and what it may use.
struct CrateRule {
    package: &'static str,
    /// The packages of the workspace it may depend on.
    uses: &'static [&'static str],
    /// What its tests, benchmarks and examples may depend on besides.
    tests_use: &'static [&'static str],
    /// Whether it may depend on packages that reach the operating system directly.
    touches_system: bool,
}

/// The house plan. Dependencies point down: a row names only rows above it.
const CRATE_RULES: &[CrateRule] = &[
    CrateRule { package: "varve-env", uses: &[], tests_use: &[], touches_system: true },
    CrateRule { package: "varve-media", uses: &["varve-env"], tests_use: &[], touches_system: true },
    CrateRule { package: "varve-store", uses: &["varve-env", "varve-media"], tests_use: &[], touches_system: false },
    CrateRule { package: "varve-block", uses: &["varve-env", "varve-media"], tests_use: &[], touches_system: false },
    // The engine names no device: its tests may, to stand on one.
    CrateRule {
        package: "varve-engine",
        uses: &["varve-env", "varve-store"],
        tests_use: &["varve-media", "varve-block"],
        touches_system: false,
    },
    // Includes sources of the engine, by path; depends on nothing of it.
    CrateRule { package: "varve-interleavings", uses: &["varve-env"], tests_use: &[], touches_system: false },
    CrateRule {
        package: "varve",
        uses: &["varve-env", "varve-media", "varve-block", "varve-store", "varve-engine"],
        tests_use: &[],
        touches_system: false,
    },
    // What the lab and the command need of the crates below, the facade shows.
    CrateRule { package: "varve-lab", uses: &["varve-env", "varve"], tests_use: &[], touches_system: false },
    CrateRule {
        package: "varve-cli",
        uses: &["varve-env", "varve", "varve-lab"],
        tests_use: &[],
        touches_system: false,
    },
    CrateRule { package: "xtask", uses: &[], tests_use: &[], touches_system: false },
];

/// Packages that reach the operating system directly.
const SYSTEM_PACKAGES: &[&str] =
    &["io-uring", "libc", "memmap2", "mio", "nix", "rustix", "socket2", "syscalls", "tokio"];

/// Those that tests of a package need: what its tests do to processes.
const SYSTEM_PACKAGES_OF_TESTS: &[(&str, &str)] = &[("varve", "nix")];

const RULES: &str = "xtask/src/tidy/dependencies.rs";

/// Checks what `cargo metadata` says against the plan.
pub(crate) fn check(metadata: &str) -> Result<Vec<Finding>, String> {
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package has no name")?;
        let manifest = package["manifest_path"].as_str().unwrap_or(name);
        let file = manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches(['/', '\\']).replace('\\', "/");
        let mut find = |message: String| findings.push(Finding { file: file.clone(), line: 0, message });
        let Some(rule) = CRATE_RULES.iter().find(|rule| rule.package == name) else {
            find(format!("{name} has no row in CRATE_RULES ({RULES}): say what it may use"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().ok_or("a dependency has no name")?;
            let for_tests = dependency["kind"] == "dev";
            // A path makes it a part of this repository, whether or not it has a row.
            if CRATE_RULES.iter().any(|rule| rule.package == used) || dependency["path"].is_string() {
                if !(rule.uses.contains(&used) || for_tests && rule.tests_use.contains(&used)) {
                    let allowed = match rule.uses {
                        [] => "nothing of this workspace".to_owned(),
                        uses => uses.join(", "),
                    };
                    let purpose = if for_tests { "in its tests " } else { "" };
                    find(format!("{name} must not use {used} {purpose}(it may use {allowed}; {RULES})"));
                }
            } else if SYSTEM_PACKAGES.contains(&used)
                && !rule.touches_system
                && !(for_tests && SYSTEM_PACKAGES_OF_TESTS.contains(&(name, used)))
            {
                find(format!("{name} must not use {used}: only env and media touch the operating system ({RULES})"));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(packages: &Value) -> Vec<String> {
        let metadata = json!({ "packages": packages, "workspace_root": "/w" });
        check(&metadata.to_string()).unwrap().iter().map(Finding::to_string).collect()
    }

    fn package(name: &str, dependencies: &Value) -> Value {
        json!({ "name": name, "manifest_path": format!("/w/crates/{name}/Cargo.toml"), "dependencies": dependencies })
    }

    fn uses(name: &str) -> Value {
        json!({ "name": name, "kind": null })
    }

    #[test]
    fn the_plan_points_down() {
        for (index, rule) in CRATE_RULES.iter().enumerate() {
            for used in rule.uses.iter().chain(rule.tests_use) {
                let below = CRATE_RULES[..index].iter().any(|lower| lower.package == *used);
                assert!(below, "{} uses {used}, which is not above it in the table", rule.package);
            }
        }
    }

    #[test]
    fn what_the_plan_allows_passes() {
        let packages = json!([
            package("varve-env", &json!([uses("parking_lot"), uses("rustix")])),
            package("varve-engine", &json!([uses("varve-store"), { "name": "varve-media", "kind": "dev" }])),
            package("varve-cli", &json!([uses("varve"), uses("varve-lab"), uses("clap")])),
        ]);
        assert_eq!(messages(&packages), Vec::<String>::new());
    }

    #[test]
    fn upwards_and_sideways_are_found() {
        let packages = json!([
            package("varve-env", &json!([uses("varve-media")])),
            package("varve-store", &json!([uses("varve-interleavings")])),
            package("varve-interleavings", &json!([{ "name": "varve-store", "kind": "dev" }])),
            package("varve-lab", &json!([uses("varve-engine"), uses("varve-media")])),
        ]);
        assert_eq!(
            messages(&packages),
            [
                "crates/varve-env/Cargo.toml: varve-env must not use varve-media (it may use nothing of this workspace; \
                 xtask/src/tidy/dependencies.rs)",
                "crates/varve-store/Cargo.toml: varve-store must not use varve-interleavings (it may use varve-env, \
                 varve-media; xtask/src/tidy/dependencies.rs)",
                "crates/varve-interleavings/Cargo.toml: varve-interleavings must not use varve-store in its tests (it may \
                 use varve-env; xtask/src/tidy/dependencies.rs)",
                "crates/varve-lab/Cargo.toml: varve-lab must not use varve-engine (it may use varve-env, varve; \
                 xtask/src/tidy/dependencies.rs)",
                "crates/varve-lab/Cargo.toml: varve-lab must not use varve-media (it may use varve-env, varve; \
                 xtask/src/tidy/dependencies.rs)",
            ]
        );
    }

    #[test]
    fn a_device_in_the_engine_is_found_outside_its_tests() {
        let found = messages(&json!([package("varve-engine", &json!([uses("varve-media")]))]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("varve-engine must not use varve-media"), "{found:?}");
    }

    #[test]
    fn the_operating_system_is_for_env_and_media() {
        for name in SYSTEM_PACKAGES {
            assert!(messages(&json!([package("varve-media", &json!([uses(name)]))])).is_empty());
            for kind in [Value::Null, json!("dev"), json!("build")] {
                let found = messages(&json!([package("varve-store", &json!([{ "name": name, "kind": kind }]))]));
                assert_eq!(found.len(), 1, "{name}");
            }
        }
        for (package_name, name) in SYSTEM_PACKAGES_OF_TESTS {
            for (kind, count) in [(Value::Null, 1), (json!("dev"), 0), (json!("build"), 1)] {
                let packages = json!([package(package_name, &json!([{ "name": name, "kind": kind }]))]);
                assert_eq!(messages(&packages).len(), count, "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_package_needs_a_row() {
        let found = messages(&json!([package("varve-attic", &json!([]))]));
        assert_eq!(
            found,
            [
                "crates/varve-attic/Cargo.toml: varve-attic has no row in CRATE_RULES (xtask/src/tidy/dependencies.rs): say what it \
              may use"
            ]
        );
        let by_path = json!([{ "name": "attic", "kind": null, "path": "/w/attic" }]);
        assert_eq!(messages(&json!([package("varve-env", &by_path)])).len(), 1);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(check("").is_err());
        assert!(check("{}").is_err());
        assert!(check("{\"packages\":[{}]}").is_err());
    }
}
