//! A sorted list with express lanes, filled by any number of threads and read without locks.
//!
//! A skip list (Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees", CACM 1990) of
//! internal keys. Entries are only ever added, so a link changes by compare-and-swap alone and a
//! reader never waits or counts references; everything is freed with the list.
//!
//! A node is one piece of memory; a pointer to it points behind its links:
//!
//! | bytes, from the pointer | field |
//! |---|---|
//! | -16 (i + 1) | link of lane i: hint, then pointer to the next node |
//! | 0 | hint of the key |
//! | 8 | pointer to the value |
//! | 16 | user key length, value length (4 bytes each) |
//! | 24 | user key, then trailer |
//!
//! Values lie apart, so that nodes stay dense in the processor's caches.
//!
//! A *hint* is a number such that `hint(a) < hint(b)` implies `a < b` for user keys. The hint of a
//! link is at most the hint of the node it points to, so a search for a key with a smaller hint
//! turns down without touching that node. Invariants that make this safe while links change:
//! 1. The node a link points to only ever becomes smaller, and so does the hint: it is lowered
//!    (`fetch_min`) before the pointer is swapped, and never raised.
//! 2. A reader loads the pointer first, then the hint. It sees the hint that belongs to the
//!    pointer or a later, smaller one.

use super::arena::{Arena, ChunkPool};
use crate::key::{self, Sequence, TRAILER_BYTES};
use crate::sync::{Arc, AtomicPtr, AtomicU64, AtomicUsize, Published};
use std::cmp::Ordering as KeyOrdering;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

/// Most lanes.
const HEIGHT_MAX: usize = 16;

/// A node is in lane i + 1 with probability 1 / 2^LANE_BITS if it is in lane i.
const LANE_BITS: u32 = 2;

struct Link {
    hint: AtomicU64,
    next: AtomicPtr<Header>,
}

const LINK_BYTES: usize = size_of::<Link>();

/// The part of a node that has the same shape in all of them; the key follows.
type Header = Published<Fields>;

struct Fields {
    hint: u64,
    value: *const u8,
    key_length: u32,
    value_length: u32,
}

const HEADER_BYTES: usize = size_of::<Header>();

/// A node of a list that is alive for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    header: NonNull<Header>,
    list: std::marker::PhantomData<&'a SkipList>,
}

impl<'a> Node<'a> {
    /// # Safety
    /// `header` must point to a node of a list that is alive for `'a`, reached by an acquiring load.
    #[inline]
    pub(crate) unsafe fn from_raw(header: NonNull<()>) -> Self {
        Node { header: header.cast(), list: std::marker::PhantomData }
    }

    #[inline]
    pub(crate) fn as_raw(self) -> NonNull<()> {
        self.header.cast()
    }

    #[inline]
    fn fields(&self) -> &'a Fields {
        // SAFETY: nodes live as long as their list and their headers never change.
        unsafe { self.header.as_ref() }.get()
    }

    #[inline]
    pub(crate) fn internal_key(&self) -> &'a [u8] {
        let fields = self.fields();
        // SAFETY: the key and the trailer follow the header, written before the node was linked.
        unsafe {
            let start = self.header.as_ptr().cast::<u8>().add(HEADER_BYTES);
            std::slice::from_raw_parts(start, fields.key_length as usize + TRAILER_BYTES)
        }
    }

    #[inline]
    pub(crate) fn user_key(&self) -> &'a [u8] {
        key::user_key(self.internal_key())
    }

    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        let fields = self.fields();
        // SAFETY: the value was copied there, whole, before the node was linked.
        unsafe { std::slice::from_raw_parts(fields.value, fields.value_length as usize) }
    }

    /// # Safety
    /// The node must have more than `lane` lanes.
    #[inline]
    unsafe fn link(self, lane: usize) -> &'a Link {
        // SAFETY: the links lie before the header, lane 0 nearest.
        unsafe { self.header.cast::<Link>().sub(lane + 1).as_ref() }
    }
}

