//! What trees of tables want of options.

use crate::error::Error;
use crate::options::{
    FILE_BYTES_MAX, MEDIUM_BYTES_MAX, MEMORY_BYTES_MAX, Options, TreeKind, at_least, at_most, not_below,
};

/// Errors: [`Error::InvalidArgument`] names an option, its value and the limit.
pub(crate) fn check_options(options: &Options) -> Result<(), Error> {
    at_least("max_write_buffer_number", options.max_write_buffer_number as u64, 2)?;
    at_most("max_write_buffer_number", options.max_write_buffer_number as u64, 1 << 16)?;
    at_least("min_write_buffer_number_to_merge", options.experiment.min_write_buffer_number_to_merge as u64, 1)?;
    if options.experiment.min_write_buffer_number_to_merge >= options.max_write_buffer_number {
        let what = format!(
            "option min_write_buffer_number_to_merge = {}",
            options.experiment.min_write_buffer_number_to_merge
        );
        let reason = format!(
            "it must be below max_write_buffer_number = {}, as writes stop when all memtables wait for more; lower the former or \
             raise the latter",
            options.max_write_buffer_number
        );
        return Err(Error::InvalidArgument { what, reason });
    }
    if options.flush_key_ranges.unwrap_or_default() && options.tree_kind() != TreeKind::TwoLevel {
        return Err(Error::InvalidArgument {
            what: "option flush_key_ranges = true".to_owned(),
            reason: format!("a tree of kind {} takes memtables of all keys", options.tree_kind().name()),
        });
    }
    if options.flush_key_ranges.unwrap_or_default() && options.experiment.min_write_buffer_number_to_merge > 1 {
        return Err(Error::InvalidArgument {
            what: format!(
                "option min_write_buffer_number_to_merge = {}",
                options.experiment.min_write_buffer_number_to_merge
            ),
            reason: "with flush_key_ranges a range of keys is flushed as soon as memtables are full".to_owned(),
        });
    }
    at_most("block_cache_capacity", options.block_cache_capacity as u64, MEMORY_BYTES_MAX)?;
    at_least("level0_file_num_compaction_trigger", options.level0_file_num_compaction_trigger as u64, 1)?;
    not_below(
        ("level0_slowdown_writes_trigger", options.level0_slowdown_writes_trigger as u64),
        ("level0_file_num_compaction_trigger", options.level0_file_num_compaction_trigger as u64),
        "as no compaction is due before that would end the slowdown",
    )?;
    not_below(
        ("level0_stop_writes_trigger", options.level0_stop_writes_trigger as u64),
        ("level0_slowdown_writes_trigger", options.level0_slowdown_writes_trigger as u64),
        "as writes are slowed before they stop",
    )?;
    if options.soft_pending_compaction_bytes_limit > 0 && options.hard_pending_compaction_bytes_limit > 0 {
        not_below(
            ("hard_pending_compaction_bytes_limit", options.hard_pending_compaction_bytes_limit),
            ("soft_pending_compaction_bytes_limit", options.soft_pending_compaction_bytes_limit),
            "as writes are slowed before they stop; 0 is never",
        )?;
    }
    at_least("max_level0_compaction_tables", options.max_level0_compaction_tables as u64, 1)?;
    at_least("level1_overlap_compaction_trigger", options.level1_overlap_compaction_trigger as u64, 1)?;
    at_least("num_levels", options.num_levels as u64, 2)?;
    at_most("num_levels", options.num_levels as u64, 64)?;
    at_least("max_bytes_for_level_base", options.max_bytes_for_level_base, 1)?;
    at_most("max_bytes_for_level_base", options.max_bytes_for_level_base, MEDIUM_BYTES_MAX)?;
    at_least("max_bytes_for_level_multiplier", options.max_bytes_for_level_multiplier, 2)?;
    at_most("max_size_amplification_percent", options.max_size_amplification_percent, 10_000)?;
    at_least("target_file_size_base", options.target_file_size_base, 1 << 10)?;
    at_most("target_file_size_base", options.target_file_size_base, FILE_BYTES_MAX)?;
    at_most("compaction_buffer_size", options.compaction_buffer_size.unwrap_or(0), MEDIUM_BYTES_MAX)?;
    at_least("max_compaction_bytes", options.max_compaction_bytes, 1)?;
    at_least("max_subcompactions", options.max_subcompactions as u64, 1)?;
    at_most("max_subcompactions", options.max_subcompactions as u64, 1024)?;
    at_least("block_size", options.block_size as u64, 64)?;
    at_most("block_size", options.block_size as u64, 64 << 20)?;
    at_least("block_restart_interval", options.block_restart_interval as u64, 1)?;
    at_most("block_restart_interval", options.block_restart_interval as u64, 1 << 16)?;
    at_most("block_align", options.block_align as u64, 1 << 20)?;
    if options.block_align > 1 && !options.block_align.is_power_of_two() {
        return Err(Error::InvalidArgument {
            what: format!("option block_align = {}", options.block_align),
            reason: "it must be 0, 1 or a power of two".to_owned(),
        });
    }
    at_most("bloom_bits_per_key", u64::from(options.bloom_bits_per_key), 64)?;
    at_most("block_cache_shard_bits", u64::from(options.block_cache_shard_bits.unwrap_or(0)), 16)?;
    at_least("max_open_files", options.max_open_files as u64, 1)?;
    at_most("compaction_readahead_size", options.compaction_readahead_size.unwrap_or(0) as u64, 1 << 30)?;
    at_most("iterator_readahead_size", options.iterator_readahead_size.unwrap_or(0) as u64, 1 << 30)?;
    at_most(
        "initial_auto_readahead_size",
        options.experiment.initial_auto_readahead_size.unwrap_or(0) as u64,
        1 << 30,
    )?;
    Ok(())
}
