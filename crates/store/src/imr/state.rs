//! The S2TMap in memory, the state of every track, and the changes no commit has taken yet.

use super::allocation::Cursor;
use super::bitmap::TrackBitmap;
use super::change::{Change, Checkpoint, FileRecord, TRACK_BYTES, empty_bytes, encode_checkpoint, record_bytes};
use super::map::TrackMap;
use super::node::Node;
use crate::kernel::{NameTable, StoreState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_media::TrackId;

/// Whose data a valid track holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) file: u64,
    /// Bytes of the track that count, from its beginning.
    pub(super) used_bytes: u64,
}

/// Tracks that a newer version of a file's map lacks.
struct Replaced {
    /// The change that replaced them must be durable before they are free, ...
    change: u64,
    /// ... and nobody may read by the older version.
    map: Arc<TrackMap>,
    tracks: Vec<TrackId>,
}

impl Replaced {
    fn is_free(&self, durable_change: u64) -> bool {
        self.change <= durable_change && Arc::strong_count(&self.map) == 1
    }
}

/// What persists that run have locked.
#[derive(Clone, Debug)]
pub(super) struct TrackLocks {
    /// Written, or saved and restored: nobody else may do anything to them or endanger them.
    exclusive: TrackBitmap,
    /// Tops beside bottoms that are written: nobody else may write them. By how many.
    endangered: BTreeMap<TrackId, u32>,
}

impl TrackLocks {
    fn new(track_count: u32) -> TrackLocks {
        TrackLocks { exclusive: TrackBitmap::new(track_count), endangered: BTreeMap::new() }
    }

    /// Locks all of these, or none and says so.
    pub(super) fn try_lock(&mut self, exclusive: &[TrackId], endangered: &[TrackId]) -> bool {
        let taken = |track: &TrackId| self.exclusive.contains(*track);
        let conflict = exclusive.iter().any(|track| taken(track) || self.endangered.contains_key(track))
            || endangered.iter().any(taken);
        if conflict {
            return false;
        }
        for &track in exclusive {
            self.exclusive.insert(track);
        }
        for &track in endangered {
            *self.endangered.entry(track).or_insert(0) += 1;
        }
        true
    }

    pub(super) fn unlock(&mut self, exclusive: &[TrackId], endangered: &[TrackId]) {
        for &track in exclusive {
            self.exclusive.remove(track);
        }
        for track in endangered {
            if let Some(count) = self.endangered.get_mut(track) {
                *count -= 1;
                if *count == 0 {
                    self.endangered.remove(track);
                }
            }
        }
    }

    pub(super) fn is_exclusive(&self, track: TrackId) -> bool {
        self.exclusive.contains(track)
    }

    fn add_to(&self, bitmap: &mut TrackBitmap) {
        self.exclusive.iter().chain(self.endangered.keys().copied()).for_each(|track| {
            bitmap.insert(track);
        });
    }
}

/// Kept under one lock that is never held across I/O.
pub(super) struct ImrState {
    pub(super) names: NameTable<Node>,
    replaced: Vec<Replaced>,
    /// Small files are among those that lost their names.
    pub(super) packed_waits: Arc<AtomicBool>,
    /// Per place of the backup region: intents up to this sequence do not count any more.
    done: Vec<u64>,
    next_sequence: u64,
    pub(super) free_places: Vec<usize>,
    pub(super) owners: BTreeMap<TrackId, Owner>,
    /// The keys of `owners`.
    pub(super) valid: TrackBitmap,
    pub(super) cursor: Cursor,
    pub(super) locks: TrackLocks,
    /// Bottoms beside a top that cannot be read, and so not be saved; by that top.
    avoided: BTreeMap<TrackId, Vec<TrackId>>,
    /// Persists that run.
    pub(super) running: u32,
    /// Tracks they were given: the checkpoint must have space for these.
    pub(super) promised_tracks: usize,
    track_count: u32,
}

/// What became free when a commit was durable.
#[derive(Default)]
pub(super) struct Reclaimed {
    pub(super) tracks: Vec<TrackId>,
    /// Numbers of small files.
    pub(super) small_files: Vec<u64>,
}

/// What a state begins with.
pub(super) struct Beginning {
    pub(super) names: BTreeMap<String, Arc<Node>>,
    pub(super) next_file: u64,
    pub(super) done: Vec<u64>,
    pub(super) next_sequence: u64,
    pub(super) track_count: u32,
    pub(super) checkpoint_bytes_max: u64,
}

impl ImrState {
    pub(super) fn new(beginning: Beginning) -> ImrState {
        let Beginning { names, next_file, done, next_sequence, track_count, checkpoint_bytes_max } = beginning;
        let mut state = ImrState {
            names: NameTable::new(names, next_file, empty_bytes(done.len()), checkpoint_bytes_max),
            replaced: Vec::new(),
            packed_waits: Arc::default(),
            free_places: (0..done.len()).rev().collect(),
            done,
            next_sequence,
            owners: BTreeMap::new(),
            valid: TrackBitmap::new(track_count),
            cursor: Cursor::default(),
            locks: TrackLocks::new(track_count),
            avoided: BTreeMap::new(),
            running: 0,
            promised_tracks: 0,
            track_count,
        };
        for node in state.names.values().cloned().collect::<Vec<_>>() {
            state.own(&node, &node.map());
        }
        state
    }

    fn own(&mut self, node: &Node, map: &TrackMap) {
        for (track, used_bytes) in map.used() {
            self.owners.insert(track, Owner { file: node.file, used_bytes });
            self.valid.insert(track);
        }
    }

