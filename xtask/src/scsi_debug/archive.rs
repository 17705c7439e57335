//! An archive of files as the kernel unpacks it into its first file system: cpio, in the format called newc.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const END: &str = "TRAILER!!!";

/// Files and directories, by path below the root.
#[derive(Default)]
pub(super) struct Archive {
    entries: BTreeMap<PathBuf, Option<Vec<u8>>>,
}

impl Archive {
    /// Adds a directory with those it is in.
    pub(super) fn directory(&mut self, path: &Path) {
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            self.entries.entry(path.to_path_buf()).or_default();
        }
    }

    /// Adds a file that can be run, with the directories it is in.
    pub(super) fn file(&mut self, path: &Path, content: &[u8]) {
        path.parent().into_iter().for_each(|parent| self.directory(parent));
        self.entries.insert(path.to_path_buf(), Some(content.to_vec()));
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Sorted: a directory is before what is in it.
        for (number, (path, content)) in (1..).zip(&self.entries) {
            let mode = if content.is_some() { PROGRAM } else { DIRECTORY };
            entry(&mut bytes, number, mode, &path.to_string_lossy(), content.as_deref().unwrap_or_default());
        }
        entry(&mut bytes, 0, 0, END, &[]);
        bytes
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, self.encode()).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn entry(bytes: &mut Vec<u8>, number: u32, mode: u32, name: &str, content: &[u8]) {
    bytes.extend(b"070701");
    let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
    // Inode, mode, user, group, links, time, size, device of two numbers, another one, length of the name, checksum.
    for field in [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
        bytes.extend(format!("{field:08X}").as_bytes());
    }
    bytes.extend(name.as_bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend(content);
    pad(bytes);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_before_their_files_and_all_is_aligned() {
        let mut archive = Archive::default();
        archive.file(Path::new("lib/x/y"), b"abc");
        archive.directory(Path::new("dev"));
        let bytes = archive.encode();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let places: Vec<usize> =
            ["dev\0", "lib\0", "lib/x\0", "lib/x/y\0", END].map(|name| text.find(name).unwrap()).into();
        assert!(places.is_sorted() && bytes.len().is_multiple_of(4));
        let heads: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(heads.len(), 5);
        assert!(heads.iter().all(|at| at.is_multiple_of(4)));
        assert_eq!(&text[heads[3]..heads[3] + 22], "07070100000004000081ED");
        assert_eq!(&text[heads[3] + 54..heads[3] + 62], "00000003");
    }
}
