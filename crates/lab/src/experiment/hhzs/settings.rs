//! The paper's set-up at any scale.

use super::scheme::{Scheme, SchemeOptions};
use super::workload::Workload;
use crate::experiment::Scale;
use crate::generator::{KeyFormat, Permutation};
use crate::report::{Report, format_bytes};
use varve::options::{CompactionPriority, ExperimentOptions};
use varve::{Compression, Options, TreeKind};

/// "200 GiB of 1-KiB KV objects, each with a 24-byte key and a 1,000-byte value".
pub(super) const PAIRS: u64 = (200 << 30) / PAIR_BYTES;
pub(super) const PAIR_BYTES: u64 = 24 + VALUE_BYTES as u64;
pub(super) const VALUE_BYTES: usize = 1000;

/// "user" and 20 digits: 24 bytes.
pub(super) const KEYS: KeyFormat = KeyFormat::YcsbOrdered;

/// Size of values where memory holds them compressed, as a share: they are alike.
pub(super) const COMPRESSION_RATIO: f64 = 0.012;

/// "zone capacities of 1,077 MiB and 256 MiB".
pub(super) const SSD_ZONE_BYTES: u64 = 1077 << 20;
const DISK_ZONE_BYTES: u64 = 256 << 20;

/// Zones of the drive beside those of the paper: what the store knows of itself.
const MAP_ZONES: u64 = 3;

/// The disk in full, and its zones that can be written anywhere. As many zones as at full size have a band table of this size.
const DISK_BYTES: u64 = 14_000_000_000_000;
const DISK_CONVENTIONAL_BYTES: u64 = 4 << 30;
const BAND_TABLE_BYTES: u64 = 32 << 20;

/// Random reads a second of the disk (table 1), whatever the scale: policies ask whether reads wait for it.
pub(super) const DISK_READS_PER_SECOND: f64 = 115.0;

/// A lone random read of the disk, 8.70 ms.
pub(super) const DISK_READ_SECONDS: f64 = 1.0 / DISK_READS_PER_SECOND;

/// "The target SST size as 1,011.2 MiB".
const TABLE_BYTES: u64 = (10_112 << 20) / 10;

/// "20 SSD zones".
pub(super) const SSD_ZONES: u64 = 20;

/// "The in-memory block cache is 8 MiB".
pub(super) const CACHE_BYTES: u64 = 8 << 20;

/// "We set the migration rate of HHZS as 4 MiB/s".
pub(super) const MIGRATION_BYTES_PER_SECOND: u64 = 4 << 20;

/// Size of one record's copy in a cache zone, with its header, in bytes.
pub(super) const RECORD_COPY_BYTES: u64 = PAIR_BYTES + 64;

/// Tables of level 0 at which writes are slowed and stop: the larger of two pairs of RocksDB's tuning guide, because level 0
/// reached 40 tables.
const LEVEL0_TRIGGERS: (usize, usize) = (20, 40);

/// Parameters of the tree and of the record choice that the paper does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Name in scheme names of reports.
    pub(super) name: &'static str,
    /// Bits of a Bloom filter per key; 0 for no filter.
    pub(super) bloom_bits: u32,
    /// Number of tables in level 0 that starts a compaction.
    pub(super) level0_trigger: usize,
    /// Numbers of tables in level 0 that slow and stop writes.
    pub(super) level0_limits: (usize, usize),
    /// Pending compaction bytes slow and stop writes at RocksDB's defaults (64 and 256 GiB).
    pub(super) has_pending_limits: bool,
    /// Maximum number of concurrent compactions and flushes.
    pub(super) jobs: usize,
    /// Outputs of compactions count against R_t from their creation on.
    pub(super) counts_open_tables: bool,
    /// Ranks are hashed to records, as in YCSB's scrambled zipfian generator.
    pub(super) hashes_ranks: bool,
}

impl Setting {
    /// Bloom filters, and limits on pending bytes.
    pub(super) const WITH_FILTERS: Setting = Setting {
        name: "with filters",
        bloom_bits: 10,
        level0_trigger: 4,
        level0_limits: LEVEL0_TRIGGERS,
        has_pending_limits: true,
        jobs: 12,
        counts_open_tables: false,
        hashes_ranks: false,
    };

