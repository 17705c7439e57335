//! Repairs: what is there and what becomes of it, which any tree has in common.
//!
//! A [`Repair`] looks at everything (`survey`), decides, reads what it can, has it written afresh, and keeps the originals
//! (`replaced`). What it says that it does, and what it did, is here.

mod course;
mod medium;
mod replaced;
mod space;
mod survey;

pub(crate) use course::{Repair, TableCondition, no_tables, plan_repair};
use medium::MediumFailures;
use replaced::Replaced;
pub(crate) use space::Method;
pub use space::RepairSpace;
pub(crate) use survey::Condition;
use survey::{Survey, plan, survey};

use crate::file_name;
use crate::key;
use crate::manifest::Contents;
use varve_store::{Finding, Severity};

/// What [`crate::repair`] found and made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Tables that were sound.
    pub tables_kept: u64,
    /// Damaged tables of which some blocks could be read.
    pub tables_salvaged: u64,
    /// Tables of which nothing could be read.
    pub tables_lost: u64,
    /// Logs that were read, whole or in part.
    pub logs_read: u64,
    /// Tables of the repaired database.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Files that were kept, under these names: `damaged-...` what was damaged or not used, `replaced-...` what was sound.
    pub set_aside: Vec<String>,
    /// The damage.
    pub findings: Vec<Finding>,
}

/// The finding that lost entries of `file` leave older ones visible, of user keys from `after` to `before`, as far as that is known.
pub(crate) fn may_be_stale(file: &str, after: Option<&[u8]>, before: Option<&[u8]>) -> Finding {
    /// Maximum length of a key in a message, in bytes.
    const KEY_BYTES_SHOWN: usize = 64;
    let shown = |key: &[u8]| format!("'{}'", key[..key.len().min(KEY_BYTES_SHOWN)].escape_ascii());
    let keys = match (after.map(shown), before.map(shown)) {
        (Some(after), Some(before)) => format!("keys from {after} to {before}"),
        (Some(after), None) => format!("keys from {after} on"),
        (None, Some(before)) => format!("keys up to {before}"),
        (None, None) => "any keys".to_owned(),
    };
    let message = format!(
        "entries of {keys} in '{file}' are lost: where other files have older entries of such keys, old values, or keys that were \
         deleted, are visible again"
    );
    Finding { severity: Severity::Error, code: "keys-may-be-stale", message }
}

/// The same for the whole of table `number`, whose ends are known if the manifest is.
fn table_may_be_stale(number: u64, contents: Option<&Contents>) -> Finding {
    let file = contents.and_then(|contents| contents.files.get(&number));
    let ends = file.map(|file| (key::user_key(&file.smallest), key::user_key(&file.largest)));
    may_be_stale(&file_name::table(number), ends.map(|ends| ends.0), ends.map(|ends| ends.1))
}

/// What a repair does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAction {
    /// A sound table: its entries go into fresh ones; the file is kept under another name.
    Keep,
    /// A sound log: the same.
    Replay,
    /// A damaged table or log: what can be read goes into fresh tables; the file is kept under another name.
    Salvage,
    /// Nothing of it is used; it is kept under another name.
    SetAside,
    /// A fresh one takes its place, which says the same; the file, or a copy, is kept under another name.
    Replace,
    /// A sound table or log that repair keeps, because the medium has no space for a new one.
    Stay,
}

impl RepairAction {
    /// What it is, for people.
    pub fn description(self) -> &'static str {
        match self {
            RepairAction::Keep => "sound; its entries go into fresh tables, and it is set aside",
            RepairAction::Replay => "sound; its writes go into fresh tables, and it is set aside",
            RepairAction::Salvage => "damaged; what can be read goes into fresh tables, and it is set aside",
            RepairAction::SetAside => "not used; it is set aside",
            RepairAction::Stay => "sound; it stays where it is, as there is no space to write it again",
            RepairAction::Replace => "a fresh one takes its place, and it is set aside",
        }
    }
}

/// A file, and what a repair does with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairStep {
    /// Its name.
    pub file: String,
    /// What is done with it.
    pub action: RepairAction,
}

/// What [`crate::repair`] is going to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairPlan {
    /// Every file of the database, once.
    pub steps: Vec<RepairStep>,
    /// The damage.
    pub findings: Vec<Finding>,
    /// Space that it needs, and has; `None` where the medium does not say what it has.
    pub space: Option<RepairSpace>,
}

impl RepairPlan {
    /// True if the medium has space for it.
    pub fn fits(&self) -> bool {
        self.space.is_none_or(|space| space.is_enough())
    }
}

/// What becomes of sound files whose entries a repair put into fresh ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Originals {
    SetAside,
    Discard,
}
