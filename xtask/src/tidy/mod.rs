//! Checks what the compiler does not: that crates use only crates below them, that only the right
//! places touch the operating system, that names say something and links lead somewhere.
//!
//! The rules are tables: who may use whom in `dependencies`, what may be named where in `names`.

mod circles;
mod dependencies;
mod lexer;
mod links;
mod names;
mod phrases;
mod syncs;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the root of the workspace.
    pub(crate) file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// A file of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Relative to the root of the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What is never looked into, at any depth.
const SKIPPED_DIRECTORIES: &[&str] = &["target", ".git", "corpus", "artifacts", "node_modules"];

/// Which files are read.
const EXTENSIONS: &[&str] = &["rs", "toml", "md", "sh", "py", "c", "h", "cc", "hh"];

/// Runs all checks on the workspace and prints the findings.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("tidy takes no arguments, found {argument:?}"));
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().ok_or("the manifest directory has no parent")?;
    let mut sources = Vec::new();
    collect(root, root, &mut sources)?;
    let mut findings = dependencies::check(&metadata(root)?)?;
    findings.extend(names::check(&sources));
    findings.extend(circles::check(&sources));
    findings.extend(syncs::check(&sources));
    findings.extend(phrases::check(&sources));
    findings.extend(text::check(&sources));
    let paths: BTreeSet<PathBuf> = everything(root)?;
    findings.extend(links::check(&sources, &paths));
    findings.sort();
    if findings.is_empty() {
        println!("tidy: {} files, nothing found", sources.len());
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    Err(format!("tidy: {} findings", findings.len()))
}

/// What cargo knows about the packages, as JSON.
fn metadata(root: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo metadata is not UTF-8: {error}"))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("cannot list {}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !path.is_symlink() && !SKIPPED_DIRECTORIES.contains(&name.as_ref()) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn relative(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn collect(root: &Path, directory: &Path, sources: &mut Vec<Source>) -> Result<(), String> {
    for path in entries(directory)? {
        if path.is_dir() {
            collect(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|wanted| extension == *wanted)) {
            let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            sources.push(Source { path: relative(root, &path), text });
        }
    }
    Ok(())
}

/// Every file and directory, for links to lead to.
fn everything(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut paths = BTreeSet::from([PathBuf::new()]);
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for path in entries(&directory)? {
            paths.insert(PathBuf::from(relative(root, &path)));
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    Ok(paths)
}