    /// The settings of the authors' prototype (`h2zone-project/h2zone`: `options_sst1011m_l1_1g.cc`, `RocksDBClient.java`,
    /// `fs_compaction_hint.cc`, `ScrambledZipfianGenerator.java`, `single_exp.sh`): 12 threads for compactions and one for flushes, no
    /// filters, a trigger of 2, and RocksDB's limits on level 0. The published files keep RocksDB's limits on pending bytes; with
    /// those limits the levels cannot reach the paper's sizes, so this setting has none.
    pub(super) const AUTHORS: Setting = Setting {
        name: "authors",
        bloom_bits: 0,
        level0_trigger: 2,
        level0_limits: (20, 36),
        has_pending_limits: false,
        jobs: 13,
        counts_open_tables: true,
        hashes_ranks: true,
    };

    /// Returns the workload with the record choice of this setting.
    pub(super) fn workload(&self, workload: &Workload) -> Workload {
        if self.hashes_ranks { workload.hashed() } else { *workload }
    }
}

/// What one load depends on. Two equal ones give equal numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    pub(super) scheme: Scheme,
    pub(super) setting: Setting,
    pub(super) scale: Scale,
    pub(super) seed: u64,
    /// Zones of the drive for logs, tables and cached blocks.
    pub(super) ssd_zones: u64,
    /// Drives of so many zones each, and disks.
    pub(super) drives: usize,
    pub(super) disks: usize,
    /// Bytes of the disk in full.
    pub(super) disk_bytes: u64,
    /// Pairs put in a second at most.
    pub(super) puts_per_second: Option<u64>,
    /// Bytes a second that migration moves at most.
    pub(super) migration_bytes_per_second: u64,
    /// Scans begin with large reads; else as RocksDB's do.
    pub(super) scans_begin_large: bool,
}

impl Setup {
    /// The paper's load, with filters.
    pub(super) fn new(scheme: Scheme, scale: Scale, seed: u64) -> Setup {
        Setup::under(Setting::WITH_FILTERS, scheme, scale, seed)
    }

    /// The paper's load under a setting.
    pub(super) fn under(setting: Setting, scheme: Scheme, scale: Scale, seed: u64) -> Setup {
        Setup {
            scheme,
            setting,
            scale,
            seed,
            ssd_zones: SSD_ZONES,
            drives: 1,
            disks: 1,
            disk_bytes: DISK_BYTES,
            puts_per_second: None,
            migration_bytes_per_second: MIGRATION_BYTES_PER_SECOND,
            scans_begin_large: scheme.options().scans_begin_large,
        }
    }

    /// The setup of the load that its runs begin with: what is no part of a load is as usual.
    pub(super) fn of_load(&self) -> Setup {
        // The record choice and the name do not change a load.
        let usual = Setting { hashes_ranks: false, name: Setting::WITH_FILTERS.name, ..self.setting };
        Setup {
            setting: usual,
            migration_bytes_per_second: MIGRATION_BYTES_PER_SECOND,
            scans_begin_large: self.scheme.options().scans_begin_large,
            ..self.clone()
        }
    }

    /// Name of the scheme and of its setting.
    pub(super) fn name_with_setting(&self) -> String {
        format!("{}, {}", self.scheme.name(), self.setting.name)
    }

    /// Name of the scheme, its setting unless that is the one with filters, and its scans where they differ from the scheme's.
    pub(super) fn name(&self) -> String {
        let scheme = match self.setting == Setting::WITH_FILTERS {
            true => self.scheme.name(),
            false => self.name_with_setting(),
        };
        match (self.scans_begin_large, self.scheme.options().scans_begin_large) {
            (true, false) => format!("{scheme}, scans begin large"),
            (false, true) => format!("{scheme}, scans as RocksDB's"),
            _ => scheme,
        }
    }

    /// Pairs at this scale.
    pub(super) fn pairs(&self) -> u64 {
        self.scale.of(PAIRS)
    }

    /// Where the records are in the order of the keys: those that follow each other in the load lie far apart, and those that
    /// are inserted later between them.
    pub(super) fn places(&self) -> Permutation {
        Permutation::new(self.pairs() + self.inserts_max(), self.seed)
    }