/// A key to search for.
struct Target<'k> {
    user_key: &'k [u8],
    trailer: u64,
    hint: u64,
}

/// The nodes around a target, by lane.
struct Splice<'a> {
    previous: [Node<'a>; HEIGHT_MAX],
    next: [*mut Header; HEIGHT_MAX],
    next_hint: [u64; HEIGHT_MAX],
}

/// The list. Thread-safe; inserting takes memory, reading takes nothing.
pub(crate) struct SkipList {
    nodes: Arena,
    values: Arena,
    head: NonNull<Header>,
    /// Lanes in use.
    height: AtomicUsize,
    /// What keys are expected to begin with; hints are made of what follows.
    shared_prefix: Box<[u8]>,
    seed: u64,
}

// SAFETY: all of a list's memory is its arenas'; what changes after a node is linked is atomic.
unsafe impl Send for SkipList {}
// SAFETY: as above; readers see only nodes linked by a releasing store.
unsafe impl Sync for SkipList {}

/// First eight bytes as a number that orders like the bytes.
#[inline]
fn first_bytes(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        // An order-preserving number has the first byte on top.
        Some(head) => u64::from_le_bytes(*head).swap_bytes(),
        None => {
            let mut head = [0; 8];
            head[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(head).swap_bytes()
        }
    }
}

/// Spreads every bit of a number over all of them (the output function of SplitMix64).
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Asks the processor to bring the bytes at `address` near; any address will do.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes nothing but caches.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// The entries next to one that was added, at the moment it was linked.
#[derive(Clone, Copy)]
pub(crate) struct Neighbours<'a> {
    pub(crate) before: Option<Node<'a>>,
    pub(crate) after: Option<Node<'a>>,
}

impl SkipList {
    /// An empty list that takes its memory from `pool`. `shared_prefix` is what most keys
    /// are expected to begin with; it may be anything. `seed` decides the heights.
    pub(crate) fn new(pool: &Arc<ChunkPool>, shared_prefix: &[u8], seed: u64) -> Self {
        let nodes = Arena::new(pool);
        let values = Arena::new(pool);
        let head = Self::allocate_node(&nodes, HEIGHT_MAX, 0);
        // SAFETY: the piece has room for a header and its links, and no one else has it yet.
        unsafe {
            let fields = Fields { hint: 0, value: NonNull::dangling().as_ptr(), key_length: 0, value_length: 0 };
            head.write(Published::new(fields));
            head.add(1).cast::<u8>().write_bytes(0, TRAILER_BYTES);
            for lane in 0..HEIGHT_MAX {
                let link = Link { hint: AtomicU64::new(u64::MAX), next: AtomicPtr::new(ptr::null_mut()) };
                head.cast::<Link>().sub(lane + 1).write(link);
            }
        }
        SkipList { nodes, values, head, height: AtomicUsize::new(1), shared_prefix: shared_prefix.into(), seed }
    }

    /// Uninitialised memory of a node.
    #[inline]
    fn allocate_node(arena: &Arena, height: usize, key_length: usize) -> NonNull<Header> {
        let links = height * LINK_BYTES;
        let bytes = (links + HEADER_BYTES + key_length + TRAILER_BYTES).next_multiple_of(8);
        // SAFETY: the piece is longer than its links; sizes are multiples of 8, so it is aligned.
        unsafe { arena.take(bytes).add(links).cast() }
    }

