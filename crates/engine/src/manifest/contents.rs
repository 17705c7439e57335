//! What the edits of a manifest add up to.

use super::edit::{AddedFile, VersionEdit};
use super::flushed_ranges::FlushedRanges;
use crate::encoding::{Damage, Decoder};
use crate::key::Sequence;
use crate::statistics::Totals;
use std::collections::BTreeMap;

/// The shape of the tree that a manifest describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Empty until an edit says it.
    pub(crate) comparator: String,
    /// Empty until an edit says it.
    pub(crate) tree: String,
    pub(crate) num_levels: u8,
    pub(crate) next_file_number: u64,
    pub(crate) last_sequence: Sequence,
    pub(crate) log_number: u64,
    /// Tables by number.
    pub(crate) files: BTreeMap<u64, AddedFile>,
    /// What was done since the database was created; `None` when it is not known.
    pub(crate) totals: Option<Totals>,
    /// Of keys in logs that are needed.
    pub(crate) flushed: FlushedRanges,
    /// By level.
    pub(crate) compaction_pointers: BTreeMap<u8, Vec<u8>>,
}

impl Contents {
    /// Makes the change; an edit that does not fit what was before it is damage.
    pub(crate) fn apply(&mut self, edit: VersionEdit) -> Result<(), Damage> {
        let misfit = |expected: String, found: String| Err(Decoder::damage(0, expected, found));
        if let Some(comparator) = edit.comparator {
            self.comparator = comparator;
        }
        if let Some(tree) = edit.tree {
            self.tree = tree;
        }
        self.num_levels = edit.num_levels.unwrap_or(self.num_levels);
        let numbers = [
            ("next file number", edit.next_file_number, &mut self.next_file_number),
            ("last sequence", edit.last_sequence, &mut self.last_sequence),
            ("log number", edit.log_number, &mut self.log_number),
        ];
        for (what, new, old) in numbers {
            if let Some(new) = new {
                if new < *old {
                    return misfit(format!("{what} of at least {old}"), new.to_string());
                }
                *old = new;
            }
        }
        for (level, number) in edit.removed {
            match self.files.remove(&number) {
                Some(file) if file.level == level => {}
                Some(file) => {
                    let found = format!("its removal from level {level}");
                    return misfit(format!("table {number} in level {}", file.level), found);
                }
                None => {
                    return misfit("removals of tables that are there".to_string(), format!("that of table {number}"));
                }
            }
        }
        for file in edit.added {
            let (number, level) = (file.number, file.level);
            if level >= self.num_levels || number >= self.next_file_number {
                let (levels, next) = (self.num_levels, self.next_file_number);
                let found = format!("table {number} in level {level}");
                return misfit(format!("tables numbered below {next} in levels below {levels}"), found);
            }
            if self.files.insert(number, file).is_some() {
                return misfit("each table once".to_string(), format!("table {number} twice"));
            }
        }
        if let Some(totals) = edit.totals {
            let before = self.totals.unwrap_or_default();
            for ((what, new), (_, old)) in totals.fields().into_iter().zip(before.fields()) {
                if new < old {
                    return misfit(format!("a total of {what} of at least {old}"), new.to_string());
                }
            }
            self.totals = Some(totals);
        }
        edit.flushed.iter().for_each(|range| self.flushed.insert(range));
        self.flushed.retire(self.last_sequence);
        self.compaction_pointers.extend(edit.compaction_pointers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::tests::{file, totals};
    use super::*;

    fn base() -> Contents {
        let mut contents = Contents::default();
        let edit = VersionEdit {
            num_levels: Some(3),
            next_file_number: Some(10),
            log_number: Some(4),
            added: vec![file(0, 5), file(1, 6)],
            totals: Some(totals(20)),
            ..VersionEdit::default()
        };
        contents.apply(edit).unwrap();
        contents
    }

    #[test]
    fn edits_add_up() {
        let mut contents = base();
        let mut moved = file(1, 5);
        moved.level = 2;
        let edit = VersionEdit {
            last_sequence: Some(77),
            removed: vec![(0, 5), (1, 6)],
            added: vec![moved.clone()],
            totals: Some(totals(21)),
            compaction_pointers: vec![(1, vec![0; 8])],
            ..VersionEdit::default()
        };
        contents.apply(edit).unwrap();
        assert_eq!(contents.totals, Some(totals(21)));
        contents.apply(VersionEdit::default()).unwrap();
        assert_eq!(contents.totals, Some(totals(21)), "what is not said stays");
        assert_eq!(contents.files.into_iter().collect::<Vec<_>>(), [(5, moved)]);
        assert_eq!((contents.last_sequence, contents.log_number, contents.next_file_number), (77, 4, 10));
    }

    #[test]
    fn edits_that_do_not_fit_are_damage() {
        let refuse = |edit: VersionEdit| assert!(base().apply(edit.clone()).is_err(), "{edit:?}");
        let none = VersionEdit::default();
        refuse(VersionEdit { removed: vec![(0, 7)], ..none.clone() });
        refuse(VersionEdit { removed: vec![(1, 5)], ..none.clone() });
        refuse(VersionEdit { added: vec![file(0, 5)], ..none.clone() });
        refuse(VersionEdit { added: vec![file(3, 7)], ..none.clone() });
        refuse(VersionEdit { added: vec![file(0, 10)], ..none.clone() });
        refuse(VersionEdit { next_file_number: Some(9), ..none.clone() });
        refuse(VersionEdit { log_number: Some(3), ..none });
    }

    #[test]
    fn no_total_goes_down() {
        for position in 0..totals(0).fields().len() {
            let mut less = totals(20);
            let (name, value) = less.fields_mut().into_iter().nth(position).unwrap();
            *value -= 1;
            let damage = base().apply(VersionEdit { totals: Some(less), ..VersionEdit::default() }).unwrap_err();
            let expected = format!("a total of {name} of at least {}", 20 + position);
            assert_eq!((damage.expected, damage.found), (expected, (19 + position).to_string()));
        }
    }
}
