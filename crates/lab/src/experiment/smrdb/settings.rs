//! What the paper says it ran: sizes, options of the trees, and what is assumed where it does not say.

use super::scheme::{OUR_STALL_MS, Scheme, Term};
use crate::experiment::Scale;
use crate::report::{Report, format_bytes};
use varve::options::{CompactionPriority, ExperimentOptions, Profile};
use varve::spec::ByteSize;
use varve::{Compression, Options, TreeKind};

/// "we chose the same memory buffer (memtable) size, 80 MB, for both" (section 5.2), and bands of that size.
pub(super) const BAND_BYTES: u64 = 80 << 20;

/// "a Seagate Barracuda SATA 3 TB 7200 rpm disk".
const DISK_BYTES: u64 = 3_000_000_000_000;

/// Preset of the paper's disk, and of the other one of about that size.
pub(super) const MODEL: &str = "barracuda-3tb";
pub(super) const OTHER_MODEL: &str = "measured-4tb";

/// The random-access region.
const CONVENTIONAL_BYTES: u64 = 1 << 30;

/// What it holds at any scale.
const BAND_TABLE_BYTES: u64 = 48 << 20;

/// What plots say of the medium.
pub(super) const PLOTTED_MEDIUM: &str = "emulated Barracuda of 3 TB; in bands of 80 MiB, but for LevelDB-like";

/// "LevelDB chooses the same amount of log buffer (80 MB) as memory buffer".
const LEVELDB_LOG_BUFFER_BYTES: u64 = 80 << 20;

/// "SMRDB, which uses a 1 MB log buffer".
const LOG_BUFFER_BYTES: u64 = 1 << 20;

/// "same default 8 MB cache".
const CACHE_BYTES: u64 = 8 << 20;

/// "key-value pairs with 16 byte keys".
pub(super) const KEY_BYTES: usize = 16;

/// "All inserts total roughly 11 GB".
pub(super) const RANDOM_BYTES: u64 = 11_000_000_000;

/// "10 GB of data was inserted during all tests" of sequential writes.
pub(super) const SEQUENTIAL_BYTES: u64 = 10_000_000_000;

/// "The kernel read ahead was not tuned": Linux' default.
const KERNEL_READ_AHEAD_BYTES: u64 = 128 << 10;

/// What scans of ours read ahead of each table: as long as a few revolutions of the disk.
const OUR_SCAN_AHEAD_BYTES: u64 = 4 << 20;

/// What compactions of ours read ahead of each table, the same.
const OUR_COMPACTION_AHEAD_BYTES: u64 = 4 << 20;

/// What of the log may be on its way to the disk while puts go on, of ours and of those with the same input and output. With 16 MiB ours is behind LevelDB-like
/// in figure 8 at 100 B; from 26 on no put of SMRDB-SOC that is not synced waits for a merge, so that a tenth of its p99.9 is below what a put takes.
const OUR_LOG_BEHIND_BYTES: u64 = 24 << 20;

/// Bands that may overlap in one key in ours once compactions have had time.
const OUR_DEPTH_MAX: usize = 11;

/// Random puts at scales 1/N with N below this leave more than should be held as it is: 6 GB at 1/8, two databases at a time.
const COMPRESSED_BELOW: u64 = 32;

/// Size of values where memory holds them compressed, as a share.
pub(super) const COMPRESSION_RATIO: f64 = 0.012;

/// Everything a run depends on. Two equal ones give equal numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    pub(super) scheme: Scheme,
    /// Divides sizes and positioning times.
    pub(super) sizes: Scale,
    pub(super) seed: u64,
    /// Capacity of the disk in full.
    pub(super) disk_bytes: u64,
    /// Preset of the disk.
    pub(super) model: &'static str,
    /// Size of a band in full.
    pub(super) band_bytes: u64,
    /// Zones of the disk that a band is made of. Of several a table has no more than it needs.
    pub(super) zones_of_band: u64,
    /// Tables in level 0 that start a compaction, and those that slow writers down.
    pub(super) level0_triggers: (usize, usize),
    /// Whether the log is on the disk. If not it is in memory.
    pub(super) logs: bool,
    /// Whether the disk's bytes are compressed in memory, on which nothing depends but how much of it is needed and how long that takes.
    pub(super) is_compressed: bool,
}

