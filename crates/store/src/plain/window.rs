//! The part of a log that is written through memory.

use varve_media::{DirectoryFile, WritableMapping};

/// What is mapped at once: so much of a log is counted as memory of the process.
const WINDOW_BYTES: u64 = 1 << 20;

/// What is written between two syncs before memory is worth it: with syncs after every few writes, pages would be
/// taken anew each time, and those taken ahead would go to the medium empty.
const WORTH_BYTES: u64 = 64 << 10;

/// Pages taken ahead, at most.
const AHEAD_BYTES_MAX: u64 = 256 << 10;

/// The largest page of any processor this runs on: a multiple of all others.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// A window that moves along a log behind what is appended. Space for the log is there already.
pub(super) struct Window {
    is_wanted: bool,
    mapping: Option<WritableMapping>,
    /// Written since the last sync, however it was.
    unsynced_bytes: u64,
}

impl Window {
    /// One that is opened only if it is wanted.
    pub(super) fn new(is_wanted: bool) -> Self {
        Window { is_wanted, mapping: None, unsynced_bytes: 0 }
    }

    /// Writes to `file`, which has space and is as long as `file_bytes`, in place of a call of the system. False when that
    /// has to be made: nobody wants the window, it does not reach so far, or what was written may not have arrived.
    pub(super) fn write(
        &mut self,
        file: &dyn DirectoryFile,
        file_bytes: u64,
        offset_bytes: u64,
        parts: [&[u8]; 2],
    ) -> bool {
        if !self.is_wanted {
            return false;
        }
        let length_bytes = (parts[0].len() + parts[1].len()) as u64;
        self.unsynced_bytes += length_bytes;
        let end = offset_bytes + length_bytes;
        if self.unsynced_bytes < WORTH_BYTES || end > file_bytes || length_bytes > AHEAD_BYTES_MAX {
            return false;
        }
        let reaches = |mapping: &WritableMapping| mapping.range().start <= offset_bytes && end <= mapping.range().end;
        if !self.mapping.as_ref().is_some_and(reaches) {
            // The old one first: two would be counted.
            self.mapping = None;
            let start = offset_bytes / WINDOW_BYTES * WINDOW_BYTES;
            // What lies across the border goes the other way, and the next window begins behind it.
            let range = start..(start + WINDOW_BYTES).min(file_bytes / PAGE_BYTES_MAX * PAGE_BYTES_MAX);
            if end > range.end {
                return false;
            }
            self.mapping = file.map_for_writing(range);
            self.is_wanted = self.mapping.is_some();
        }
        // No more is taken ahead than a fourth of what the next sync writes.
        let ahead_bytes = (self.unsynced_bytes / 4).min(AHEAD_BYTES_MAX) as usize;
        let written = self.mapping.as_mut().is_some_and(|mapping| mapping.write(offset_bytes, parts, ahead_bytes));
        if !written {
            // The call of the system says why.
            self.close();
        }
        written
    }

    /// Everything written is durable, or is being made so.
    pub(super) fn note_sync(&mut self) {
        self.unsynced_bytes = 0;
    }

    /// Writes no more.
    pub(super) fn close(&mut self) {
        (self.is_wanted, self.mapping) = (false, None);
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions};
    use std::sync::Arc;
    use varve_env::{Env, Random};
    use varve_media::{Directory, IoContext, OpenMode, OsDirectory};

    fn file(directory: &tempfile::TempDir, size_bytes: u64) -> Arc<dyn DirectoryFile> {
        let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
        let file = OsDirectory::open(directory.path()).unwrap().open("log", mode).unwrap();
        file.allocate(size_bytes).unwrap();
        file.truncate(size_bytes).unwrap();
        file
    }

