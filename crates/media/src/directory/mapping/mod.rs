//! Files of a directory mapped into memory, read without a call of the system.

mod registry;
mod writable;

pub use writable::WritableMapping;

use registry::{Place, REGISTRY};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// A file's bytes in the memory of the process, read-only, as the system's cache has them: what other descriptors write is
/// seen. Made by [`DirectoryFile::map`](super::DirectoryFile::map); unmapped when dropped. Thread-safe; no two readers write
/// anything they share.
///
/// A page that cannot be read (a failing medium, a file that was cut short) is a signal to a process that touches it. A
/// handler installed with the first mapping takes those within mappings, and hands all others to whoever had the signal before.
/// From then on the mapping is *lost*: it gives nothing any more, and whoever reads the file learns why. What is left of the
/// page in which a file was cut reads as zeros, without a signal, so the last byte of the file, which is not zero, is looked at as well.
pub struct FileMapping {
    memory: MappedMemory,
}

/// Memory that a range of a file is mapped to, entered with the handler of lost pages; unmapped when dropped.
pub(crate) struct MappedMemory {
    start: NonNull<u8>,
    length: usize,
    place: &'static Place,
}

// SAFETY: the memory belongs to nobody else until `drop`; `FileMapping` only reads it, `WritableMapping` writes it with `&mut self`
// only, `PersistentMemory` has its own rules; the place is made of atomics.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// `None` for a range that is empty or begins within a page, or where the system does not map.
    fn new(file: BorrowedFd<'_>, range: Range<u64>, access: ProtFlags) -> Option<MappedMemory> {
        MappedMemory::with_flags(file, range, access, MapFlags::SHARED)
    }

    /// The same with other flags than those of a shared mapping. `None` too where the file system does not know the flags.
    pub(crate) fn with_flags(
        file: BorrowedFd<'_>,
        range: Range<u64>,
        access: ProtFlags,
        flags: MapFlags,
    ) -> Option<MappedMemory> {
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok().filter(|&length| length > 0)?;
        if cfg!(not(target_pointer_width = "64")) || !registry::handler_is_installed() {
            return None;
        }
        // SAFETY: the kernel chooses where, so nothing that is in use is covered.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, access, flags, file, range.start) };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        let place = REGISTRY.claim(start.as_ptr().addr(), length, access);
        Some(MappedMemory { start, length, place })
    }

    /// First byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// A page of it could not be had: since then all of it is zeros that belong to no file. Stays so.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        // What was read before stays before.
        fence(Ordering::Acquire);
        self.place.is_lost()
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        REGISTRY.release(self.place);
        // SAFETY: mapped in `new` with this length; those who have it give out no reference that outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl FileMapping {
    /// The first `length_bytes` of a file. `None` where that cannot be: a file that is empty or ends with a zero, a file system without mappings, a
    /// process that has too many, addresses of 32 bits, of which there are too few, or a signal handler that was refused.
    pub(super) fn new(file: BorrowedFd<'_>, length_bytes: u64) -> Option<FileMapping> {
        let memory = MappedMemory::new(file, 0..length_bytes, ProtFlags::READ)?;
        // Random reads are of blocks whose pages are asked for by name (`will_need`).
        // SAFETY: the range was mapped just now; the advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(memory.start.as_ptr().cast(), memory.length, Advice::Random) };
        let mapping = FileMapping { memory };
        (!mapping.is_lost()).then_some(mapping)
    }

    /// Bytes of the file that are mapped.
    pub fn size_bytes(&self) -> u64 {
        self.memory.length as u64
    }

    /// A page of it could not be read. Stays so.
    #[inline]
    pub fn is_lost(&self) -> bool {
        // What was read before stays before.
        fence(Ordering::Acquire);
        // SAFETY: the last byte of the mapping, whose length is not zero. Volatile: it may change at any time.
        let last = unsafe { self.memory.start.as_ptr().add(self.memory.length - 1).read_volatile() };
        // Looking may have met a page that is gone, and then the mark is there now.
        last == 0 || self.memory.place.is_lost()
    }

    /// What `read` makes of the bytes of a range. `None` when the range is not within the mapping, or a page was lost
    /// before `read` was done: what it saw then may be zeros. Costs no call of the system but where pages are not in memory.
    ///
    /// Nothing that borrows the bytes can leave `read`. They are what the file holds while it runs: whoever else writes the file
    /// changes them, so `read` must bear bytes of any kind, and two looks at one byte may differ.
    #[inline]
    pub fn read<T>(&self, range: Range<u64>, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if range.start > range.end || range.end > self.memory.length as u64 || self.memory.place.is_lost() {
            return None;
        }
        // SAFETY: the range was checked to lie within the mapping, which lives as long as `self`: pages that are lost are
        // replaced and not taken away. Tables, for which mappings are made, are not written once they are complete;
        // should somebody do it nevertheless, bytes change under the reference, as with every mapped file.
        let bytes = unsafe {
            let start = self.memory.start.as_ptr().add(range.start as usize);
            std::slice::from_raw_parts(start, (range.end - range.start) as usize)
        };
        let made = read(bytes);
        (!self.is_lost()).then_some(made)
    }

    /// How often the calling thread has waited so far, for pages of mappings or for anything else: who reads much of a mapping and
    /// finds it unchanged had all of it in memory. 0 where the system does not tell. Costs a call of it.
    pub fn waits_of_thread() -> u64 {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD);
        usage.map_or(0, |usage| usage.voluntary_context_switches().unsigned_abs())
    }

    /// Has the system read a range into its cache, in one request to the medium, if it is not there; does not wait for
    /// it. A hint; costs a call of the system.
    pub fn will_need(&self, range: Range<u64>) {
        let page = rustix::param::page_size();
        let end = (self.memory.length as u64).min(range.end) as usize;
        let start = (range.start.min(end as u64) as usize) / page * page;
        if start < end {
            // SAFETY: the range is within the mapping and begins at a page; the advice changes no contents.
            let _ = unsafe {
                rustix::mm::madvise(self.memory.start.as_ptr().add(start).cast(), end - start, Advice::WillNeed)
            };
        }
    }
}

