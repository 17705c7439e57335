//! Parameters that experiments vary and databases leave at their defaults.

/// Parameters of a database that only experiments set: the lab imitates other stores with them.
///
/// They have no name in configuration files, on the command line or in the file of saved options. Options that were moved here are
/// refused there by [`moved_option`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExperimentOptions {
    /// Number of memtables that are flushed together into one table, without the entries that are replaced among them. Below
    /// `max_write_buffer_number`. A flush that a caller asks for takes the memtables that there are. Default: 1.
    pub min_write_buffer_number_to_merge: usize,
    /// Leveled trees: the bytes of level 0, relative to `max_bytes_for_level_base`, count as its score where they exceed the score by
    /// tables, as in RocksDB. Without effect where `max_size_amplification_percent` lets levels gather. Default: false.
    pub level0_score_by_bytes: bool,
    /// Size of the first read-ahead of an iterator in a table, in bytes; it doubles up to `iterator_readahead_size`. `None` derives it from
    /// the medium: 64 KiB where reads position (rotational), 16 KiB elsewhere.
    pub initial_auto_readahead_size: Option<usize>,
    /// Number of blocks that an iterator reads of a table one by one before it reads ahead. `None` derives it from the medium: 0 where
    /// reads position, 2 elsewhere.
    pub num_file_reads_for_auto_readahead: Option<u32>,
}

impl Default for ExperimentOptions {
    fn default() -> Self {
        ExperimentOptions {
            min_write_buffer_number_to_merge: 1,
            level0_score_by_bytes: false,
            initial_auto_readahead_size: None,
            num_file_reads_for_auto_readahead: None,
        }
    }
}

/// Names that were options of a database, and where each went.
const MOVED_OPTIONS: &[(&str, &str)] = &[
    (
        "min_write_buffer_number_to_merge",
        "a memtable is flushed by itself; max_write_buffer_number and write_buffer_size remain",
    ),
    ("level0_score_by_bytes", "level 0 counts tables; level0_file_num_compaction_trigger remains"),
    ("initial_auto_readahead_size", "it follows from the medium; iterator_readahead_size remains"),
    ("num_file_reads_for_auto_readahead", "it follows from the medium; iterator_readahead_size remains"),
];

/// Where an option went that databases had and that only experiments of the lab set today; `None` for any other name.
pub fn moved_option(name: &str) -> Option<String> {
    let (_, instead) = MOVED_OPTIONS.iter().find(|(moved, _)| *moved == name)?;
    Some(format!("it moved to the lab's experiments (ExperimentOptions::{name}): {instead}; remove it here"))
}

/// As [`moved_option`], for the name in a message of the deserializer about an unknown field.
pub(super) fn moved_field(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (name, _) = rest.split_once('`')?;
    moved_option(name).map(|where_to| format!("option '{name}': {where_to}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn moved_options_are_refused_with_their_new_place() {
        for (name, value) in [
            ("min_write_buffer_number_to_merge", "2"),
            ("level0_score_by_bytes", "true"),
            ("initial_auto_readahead_size", "8192"),
            ("num_file_reads_for_auto_readahead", "2"),
        ] {
            let error = Options::from_toml(&format!("num_levels = 5\n{name} = {value}")).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("moved to the lab"), "{error}");
            assert!(Options::ALL.iter().all(|option| option.name != name));
        }
        assert_eq!(MOVED_OPTIONS.len(), 4);
        assert_eq!(moved_option("write_buffer_size"), None);
    }

    #[test]
    fn experiment_options_are_not_saved() {
        let experiment = ExperimentOptions { level0_score_by_bytes: true, ..ExperimentOptions::default() };
        let options = Options { experiment, ..Options::default() };
        assert_eq!(options.to_toml().unwrap(), Options::default().to_toml().unwrap());
        assert!(Options::from_toml("[experiment]\nlevel0_score_by_bytes = true").is_err());
    }
}
