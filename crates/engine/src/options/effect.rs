//! Options that have no effect with the other options, or on the medium.

use super::{Options, Profile, TreeKind};
use varve_store::StoreProperties;

/// An option that is not at its default and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionWithoutEffect {
    /// Name of the option.
    pub name: &'static str,
    /// Why it has no effect, and what would give it one.
    pub reason: &'static str,
}

/// Options that trees in memory read.
const OF_MEMORY_TREES: &[&str] = &[
    "tree",
    "profile",
    "create_if_missing",
    "error_if_exists",
    "write_buffer_size",
    "compaction_buffer_size",
    "log_buffer_size",
    "allow_mmap_writes",
];

/// Options that leveled trees alone read.
const OF_LEVELED_TREES: &[&str] = &[
    "num_levels",
    "max_bytes_for_level_base",
    "max_bytes_for_level_multiplier",
    "level_compaction_dynamic_level_bytes",
    "max_size_amplification_percent",
    "compaction_pri",
];

/// Options that trees of two levels alone read.
const OF_TWO_LEVEL_TREES: &[&str] =
    &["flush_key_ranges", "max_level0_compaction_tables", "level1_overlap_compaction_trigger", "overlap_depth_max"];

/// Options that select tables by the triggers of the SMRDB paper.
const OF_THE_PAPERS_SELECTION: &[&str] = &["max_level0_compaction_tables", "level1_overlap_compaction_trigger"];

impl Options {
    /// Options that are not at their default and have no effect: because of the tree, because of another option, or because
    /// the medium decides. `files` holds the tables; `has_log_store` is true if logs have a store of their own.
    pub fn without_effect(&self, files: &StoreProperties, has_log_store: bool) -> Vec<OptionWithoutEffect> {
        let changed = self.changed_names();
        changed
            .into_iter()
            .filter_map(|name| Some((name, self.reason(name, files, has_log_store)?)))
            .map(|(name, reason)| OptionWithoutEffect { name, reason })
            .collect()
    }

