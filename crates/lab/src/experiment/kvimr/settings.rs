//! What the paper says it ran, at any scale: sizes, options of the tree, and what has no counterpart.

use super::scheme::Scheme;
use crate::experiment::Scale;
use crate::report::{Report, format_bytes};
use varve::options::{CompactionPriority, ExperimentOptions, Profile};
use varve::{Compression, Options, TreeKind};

/// Capacity of the disk: "100 GB" (KVIMR, section 4.1).
pub(super) const DISK_BYTES: u64 = 100_000_000_000;

/// "a 500 GB Seagate ST500DM002": its mechanics.
pub(super) const MODEL: &str = "st500dm002";

/// What plots say of the medium.
pub(super) const PLOTTED_MEDIUM: &str = "emulated interlaced disk of 100 GB in full; CMR: a conventional one";

/// "we split the LBA range into 2 MB tracks".
pub(super) const TRACK_BYTES: u64 = 2 << 20;

/// "75 millions of 1 KB KV pairs".
pub(crate) const PAIRS: u64 = 75_000_000;

/// Pairs of one point of figure 6.
pub(super) const INTERVAL_PAIRS: u64 = 1_000_000;

/// Pairs whose overwriting would keep every track in use on average, with the tree of
/// [`Work::LoadAndOverwrite`], if tables had nothing beside their pairs whose size does not go with the scale, ...
const FULL_DISK_PAIRS: u64 = 86_900_000;

/// and by how many fewer it is because they have, for each unit of the scale's denominator: 84.8 million at 1/256 and
/// 82.7 million at 1/512, measured. What was in use is printed.
const FULL_DISK_PAIRS_LESS: u64 = 8_200;

/// Pairs of the full size between two looks at the tables: fewer than come with a new table on average.
pub(super) const LOOK_PAIRS: u64 = 4_096;

/// Operations of a mix after the load: "we randomly insert and retrieve 7.5 millions of KV pairs".
pub(super) const MIX_OPERATIONS: u64 = 7_500_000;

/// Shares of reads of the mixes, in percent; they follow each other on one load.
pub(super) const MIXES: [u64; 3] = [90, 50, 10];

/// Shares of the tracks in use at which pairs are read after the load, in percent: a mostly empty, a half full and a full disk.
pub(super) const READ_PERCENTS: [u64; 3] = [1, 50, 90];

/// Random reads at each of [`READ_PERCENTS`].
pub(super) const READS: u64 = 4000;

/// While nothing runs in the background one of so many reads of a mix is done.
pub(super) const READS_TO_ONE: u64 = 8;

/// Scales 1/N with N below this hold more than fits into memory as it is.
const LARGE_BELOW: u64 = 64;

/// Size of values where memory holds them compressed, as a share: they are alike, and a pair takes 40 bytes.
pub(super) const COMPRESSION_RATIO: f64 = 0.012;

/// Bytes of a value: YCSB's ten fields of 100. With a key of `user` and 19 digits a pair has 1,023.
pub(super) const VALUE_BYTES: usize = 1000;

/// "the SSTable size is 64 MB".
pub(super) const TABLE_BYTES: u64 = 64 << 20;

/// The solid-state drive beside the disk: logs, manifest and the metadata of the store.
const SSD_BYTES: u64 = 16 << 30;

/// Space for logs, the manifest and the store's metadata on the disk itself.
const SMALL_FILES_BYTES: u64 = 2 << 30;

/// Which store the tree is shaped like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// RocksDB with the paper's settings.
    Rocks,
    /// LevelDB with the paper's settings.
    Level,
    /// HyperLevelDB with the paper's settings.
    HyperLevel,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// The pairs are loaded.
    Load,
    /// And then the store comes to rest.
    LoadUntilIdle {
        /// Every [`LOOK_PAIRS`] it is looked at which tables there are, which takes no virtual time.
        is_looked_at: bool,
    },
    /// The pairs are loaded, and then read and updated in [`MIXES`]. A read moves the arm and transfers a block, and blocks do
    /// not shrink with the scale: so there are as many reads as in full, each of which moves the arm for
    /// `1/N` of the time, and `1/N` of the updates.
    LoadAndMixes {
        /// While no flush and no compaction runs, one of so many reads is done and the time of the others passes: what
        /// a read takes then depends on nothing but its place, and none of them can slow anything else.
        reads_to_one: u64,
    },
    /// As many pairs as fill each of [`READ_PERCENTS`] of the tracks, one after the other, and random reads at each.
    LoadAndRead,
    /// As many pairs as fill this share of the tracks, in percent, and overwritten in every order there is.
    LoadAndOverwrite {
        /// Share of the tracks in use while overwriting, about, on average.
        percent: u64,
    },
}

