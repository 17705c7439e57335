//! Metadata as it is found: a checkpoint, and the commits after it.

use super::names::{FoundNames, Numbered};
use crate::error::StoreError;
use crate::journal::corruption;
use std::fmt;

/// What a store knew at a checkpoint, and its changes.
pub(crate) trait Replay {
    /// A change of the metadata.
    type Change: fmt::Debug;

    /// What has the changes, in messages.
    const LOG: &'static str;

    /// The changes of a commit; anything may come. The error is the offset of the first that is none.
    fn decode(commit: &[u8]) -> Result<Vec<Self::Change>, usize>;

    /// Makes one change; `None` when it does not fit what is there.
    fn apply(&mut self, change: &Self::Change) -> Option<()>;
}

/// Makes the changes of every commit; anything may come. Takes time in proportion to their bytes.
///
/// Errors: [`StoreError::Corruption`] for what is no change, or none of what is there.
pub(crate) fn replay<R: Replay>(label: &str, found: &mut R, commits: &[Vec<u8>]) -> Result<(), StoreError> {
    for (number, commit) in commits.iter().enumerate() {
        let changes = R::decode(commit).map_err(|offset| {
            corruption(label, R::LOG, offset as u64, "a change", format!("something else in commit {number}"))
        })?;
        for change in changes {
            found.apply(&change).ok_or_else(|| {
                corruption(label, R::LOG, 0, "a change of what is there", format!("{change:?} in commit {number}"))
            })?;
        }
    }
    Ok(())
}

/// The files of a checkpoint by name.
///
/// Errors: [`StoreError::Corruption`] when a name or a number is there twice.
pub(crate) fn names_of<F: Numbered>(
    label: &str,
    next_file: u64,
    files: impl IntoIterator<Item = (String, F)>,
) -> Result<FoundNames<F>, StoreError> {
    let mut names = FoundNames::new(next_file);
    for (name, file) in files {
        let number = file.number();
        if !names.add(&name, file) {
            let found = format!("file {number} '{name}' again");
            return Err(corruption(label, "checkpoint", 0, "every file once", found));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Found(u64);

    impl Numbered for Found {
        fn number(&self) -> u64 {
            self.0
        }
    }

    impl Replay for FoundNames<Found> {
        type Change = u8;

        const LOG: &'static str = "log of numbers";

        fn decode(commit: &[u8]) -> Result<Vec<u8>, usize> {
            match commit.iter().position(|byte| *byte > 9) {
                None => Ok(commit.to_vec()),
                Some(offset) => Err(offset),
            }
        }

        fn apply(&mut self, change: &u8) -> Option<()> {
            self.remove(&change.to_string())
        }
    }

    fn found() -> FoundNames<Found> {
        names_of("disk", 1, (1..4).map(|number| (number.to_string(), Found(number)))).unwrap()
    }

    #[test]
    fn commits_are_made_in_order_and_nonsense_is_named() {
        let mut names = found();
        replay("disk", &mut names, &[vec![1, 3], vec![], vec![2]]).unwrap();
        assert!(names.into_parts().0.is_empty());
        for (commits, expected) in [
            (
                [vec![1], vec![2, 10]],
                "log of numbers at offset 1 is damaged: expected a change, found something else in commit 1",
            ),
            (
                [vec![1], vec![1]],
                "log of numbers at offset 0 is damaged: expected a change of what is there, found 1 in commit 1",
            ),
        ] {
            let error = replay("disk", &mut found(), &commits).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_is_there_once() {
        for files in [[("a", 1), ("a", 2)], [("a", 1), ("b", 1)]] {
            let files = files.map(|(name, number)| (name.to_owned(), Found(number)));
            assert!(names_of("disk", 1, files).is_err());
        }
    }
}
