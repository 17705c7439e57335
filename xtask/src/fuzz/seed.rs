//! First inputs: files of a small database, which random bytes would never get past the checksums of.

#[path = "../../../fuzz/first_inputs.rs"]
mod first_inputs;

use crate::run::{self, cargo};
use std::path::{Path, PathBuf};

/// Longest input a target takes.
const INPUT_BYTES_MAX: usize = 65_536;

/// A database in a directory and its copy on a device.
pub(super) struct Seeds {
    files: PathBuf,
    image: PathBuf,
}

impl Seeds {
    /// Makes the database anew in `place`, with the command itself. It is built unless it is there: to build it alone takes other features
    /// of what it depends on than to build it with the tests, and so minutes. An older one makes inputs as good.
    pub(super) fn make(place: &Path) -> Result<Seeds, String> {
        let _ = std::fs::remove_dir_all(place);
        std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
        let (files, image) = (place.join("files"), place.join("image"));
        let files_name = files.display().to_string();
        let device = format!("ram:16MiB?backing=file:{}", image.display());
        let commands: [&[&str]; 4] = [
            &["import-tree", &files_name, "fuzz/targets"],
            &["compact", &files_name, "-o", "compression=lz4"],
            &["put", &files_name, "key", "value"],
            &["checkpoint", &files_name, &device],
        ];
        let program = run::target().join("debug").join(format!("varve{}", std::env::consts::EXE_SUFFIX));
        if !program.exists() {
            run::run("build of varve", cargo().args(["build", "--quiet", "--package", "varve-cli"]))?;
        }
        for command in commands {
            let mut varve = run::plain(&program);
            varve.current_dir(run::root()).arg("--quiet").args(command);
            run::run(&format!("first inputs: varve {}", command.join(" ")), &mut varve)?;
        }
        Ok(Seeds { files, image })
    }

    /// Puts the first inputs of `target` into its corpus.
    pub(super) fn add_to(&self, corpus: &Path, target: &str) -> Result<(), String> {
        let write = |name: &str, bytes: &[u8]| {
            let path = corpus.join(format!("seed-{name}"));
            std::fs::write(&path, &bytes[..bytes.len().min(INPUT_BYTES_MAX)])
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let written = first_inputs::of(target);
        written.iter().enumerate().try_for_each(|(index, bytes)| write(&index.to_string(), bytes))?;
        let part = match target {
            "log" => ".log",
            "table" => ".sst",
            "manifest" => "MANIFEST",
            "identity" | "store_metadata" => return write("image", &read(&self.image)?),
            // Its first byte is the number of a store, or of none.
            "superblock" => {
                let image = read(&self.image)?;
                return (0..8).try_for_each(|which: u8| write(&which.to_string(), &[&[which], &image[..]].concat()));
            }
            _ => return Ok(()),
        };
        let entries = std::fs::read_dir(&self.files).map_err(|error| format!("{}: {error}", self.files.display()))?;
        let mut found = false;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", self.files.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains(part) {
                write(&name, &read(&path)?)?;
                found = true;
            }
        }
        if found { Ok(()) } else { Err(format!("{} holds no first input of {target}", self.files.display())) }
    }
}