    #[inline]
    fn head(&self) -> Node<'_> {
        Node { header: self.head, list: std::marker::PhantomData }
    }

    #[inline]
    fn hint(&self, user_key: &[u8]) -> u64 {
        match user_key.strip_prefix(&*self.shared_prefix) {
            Some(rest) => first_bytes(rest),
            None if *user_key < *self.shared_prefix => 0,
            None => u64::MAX,
        }
    }

    #[inline]
    fn target<'k>(&self, user_key: &'k [u8], trailer: u64) -> Target<'k> {
        Target { user_key, trailer, hint: self.hint(user_key) }
    }

    /// Lanes of the entry with this number: the same whatever order threads insert in.
    #[inline]
    fn height_of(&self, sequence: Sequence) -> usize {
        let bits = mix(self.seed ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        1 + ((bits.trailing_zeros() / LANE_BITS) as usize).min(HEIGHT_MAX - 1)
    }

    /// `node` is before `target`.
    #[inline]
    fn is_before(node: Node<'_>, target: &Target<'_>) -> bool {
        let hint = node.fields().hint;
        if hint != target.hint {
            return hint < target.hint;
        }
        match node.user_key().cmp(target.user_key) {
            KeyOrdering::Less => true,
            KeyOrdering::Greater => false,
            KeyOrdering::Equal => key::trailer(node.internal_key()) > target.trailer,
        }
    }

    /// From `node`, which is before `target`, to the last node before it in `lane`; also the next
    /// one there and what its link's hint was. `at_or_after` is a node known not to be before.
    ///
    /// # Safety
    /// `node` must have more than `lane` lanes.
    #[inline]
    unsafe fn walk<'a>(
        &'a self,
        mut node: Node<'a>,
        lane: usize,
        target: &Target<'_>,
        at_or_after: *mut Header,
    ) -> (Node<'a>, *mut Header, u64) {
        loop {
            // SAFETY: the first node by contract, the others because they were reached in this lane.
            let link = unsafe { node.link(lane) };
            let next = link.next.load(Ordering::Acquire);
            let hint = link.hint.load(Ordering::Relaxed);
            if next == at_or_after || target.hint < hint {
                return (node, next, hint);
            }
            let Some(next_header) = NonNull::new(next) else {
                return (node, next, hint);
            };
            let next_node = Node { header: next_header, list: std::marker::PhantomData };
            if !Self::is_before(next_node, target) {
                return (node, next, hint);
            }
            node = next_node;
        }
    }

    /// Adds an entry. No two entries may have the same user key and trailer. Returns the entries that were next to it when it
    /// became visible.
    pub(crate) fn insert(&self, user_key: &[u8], sequence: Sequence, kind: u8, value: &[u8]) -> Neighbours<'_> {
        let target = self.target(user_key, key::pack_trailer(sequence, kind));
        let height = self.height_of(sequence);
        let (Ok(key_length), Ok(value_length)) = (u32::try_from(user_key.len()), u32::try_from(value.len())) else {
            panic!("key of {} and value of {} bytes were not checked", user_key.len(), value.len());
        };
        let copy = self.values.take(value.len());
        let header = Self::allocate_node(&self.nodes, height, user_key.len());
        // SAFETY: both pieces have room for what is written and no one else has them yet.
        unsafe {
            copy.as_ptr().copy_from_nonoverlapping(value.as_ptr(), value.len());
            header.write(Published::new(Fields { hint: target.hint, value: copy.as_ptr(), key_length, value_length }));
            let key = header.add(1).cast::<u8>().as_ptr();
            key.copy_from_nonoverlapping(user_key.as_ptr(), user_key.len());
            let trailer = target.trailer.to_le_bytes();
            key.add(user_key.len()).copy_from_nonoverlapping(trailer.as_ptr(), TRAILER_BYTES);
        }

        let mut used = self.height.load(Ordering::Relaxed);
        if used < height {
            used = self.height.fetch_max(height, Ordering::Relaxed).max(height);
        }
        let mut splice = Splice {
            previous: [self.head(); HEIGHT_MAX],
            next: [ptr::null_mut(); HEIGHT_MAX],
            next_hint: [u64::MAX; HEIGHT_MAX],
        };
        let mut node = self.head();
        let mut next = ptr::null_mut();
        for lane in (0..used).rev() {
            let hint;
            // SAFETY: the head has every lane, other nodes were reached in a lane above this one.
            (node, next, hint) = unsafe { self.walk(node, lane, &target, next) };
            if lane < height {
                (splice.previous[lane], splice.next[lane], splice.next_hint[lane]) = (node, next, hint);
            }
        }
        for lane in 0..height {
            // SAFETY: the links of this lane lie there; no reader sees them before the swap below.
            let link = unsafe { header.cast::<Link>().sub(lane + 1) };
            // SAFETY: as above; writing does not read what was there.
            unsafe { link.write(Link { hint: AtomicU64::new(u64::MAX), next: AtomicPtr::new(ptr::null_mut()) }) };
        }
        let mut neighbours = Neighbours { before: None, after: None };
        for lane in 0..height {
            loop {
                let (previous, next) = (splice.previous[lane], splice.next[lane]);
                let node = Node { header, list: std::marker::PhantomData };
                // SAFETY: both nodes have this lane.
                let (own, before) = unsafe { (node.link(lane), previous.link(lane)) };
                own.hint.store(splice.next_hint[lane], Ordering::Relaxed);
                own.next.store(next, Ordering::Relaxed);
                before.hint.fetch_min(target.hint, Ordering::Relaxed);
                let swap = before.next.compare_exchange(next, header.as_ptr(), Ordering::Release, Ordering::Relaxed);
                if swap.is_ok() {
                    if lane == 0 {
                        let before = (previous.header != self.head).then_some(previous);
                        neighbours = Neighbours { before, after: self.node(next) };
                    }
                    break;
                }
                // SAFETY: as above.
                let found = unsafe { self.walk(previous, lane, &target, ptr::null_mut()) };
                (splice.previous[lane], splice.next[lane], splice.next_hint[lane]) = found;
            }
        }
        neighbours
    }

    /// The first node at or after the internal key made of these parts.
    #[inline]
    pub(crate) fn at_or_after(&self, user_key: &[u8], trailer: u64) -> Option<Node<'_>> {
        let target = self.target(user_key, trailer);
        let mut node = self.head();
        let mut next = ptr::null_mut();
        for lane in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: the head has every lane, other nodes were reached in a lane above this one.
            (node, next, _) = unsafe { self.walk(node, lane, &target, next) };
        }
        self.node(next)
    }

    /// The last node before the internal key made of these parts.
    pub(crate) fn before(&self, user_key: &[u8], trailer: u64) -> Option<Node<'_>> {
        let target = self.target(user_key, trailer);
        let mut node = self.head();
        let mut next = ptr::null_mut();
        for lane in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: as in `at_or_after`.
            (node, next, _) = unsafe { self.walk(node, lane, &target, next) };
        }
        (node.header != self.head).then_some(node)
    }

    #[inline]
    fn node(&self, header: *mut Header) -> Option<Node<'_>> {
        NonNull::new(header).map(|header| Node { header, list: std::marker::PhantomData })
    }

    /// The node after `node`, which is of this list.
    #[inline]
    pub(crate) fn after<'a>(&'a self, node: Node<'a>) -> Option<Node<'a>> {
        // SAFETY: every node has lane 0.
        self.node(unsafe { node.link(0) }.next.load(Ordering::Acquire))
    }

    /// Asks for what a walk past `node`, whose own successor was asked for a step ago, will need.
    #[inline]
    pub(crate) fn prefetch_after(&self, node: Node<'_>) {
        if let Some(next) = self.after(node) {
            prefetch(next.fields().value);
            // SAFETY: every node has lane 0.
            let second = unsafe { next.link(0) }.next.load(Ordering::Relaxed);
            prefetch(second.cast_const().cast());
        }
    }

    pub(crate) fn first(&self) -> Option<Node<'_>> {
        self.after(self.head())
    }

    pub(crate) fn last(&self) -> Option<Node<'_>> {
        let mut node = self.head();
        for lane in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: as in `at_or_after`.
            while let Some(next) = self.node(unsafe { node.link(lane) }.next.load(Ordering::Acquire)) {
                node = next;
            }
        }
        (node.header != self.head).then_some(node)
    }

    /// Bytes taken for nodes and values.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.nodes.used_bytes() + self.values.used_bytes()
    }

    /// Bytes held.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.nodes.reserved_bytes() + self.values.reserved_bytes()
    }
}
