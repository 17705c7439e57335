//! Repairs: what is there and what becomes of it, which any tree has in common.
//!
//! A [`Repair`] looks at everything (`survey`), decides, reads what it can, has it written afresh, and keeps the originals
//! (`replaced`). What it says that it does, and what it did, is here.

mod course;
mod medium;
mod replaced;
mod survey;

pub(crate) use course::{Repair, TableCondition, no_tables, plan_repair};
use medium::MediumFailures;
use replaced::Replaced;
pub(crate) use survey::Condition;
use survey::{Survey, plan, survey};

use crate::error::Error;
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

impl RepairReport {
    /// Tells what of file `name` is lost, unless the survey found it.
    pub(crate) fn find_lost(&mut self, code: &'static str, name: &str, error: &Error) {
        if !self.findings.iter().any(|finding| finding.message.contains(name)) {
            let message = format!("'{name}': {error}");
            self.findings.push(Finding { severity: Severity::Error, code, message });
        }
    }
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
}

impl RepairAction {
    /// What it is, for people.
    pub fn description(self) -> &'static str {
        match self {
            RepairAction::Keep => "sound; its entries go into fresh tables, and it is set aside",
            RepairAction::Replay => "sound; its writes go into fresh tables, and it is set aside",
            RepairAction::Salvage => "damaged; what can be read goes into fresh tables, and it is set aside",
            RepairAction::SetAside => "not used; it is set aside",
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
}

/// What becomes of sound files whose entries a repair put into fresh ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Originals {
    SetAside,
    Discard,
}