/// Which pairs are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Overwriting {
    /// Each once, in another order.
    EachOnce,
    /// Drawn anew each time.
    Drawn,
}

impl Overwriting {
    pub(super) const ALL: [Overwriting; 2] = [Overwriting::EachOnce, Overwriting::Drawn];

    pub(super) fn name(self) -> &'static str {
        match self {
            Overwriting::EachOnce => "each once",
            Overwriting::Drawn => "drawn",
        }
    }
}

/// Where logs, the manifest and the store's metadata are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Logs {
    /// On a solid-state drive, as in the paper.
    Apart,
    /// On reserved top tracks of the disk.
    Inside,
}

/// Everything one load depends on. Two equal ones give equal numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) scheme: Scheme,
    pub(super) scale: Scale,
    pub(super) seed: u64,
    /// Pairs at full scale.
    pub(super) pairs: u64,
    /// Size of tables and of memtables at full scale: a memtable becomes a table, and both are 64 MiB by default.
    pub(super) table_bytes: u64,
    pub(super) shape: Shape,
    pub(super) logs: Logs,
    pub(super) work: Work,
    pub(super) variation: Variation,
}

/// What is otherwise than in the paper, for [`super::robust`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variation {
    /// Bytes of the disk in full.
    pub(super) disk_bytes: u64,
    /// Bytes of a track in full; of an interlaced disk those of a top.
    pub(super) track_bytes: u64,
    /// Size of a bottom to that of a top, as the medium's option says it.
    pub(super) ratio: &'static str,
    /// Mechanics of the disk.
    pub(super) model: &'static str,
    pub(super) value_bytes: usize,
    pub(super) keys: Keys,
    /// After so many pairs an earlier one is deleted.
    pub(super) pairs_to_a_delete: Option<u64>,
}

/// Which keys are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Each once, in random order.
    EachOnce,
    /// Drawn by YCSB's zipfian distribution, scattered.
    Zipfian,
}

impl Variation {
    /// The paper's.
    pub(super) const NONE: Variation = Variation {
        disk_bytes: DISK_BYTES,
        track_bytes: TRACK_BYTES,
        ratio: "1",
        model: MODEL,
        value_bytes: VALUE_BYTES,
        keys: Keys::EachOnce,
        pairs_to_a_delete: None,
    };
}

impl Setup {
    /// The load of figures 2, 5 and 6.
    pub(super) fn new(scheme: Scheme, scale: Scale, seed: u64) -> Setup {
        Setup {
            scheme,
            scale,
            seed,
            pairs: PAIRS,
            table_bytes: TABLE_BYTES,
            shape: Shape::Rocks,
            logs: Logs::Apart,
            work: Work::Load,
            variation: Variation::NONE,
        }
    }

    /// The medium and the store on it. Sizes of the device are given in full and divided by its own
    /// option; those of the store are given as they are to be.
    pub(super) fn spec(&self) -> String {
        let policies = self.scheme.policies().options();
        if self.scheme.is_interlaced() {
            return self.interlaced_spec(&policies);
        }
        // The same store with the same tracks, which have no neighbours.
        format!(
            "disk:{}B?store=imr,track-size={}B,{},{policies},table-size={}B,{}",
            self.variation.disk_bytes,
            self.scale.of(self.variation.track_bytes),
            self.model(),
            self.table_bytes_max(),
            self.beside()
        )
    }

