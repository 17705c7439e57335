//! What a medium makes of the options that are unset.
//!
//! A pure function of the properties of the stores: no kind of device has a name here.

use super::{Options, TreeKind};
use serde::{Deserialize, Serialize};
use varve_store::StoreProperties;

/// What a database is good at where the medium does not allow all of it at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Favour {
    /// Loads and updates: a tree of two levels where no faster device takes low levels, and paced background work.
    Writes,
    /// All workloads: plain values.
    #[default]
    Balanced,
    /// Scans: few tables to a key, more is rewritten.
    Scans,
}

/// Where the values of unset options come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Profile {
    /// The best known configuration for the medium.
    #[default]
    Medium,
    /// The configuration of the paper for the medium, and the plain values elsewhere.
    Paper,
}

/// The value of an option that was unset, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Name of the option.
    pub name: &'static str,
    /// Its value, as options are written.
    pub value: String,
    /// Why.
    pub reason: &'static str,
}

/// Tables that may overlap in one key where writes are favoured.
const DEPTH_FOR_WRITES: usize = 11;

/// Tables that may overlap in one key where scans are.
const DEPTH_FOR_SCANS: usize = 5;

/// Positionings in the longest stall of a write that background work may cause: about 450 ms on a disk of 78 random reads a second. Shorter
/// bursts were overrun (docs/smrdb.md, "How long bursts are").
const STALL_POSITIONINGS: u64 = 35;

/// Bytes of the log that are written behind the writers at most.
const LOG_BEHIND_BYTES_MAX: usize = 24 << 20;

/// What a medium is like, as far as unset options follow from it.
#[derive(Clone, Copy, Debug)]
struct Nature {
    /// Positioning costs time, tables fill a band or zone, and no faster device takes those of low levels.
    has_bands: bool,
    /// Faster devices take the tables of low levels.
    places_by_level: bool,
    /// Logs and tables are on one device where positioning costs time, and writing the log is a request to it.
    shares_positions: bool,
    /// Longest stall, in milliseconds.
    stall_ms: u64,
}

impl Nature {
    fn of(files: &StoreProperties, logs: Option<&StoreProperties>) -> Nature {
        let stall_nanos = files.access.positioning_nanos.saturating_mul(STALL_POSITIONINGS);
        Nature {
            has_bands: files.rotational && files.preferred_table_bytes.is_some() && !files.places_by_level,
            places_by_level: files.places_by_level,
            shares_positions: logs.is_none() && files.rotational && files.flush_is_device_request,
            stall_ms: (stall_nanos / 1_000_000).clamp(1, super::WRITE_STALL_MS_MAX),
        }
    }
}

/// Collects choices for options that are unset.
struct Choices {
    all: Vec<Choice>,
}

impl Choices {
    /// Sets `option` to `value` unless it is set.
    fn choose<T: Copy>(
        &mut self,
        (name, option): (&'static str, &mut Option<T>),
        value: T,
        shown: impl ToString,
        reason: &'static str,
    ) {
        if option.is_none() {
            *option = Some(value);
            self.all.push(Choice { name, value: shown.to_string(), reason });
        }
    }
}

impl Options {
    /// These options with a value for each of those that are unset and follow from the medium ([`Options::favour`],
    /// [`Options::profile`]), and what was chosen why. Options that are set stay. `logs` are the properties of the store of logs, if they have one of their own; `existing` is the kind of tree that is on the
    /// medium already.
    ///
    /// The facade opens a database with the result; [`Db::open`](crate::Db::open) itself takes plain values for what is
    /// unset: a leveled tree, and none of the rest.
    pub fn for_medium(
        &self,
        files: &StoreProperties,
        logs: Option<&StoreProperties>,
        existing: Option<TreeKind>,
    ) -> (Options, Vec<Choice>) {
        let nature = Nature::of(files, logs);
        let mut options = self.clone();
        let mut choices = Choices { all: Vec::new() };
        let (tree, reason) = match existing {
            Some(tree) => (tree, "the tree that is on the medium"),
            None => self.tree_for(&nature),
        };
        choices.choose(("tree", &mut options.tree), tree, tree.name(), reason);
        if options.profile == Profile::Medium && options.tree_kind() != TreeKind::Memory {
            options.choose_for_tables(&nature, &mut choices);
        }
        (options, choices.all)
    }

    /// The kind of a new tree.
    fn tree_for(&self, nature: &Nature) -> (TreeKind, &'static str) {
        match (self.profile, self.favour) {
            (Profile::Paper, _) if nature.has_bands => (TreeKind::TwoLevel, "SMRDB on a medium of bands"),
            (Profile::Paper, _) => (TreeKind::Leveled, "the tree of the papers where there are no bands"),
            (Profile::Medium, _) if nature.places_by_level => (TreeKind::Leveled, "faster devices take the low levels"),
            (Profile::Medium, Favour::Writes) => (TreeKind::TwoLevel, "rewrites least"),
            (Profile::Medium, Favour::Balanced) => (TreeKind::Leveled, "the plain tree, where nothing is favoured"),
            (Profile::Medium, Favour::Scans) => (TreeKind::Leveled, "few tables to a key"),
        }
    }