    /// Names of the options that are not at their default.
    fn changed_names(&self) -> Vec<&'static str> {
        let table = |options: &Options| toml::Table::try_from(options).unwrap_or_default();
        let (own, defaults) = (table(self), table(&Options::default()));
        let names = Options::ALL.iter().map(|option| option.name);
        names.filter(|name| own.get(*name) != defaults.get(*name)).collect()
    }

    /// Why an option has no effect, if it has none.
    fn reason(&self, name: &str, files: &StoreProperties, has_log_store: bool) -> Option<&'static str> {
        let is_one_of = |names: &[&str]| names.contains(&name);
        match self.tree_kind() {
            TreeKind::Memory if !is_one_of(OF_MEMORY_TREES) => return Some("tree=memory has no tables"),
            TreeKind::TwoLevel if is_one_of(OF_LEVELED_TREES) => return Some("only tree=leveled reads it"),
            TreeKind::Leveled if is_one_of(OF_TWO_LEVEL_TREES) => return Some("only tree=two_level reads it"),
            _ => {}
        }
        if is_one_of(OF_THE_PAPERS_SELECTION) && self.overlap_depth_max.unwrap_or_default() > 0 {
            return Some("overlap_depth_max selects the tables instead");
        }
        match name {
            "target_file_size_base" if files.preferred_table_bytes.is_some() => {
                Some("a table fills a band or zone of the medium")
            }
            "favour" if self.profile == Profile::Paper => Some("profile=paper has one configuration for a medium"),
            "max_size_amplification_percent" if !self.level_compaction_dynamic_level_bytes => {
                Some("levels have fixed sizes without level_compaction_dynamic_level_bytes")
            }
            "max_write_stall_ms" if !self.pace_background_work.unwrap_or_default() => {
                Some("it needs pace_background_work")
            }
            "max_write_stall_ms" if has_log_store => Some("logs have a store of their own"),
            "compression" if !self.compression_per_level.is_empty() => {
                Some("compression_per_level names the compression of every level")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Compression;
    use crate::test_store::MemoryStore;
    use crate::{Db, Media, ReadOptions};
    use std::sync::Arc;
    use varve_env::{Env, Random};
    use varve_store::FileStore;

    fn properties(preferred_table_bytes: Option<u64>) -> StoreProperties {
        StoreProperties { preferred_table_bytes, ..MemoryStore::new().properties().clone() }
    }

    fn names(options: &Options, preferred_table_bytes: Option<u64>, has_log_store: bool) -> Vec<&'static str> {
        let found = options.without_effect(&properties(preferred_table_bytes), has_log_store);
        found.into_iter().map(|option| option.name).collect()
    }

    #[test]
    fn names_every_option_that_has_no_effect() {
        for tree in TreeKind::ALL {
            for preferred in [None, Some(1 << 20)] {
                let options = Options { tree: Some(tree), ..Options::default() };
                assert_eq!(names(&options, preferred, true), [""; 0], "{tree:?}");
            }
        }
        let leveled = Options { overlap_depth_max: Some(5), target_file_size_base: 1 << 20, ..Options::default() };
        assert_eq!(names(&leveled, None, false), ["overlap_depth_max"]);
        assert_eq!(names(&leveled, Some(1 << 20), false), ["overlap_depth_max", "target_file_size_base"]);
        let stalls = Options { max_write_stall_ms: Some(50), ..Options::default() };
        assert_eq!(names(&stalls, None, false), ["max_write_stall_ms"]);
        let paced = Options { pace_background_work: Some(true), ..stalls };
        assert_eq!(names(&paced, None, false), [""; 0]);
        assert_eq!(names(&paced, None, true), ["max_write_stall_ms"]);
        let two_level =
            Options { tree: Some(TreeKind::TwoLevel), num_levels: 3, max_level0_compaction_tables: 3, ..leveled };
        assert_eq!(names(&two_level, None, false), ["max_level0_compaction_tables", "num_levels"]);
        let of_paper = Options { overlap_depth_max: Some(0), num_levels: 7, ..two_level };
        assert_eq!(names(&of_paper, None, false), [""; 0]);
        let fixed = Options {
            level_compaction_dynamic_level_bytes: false,
            max_size_amplification_percent: 20,
            compression: Compression::Lz4,
            compression_per_level: vec![Compression::None],
            ..Options::default()
        };
        assert_eq!(names(&fixed, None, false), ["max_size_amplification_percent", "compression"]);
    }

    /// Every number and flag of the options, changed.
    fn changed(name: &str, value: &toml::Value) -> Option<toml::Value> {
        match value {
            toml::Value::Boolean(is_set) => Some(toml::Value::Boolean(!is_set)),
            toml::Value::Integer(number) => Some(toml::Value::Integer(match name {
                "block_align" => 512,
                "num_levels" => 4,
                _ => (number / 2).max(number - 1).max(1) + i64::from(*number <= 1),
            })),
            _ => None,
        }
    }

    /// Hash of the events of a load with flushes, compactions and reads; `None` if the options are refused.
    fn events(options: &Options) -> Option<u64> {
        let env = Env::sim(3);
        let db = Db::open(&env, Media::of_files(Arc::new(MemoryStore::new())), options.clone()).ok()?;
        let mut random = Random::seeded(3);
        for _ in 0..3000 {
            let key = format!("key{:04}", random.below(800)).into_bytes();
            match random.below(8) {
                0 => db.delete(&key).expect("delete"),
                1 => drop(db.get_with(&key, &ReadOptions::default()).expect("get")),
                _ => db.put(&key, &[7; 100]).expect("put"),
            }
        }
        db.wait_idle().expect("wait");
        let tables = db.property("varve.tables").unwrap_or_default();
        env.record("tables", u64::from(crc32c::crc32c(tables.as_bytes())));
        db.close().expect("close");
        Some(env.event_hash())
    }

    /// An option that is said to have no effect changes no event of a run.
    #[test]
    fn options_without_effect_change_nothing() {
        for tree in TreeKind::ALL {
            let base = Options {
                tree: Some(tree),
                write_buffer_size: 16 << 10,
                target_file_size_base: 16 << 10,
                max_bytes_for_level_base: 64 << 10,
                flush_key_ranges: Some(false),
                overlap_depth_max: Some(0),
                compact_in_pieces: Some(false),
                pace_background_work: Some(false),
                max_write_stall_ms: Some(0),
                log_write_behind_size: Some(0),
                ..Options::default()
            };
            let events_of_base = events(&base).expect("valid options");
            let table = toml::Table::try_from(&base).expect("TOML");
            let mut compared = 0;
            for (name, value) in &table {
                let Some(value) = changed(name, value) else { continue };
                let mut other = table.clone();
                other.insert(name.clone(), value);
                let options: Options = other.try_into().expect("options");
                let is_listed = names(&options, None, false).contains(&name.as_str());
                if let Some(events) = is_listed.then(|| events(&options)).flatten() {
                    assert_eq!(events, events_of_base, "{tree:?}: {name} changes events");
                    compared += 1;
                }
            }
            assert!(compared >= 3, "{tree:?}: {compared} options");
        }
    }
}