impl std::fmt::Debug for FileMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileMapping({} bytes{})", self.memory.length, if self.is_lost() { ", lost" } else { "" })
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const PAGE_BYTES: u64 = 64 << 10;

    fn file_of(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        file
    }

    fn mapping(file: &std::fs::File) -> FileMapping {
        FileMapping::new(file.as_fd(), file.metadata().unwrap().len()).unwrap()
    }

    #[test]
    fn ranges_within_the_file_are_read_and_no_others() {
        let bytes: Vec<u8> = (0..3 * PAGE_BYTES + 17).map(|at| (at % 251) as u8).collect();
        let file = file_of(&bytes);
        let map = mapping(&file);
        let size = bytes.len() as u64;
        assert_eq!(map.size_bytes(), size);
        for range in [0..size, 0..0, size..size, 5..PAGE_BYTES + 1, size - 1..size] {
            map.will_need(range.clone());
            let expected = &bytes[range.start as usize..range.end as usize];
            assert_eq!(map.read(range, <[u8]>::to_vec).as_deref(), Some(expected));
        }
        map.will_need(size..u64::MAX);
        let backwards = Range { start: 2, end: 1 };
        for range in [0..size + 1, u64::MAX - 1..u64::MAX, backwards] {
            assert_eq!(map.read(range, <[u8]>::to_vec), None);
        }
        assert!(!map.is_lost());
        assert!(FileMapping::new(file_of(b"").as_fd(), 0).is_none());
    }

    #[test]
    fn a_thread_that_waited_is_told_so() {
        let before = FileMapping::waits_of_thread();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(FileMapping::waits_of_thread() > before);
    }

    #[test]
    fn a_file_cut_short_is_lost_and_others_are_not() {
        let (cut, whole) = (file_of(&[1; 4 * PAGE_BYTES as usize]), file_of(&[2; 4 * PAGE_BYTES as usize]));
        let (cut_map, whole_map) = (mapping(&cut), mapping(&whole));
        assert_eq!(cut_map.read(0..PAGE_BYTES, |bytes| bytes[5]), Some(1));
        cut.set_len(PAGE_BYTES).unwrap();
        let mut seen = None;
        assert_eq!(cut_map.read(PAGE_BYTES..2 * PAGE_BYTES, |bytes| seen = Some(bytes[0])), None);
        assert_eq!(seen, Some(0));
        assert!(cut_map.is_lost());
        assert_eq!(cut_map.read(0..PAGE_BYTES, |bytes| bytes[5]), None);
        assert_eq!(
            whole_map.read(0..4 * PAGE_BYTES, |bytes| bytes.iter().map(|byte| u64::from(*byte)).sum()),
            Some(8 * PAGE_BYTES)
        );
        // A mapping that takes the place of a lost one begins anew.
        drop(cut_map);
        assert_eq!(mapping(&cut).read(0..PAGE_BYTES, |bytes| bytes[5]), Some(1));
    }

    #[test]
    fn a_file_cut_within_its_last_page_is_lost() {
        let file = file_of(&[1; 100]);
        let map = mapping(&file);
        for length in [99, 50] {
            file.set_len(length).unwrap();
            let mut seen = None;
            assert_eq!(map.read(0..100, |bytes| seen = Some(bytes[99])), None);
            assert_eq!(seen, Some(0));
        }
        file.set_len(100).unwrap();
        assert!(map.is_lost());
        assert!(FileMapping::new(file.as_fd(), 100).is_none());
    }

    /// Set in the process that is going to end.
    const ENDING: &str = "VARVE_TEST_ENDS_BY_A_SIGNAL";

    #[test]
    fn pages_of_others_and_signals_that_were_sent_end_the_process_as_before() {
        if let Some(how) = std::env::var_os(ENDING) {
            let ours = file_of(&[1; 100]);
            assert_eq!(mapping(&ours).read(0..1, |bytes| bytes[0]), Some(1));
            if how == "sent" {
                // The standard library's handler, which was there before, gives way at the first one and lets it pass.
                for _ in 0..2 {
                    nix::sys::signal::raise(nix::sys::signal::Signal::SIGBUS).unwrap();
                }
                return;
            }
            let theirs = file_of(&[1; 100]);
            // SAFETY: the kernel chooses where; the mapping stays for the rest of the process.
            let start = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), 100, ProtFlags::READ, MapFlags::SHARED, &theirs, 0).unwrap()
            };
            theirs.set_len(0).unwrap();
            // SAFETY: the address is mapped; that its page is gone is what ends the process.
            unsafe { start.cast::<u8>().read_volatile() };
            return;
        }
        let name = "directory::mapping::tests::pages_of_others_and_signals_that_were_sent_end_the_process_as_before";
        for how in ["sent", "touched"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(ENDING, how)
                .output()
                .unwrap();
            let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
            assert_eq!(signal, Some(nix::sys::signal::Signal::SIGBUS as i32), "{how}: {child:?}");
        }
    }

    #[test]
    fn threads_lose_files_beside_threads_that_read_theirs() {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..100u64 {
                        let pages = 1 + round % 3;
                        let file = file_of(&vec![thread + 1; (pages * PAGE_BYTES) as usize]);
                        let map = mapping(&file);
                        let sum =
                            || map.read(0..pages * PAGE_BYTES, |all| all.iter().map(|b| u64::from(*b)).sum::<u64>());
                        assert_eq!(sum(), Some(u64::from(thread + 1) * pages * PAGE_BYTES));
                        if round % 2 == 0 {
                            file.set_len(0).unwrap();
                            assert_eq!(sum(), None);
                        }
                    }
                });
            }
        });
    }
}
