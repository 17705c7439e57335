//! A part of a file that is written through memory, without a call of the system for each write.

use super::MappedMemory;
use rustix::mm::{Advice, ProtFlags};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

/// Part of a file in the memory of the process, as the system's cache has it: what is written to it the file has at once, for
/// readers of it and beyond the end of the process, and a sync of the file makes it durable. Made by
/// [`DirectoryFile::map_for_writing`](super::super::DirectoryFile::map_for_writing); unmapped when dropped. One thread at a time writes.
///
/// Pages are asked for before they are touched, so that a file system that has no space for one says so and nobody gets a
/// signal. Where there is one all the same (the file was cut short, or the medium fails), the handler of
/// [`FileMapping`](super::FileMapping) takes it, and the write tells that it may not have arrived.
pub struct WritableMapping {
    memory: MappedMemory,
    /// Where in the file it begins.
    offset_bytes: u64,
    /// Bytes from the start whose pages were asked for.
    ready: usize,
}

impl WritableMapping {
    /// A range of a file, which is as long and begins and ends at a page. `None` where that cannot be: a range that is empty or lies
    /// otherwise, a file system without mappings, a kernel that cannot be asked for pages (before Linux 5.14, which is known only when
    /// one is written), a process that has too many, addresses of 32 bits, or a signal handler that was refused.
    pub(in super::super) fn new(file: BorrowedFd<'_>, range: Range<u64>) -> Option<WritableMapping> {
        let page = rustix::param::page_size() as u64;
        if !range.start.is_multiple_of(page) || !range.end.is_multiple_of(page) {
            return None;
        }
        let memory = MappedMemory::new(file, range.clone(), ProtFlags::READ | ProtFlags::WRITE)?;
        Some(WritableMapping { memory, offset_bytes: range.start, ready: 0 })
    }

    /// What of the file is mapped.
    pub fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.memory.length as u64
    }

    /// Writes `parts` one behind the other at `offset_bytes` of the file. `ahead_bytes` behind them, the caller expects, are going to be
    /// written next: their pages are asked for in the same call of the system, if one is needed.
    ///
    /// False when it is not within the mapping, or may not have arrived; part of it may have, then, and the mapping is of no
    /// use any more: whoever writes the same with [`DirectoryFile::write_at`](super::super::DirectoryFile::write_at) learns why.
    pub fn write(&mut self, offset_bytes: u64, parts: [&[u8]; 2], ahead_bytes: usize) -> bool {
        let length_bytes = parts[0].len() + parts[1].len();
        let Some(begin) = offset_bytes.checked_sub(self.offset_bytes).and_then(|begin| usize::try_from(begin).ok())
        else {
            return false;
        };
        let Some(end) = begin.checked_add(length_bytes).filter(|&end| end <= self.memory.length) else { return false };
        if end > self.ready && !self.make_ready(begin, end.saturating_add(ahead_bytes)) {
            return false;
        }
        let mut at = begin;
        for part in parts {
            // SAFETY: `begin..end` lies within the mapping, which nobody else writes, and which `part` is no part of: no
            // reference to its memory is ever given out. A page that is gone is replaced by the handler, and the mark says so.
            unsafe { self.memory.start.as_ptr().add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            at += part.len();
        }
        // The mark is looked at once all is written.
        fence(Ordering::SeqCst);
        !self.memory.place.is_lost()
    }

    /// Has pages in memory, with a place on the medium, that can be written. Begins where the last ones ended, or at `begin` if
    /// that lies behind.
    #[cold]
    fn make_ready(&mut self, begin: usize, end: usize) -> bool {
        let page = rustix::param::page_size();
        let begin = begin.max(self.ready) / page * page;
        let end = end.min(self.memory.length).next_multiple_of(page).min(self.memory.length);
        loop {
            // SAFETY: the range is within the mapping and begins at a page; the advice changes no contents.
            let asked = unsafe {
                rustix::mm::madvise(
                    self.memory.start.as_ptr().add(begin).cast(),
                    end - begin,
                    Advice::LinuxPopulateWrite,
                )
            };
            match asked {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(_) => return false,
                Ok(()) => break,
            }
        }
        self.ready = end;
        true
    }
}

