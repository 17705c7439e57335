//! The space that a repair needs, and repairs that need hardly any.
//!
//! A repair that writes everything afresh keeps the originals until the fresh manifest holds: it needs as much space as they
//! have. On a medium without that space sound tables and logs stay where they are, in the levels the manifest says, and a fresh
//! manifest names what is left of them. Leaving tables out keeps the order of the levels: of two versions of a key the newer
//! one is still found first.

use super::{RepairAction, RepairPlan};
use crate::inventory::{log_numbers, names, recover_manifest};
use crate::log_chain::{LogsOfManifest, Replay, replay};
use crate::manifest::Recovered;
use crate::media::FileMedia;
use std::collections::BTreeMap;

/// Space that a repair needs on its medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairSpace {
    /// Upper bound on the bytes that are written before originals go.
    pub needed_bytes: u64,
    /// Bytes that can be written, the reserve for compactions included.
    pub available_bytes: u64,
}

impl RepairSpace {
    /// True if the needed space is available.
    pub fn is_enough(&self) -> bool {
        self.needed_bytes <= self.available_bytes
    }
}

/// Treatment of sound tables and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Their entries go into fresh tables.
    Rewrite,
    /// The same where there is space for it, else they stay if they can.
    ByNeed,
    /// They stay where they are.
    Stay,
}

/// Says in a plan what space it needs, and which files stay where they are.
pub(super) fn settle(media: &FileMedia, tree: &str, method: Method, mut plan: RepairPlan) -> RepairPlan {
    let space = space_of(media, &plan);
    let is_short = space.is_some_and(|space| !space.is_enough());
    let is_wanted = method == Method::Stay || (method == Method::ByNeed && is_short);
    plan.space = space;
    if !is_wanted {
        return plan;
    }
    let Ok(manifest) = recover_manifest(media, tree) else { return plan };
    if !logs_are_whole(media, &manifest) {
        return plan;
    }
    for step in &mut plan.steps {
        if matches!(step.action, RepairAction::Keep | RepairAction::Replay) {
            step.action = RepairAction::Stay;
        }
    }
    plan.space = space_of(media, &plan);
    plan
}

/// Bytes that the steps of a plan write; `None` if the medium does not report its space.
fn space_of(media: &FileMedia, plan: &RepairPlan) -> Option<RepairSpace> {
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    for store in media.stores() {
        sizes.extend(store.list().ok()?.into_iter().map(|entry| (entry.name, entry.size_bytes)));
    }
    let is_written =
        |action: RepairAction| matches!(action, RepairAction::Keep | RepairAction::Replay | RepairAction::Salvage);
    let written = plan.steps.iter().filter(|step| is_written(step.action));
    let needed_bytes =
        written.filter_map(|step| sizes.get(&step.file)).fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let space = media.files.space().ok()?;
    let available_bytes = space.available_bytes.saturating_add(space.reserve_bytes);
    Some(RepairSpace { needed_bytes, available_bytes })
}

/// True if an opening could read every log that the manifest needs.
fn logs_are_whole(media: &FileMedia, manifest: &Recovered) -> bool {
    let store = &**media.log_store();
    let Ok(listing) = store.list() else { return false };
    let mut logs = log_numbers(&names(&listing));
    logs.retain(|number| *number >= manifest.contents.log_number);
    replay(&Replay { store, logs: &logs, manifest: Some(LogsOfManifest::of(manifest)) }, &mut |_| Ok(())).is_ok()
}
