//! Option sets drawn from seeds.

use crate::trees::fixture;
use varve_engine::{CompactionPriority, Compression, ExperimentOptions, Options, TreeKind};
use varve_env::Random;

/// Options small enough that a few hundred writes flush and compact many times, different by seed.
pub(crate) fn option_set(tree: TreeKind, seed: u64) -> Options {
    let mut random = Random::named(seed, "options");
    let pick = |random: &mut Random, choices: &[u64]| choices[random.index(choices.len())];
    let priorities = [
        CompactionPriority::MinOverlappingRatio,
        CompactionPriority::ByCompensatedSize,
        CompactionPriority::RoundRobin,
    ];
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let options = Options {
        write_buffer_size: pick(&mut random, &[4 << 10, 8 << 10, 32 << 10, 128 << 10]) as usize,
        max_write_buffer_number: pick(&mut random, &[2, 3, 5]) as usize,
        level0_file_num_compaction_trigger: pick(&mut random, &[1, 2, 4]) as usize,
        level0_slowdown_writes_trigger: pick(&mut random, &[6, 20]) as usize,
        level0_stop_writes_trigger: pick(&mut random, &[8, 36]).max(20) as usize,
        num_levels: pick(&mut random, &[2, 3, 7]) as usize,
        max_bytes_for_level_base: pick(&mut random, &[16 << 10, 64 << 10]),
        max_bytes_for_level_multiplier: pick(&mut random, &[2, 4, 10]),
        level_compaction_dynamic_level_bytes: random.chance(1, 2),
        target_file_size_base: pick(&mut random, &[2 << 10, 8 << 10, 64 << 10]),
        max_background_jobs: pick(&mut random, &[1, 2, 4]) as usize,
        max_subcompactions: pick(&mut random, &[1, 3]) as usize,
        block_size: pick(&mut random, &[128, 512, 4096]) as usize,
        block_restart_interval: pick(&mut random, &[1, 4, 16]) as usize,
        block_align: pick(&mut random, &[0, 512, 4096]) as usize,
        bloom_bits_per_key: pick(&mut random, &[0, 4, 10]) as u32,
        compression: compressions[random.index(3)],
        compression_per_level: if random.chance(1, 3) {
            vec![Compression::None, compressions[random.index(3)]]
        } else {
            Vec::new()
        },
        block_cache_capacity: pick(&mut random, &[0, 4 << 10, 1 << 20]) as usize,
        max_open_files: pick(&mut random, &[2, 8, 1000]) as usize,
        log_buffer_size: random.chance(1, 2).then_some(1 << 10),
        compaction_readahead_size: random.chance(1, 2).then_some(4 << 10),
        use_direct_reads: random.chance(1, 3),
        use_direct_io_for_flush_and_compaction: random.chance(1, 3),
        verify_checksums: random.chance(1, 2),
        max_manifest_file_size: pick(&mut random, &[1 << 10, 1 << 20]),
        delayed_write_rate: 1 << 30,
        compaction_pri: priorities[random.index(3)],
        max_level0_compaction_tables: pick(&mut random, &[1, 2, 8]) as usize,
        level1_overlap_compaction_trigger: pick(&mut random, &[1, 2, 5]) as usize,
        overlap_depth_max: Some(pick(&mut random, &[0, 1, 4]) as usize),
        pace_background_work: Some(random.chance(1, 3)),
        log_write_behind_size: Some(pick(&mut random, &[0, 0, 2 << 10]) as usize),
        max_write_stall_ms: Some(Random::named(seed, "stall").index(3) as u64 * 5),
        max_size_amplification_percent: pick(&mut random, &[0, 12, 12, 100, 300]),
        tree: Some(tree),
        ..Options::default()
    };
    let level0_score_by_bytes = random.chance(1, 3);
    let merged = [1, 1, 2, options.max_write_buffer_number - 1][random.index(4)];
    let flush_key_ranges = random.chance(1, 2) && fixture(tree).has_ranges_and_pieces;
    let merged = if flush_key_ranges { 1 } else { merged.min(options.max_write_buffer_number - 1) };
    let compact_in_pieces = random.chance(1, 2);
    Options {
        experiment: ExperimentOptions {
            min_write_buffer_number_to_merge: merged,
            level0_score_by_bytes,
            ..ExperimentOptions::default()
        },
        flush_key_ranges: Some(flush_key_ranges),
        compact_in_pieces: Some(compact_in_pieces),
        ..options
    }
}

/// The same, widened by what takes time, holds writers back, or makes work of little data: for short histories.
pub(crate) fn short_option_set(tree: TreeKind, seed: u64) -> Options {
    let mut random = Random::named(seed, "short options");
    let pick = |random: &mut Random, choices: &[u64]| choices[random.index(choices.len())];
    let usual = option_set(tree, seed);
    Options {
        write_buffer_size: pick(&mut random, &[4 << 10, 4 << 10, 4 << 10, 8 << 10, 32 << 10]) as usize,
        log_buffer_size: [None, Some(0), Some(0), Some(1 << 10), Some(16 << 10)][random.index(5)],
        rate_limit_bytes_per_second: pick(&mut random, &[0, 0, 0, 64 << 10, 1 << 20]),
        delayed_write_rate: pick(&mut random, &[1 << 30, 64 << 10]),
        max_compaction_bytes: pick(&mut random, &[4 << 10, 1 << 20, 1 << 30]),
        compaction_buffer_size: random.chance(1, 4).then_some(0),
        iterator_readahead_size: random.chance(1, 2).then_some(2 << 10),
        experiment: ExperimentOptions {
            initial_auto_readahead_size: [None, Some(0), Some(1 << 10), Some(64 << 10)][random.index(4)],
            num_file_reads_for_auto_readahead: [None, Some(0), Some(1)][random.index(3)],
            ..usual.experiment
        },
        block_cache_shard_bits: random.chance(1, 3).then_some(2),
        max_manifest_file_size: pick(&mut random, &[1 << 10, 2 << 10, 1 << 20]),
        soft_pending_compaction_bytes_limit: pick(&mut random, &[0, 64 << 10, 64 << 30]),
        ..usual
    }
}