impl Setup {
    /// The paper's: triggers of 4 and 8.
    pub(super) fn new(scheme: Scheme, sizes: Scale, seed: u64) -> Setup {
        let (disk_bytes, band_bytes) = (DISK_BYTES, BAND_BYTES);
        let zones_of_band = 1;
        Setup {
            scheme,
            sizes,
            seed,
            disk_bytes,
            model: MODEL,
            band_bytes,
            zones_of_band,
            level0_triggers: (4, 8),
            logs: true,
            is_compressed: sizes.denominator() < COMPRESSED_BELOW,
        }
    }

    /// The random-access region in full. The number of bands does not shrink with the scale, nor does the band table.
    pub(super) fn conventional_bytes(&self) -> u64 {
        CONVENTIONAL_BYTES.max(BAND_TABLE_BYTES * self.zones_of_band * self.sizes.denominator())
    }

    /// The medium and the store on it. Sizes of the device are given in full and divided by its own option.
    pub(super) fn spec(&self) -> String {
        let backing = if self.is_compressed { "compressed" } else { "ram" };
        let model = format!("model={},scale={},backing={backing}", self.model, self.sizes);
        let logs = if self.logs { "" } else { ",logs=(ram:1GiB)" };
        let disk = ByteSize(self.disk_bytes);
        match self.scheme {
            scheme if !scheme.is_in_bands() => format!("disk:{disk}?{model},store=extent,layout=ext4{logs}"),
            _ => {
                let (zone_bytes, conventional_bytes) =
                    (self.band_bytes / self.zones_of_band, self.conventional_bytes());
                // Not a size of the device.
                let table_bytes = self.sizes.of(self.band_bytes);
                let table_size =
                    if self.zones_of_band == 1 { String::new() } else { format!(",zoned-table-size={table_bytes}B") };
                format!("smr:{disk}?band={zone_bytes}B,conventional={conventional_bytes}B,{model}{table_size}{logs}")
            }
        }
    }

    /// Options of the tree.
    pub(super) fn options(&self) -> Options {
        let size = |bytes: u64| self.sizes.of(bytes);
        let (trigger, slowdown) = self.level0_triggers;
        let leveldb = Options {
            profile: Profile::Paper,
            tree: Some(TreeKind::Leveled),
            write_buffer_size: size(self.band_bytes) as usize,
            max_write_buffer_number: 2,
            level0_file_num_compaction_trigger: trigger,
            level0_slowdown_writes_trigger: slowdown,
            // LevelDB stops four tables later.
            level0_stop_writes_trigger: slowdown + 4,
            soft_pending_compaction_bytes_limit: 0,
            hard_pending_compaction_bytes_limit: 0,
            num_levels: 7,
            max_bytes_for_level_base: size(10 << 20),
            max_bytes_for_level_multiplier: 10,
            level_compaction_dynamic_level_bytes: false,
            target_file_size_base: size(2 << 20),
            max_compaction_bytes: size(25 * (2 << 20)),
            compaction_pri: CompactionPriority::RoundRobin,
            // One thread compacts; LevelDB's flushes in the same.
            max_background_jobs: 2,
            max_subcompactions: 1,
            block_size: 4096,
            block_restart_interval: 16,
            bloom_bits_per_key: 0,
            compression: Compression::None,
            block_cache_capacity: size(CACHE_BYTES) as usize,
            max_open_files: 990,
            log_buffer_size: Some(size(LEVELDB_LOG_BUFFER_BYTES) as usize),
            compaction_readahead_size: Some(size(KERNEL_READ_AHEAD_BYTES).max(4096) as usize),
            // Scans go from block to block first, as those of the stores of the paper.
            experiment: ExperimentOptions {
                initial_auto_readahead_size: Some(16 << 10),
                num_file_reads_for_auto_readahead: Some(2),
                ..ExperimentOptions::default()
            },
            delayed_write_rate: 1000 * 4112,
            ..Options::default()
        };
        // Five tables in level 1, as LevelDB has; the tables are bands.
        let in_bands = Options {
            max_bytes_for_level_base: size(5 * self.band_bytes),
            target_file_size_base: size(self.band_bytes),
            max_compaction_bytes: size(25 * self.band_bytes),
            bloom_bits_per_key: 10,
            log_buffer_size: Some(size(LOG_BUFFER_BYTES) as usize),
            ..leveldb.clone()
        };
        let base = match self.scheme {
            Scheme::LevelDb | Scheme::LevelDbSameIo => leveldb,
            Scheme::Loc => in_bands,
            // The paper has no limit to what a compaction takes.
            Scheme::Soc | Scheme::SocSameIo | Scheme::Ours | Scheme::OursInBursts(_) | Scheme::OursWithout(_) => {
                Options { tree: Some(TreeKind::TwoLevel), max_compaction_bytes: 1 << 62, ..in_bands }
            }
        };
        self.with_terms(base)
    }