    /// The same on an interlaced disk with these options of the store, whatever the scheme.
    pub(super) fn interlaced_spec(&self, policies: &str) -> String {
        let (model, beside, table_bytes) = (self.model(), self.beside(), self.table_bytes_max());
        let Variation { disk_bytes, track_bytes, ratio, .. } = self.variation;
        let ratio = if ratio == "1" { String::new() } else { format!("ratio={ratio},") };
        format!(
            "imr:{disk_bytes}B?track={track_bytes}B,{ratio}strict,{model},{policies},table-size={table_bytes}B,{beside}"
        )
    }

    /// Bytes of the tracks that a region of the policy of that name has: pairs of a bottom and a top, for the largest table.
    pub(super) fn region_bytes(&self) -> u64 {
        let top_bytes = self.scale.of(self.variation.track_bytes);
        let (of, to) = self.variation.ratio.split_once('/').unwrap_or((self.variation.ratio, "1"));
        let number = |text: &str| text.parse::<u64>().unwrap_or(1).max(1);
        let pair_bytes = (top_bytes + top_bytes * number(of) / number(to)).max(1);
        self.table_bytes_max().div_ceil(pair_bytes) * pair_bytes
    }

    /// A table may be larger than it was asked to be by its index and its filter.
    fn table_bytes_max(&self) -> u64 {
        self.scale.of(self.table_bytes / 8 * 9)
    }

    fn model(&self) -> String {
        format!("model={},scale={},backing={}", self.variation.model, self.scale, self.backing())
    }

    fn beside(&self) -> String {
        match self.logs {
            Logs::Apart => format!("logs=(ssd:{SSD_BYTES}B?scale={},backing={})", self.scale, self.backing()),
            // Without it the space for small files has a least size that does not scale.
            Logs::Inside => format!("logs=inside,small-files={}B", self.scale.of(SMALL_FILES_BYTES)),
        }
    }