    #[test]
    fn opens_once_it_is_worth_it_and_moves_along() {
        let directory = tempfile::tempdir().unwrap();
        let size_bytes = 2 * WINDOW_BYTES + WINDOW_BYTES / 2;
        let file = file(&directory, size_bytes);
        if file.map_for_writing(0..WINDOW_BYTES).is_none() {
            eprintln!("not tested: this file system has no such mappings");
            return;
        }
        let mut window = Window::new(true);
        let piece = [7; 4000];
        let (mut at, mut mapped, mut calls) = (0, 0, Vec::new());
        while at + 4000 <= size_bytes {
            match window.write(&*file, size_bytes, at, [&piece[..1000], &piece[1000..]]) {
                true => mapped += 1,
                false => calls.push(at),
            }
            at += 4000;
        }
        // Before it is worth it, across each border, and behind the last whole page.
        let first = WORTH_BYTES / 4000;
        assert_eq!(calls[..first as usize], (0..first).map(|number| number * 4000).collect::<Vec<_>>());
        assert_eq!(calls[first as usize..].iter().map(|at| at / WINDOW_BYTES).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(mapped + calls.len() as u64, size_bytes / 4000);
        assert!(!window.write(&*file, size_bytes, size_bytes - 10, [&piece, &[]]), "beyond the file");
        window.note_sync();
        assert!(!window.write(&*file, size_bytes, 0, [&piece, &[]]), "little since a sync");
        assert!(!Window::new(false).write(&*file, size_bytes, 0, [&piece, &[]]));
    }

    /// The call of the system, which then says why.
    #[test]
    fn what_does_not_arrive_is_told_and_the_window_stays_closed() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory, 2 * WINDOW_BYTES);
        let mut window = Window::new(true);
        let piece = vec![7; WORTH_BYTES as usize];
        if !window.write(&*file, 2 * WINDOW_BYTES, 0, [&piece, &[]]) {
            eprintln!("not tested: this file system has no such mappings");
            return;
        }
        file.truncate(0).unwrap();
        assert!(!window.write(&*file, 2 * WINDOW_BYTES, WORTH_BYTES, [&piece, &[]]));
        file.truncate(2 * WINDOW_BYTES).unwrap();
        assert!(!window.write(&*file, 2 * WINDOW_BYTES, WORTH_BYTES, [&piece, &[]]));
    }

    /// Appended in pieces of any size, read beside it, with syncs often and seldom.
    #[test]
    fn a_log_that_is_mapped_holds_what_one_that_is_not_does() {
        for seed in 0..4 {
            let directory = tempfile::tempdir().unwrap();
            let place = Arc::new(OsDirectory::open(directory.path()).unwrap());
            let store = crate::PlainStore::open(&Env::real(), place, crate::PlainOptions::default());
            let context = IoContext::default();
            let mut logs = [true, false].map(|map| {
                let expected_size_bytes = Some(3 << 20);
                let options =
                    CreateOptions { kind: FileKind::Log, expected_size_bytes, map, ..CreateOptions::default() };
                store.create(&format!("{map}.log"), &options).unwrap()
            });
            let mut random = Random::named(seed, "window");
            let mut model = Vec::new();
            for step in 0..2_000u32 {
                let mut piece = vec![step as u8; random.below(5_000) as usize];
                if random.chance(1, 100) {
                    piece.resize(random.below(300_000) as usize, 1);
                }
                model.extend_from_slice(&piece);
                let syncs = random.chance(1, if seed % 2 == 0 { 4 } else { 300 });
                for log in &mut logs {
                    log.append(&piece, &context).unwrap();
                    if syncs { log.sync(&context) } else { log.flush(&context) }.unwrap();
                }
                if random.chance(1, 100) {
                    let seen = store.open("true.log", &OpenOptions::default()).unwrap();
                    assert_eq!(seen.size_bytes(), model.len() as u64, "seed {seed}");
                    let mut last = vec![0; piece.len()];
                    seen.read_at(model.len() as u64 - piece.len() as u64, &mut last, &context).unwrap();
                    assert!(last == piece, "seed {seed}, step {step}");
                }
            }
            for log in logs {
                log.finish(&context).unwrap();
            }
            for name in ["true.log", "false.log"] {
                assert!(std::fs::read(directory.path().join(name)).unwrap() == model, "seed {seed}: {name}");
            }
        }
    }
}