    /// A file is of this level now.
    pub(super) fn note_level(&mut self, name: &str, level: u8) {
        if let Some(node) = self.names.get(name).cloned() {
            node.set_level(Some(level));
        }
    }

    /// A number for a new file.
    pub(super) fn number(&mut self) -> u64 {
        self.names.number()
    }

    /// Whether the checkpoint has space for another file of this name, or for more tracks.
    pub(super) fn has_space(&self, new_name: Option<&str>, tracks: usize) -> bool {
        let file = new_name.map_or(0, |name| record_bytes(name.len(), 0));
        self.names.has_space(file + (tracks * TRACK_BYTES) as u64)
    }

    /// The largest level that has a table, `level` among them.
    pub(super) fn largest_level(&self, level: Option<u8>) -> Option<u8> {
        // Whether it has bytes is asked last, under a lock of its own.
        let is_larger = |node: &Node, largest| node.level() > largest && node.flushed_bytes() > 0;
        self.names.values().fold(level, |largest, node| if is_larger(node, largest) { node.level() } else { largest })
    }

    /// A sequence for an intent.
    pub(super) fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Intents of `place` up to `sequence` do not count any more once this is durable.
    pub(super) fn note_done(&mut self, place: usize, sequence: u64) {
        if let Some(done) = self.done.get_mut(place) {
            *done = sequence;
            self.names.record(Change::Done { place: place as u8, sequence });
        }
    }

    /// A file got further tracks, behind the first `kept` it had, and they are durable.
    pub(super) fn extend(&mut self, node: &Node, map: TrackMap, kept: usize) {
        self.own(node, &map);
        let (tracks, size_bytes) = (map.tracks().to_vec(), map.size_bytes());
        let old = node.replace_map(map);
        let lost: Vec<TrackId> = old.tracks().iter().skip(kept).copied().collect();
        let mut change = self.names.change();
        if !node.is_removed() {
            let bytes = |tracks: &[TrackId]| (tracks.len() * TRACK_BYTES) as u64;
            self.names.resize(bytes(old.tracks()), bytes(&tracks));
            let tracks = tracks.get(kept..).unwrap_or_default().to_vec();
            change = self.names.record(Change::Tracks { file: node.file, kept: kept as u32, tracks, size_bytes });
            node.set_needed_change(change);
        }
        if !lost.is_empty() {
            self.replaced.push(Replaced { change, map: old, tracks: lost });
        }
    }

    /// A top cannot be saved: the bottoms beside it are not given to tables while it is valid.
    pub(super) fn avoid(&mut self, top: TrackId, bottoms: Vec<TrackId>) {
        self.avoided.insert(top, bottoms);
    }

    /// Tracks that must not be given to a table now.
    pub(super) fn locked(&self) -> TrackBitmap {
        let mut locked = TrackBitmap::new(self.track_count);
        self.locks.add_to(&mut locked);
        self.avoided.values().flatten().for_each(|&track| {
            locked.insert(track);
        });
        locked
    }

    /// Frees the places of removed files, and tracks that the first `durable_change` changes have replaced.
    pub(super) fn reclaim(&mut self, removed: &[Arc<Node>], durable_change: u64) -> Reclaimed {
        let mut reclaimed = Reclaimed::default();
        for node in removed {
            match node.is_packed {
                true => reclaimed.small_files.push(node.file),
                false => reclaimed.tracks.extend_from_slice(node.map().tracks()),
            }
        }
        self.replaced.retain(|replaced| {
            let is_free = replaced.is_free(durable_change);
            if is_free {
                reclaimed.tracks.extend_from_slice(&replaced.tracks);
            }
            !is_free
        });
        for track in &reclaimed.tracks {
            self.owners.remove(track);
            self.valid.remove(*track);
            self.avoided.remove(track);
        }
        reclaimed
    }

    /// Tracks that are or will be free once what was removed is durable and nobody holds it.
    pub(super) fn reclaimable(&self) -> Vec<TrackId> {
        let removed = self.names.unheld().flat_map(|node| node.map().tracks().to_vec());
        removed.chain(self.replaced.iter().flat_map(|replaced| replaced.tracks.clone())).collect()
    }

    /// The tracks that wait to be free, with the removed file where a file was.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Option<&Node>, Vec<TrackId>)> {
        let removed = self.names.unnamed().map(|node| (Some(&**node), node.map().tracks().to_vec()));
        removed.chain(self.replaced.iter().map(|replaced| (None, replaced.tracks.clone())))
    }
}

impl StoreState for ImrState {
    type Node = Node;

    fn names(&self) -> &NameTable<Node> {
        &self.names
    }

    fn names_mut(&mut self) -> &mut NameTable<Node> {
        &mut self.names
    }

    fn checkpoint(&self) -> Vec<u8> {
        let record = |(name, node): (&String, &Arc<Node>)| {
            let map = node.map();
            FileRecord {
                file: node.file,
                is_packed: node.is_packed,
                size_bytes: map.size_bytes(),
                name: name.clone(),
                tracks: map.tracks().to_vec(),
            }
        };
        let files = self.names.iter().map(record).collect();
        encode_checkpoint(&Checkpoint { next_file: self.names.next_file(), done: self.done.clone(), files })
    }

    fn lost_name(&mut self, node: &Node) {
        self.packed_waits.fetch_or(node.is_packed, Ordering::Relaxed);
    }
}