impl std::fmt::Debug for WritableMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WritableMapping({:?}{})", self.range(), if self.memory.place.is_lost() { ", lost" } else { "" })
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const PAGE_BYTES: u64 = 64 << 10;

    fn mapping(file: &std::fs::File, range: Range<u64>) -> WritableMapping {
        WritableMapping::new(file.as_fd(), range).unwrap()
    }

    #[test]
    fn what_is_written_the_file_has() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PAGE_BYTES).unwrap();
        let mut map = mapping(&file, PAGE_BYTES..3 * PAGE_BYTES);
        assert_eq!(map.range(), PAGE_BYTES..3 * PAGE_BYTES);
        for (at, ahead) in [(PAGE_BYTES, 0), (2 * PAGE_BYTES - 3, 1), (PAGE_BYTES + 9, usize::MAX)] {
            assert!(map.write(at, [b"hello", b" world"], ahead));
            let mut found = [0; 11];
            file.read_exact_at(&mut found, at).unwrap();
            assert_eq!(&found, b"hello world");
        }
        // What others write is kept where nothing else is written.
        file.write_all_at(b"between", PAGE_BYTES + 100).unwrap();
        assert!(map.write(3 * PAGE_BYTES - 1, [b"x", b""], 0));
        assert!(map.write(PAGE_BYTES + 107, [b"", b"y"], 0));
        drop(map);
        let mut found = [0; 8];
        file.read_exact_at(&mut found, PAGE_BYTES + 100).unwrap();
        assert_eq!(&found, b"betweeny");
        file.read_exact_at(&mut found[..1], 3 * PAGE_BYTES - 1).unwrap();
        assert_eq!(&found[..1], b"x");
    }

    #[test]
    fn beside_the_range_nothing_is_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PAGE_BYTES).unwrap();
        for range in [0..0, PAGE_BYTES..PAGE_BYTES, 1..PAGE_BYTES, 0..PAGE_BYTES + 1] {
            assert!(WritableMapping::new(file.as_fd(), range).is_none());
        }
        let backwards = Range { start: PAGE_BYTES, end: 0 };
        assert!(WritableMapping::new(file.as_fd(), backwards).is_none());
        let mut map = mapping(&file, PAGE_BYTES..2 * PAGE_BYTES);
        for at in [0, PAGE_BYTES - 1, 2 * PAGE_BYTES - 1, 2 * PAGE_BYTES, u64::MAX] {
            assert!(!map.write(at, [b"x", b"y"], 0), "at {at}");
        }
        let mut all = vec![1; 4 * PAGE_BYTES as usize];
        file.read_exact_at(&mut all, 0).unwrap();
        assert!(all.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn pages_that_are_gone_are_told_before_and_while_they_are_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE_BYTES).unwrap();
        let mut map = mapping(&file, 0..2 * PAGE_BYTES);
        assert!(map.write(0, [b"x", b""], 0));
        file.set_len(PAGE_BYTES).unwrap();
        // Asked for, and refused without a signal.
        assert!(!map.write(PAGE_BYTES, [b"x", b""], 0));
        assert!(map.write(1, [b"y", b""], 0));
        // They were there when they were asked for.
        file.set_len(2 * PAGE_BYTES).unwrap();
        assert!(map.write(0, [b"x", b""], usize::MAX) && map.write(PAGE_BYTES, [b"z", b""], usize::MAX));
        file.set_len(PAGE_BYTES).unwrap();
        assert!(!map.write(PAGE_BYTES + 1, [b"x", b""], 0));
        assert!(!map.write(0, [b"x", b""], 0), "it is lost for good");
        let mut first = [0; 2];
        file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(&first, b"xy");
        drop(map);
        assert!(mapping(&file, 0..PAGE_BYTES).write(0, [b"w", b""], 0));
    }
}
