//! `cargo xtask install [--prefix DIR]`: the command, its completions and its manual, where shells and `man` look.

use crate::run::{self, cargo};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shells and the file, below the prefix, in which each looks for the completion of `varve`.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/varve"),
    ("zsh", "share/zsh/site-functions/_varve"),
    ("fish", "share/fish/vendor_completions.d/varve.fish"),
];

/// Where `man` looks.
const MANUAL: &str = "share/man/man1";

/// Builds the command and installs it below `--prefix`, or below `~/.local`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let prefix = match arguments {
        [] => std::env::var_os("HOME")
            .filter(|home| !home.is_empty())
            .map(|home| Path::new(&home).join(".local"))
            .ok_or("there is no HOME to install into; say --prefix DIR")?,
        [option, directory] if option == "--prefix" && !directory.is_empty() => PathBuf::from(directory),
        _ => {
            let found = arguments.join(" ");
            return Err(format!("cargo xtask install takes --prefix DIR and nothing else, found '{found}'"));
        }
    };
    run::run("build", cargo().args(["build", "--release", "--package", "varve-cli"]))?;
    let installed = install(&run::target().join("release/varve"), &prefix)?;
    for path in &installed {
        println!("installed {}", path.display());
    }
    let programs = prefix.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory == programs) {
        println!("PATH does not have {}: add it, and the shell finds varve there", programs.display());
    }
    Ok(())
}

/// Installs the built command `varve` below `prefix`; what was installed.
fn install(varve: &Path, prefix: &Path) -> Result<Vec<PathBuf>, String> {
    let mut installed = Vec::new();
    let program = prefix.join("bin/varve");
    make_parent(&program)?;
    // A program that runs cannot be written over, but it can be replaced.
    let fresh = prefix.join(format!("bin/.varve.{}", std::process::id()));
    std::fs::copy(varve, &fresh).map_err(|error| format!("{} to {}: {error}", varve.display(), fresh.display()))?;
    std::fs::rename(&fresh, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    installed.push(program.clone());
    for (shell, file) in COMPLETIONS {
        let path = prefix.join(file);
        make_parent(&path)?;
        let output = begun(|| Command::new(&program).args(["completions", shell]).output());
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("varve completions {shell}: {}\n{said}", output.status));
        }
        std::fs::write(&path, &output.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
        installed.push(path);
    }
    let manual = prefix.join(MANUAL);
    std::fs::create_dir_all(&manual).map_err(|error| format!("{}: {error}", manual.display()))?;
    let status = begun(|| Command::new(&program).arg("manual").arg(&manual).arg("--quiet").status());
    let status = status.map_err(|error| format!("{}: {error}", program.display()))?;
    if !status.success() {
        return Err(format!("varve manual {}: {status}", manual.display()));
    }
    installed.push(manual.join("varve.1"));
    Ok(installed)
}

/// What a program that was just written gives. Whoever forks meanwhile holds the file open for writing until its own program begins, and
/// such a file is refused as busy.
fn begun<T>(run: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..100 {
        match run() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            result => return result,
        }
    }
    run()
}

fn make_parent(path: &Path) -> Result<(), String> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the command as the tests of the workspace build it: for itself it would be built of dependencies with fewer
    /// features, which is everything once more.
    #[test]
    fn an_installed_command_completes_and_has_a_manual() {
        let arguments = ["test", "--quiet", "--workspace", "--no-run", "--test", "commands"];
        assert!(cargo().args(arguments).status().unwrap().success());
        let prefix = std::env::temp_dir().join(format!("varve-install-{}", std::process::id()));
        let installed = install(&run::target().join("debug/varve"), &prefix);
        // Once more, over what is there.
        let again = install(&run::target().join("debug/varve"), &prefix);
        let read = |file: &str| std::fs::read_to_string(prefix.join(file)).unwrap_or_default();
        let (page, subpage) = (read("share/man/man1/varve.1"), read("share/man/man1/varve-media-describe.1"));
        let scripts: Vec<String> = COMPLETIONS.iter().map(|(_, file)| read(file)).collect();
        let version = begun(|| Command::new(prefix.join("bin/varve")).arg("--version").output());
        let left: Vec<_> = std::fs::read_dir(prefix.join("bin")).unwrap().collect();
        std::fs::remove_dir_all(&prefix).unwrap();
        assert_eq!(installed.unwrap(), again.unwrap());
        assert!(version.unwrap().stdout.starts_with(b"varve "));
        assert_eq!(left.len(), 1, "{left:?}");
        for script in scripts {
            assert!(script.contains("import-tree") && script.contains("checkpoint"), "{script:.200}");
        }
        assert!(page.contains(".TH varve 1") && page.contains("Exit codes"), "{page:.400}");
        assert!(subpage.contains("\\-\\-timing") && subpage.contains("Examples"), "{subpage:.400}");
    }

    #[test]
    fn other_arguments_are_refused() {
        for arguments in [&["--prefix"][..], &["/usr"], &["--prefix", ""], &["--prefix", "/a", "b"]] {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            assert!(run(&arguments).unwrap_err().contains("--prefix DIR"), "{arguments:?}");
        }
    }
}