    /// The same with a disk that is cut to so many bytes of files, so that its zones can be seen.
    pub(super) fn cut_to(self, file_bytes: u64) -> Setup {
        let zones = file_bytes.div_ceil(DISK_ZONE_BYTES) * DISK_ZONE_BYTES;
        Setup { disk_bytes: (self.conventional_bytes() + zones).min(DISK_BYTES), ..self }
    }

    fn conventional_bytes(&self) -> u64 {
        DISK_CONVENTIONAL_BYTES.max(BAND_TABLE_BYTES * self.scale.denominator()).next_multiple_of(DISK_ZONE_BYTES)
    }

    /// Records that a workload inserts at most.
    pub(super) fn inserts_max(&self) -> u64 {
        self.pairs() / 8
    }

    /// The media and the store on them. Sizes of devices are given in full and divided by their own option; those of the
    /// store are given as they are to be.
    pub(super) fn spec(&self) -> String {
        let SchemeOptions { placement, migration, caching, division, write_mebibytes, without, .. } =
            self.scheme.options();
        let mut more = without.map_or(String::new(), |technique| format!(",without={technique}"));
        if self.setting.counts_open_tables {
            more += ",open-tables=counted";
        }
        let (scale, disk_bytes) = (self.scale, self.disk_bytes);
        let drive_bytes = (self.ssd_zones + MAP_ZONES) * SSD_ZONE_BYTES;
        // Whole sectors, or a table would not be one of the store's.
        let table_bytes = scale.of(TABLE_BYTES) / 4096 * 4096;
        let rate = self.migration_bytes_per_second;
        let interval_micros = scale.of(1_000_000);
        let transfer_bytes = scale.of(write_mebibytes << 20);
        let conventional_bytes = self.conventional_bytes();
        let drive = format!("model=zn540,scale={scale},backing=compressed");
        let disk = format!(
            "+smr:{disk_bytes}B?model=st14000nm0007,band={DISK_ZONE_BYTES}B,conventional={conventional_bytes}B,\
             random-reads={DISK_READS_PER_SECOND:.0},scale={scale},backing=compressed"
        );
        let first = format!(
            "zns:{drive_bytes}B?store=hybrid,placement={placement},migration={migration},caching={caching},\
             division={division},transfer-size={transfer_bytes}B,migration-rate={rate}B,auto-interval-us={interval_micros},tiered-table-size={table_bytes}B{more},{drive}"
        );
        let others = format!("+zns:{drive_bytes}B?{drive}").repeat(self.drives.saturating_sub(1));
        format!("{first}{others}{}", disk.repeat(self.disks))
    }

    /// Options of the tree, with a block cache of so many bytes.
    pub(super) fn options(&self, cache_bytes: u64) -> Options {
        let size = |bytes: u64| self.scale.of(bytes);
        let Setting { bloom_bits, level0_trigger, level0_limits: (slowdown, stop), jobs, .. } = self.setting;
        let limit = |bytes: u64| if self.setting.has_pending_limits { size(bytes) } else { 0 };
        Options {
            tree: Some(TreeKind::Leveled),
            write_buffer_size: size(512 << 20) as usize,
            max_write_buffer_number: 4,
            level0_file_num_compaction_trigger: level0_trigger,
            level0_slowdown_writes_trigger: slowdown,
            level0_stop_writes_trigger: stop,
            soft_pending_compaction_bytes_limit: limit(64 << 30),
            hard_pending_compaction_bytes_limit: limit(256 << 30),
            num_levels: 7,
            max_bytes_for_level_base: size(1 << 30),
            max_bytes_for_level_multiplier: 10,
            level_compaction_dynamic_level_bytes: false,
            max_size_amplification_percent: 0,
            target_file_size_base: size(TABLE_BYTES),
            max_compaction_bytes: size(25 * TABLE_BYTES),
            compaction_pri: CompactionPriority::MinOverlappingRatio,
            max_background_jobs: jobs,
            max_subcompactions: 1,
            block_size: 4096,
            block_restart_interval: 16,
            bloom_bits_per_key: bloom_bits,
            compression: Compression::None,
            block_cache_capacity: cache_bytes as usize,
            // A small one in many parts would hold less than it says.
            block_cache_shard_bits: Some(0),
            max_open_files: 1 << 20,
            log_buffer_size: Some(size(1 << 20) as usize),
            compaction_readahead_size: Some(size(self.scheme.options().read_ahead_mebibytes << 20).max(4096) as usize),
            // Blocks are as large as in full, so scans read as far ahead. RocksDB's numbers, or what ours has of its own.
            iterator_readahead_size: Some(256 << 10),
            experiment: ExperimentOptions {
                min_write_buffer_number_to_merge: 2,
                level0_score_by_bytes: true,
                initial_auto_readahead_size: (!self.scans_begin_large).then_some(8 << 10),
                num_file_reads_for_auto_readahead: (!self.scans_begin_large).then_some(2),
            },
            use_direct_reads: true,
            use_direct_io_for_flush_and_compaction: true,
            delayed_write_rate: 16 << 20,
            max_manifest_file_size: size(1 << 30),
            ..Options::default()
        }
    }

