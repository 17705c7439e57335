//! Ranges of keys that a walk leaves out because their tables are on a missing device.

use crate::console::Console;
use crate::failure::Status;
use serde_json::{Value, json};
use varve::Cursor;

/// The ranges that a walk left out.
pub(crate) struct Skipped {
    is_asked_for: bool,
    /// First and last key of each, escaped.
    ranges: Vec<(String, String)>,
}

impl Skipped {
    /// State before a walk. The walk leaves out nothing unless `--skip-unreadable` is given.
    pub(crate) fn new(is_asked_for: bool) -> Skipped {
        Skipped { is_asked_for, ranges: Vec::new() }
    }

    /// Has a walk that ended go on behind a range that cannot be read. False where it did not end at one, or is to end there.
    pub(crate) fn passes(&mut self, walk: &mut Cursor) -> bool {
        if !self.is_asked_for {
            return false;
        }
        let Some((first, last)) = walk.unreadable_range() else { return false };
        self.ranges.push((first.escape_ascii().to_string(), last.escape_ascii().to_string()));
        walk.skip_unreadable()
    }

    /// Lists them on standard error. How the command ends.
    pub(crate) fn report(&self, console: &Console) -> Status {
        for (first, last) in &self.ranges {
            console.warn(format!("left out: keys from '{first}' to '{last}', whose table is on a missing device"));
        }
        match self.ranges.len() {
            0 => Status::Done,
            count => {
                console.warn(format!("{count} ranges of keys were left out; the output is partial"));
                Status::Negative
            }
        }
    }

    pub(crate) fn as_json(&self) -> Vec<Value> {
        self.ranges.iter().map(|(first, last)| json!({"first": first, "last": last})).collect()
    }
}
