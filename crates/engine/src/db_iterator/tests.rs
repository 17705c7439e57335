//! Walks over versions of keys, held against a map.

use super::*;
use crate::iterator::BlockPlace;
use crate::merge::testing::VectorIterator;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::Random;

/// Counts moves of a source: a step is one, and so is a seek.
struct CountingIterator {
    source: VectorIterator,
    moves: Arc<AtomicU64>,
}

impl CountingIterator {
    fn moved(&mut self) -> &mut VectorIterator {
        self.moves.fetch_add(1, Ordering::Relaxed);
        &mut self.source
    }
}

impl InternalIterator for CountingIterator {
    fn valid(&self) -> bool {
        self.source.valid()
    }
    fn seek_to_first(&mut self) {
        self.moved().seek_to_first();
    }
    fn seek_to_last(&mut self) {
        self.moved().seek_to_last();
    }
    fn seek(&mut self, internal_key: &[u8]) {
        self.moved().seek(internal_key);
    }
    fn seek_for_previous(&mut self, internal_key: &[u8]) {
        self.moved().seek_for_previous(internal_key);
    }
    fn next(&mut self) {
        self.moved().next();
    }
    fn previous(&mut self) {
        self.moved().previous();
    }
    fn key(&self) -> &[u8] {
        self.source.key()
    }
    fn value(&self) -> &[u8] {
        self.source.value()
    }
    fn block(&self) -> Option<BlockPlace<'_>> {
        self.source.block()
    }
    fn status(&self) -> Result<(), Error> {
        self.source.status()
    }
}

/// Three keys of 20,000 versions each, read at several moments: before, in the middle of and behind those of `b`.
#[test]
fn a_key_of_many_versions_costs_few_moves_in_both_directions() {
    const VERSIONS: u64 = 20_000;
    let entry = |user: &[u8], sequence: u64, is_put: bool| {
        let mut internal = Vec::new();
        key::append_internal_key(&mut internal, user, sequence, u8::from(is_put));
        (internal, sequence.to_le_bytes().to_vec())
    };
    let users = [&b"a"[..], b"b", b"c"];
    for newest_of_b_is_put in [true, false] {
        for at in [3 * VERSIONS, VERSIONS + 4, VERSIONS + VERSIONS / 2, 2 * VERSIONS, 5] {
            let mut entries = Vec::new();
            for (user, first) in users.iter().zip([0, VERSIONS, 2 * VERSIONS]) {
                entries.extend((first + 1..=first + VERSIONS).map(|sequence| {
                    entry(user, sequence, *user != b"b" || newest_of_b_is_put || sequence < at.min(2 * VERSIONS))
                }));
            }
            let moves = Arc::new(AtomicU64::new(0));
            let source = CountingIterator { source: VectorIterator::new(entries), moves: moves.clone() };
            let mut walk = DbIterator::new(Box::new(source), at, None, None, Box::new(()));
            let expected: Vec<(&[u8], u64)> = users
                .iter()
                .zip([0, VERSIONS, 2 * VERSIONS])
                .filter(|(user, first)| *first < at && (newest_of_b_is_put || **user != b"b"))
                .map(|(user, first)| (*user, at.min(first + VERSIONS)))
                .collect();
            let mut found = Vec::new();
            walk.seek_to_first();
            while walk.valid() {
                found.push((walk.key().to_vec(), u64::from_le_bytes(walk.value().try_into().unwrap())));
                walk.next();
            }
            let is_expected = |found: &[(Vec<u8>, u64)]| {
                found.iter().map(|(user, sequence)| (user.as_slice(), *sequence)).collect::<Vec<_>>() == expected
            };
            assert!(is_expected(&found), "forward at {at}: {found:?} instead of {expected:?}");
            let forward = moves.swap(0, Ordering::Relaxed);
            found.clear();
            walk.seek_to_last();
            while walk.valid() {
                found.insert(0, (walk.key().to_vec(), u64::from_le_bytes(walk.value().try_into().unwrap())));
                walk.previous();
            }
            assert!(is_expected(&found), "backward at {at}: {found:?} instead of {expected:?}");
            let backward = moves.swap(0, Ordering::Relaxed);
            // Of each key a few steps over what is visible and what is not, a seek behind each, and one when the walk turns.
            assert!(forward < 60 && backward < 60, "at {at}: {forward} moves forward, {backward} backward");
        }
    }
}

#[test]
fn walks_agree_with_a_map_at_every_sequence_and_bound() {
    for seed in 0..120 {
        let mut random = Random::seeded(seed);
        let mut entries = Vec::new();
        let mut history: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
        for sequence in 1..=1 + random.below(80) {
            // Few keys have more versions than are stepped over.
            let user = random.below(if seed % 3 == 0 { 3 } else { 12 });
            let value = (random.below(3) > 0).then(|| vec![sequence as u8; random.below(5) as usize]);
            let mut internal = Vec::new();
            key::append_internal_key(
                &mut internal,
                format!("{user:02}").as_bytes(),
                sequence,
                u8::from(value.is_some()),
            );
            entries.push((internal, value.clone().unwrap_or_default()));
            history.push((user, value));
        }
        let at = random.below(history.len() as u64 + 1);
        let mut map = BTreeMap::new();
        for (user, value) in &history[..at as usize] {
            let name = format!("{user:02}").into_bytes();
            match value {
                Some(value) => map.insert(name, value.clone()),
                None => map.remove(&name),
            };
        }
        let bound =
            |random: &mut Random| (random.below(3) == 0).then(|| format!("{:02}", random.below(13)).into_bytes());
        let (lower, upper) = (bound(&mut random), bound(&mut random));
        map.retain(|name, _| {
            lower.as_ref().is_none_or(|lower| name >= lower) && upper.as_ref().is_none_or(|upper| name < upper)
        });
        let mut walk =
            DbIterator::new(Box::new(VectorIterator::new(entries)), at, lower.clone(), upper.clone(), Box::new(()));
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = map.into_iter().collect();
        let mut model: Option<usize> = None;
        for step in 0..200 {
            let target = format!("{:02}", random.below(14)).into_bytes();
            match random.below(8) {
                0 => {
                    walk.seek_to_first();
                    model = (!pairs.is_empty()).then_some(0);
                }
                1 => {
                    walk.seek_to_last();
                    model = pairs.len().checked_sub(1);
                }
                2 => {
                    walk.seek(&target);
                    let position = pairs.partition_point(|pair| pair.0 < target);
                    model = (position < pairs.len()).then_some(position);
                }
                3 => {
                    walk.seek_for_previous(&target);
                    model = pairs.partition_point(|pair| pair.0 <= target).checked_sub(1);
                }
                4 | 5 => {
                    walk.next();
                    model = model.and_then(|position| (position + 1 < pairs.len()).then_some(position + 1));
                }
                _ => {
                    walk.previous();
                    model = model.and_then(|position| position.checked_sub(1));
                }
            }
            let expected = model.map(|position| (pairs[position].0.as_slice(), pairs[position].1.as_slice()));
            let found = walk.valid().then(|| (walk.key(), walk.value()));
            assert_eq!(found, expected, "seed {seed} step {step} bounds {lower:?} {upper:?} at {at}");
        }
    }
}