    /// Where the bytes are, which no result depends on: a full-size load leaves 77 GB.
    fn backing(&self) -> &'static str {
        if self.scale.denominator() < LARGE_BELOW { "compressed" } else { "ram" }
    }

    /// Options of the tree.
    pub(super) fn options(&self) -> Options {
        let rocksdb = self.rocksdb();
        match self.shape {
            Shape::Rocks if self.is_nearly_full() => Options {
                // What is overwritten stays until the last level is reached: with levels that grow to ten times their
                // target it would be a third of the disk.
                level_compaction_dynamic_level_bytes: true,
                // As RocksDB had them: levels of a fixed ratio.
                max_size_amplification_percent: 0,
                soft_pending_compaction_bytes_limit: self.scale.of(2 << 30),
                hard_pending_compaction_bytes_limit: self.scale.of(16 << 30),
                ..rocksdb
            },
            Shape::Rocks => rocksdb,
            Shape::Level => Options {
                // A slowed write sleeps for 1 ms, whatever its size.
                delayed_write_rate: 1000 * (VALUE_BYTES as u64 + 23),
                compaction_pri: CompactionPriority::RoundRobin,
                ..self.leveldb(rocksdb)
            },
            // Its writers wait for the flush of a memtable and for nothing else before the stop trigger.
            Shape::HyperLevel => Options {
                delayed_write_rate: 1 << 40,
                compaction_pri: CompactionPriority::MinOverlappingRatio,
                ..self.leveldb(rocksdb)
            },
        }
    }

    /// What LevelDB and HyperLevelDB have in common: "since [they] lack the design of
    /// compaction_readahead_size, we instead set the block_size to 2 MB"; no limit of pending bytes.
    fn leveldb(&self, rocksdb: Options) -> Options {
        Options {
            soft_pending_compaction_bytes_limit: 0,
            hard_pending_compaction_bytes_limit: 0,
            block_size: self.scale.of(2 << 20) as usize,
            compaction_readahead_size: Some(0),
            iterator_readahead_size: Some(0),
            max_open_files: 990,
            ..rocksdb
        }
    }

    fn rocksdb(&self) -> Options {
        let size = |bytes: u64| self.scale.of(bytes);
        Options {
            profile: Profile::Paper,
            tree: Some(TreeKind::Leveled),
            write_buffer_size: size(self.table_bytes) as usize,
            max_write_buffer_number: 2,
            level0_file_num_compaction_trigger: 4,
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            soft_pending_compaction_bytes_limit: size(64 << 30),
            hard_pending_compaction_bytes_limit: size(256 << 30),
            num_levels: 7,
            max_bytes_for_level_base: size(256 << 20),
            max_bytes_for_level_multiplier: 10,
            level_compaction_dynamic_level_bytes: false,
            target_file_size_base: size(self.table_bytes),
            max_compaction_bytes: size(25 * self.table_bytes),
            compaction_pri: CompactionPriority::ByCompensatedSize,
            max_background_jobs: 2,
            max_subcompactions: 1,
            block_size: 4096,
            block_restart_interval: 16,
            bloom_bits_per_key: 10,
            compression: Compression::None,
            block_cache_capacity: size(8 << 20) as usize,
            max_open_files: 1 << 20,
            log_buffer_size: Some(size(1 << 20) as usize),
            compaction_readahead_size: Some(size(2 << 20) as usize),
            iterator_readahead_size: Some(size(2 << 20).min(256 << 10) as usize),
            // Scans go from block to block first, as those of the stores of the paper.
            experiment: ExperimentOptions {
                initial_auto_readahead_size: Some(16 << 10),
                num_file_reads_for_auto_readahead: Some(2),
                ..ExperimentOptions::default()
            },
            delayed_write_rate: 16 << 20,
            max_manifest_file_size: size(1 << 30),
            ..Options::default()
        }
    }

    /// A load that fills so much of the tracks, in percent, and is overwritten.
    pub(super) fn overwriting(scheme: Scheme, scale: Scale, seed: u64, percent: u64) -> Setup {
        let full_disk_pairs = FULL_DISK_PAIRS - FULL_DISK_PAIRS_LESS * scale.denominator().min(1024);
        Setup {
            pairs: full_disk_pairs / 100 * percent,
            work: Work::LoadAndOverwrite { percent },
            ..Setup::new(scheme, scale, seed)
        }
    }

    /// A load that is read when it fills each of [`READ_PERCENTS`] of the tracks.
    pub(super) fn reading(scheme: Scheme, scale: Scale, seed: u64) -> Setup {
        let most = READ_PERCENTS[READ_PERCENTS.len() - 1];
        Setup { work: Work::LoadAndRead, ..Setup::overwriting(scheme, scale, seed, most) }
    }

    fn is_nearly_full(&self) -> bool {
        matches!(self.work, Work::LoadAndOverwrite { .. } | Work::LoadAndRead)
    }

    /// Operations of it, for progress.
    pub(super) fn operations(&self) -> u64 {
        let more: u64 = match self.work {
            Work::Load | Work::LoadUntilIdle { .. } => 0,
            Work::LoadAndMixes { .. } => MIXES.iter().map(|percent| MIX_OPERATIONS * percent / 100).sum(),
            Work::LoadAndOverwrite { .. } => self.scaled_pairs(),
            Work::LoadAndRead => READS * READ_PERCENTS.len() as u64,
        };
        self.scaled_pairs() + more
    }

    /// Pairs at this scale.
    pub(super) fn scaled_pairs(&self) -> u64 {
        self.scale.of(self.pairs)
    }

    /// States everything that has to be the same for the numbers to be.
    pub(super) fn describe(&self, report: &mut Report) {
        let options = self.options();
        let full = |bytes: u64| format_bytes(bytes.saturating_mul(self.scale.denominator()));
        report.condition("medium (of this scheme; the others differ in allocation and rewrite)", self.spec());
        report.condition("processor cost constants", format!("version {}", varve::engine::cost::VERSION));
        report.condition(
            "pairs",
            format!(
                "{} of 23 B (YCSB's user and hashed number, each once, so in random order) + {VALUE_BYTES} B; in full {}",
                self.scaled_pairs(),
                self.pairs
            ),
        );
        report.condition(
            "scaling",
            format!(
                "every size and every positioning time divided by {}; rates, processor time to a pair, blocks of 4 KiB, \
                 pairs and sectors of 4 KiB as in full",
                self.scale.denominator()
            ),
        );
        for (name, bytes) in [
            ("write_buffer_size", options.write_buffer_size as u64),
            ("target_file_size_base", options.target_file_size_base),
            ("max_bytes_for_level_base", options.max_bytes_for_level_base),
            ("max_compaction_bytes", options.max_compaction_bytes),
            ("soft_pending_compaction_bytes_limit", options.soft_pending_compaction_bytes_limit),
            ("hard_pending_compaction_bytes_limit", options.hard_pending_compaction_bytes_limit),
            ("compaction_readahead_size", options.compaction_readahead_size.unwrap_or(0) as u64),
            ("block_cache_capacity", options.block_cache_capacity as u64),
            ("log_buffer_size", options.log_buffer_size.unwrap_or(0) as u64),
        ] {
            report.condition(name, format!("{}; in full {}", format_bytes(bytes), full(bytes)));
        }
        for (name, value) in [
            ("max_write_buffer_number", options.max_write_buffer_number as u64),
            ("level0_file_num_compaction_trigger", options.level0_file_num_compaction_trigger as u64),
            ("level0_slowdown_writes_trigger", options.level0_slowdown_writes_trigger as u64),
            ("level0_stop_writes_trigger", options.level0_stop_writes_trigger as u64),
            ("num_levels", options.num_levels as u64),
            ("max_bytes_for_level_multiplier", options.max_bytes_for_level_multiplier),
            ("max_background_jobs", options.max_background_jobs as u64),
            ("max_subcompactions", options.max_subcompactions as u64),
            ("block_size", options.block_size as u64),
            ("bloom_bits_per_key", u64::from(options.bloom_bits_per_key)),
            ("delayed_write_rate", options.delayed_write_rate),
        ] {
            report.condition(name, value);
        }
        report.condition("compression", "none");
        report.condition("level_compaction_dynamic_level_bytes", options.level_compaction_dynamic_level_bytes);
        let differences = match self.shape {
            Shape::Rocks => {
                "RocksDB's skip list's and arena's overhead, and its WAL through the page cache of the SSD (ours goes to the \
                 SSD in pieces of log_buffer_size); the versions of RocksDB and of the file system of the SSD are not given"
            }
            Shape::Level => {
                "taken from the source, because the paper does not say: memtable 64 MiB, a slowed write sleeps 1 ms, no \
                 limit of pending bytes; not expressible: LevelDB flushes within the compaction's thread where this tree \
                 has a second one, and limits overlap with the level below the output"
            }
            Shape::HyperLevel => {
                "taken from the source, because the paper does not say: memtable 64 MiB, writers are not slowed before \
                 the stop trigger, no limit of pending bytes; not expressible: HyperLevelDB has no stop trigger either (its \
                 constant is only used by tests) and merges at most 32 tables of level 0 at a time, takes the run of tables \
                 with the best ratio of bytes where this tree takes the table with the least overlap and what comes free \
                 with it, and prefers upper levels only when the next one is in shape"
            }
        };
        report.condition("not as in the paper", differences);
        let priority = match options.compaction_pri {
            CompactionPriority::ByCompensatedSize => {
                "by_compensated_size, RocksDB's default before version 6; with the later one, min_overlapping_ratio, tables \
                 that overlap nothing are moved to the largest level first and stay on tops, and KVIMR-N rewrites more \
                 tops than 3Phase instead of a third"
            }
            CompactionPriority::RoundRobin => "round_robin, as LevelDB",
            _ => "min_overlapping_ratio, nearest to HyperLevelDB's choice",
        };
        report.condition("compaction_pri", priority);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_pairs_of_tracks_for_the_largest_table() {
        let setup = Setup::new(Scheme::Region, Scale::FULL, 1);
        // 72 MiB in pairs of 4, and of 18: eighteen, and four.
        assert_eq!(setup.region_bytes(), 72 << 20);
        let variation = Variation { track_bytes: 8 << 20, ratio: "5/4", ..setup.variation };
        assert_eq!(Setup { variation, ..setup }.region_bytes(), 72 << 20);
        let odd = Variation { track_bytes: 5 << 20, ..setup.variation };
        assert_eq!(Setup { variation: odd, ..setup }.region_bytes(), 80 << 20);
    }
}
