//! The present band table: names, files, bands, and the changes no commit has taken yet.

use super::bands::Bands;
use super::change::{
    Change, Checkpoint, Cut, FRAGMENT_BYTES, FileRecord, LogBandRecord, Retirement, Stamp, empty_bytes,
    encode_checkpoint, record_bytes,
};
use super::node::Node;
use super::pieces::{Dead, Piece};
use super::pool::{Left, Pool};
use crate::kernel::{NameTable, StoreState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A band with frames of small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogBand {
    pub(super) order: u64,
    pub(super) first_sequence: u64,
    /// Bytes of frames, once nothing is added any more.
    pub(super) sealed_bytes: Option<u64>,
    /// Bytes of files in it that count.
    pub(super) live_bytes: u64,
}

/// Kept under one short lock that is never held across I/O.
pub(super) struct BandState {
    pub(super) names: NameTable<Node>,
    pub(super) bands: Bands,
    pub(super) log_bands: BTreeMap<u32, LogBand>,
    /// Bands that tables share.
    pub(super) pool: Pool,
    /// Log bands that are free once the change with this number is durable.
    pub(super) releasing: Vec<(u64, u32)>,
    /// Fragments of an ordinary table.
    table_fragments: usize,
}

/// The band table has no space to describe more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MetadataFull;

impl BandState {
    pub(super) fn new(
        names: BTreeMap<String, Arc<Node>>,
        next_file: u64,
        bands: Bands,
        log_bands: BTreeMap<u32, LogBand>,
        table_bands: u32,
        band_bytes: u64,
        checkpoint_bytes_max: u64,
    ) -> BandState {
        let empty = empty_bytes(bands.iter().count() as u32);
        BandState {
            names: NameTable::new(names, next_file, empty, checkpoint_bytes_max),
            bands,
            log_bands,
            pool: Pool::new(band_bytes),
            releasing: Vec::new(),
            table_fragments: table_bands as usize,
        }
    }

    /// Makes a new file, in place of an older one of that name.
    pub(super) fn create(
        &mut self,
        name: &str,
        is_packed: bool,
        level: Option<u8>,
        stamp: Option<Stamp>,
    ) -> Result<Arc<Node>, MetadataFull> {
        // Space for the fragments of a table, so that an ordinary one can be synced.
        if !self.names.has_space(record_bytes(name.len(), self.table_fragments, is_packed, stamp.is_some())) {
            return Err(MetadataFull);
        }
        let file = self.names.number();
        let node = Arc::new(Node::new(file, is_packed, level));
        *node.stamp.lock() = stamp;
        self.name_new(name, &node);
        self.note_stamp(&node);
        Ok(node)
    }

    /// Gives a file that has a stamp a new name and stamp. The change to wait for; `None` when there is no such file.
    pub(super) fn rename_stamped(&mut self, from: &str, to: &str, stamp: Stamp) -> Option<u64> {
        let node = self.names.get(from)?.clone();
        self.rename(from, to)?;
        *node.stamp.lock() = Some(stamp);
        self.note_stamp(&node);
        Some(self.names.change())
    }

    /// A file has another stamp now. The change to wait for is the file's.
    pub(super) fn set_stamp(&mut self, node: &Node, stamp: Stamp) {
        *node.stamp.lock() = Some(stamp);
        self.note_stamp(node);
    }

    /// Lets the band table know the stamp of a file, together with what was recorded just before.
    fn note_stamp(&mut self, node: &Node) {
        if let Some(stamp) = *node.stamp.lock() {
            let change = self.names.record(Change::Stamp { file: node.file, stamp });
            node.set_needed_change(change);
        }
    }

    /// Tells the band table the first `size_bytes` of a table, which are durable.
    pub(super) fn record_fragments(&mut self, node: &Node, size_bytes: u64) -> Result<(), MetadataFull> {
        let mut map = node.fragments.write();
        let Some((keep, fragments)) = map.unrecorded(size_bytes) else { return Ok(()) };
        if node.is_removed() {
            return Ok(());
        }
        let (before, after) = (map.recorded_fragments().len(), keep as usize + fragments.len());
        if after > before.max(1) && !self.names.has_space(((after - before) * FRAGMENT_BYTES) as u64) {
            return Err(MetadataFull);
        }
        map.record(keep, &fragments);
        drop(map);
        self.names.resize((before * FRAGMENT_BYTES) as u64, (after * FRAGMENT_BYTES) as u64);
        let change = self.names.record(Change::Fragments { file: node.file, level: node.level(), keep, fragments });
        node.set_needed_change(change);
        Ok(())
    }

    /// Bytes of log bands count no more.
    pub(super) fn bury(&mut self, dead: &[Dead]) {
        for Dead { band, bytes } in dead {
            if let Some(log) = self.log_bands.get_mut(band) {
                log.live_bytes -= bytes;
            }
        }
    }

    /// A piece ends a small file.
    pub(super) fn append_piece(&mut self, node: &Node, piece: Piece) {
        let mut dead = Vec::new();
        node.pieces.write().append(piece, &mut dead);
        self.enliven(piece.band, piece.length_bytes);
        self.bury(&dead);
    }

    /// A copy takes the place of pieces.
    pub(super) fn replace_piece(&mut self, node: &Node, copy: Piece) {
        let mut dead = Vec::new();
        node.pieces.write().replace(copy, &mut dead);
        self.enliven(copy.band, copy.length_bytes);
        self.bury(&dead);
    }

    fn enliven(&mut self, band: u32, bytes: u64) {
        if let Some(log) = self.log_bands.get_mut(&band) {
            log.live_bytes += bytes;
        }
    }

    /// Makes a small file what it was before an append that failed. Frames of it may be on the device, up to number
    /// `sequence`: the band table hears that they do not count.
    pub(super) fn cut(&mut self, node: &Node, size_bytes: u64, sequence: u64) {
        self.truncate_pieces(node, size_bytes);
        if node.is_removed() {
            return;
        }
        let cut = Cut { size_bytes, sequence };
        *node.cut.lock() = Some(cut);
        let change = self.names.record(Change::Cut { file: node.file, cut });
        // What is acknowledged next must not be mixed with what failed, whatever becomes of the frames that replace it.
        node.set_needed_change(change);
    }

    /// Whether something of a file behind its durable length lies in a band that is lost.
    pub(super) fn lost_unsynced(&self, node: &Node) -> Option<u32> {
        let durable = node.durable_bytes();
        let is_lost = |band: &u32| self.bands.retired().get(band) == Some(&Retirement::Offline);
        if self.bands.retired().is_empty() {
            return None;
        }
        if node.is_packed {
            let pieces = node.pieces.read();
            return pieces.iter().filter(|piece| piece.end_bytes() > durable).map(|piece| piece.band).find(is_lost);
        }
        let fragments = node.fragments.read();
        let mut at = 0;
        let mut unsynced = fragments.iter().filter(|fragment| {
            at += fragment.length_bytes;
            at > durable
        });
        unsynced.find(|fragment| is_lost(&fragment.band)).map(|fragment| fragment.band)
    }

    /// Forgets the pieces of a small file behind its first `size_bytes`.
    pub(super) fn truncate_pieces(&mut self, node: &Node, size_bytes: u64) {
        let mut dead = Vec::new();
        node.pieces.write().truncate(size_bytes, &mut dead);
        self.bury(&dead);
    }

    /// A band is a log band from now on.
    pub(super) fn begin_log(&mut self, band: u32, order: u64, first_sequence: u64) {
        self.log_bands.insert(band, LogBand { order, first_sequence, sealed_bytes: None, live_bytes: 0 });
        self.names.record(Change::LogBegun { band, order, first_sequence });
    }

    /// Nothing is added to a log band any more; its first `valid_bytes` are durable.
    pub(super) fn seal_log(&mut self, band: u32, valid_bytes: u64) {
        if let Some(log) = self.log_bands.get_mut(&band) {
            log.sealed_bytes = Some(valid_bytes);
            self.names.record(Change::LogSealed { band, valid_bytes });
        }
    }

    /// Gives up sealed log bands in which nothing lives.
    pub(super) fn release_logs(&mut self) {
        let idle: Vec<u32> = self
            .log_bands
            .iter()
            .filter(|(_, log)| log.sealed_bytes.is_some() && log.live_bytes == 0)
            .map(|(band, _)| *band)
            .collect();
        for band in idle {
            self.log_bands.remove(&band);
            let change = self.names.record(Change::LogReleased { band });
            self.releasing.push((change, band));
        }
    }

    /// A band is never taken again. False when that was known.
    pub(super) fn retire(&mut self, band: u32, retirement: Retirement) -> bool {
        let is_news = self.bands.retired().get(&band) != Some(&retirement);
        if is_news {
            self.bands.retire(band, retirement);
            self.names.record(Change::Retired { band, retirement });
        }
        is_news
    }

    /// Everything that was written of small files is durable now, except what a lost band had.
    pub(super) fn small_files_are_durable(&mut self) {
        for node in self.names.values().filter(|node| node.is_packed && node.is_unsynced()) {
            if self.lost_unsynced(node).is_none() {
                node.set_durable_bytes(node.written_bytes());
            }
        }
    }

    /// Lets the band table know how much of each small file is durable, so that a loss is noticed.
    pub(super) fn note_sizes(&mut self) {
        let sizes: Vec<Change> = self
            .names
            .values()
            .filter(|node| node.is_packed && node.durable_bytes() > 0)
            .map(|node| Change::Size { file: node.file, size_bytes: node.durable_bytes() })
            .collect();
        sizes.into_iter().for_each(|change| {
            self.names.record(change);
        });
    }

    /// Frees the bands of removed files, and log bands that the first `durable_change` changes have released.
    pub(super) fn reclaim(&mut self, removed: &[Arc<Node>], durable_change: u64) {
        for node in removed {
            for band in std::mem::take(&mut *node.bands.lock()) {
                self.give_up(node.file, band);
            }
            self.truncate_pieces(node, 0);
        }
        let releasing = std::mem::take(&mut self.releasing);
        let (durable, waiting): (Vec<_>, Vec<_>) =
            releasing.into_iter().partition(|(change, _)| *change <= durable_change);
        self.releasing = waiting;
        durable.into_iter().for_each(|(_, band)| self.bands.give_back(band));
        self.release_logs();
    }

    /// A table has a band no more: it is free when nobody else has it.
    pub(super) fn give_up(&mut self, file: u64, band: u32) {
        let is_shared = self.pool.has(band);
        if !is_shared || self.pool.disown(band, file) == Left::Free {
            self.free_shared(band, is_shared);
        }
    }

    /// Nobody has a band any more. The zone of a shared one may be partly written, and the device counts it until it is reset.
    pub(super) fn free_shared(&mut self, band: u32, is_shared: bool) {
        if is_shared && self.bands.is_active(band) {
            self.bands.set_unfinished(band);
        }
        self.bands.give_back(band);
    }

    /// Bands that are free, or will be once what was removed and released is durable.
    pub(super) fn free_soon(&self) -> usize {
        let mut removed = 0;
        // Those that share a band give it back together.
        let mut shared: BTreeMap<u32, usize> = BTreeMap::new();
        for node in self.names.unheld() {
            for band in &*node.bands.lock() {
                match self.pool.has(*band) {
                    true => *shared.entry(*band).or_default() += 1,
                    false => removed += 1,
                }
            }
        }
        let is_free =
            |(band, owners): &(&u32, &usize)| **owners == self.pool.owners(**band) && !self.pool.is_written(**band);
        self.bands.free_count() + self.releasing.len() + removed + shared.iter().filter(is_free).count()
    }
}

impl StoreState for BandState {
    type Node = Node;

    fn names(&self) -> &NameTable<Node> {
        &self.names
    }

    fn names_mut(&mut self) -> &mut NameTable<Node> {
        &mut self.names
    }

    fn checkpoint(&self) -> Vec<u8> {
        let log_bands = self.log_bands.iter().map(|(band, log)| LogBandRecord {
            band: *band,
            order: log.order,
            first_sequence: log.first_sequence,
            sealed_bytes: log.sealed_bytes,
        });
        let files = self.names.iter().map(|(name, node)| {
            let fragments = node.fragments.read().recorded_fragments().to_vec();
            let size_bytes = if node.is_packed { node.durable_bytes() } else { node.fragments.read().recorded_bytes() };
            let (name, level, cut, stamp) = (name.clone(), node.level(), *node.cut.lock(), *node.stamp.lock());
            FileRecord { file: node.file, is_packed: node.is_packed, level, size_bytes, name, fragments, cut, stamp }
        });
        let checkpoint = Checkpoint {
            next_file: self.names.next_file(),
            log_bands: log_bands.collect(),
            retired: self.bands.retired().iter().map(|(band, retirement)| (*band, *retirement)).collect(),
            files: files.collect(),
        };
        encode_checkpoint(&checkpoint)
    }

    fn lost_name(&mut self, node: &Node) {
        self.pool.lost(node.file, node.bands.lock().iter().copied());
    }
}