    /// States everything that has to be the same for the numbers to be.
    pub(super) fn describe(&self, report: &mut Report) {
        let options = self.options(self.scale.of(CACHE_BYTES));
        let n = self.scale.denominator();
        report.condition("media (of the last scheme; the others differ in placement, migration, caching)", self.spec());
        report.condition("processor cost constants", format!("version {}", varve::engine::cost::VERSION));
        report
            .condition("pairs", format!("{} of 24 + {VALUE_BYTES} B, in random order; in full {PAIRS}", self.pairs()));
        report.condition(
            "scaling",
            format!(
                "every size and every positioning time divided by {n}, and the interval of AUTO and of samples; rates, \
                 processor time to a pair, blocks of 4 KiB and pairs as in full"
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
            ("log_buffer_size", options.log_buffer_size.unwrap_or(0) as u64),
        ] {
            report
                .condition(name, format!("{}; in full {}", format_bytes(bytes), format_bytes(bytes.saturating_mul(n))));
        }
        for (name, value) in [
            ("max_write_buffer_number", options.max_write_buffer_number as u64),
            ("min_write_buffer_number_to_merge", options.experiment.min_write_buffer_number_to_merge as u64),
            ("level0_file_num_compaction_trigger", options.level0_file_num_compaction_trigger as u64),
            ("max_bytes_for_level_multiplier", options.max_bytes_for_level_multiplier),
            ("max_background_jobs", options.max_background_jobs as u64),
            ("delayed_write_rate", options.delayed_write_rate),
        ] {
            report.condition(name, value);
        }
        let Setting {
            name, level0_limits: (slowdown, stop), has_pending_limits, counts_open_tables, hashes_ranks, ..
        } = self.setting;
        report.condition(
            "not said by the paper",
            format!(
                "setting '{name}': 1 client; filters of {} bits; no compression; level 0 slows writes at {slowdown} tables and \
                 stops them at {stop}; its bytes count as its tables do; {}; the table that overlaps least goes first, as in \
                 RocksDB 6; open outputs of compactions are {}; {}",
                options.bloom_bits_per_key,
                if has_pending_limits {
                    "pending bytes limit writes as RocksDB's defaults say"
                } else {
                    "pending bytes limit no writes"
                },
                if counts_open_tables { "counted" } else { "expected demand" },
                if hashes_ranks { "ranks of Zipf are hashed into the records" } else { "each record has one rank of Zipf" },
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_a_medium_and_options() {
        for scheme in Scheme::ALL {
            for scale in [Scale::FULL, Scale::one_in(64), Scale::one_in(256)] {
                let setup = Setup::new(scheme, scale, 1);
                setup.spec().parse::<varve::Spec>().unwrap_or_else(|error| panic!("{}: {error}", scheme.name()));
                setup.options(CACHE_BYTES).validate().unwrap();
                let authors = Setup::under(Setting::AUTHORS, scheme, scale, 1);
                authors.spec().parse::<varve::Spec>().unwrap_or_else(|error| panic!("{}: {error}", scheme.name()));
                authors.options(CACHE_BYTES).validate().unwrap();
                let several = Setup { drives: 2, disks: 4, ..setup }.spec();
                assert_eq!((several.matches("zns:").count(), several.matches("smr:").count()), (2, 4));
                several.parse::<varve::Spec>().unwrap_or_else(|error| panic!("{several}: {error}"));
            }
        }
    }
}