    /// With what of ours the scheme has.
    fn with_terms(&self, mut options: Options) -> Options {
        let size = |bytes: u64| self.sizes.of(bytes);
        let has = |term: Term| self.scheme.has(term);
        if has(Term::ReadAhead) {
            options.compaction_readahead_size = Some(size(OUR_COMPACTION_AHEAD_BYTES) as usize);
            options.iterator_readahead_size = Some(size(OUR_SCAN_AHEAD_BYTES) as usize);
        }
        if has(Term::WriteBehind) {
            // What is behind the writers is the buffer.
            options.log_buffer_size = Some(size(LOG_BUFFER_BYTES) as usize);
            options.log_write_behind_size = Some(size(OUR_LOG_BEHIND_BYTES) as usize);
        }
        if has(Term::Depth) {
            options.overlap_depth_max = Some(OUR_DEPTH_MAX);
            options.max_compaction_bytes = size(25 * self.band_bytes);
        }
        options.pace_background_work = Some(has(Term::Pacing));
        options.flush_key_ranges = Some(has(Term::KeyRanges));
        options.compact_in_pieces = Some(has(Term::Pieces));
        if let Some(stall_ms) = self.scheme.stall_ms() {
            options.max_write_stall_ms = Some(size(stall_ms).max(1));
        }
        options
    }

    /// States everything that has to be the same for the numbers to be.
    pub(super) fn describe(&self, report: &mut Report) {
        let options = self.options();
        report.condition("medium (of this scheme)", self.spec());
        report.condition("processor cost constants", format!("version {}", varve::engine::cost::VERSION));
        for (name, bytes) in [
            ("write_buffer_size", options.write_buffer_size as u64),
            ("target_file_size_base", options.target_file_size_base),
            ("max_bytes_for_level_base", options.max_bytes_for_level_base),
            ("block_cache_capacity", options.block_cache_capacity as u64),
            ("log_buffer_size", options.log_buffer_size.unwrap_or(0) as u64),
            ("compaction_readahead_size", options.compaction_readahead_size.unwrap_or(0) as u64),
        ] {
            report.condition(name, format_bytes(bytes));
        }
        for (name, value) in [
            ("level0_file_num_compaction_trigger", options.level0_file_num_compaction_trigger),
            ("level0_slowdown_writes_trigger", options.level0_slowdown_writes_trigger),
            ("level0_stop_writes_trigger", options.level0_stop_writes_trigger),
            ("max_level0_compaction_tables", options.max_level0_compaction_tables),
            ("level1_overlap_compaction_trigger", options.level1_overlap_compaction_trigger),
            ("bloom_bits_per_key", options.bloom_bits_per_key as usize),
        ] {
            report.condition(name, value);
        }
        let ahead = |bytes: u64| format_bytes(self.sizes.of(bytes));
        report.condition(
            "ours",
            format!(
                "two levels with at most {OUR_DEPTH_MAX} bands in a key, ranges of keys flushed, compactions installed table by table, background work and puts paced, \
                 in bursts of {OUR_STALL_MS} ms, {} of the log written behind, compactions read {} ahead of each table and scans {}",
                ahead(OUR_LOG_BEHIND_BYTES),
                ahead(OUR_COMPACTION_AHEAD_BYTES),
                ahead(OUR_SCAN_AHEAD_BYTES)
            ),
        );
        report.condition(
            "assumed",
            "128 KiB of kernel read-ahead; five bands in level 1 of SMRDB-LOC; a slowed write waits for 1 ms; stop four \
             tables after the slowdown; how many bands of level 0 a compaction takes and how many may overlap in \
             level 1 are not given",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setup_is_a_medium_and_options() {
        for scheme in Scheme::all().into_iter().chain(Scheme::OTHER_BURSTS) {
            for sizes in [Scale::FULL, Scale::one_in(16), Scale::one_in(64)] {
                let setup = Setup::new(scheme, sizes, 1);
                setup.spec().parse::<varve::Spec>().unwrap_or_else(|error| panic!("{}: {error}", scheme.name()));
                setup.options().validate().unwrap();
            }
        }
    }
}
