//! Which memory is whose, for the handler of the signal that a lost page is.
//!
//! The handler may run at any moment on any thread: it takes no lock, allocates nothing, and calls the kernel only.

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// Places that are made at once.
const PLACES: usize = 256;

pub(super) static REGISTRY: Registry = Registry { first: Chunk::new(), changing: Mutex::new(()) };

/// The memory of one mapping, or free. Those there are are never given back.
pub(super) struct Place {
    /// Odd while the rest is being changed.
    generation: AtomicUsize,
    /// Zero when free.
    start: AtomicUsize,
    length: AtomicUsize,
    /// Bits of what may be done with it.
    access: AtomicU32,
    lost: AtomicBool,
}

impl Place {
    const fn new() -> Place {
        Place {
            generation: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            access: AtomicU32::new(0),
            lost: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Changes it; the registry's lock is held.
    fn set(&self, start: usize, length: usize, access: ProtFlags) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.generation.store(generation.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.access.store(access.bits(), Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
        self.generation.store(generation.wrapping_add(2), Ordering::Release);
    }

    /// Where its memory begins, how much it is, and what may be done with it, when `address` is in it. A place that is being changed is of a mapping
    /// nobody reads from yet, or any more.
    fn memory_around(&self, address: usize) -> Option<(usize, usize, ProtFlags)> {
        let generation = self.generation.load(Ordering::Acquire);
        let (start, length) = (self.start.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        let access = ProtFlags::from_bits_retain(self.access.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let unchanged = generation.is_multiple_of(2) && self.generation.load(Ordering::Relaxed) == generation;
        (unchanged && start != 0 && address.wrapping_sub(start) < length).then_some((start, length, access))
    }
}

struct Chunk {
    places: [Place; PLACES],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Chunk {
        Chunk { places: [const { Place::new() }; PLACES], next: AtomicPtr::new(null_mut()) }
    }

    fn next(&self) -> Option<&'static Chunk> {
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that was leaked in `claim` and is only shared since.
        unsafe { next.as_ref() }
    }
}

/// All mappings of the process.
pub(super) struct Registry {
    first: Chunk,
    changing: Mutex<()>,
}

impl Registry {
    /// Enters memory that was mapped with this access.
    pub(super) fn claim(&'static self, start: usize, length: usize, access: ProtFlags) -> &'static Place {
        let _changing = self.changing.lock();
        let mut chunk = &self.first;
        loop {
            if let Some(free) = chunk.places.iter().find(|place| place.start.load(Ordering::Relaxed) == 0) {
                free.set(start, length, access);
                return free;
            }
            chunk = match chunk.next() {
                Some(next) => next,
                None => {
                    let made: &'static Chunk = Box::leak(Box::new(Chunk::new()));
                    chunk.next.store(std::ptr::from_ref(made).cast_mut(), Ordering::Release);
                    made
                }
            };
        }
    }

    /// Forgets memory that is going to be unmapped.
    pub(super) fn release(&self, place: &Place) {
        let _changing = self.changing.lock();
        place.set(0, 0, ProtFlags::empty());
    }

    /// Marks the mapping `address` is in and puts zeros in its place. False when there is none. Called in the handler.
    fn lose(&self, address: usize) -> bool {
        let mut chunk = Some(&self.first);
        while let Some(those) = chunk {
            for place in &those.places {
                let Some((start, length, access)) = place.memory_around(address) else { continue };
                // Before zeros are there to be seen.
                place.lost.store(true, Ordering::SeqCst);
                let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
                let start = std::ptr::with_exposed_provenance_mut(start);
                // SAFETY: the memory is that of a mapping whose user stands in this handler, so it is not unmapped
                // meanwhile; it is used by nobody who does not look at the mark afterwards. All of it is replaced: parts would
                // be mappings of their own, of which a process may have only so many.
                return unsafe { rustix::mm::mmap_anonymous(start, length, access, flags) }.is_ok();
            }
            chunk = those.next();
        }
        false
    }
}

/// What the signal did before.
static PREVIOUS: OnceLock<SigAction> = OnceLock::new();

/// Installs the handler at the first call. False when the system refuses.
pub(super) fn handler_is_installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK | SaFlags::SA_RESTART;
        let action = SigAction::new(SigHandler::SigAction(on_lost_page), flags, SigSet::empty());
        // SAFETY: the handler does only what a handler may, see there.
        match unsafe { sigaction(Signal::SIGBUS, &action) } {
            Ok(previous) => PREVIOUS.set(previous).is_ok(),
            Err(_) => false,
        }
    })
}

/// Loads of atomics and one call of the kernel, when the page is ours; what others do with theirs, otherwise.
extern "C" fn on_lost_page(signal: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO what it knows.
    let (address, code) = unsafe { ((*information).si_addr().addr(), (*information).si_code) };
    // Codes of the kernel are above zero: with others somebody sent the signal, and no address.
    if code > 0 && REGISTRY.lose(address) {
        return;
    }
    match PREVIOUS.get().map(SigAction::handler) {
        Some(SigHandler::SigAction(handler)) => handler(signal, information, context),
        Some(SigHandler::Handler(handler)) => handler(signal),
        Some(SigHandler::SigIgn) if code <= 0 => {}
        _ => {
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // SAFETY: it is the default that was there before.
            let _ = unsafe { sigaction(Signal::SIGBUS, &default) };
            // Who touched a page touches it again, on return. What was sent has to be sent again.
            if code <= 0 {
                let _ = raise(Signal::SIGBUS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_addresses_within_and_taken_again() {
        let registry: &'static Registry =
            Box::leak(Box::new(Registry { first: Chunk::new(), changing: Mutex::new(()) }));
        // More than one chunk has.
        let places: Vec<&Place> =
            (1..=2 * PLACES + 1).map(|number| registry.claim(number << 20, 1 << 12, ProtFlags::READ)).collect();
        let place = places[2 * PLACES];
        let start = (2 * PLACES + 1) << 20;
        for (address, within) in [(start - 1, false), (start, true), (start + 4095, true), (start + 4096, false)] {
            assert_eq!(place.memory_around(address).is_some(), within, "{address:#x}");
        }
        registry.release(places[3]);
        assert!(places[3].memory_around(4 << 20).is_none());
        assert!(std::ptr::eq(registry.claim(7, 1, ProtFlags::WRITE), places[3]));
        assert_eq!(places[3].memory_around(7), Some((7, 1, ProtFlags::WRITE)));
        assert!(!registry.lose(0));
    }
}