    fn choose_for_tables(&mut self, nature: &Nature, choices: &mut Choices) {
        if self.tree_kind() == TreeKind::TwoLevel && self.favour != Favour::Balanced {
            let (depth, reason) = match self.favour {
                Favour::Scans => (DEPTH_FOR_SCANS, "scans visit few tables"),
                _ => (DEPTH_FOR_WRITES, "more tables to a key, less rewritten"),
            };
            choices.choose(("overlap_depth_max", &mut self.overlap_depth_max), depth, depth, reason);
            // One range of all keys is what a merge of several memtables flushes.
            if self.experiment.min_write_buffer_number_to_merge <= 1 {
                let reason = "narrower tables overlap fewer, so less is rewritten";
                choices.choose(("flush_key_ranges", &mut self.flush_key_ranges), true, true, reason);
            }
            let reason = "a compaction takes less space, and fewer tables overlap meanwhile";
            choices.choose(("compact_in_pieces", &mut self.compact_in_pieces), true, true, reason);
        }
        if nature.shares_positions && !nature.places_by_level && self.favour == Favour::Writes {
            let bytes = LOG_BEHIND_BYTES_MAX.min(self.write_buffer_size / 8 * 3);
            let reason = "writing the log positions, and writers need not wait for it";
            choices.choose(("log_write_behind_size", &mut self.log_write_behind_size), bytes, bytes, reason);
            let reason = "background work positions between the writes of the log";
            choices.choose(("pace_background_work", &mut self.pace_background_work), true, true, reason);
            if self.pace_background_work == Some(true) {
                let reason = "bursts of 35 positionings: shorter ones are overrun";
                choices.choose(
                    ("max_write_stall_ms", &mut self.max_write_stall_ms),
                    nature.stall_ms,
                    nature.stall_ms,
                    reason,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_store::AccessTimes;

    fn properties(rotational: bool, bands: bool, tiers: bool) -> StoreProperties {
        StoreProperties {
            read_alignment_bytes: 4096,
            rotational,
            access: AccessTimes::typical(rotational),
            places_by_level: tiers,
            preferred_transfer_bytes: None,
            preferred_table_bytes: bands.then_some(64 << 20),
            table_bytes_max: u64::MAX,
            wants_evictions: tiers,
            wants_rewrites: tiers,
            flush_is_device_request: true,
            location: varve_store::Location::Private,
        }
    }

    fn chosen(options: &Options, properties: &StoreProperties) -> Options {
        let (chosen, choices) = options.for_medium(properties, None, None);
        let table = |options: &Options| options.to_toml().unwrap().parse::<toml::Table>().unwrap();
        let (before, after) = (table(options), table(&chosen));
        for name in Options::ALL.iter().map(|option| option.name) {
            let is_named = choices.iter().any(|choice| choice.name == name);
            assert_eq!(before.get(name) != after.get(name), is_named, "{name}: a choice that is not named");
        }
        for choice in &choices {
            assert!(!before.contains_key(choice.name), "{} was set", choice.name);
            assert_eq!(after[choice.name].to_string().trim_matches('"'), choice.value, "{}", choice.name);
        }
        let again = chosen.for_medium(properties, None, None);
        assert_eq!(again, (chosen.clone(), Vec::new()), "a second time chooses nothing");
        chosen
    }

    #[test]
    fn every_medium_and_dial_gives_options_without_contradiction() {
        for favour in [Favour::Writes, Favour::Balanced, Favour::Scans] {
            for profile in [Profile::Medium, Profile::Paper] {
                for tree in TreeKind::ALL.map(Some).into_iter().chain([None]) {
                    for (rotational, bands, tiers) in (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0)) {
                        let properties = properties(rotational, bands, tiers);
                        let given = Options { favour, profile, tree, ..Options::default() };
                        let options = chosen(&given, &properties);
                        options.validate().unwrap();
                        crate::tree::kind_of(&options).map(|_| ()).unwrap();
                        let without = options.without_effect(&properties, false);
                        let dial = |name: &str| ["favour", "profile"].contains(&name);
                        let without: Vec<_> = without.into_iter().filter(|option| !dial(option.name)).collect();
                        assert_eq!(without, [], "{given:?}: chosen, and without effect");
                    }
                }
            }
        }
    }

    #[test]
    fn dials_choose_and_options_given_by_hand_stay() {
        let bands = properties(true, true, false);
        let options = chosen(&Options::default(), &bands);
        assert_eq!((options.tree, options.overlap_depth_max), (Some(TreeKind::Leveled), None));
        let writes = chosen(&Options { favour: Favour::Writes, ..Options::default() }, &bands);
        assert_eq!((writes.tree, writes.overlap_depth_max), (Some(TreeKind::TwoLevel), Some(11)));
        assert_eq!((writes.flush_key_ranges, writes.max_write_stall_ms), (Some(true), Some(349)));
        let scans = Options { favour: Favour::Scans, tree: Some(TreeKind::TwoLevel), ..Options::default() };
        assert_eq!(chosen(&scans, &bands).overlap_depth_max, Some(5));
        let paper = chosen(&Options { profile: Profile::Paper, ..Options::default() }, &bands);
        assert_eq!((paper.tree, paper.overlap_depth_max), (Some(TreeKind::TwoLevel), None));
        let favour = Favour::Writes;
        let given =
            Options { favour, tree: Some(TreeKind::Leveled), pace_background_work: Some(false), ..Options::default() };
        let options = chosen(&given, &bands);
        assert_eq!((options.tree, options.pace_background_work), (given.tree, given.pace_background_work));
        assert_eq!((options.max_write_stall_ms, options.flush_key_ranges), (None, None));
        let (existing, choices) = Options::default().for_medium(&bands, None, Some(TreeKind::Leveled));
        assert_eq!(existing.tree, Some(TreeKind::Leveled));
        assert_eq!(choices[0].reason, "the tree that is on the medium");
        let tiers = chosen(&Options { favour: Favour::Writes, ..Options::default() }, &properties(true, true, true));
        assert_eq!(tiers.tree, Some(TreeKind::Leveled));
    }
}
