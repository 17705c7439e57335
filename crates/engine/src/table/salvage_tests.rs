//! Blocks of damaged tables, found by their checksums.

use super::observed_file::ObservedFile;
use super::tests::{Entries, build, cache, internal, open, random_build_options, random_entries};
use super::*;
use crate::key::{self, EntryKind};
use crate::memory_file::MemoryFile;
use crate::options::Compression;
use std::collections::BTreeSet;
use std::ops::Range;
use varve_env::Random;
use varve_store::IoContext;

/// A sound table, and where its blocks are.
struct Sound {
    entries: Entries,
    bytes: Vec<u8>,
    table_id: u64,
    blocks: Vec<Range<usize>>,
    /// Number of the block of each entry.
    homes: Vec<usize>,
    data_end: usize,
}

impl Sound {
    fn new(entries: Entries, options: &TableBuildOptions) -> Sound {
        let (file, summary): (ObservedFile, _) = build(&entries, options);
        let table = open(&file, &cache(0)).expect("sound");
        let range = |block| {
            let Range { start, end } = table.index.handle(block).range();
            start as usize..end as usize
        };
        let home = |internal: &[u8]| table.index.find(key::user_key(internal), key::trailer(internal));
        Sound {
            blocks: (0..table.block_count()).map(range).collect(),
            homes: entries.iter().map(|entry| home(&entry.0)).collect(),
            data_end: table.index.data_end() as usize,
            bytes: file.bytes(),
            table_id: summary.table_id,
            entries,
        }
    }

    fn drawn(random: &mut Random) -> Sound {
        let count = 1 + random.below(300);
        let entries = random_entries(random, count);
        Sound::new(entries, &random_build_options(random))
    }

    /// Searches `bytes`, and holds what is found against the blocks that are as they were. Their number.
    fn search(&self, bytes: &[u8], likeliest: Option<u64>, what: &str) -> usize {
        let is_whole = |block: &Range<usize>| bytes.get(block.clone()) == Some(&self.bytes[block.clone()]);
        let whole: BTreeSet<usize> = (0..self.blocks.len()).filter(|block| is_whole(&self.blocks[*block])).collect();
        let file = MemoryFile::of(bytes.to_vec()).reader();
        let found = SalvagedTable::search(&*file, |_| true, likeliest, &IoContext::default()).expect("read");
        let Some(found) = found else {
            assert_eq!(whole.len(), 0, "{what}: nothing was found");
            return 0;
        };
        assert_eq!((found.block_count(), found.table_id()), (whole.len(), self.table_id), "{what}");
        let mut expected = self.entries.iter().zip(&self.homes).filter(|(_, home)| whole.contains(home));
        found
            .for_each(|internal, value| {
                let (entry, _) = expected.next().expect(what);
                assert_eq!((internal, value), (entry.0.as_slice(), entry.1.as_slice()), "{what}");
                Ok(())
            })
            .expect("taken");
        assert!(expected.next().is_none(), "{what}: entries are missing");
        // What is lost is said, and nothing is said to be lost of a whole table.
        let ends = (self.entries[0].0.as_slice(), self.entries[self.entries.len() - 1].0.as_slice());
        let lost = found.lost(Some(ends));
        assert_eq!(lost.is_empty(), whole.len() == self.blocks.len(), "{what}: {lost:?}");
        for (entry, _) in self.entries.iter().zip(&self.homes).filter(|(_, home)| !whole.contains(home)) {
            let user = key::user_key(&entry.0);
            let covers = |range: &LostKeys| {
                range.after.as_deref().is_none_or(|after| after <= user)
                    && range.before.as_deref().is_none_or(|before| user <= before)
            };
            assert!(lost.iter().any(covers), "{what}: {lost:?} lacks {}", user.escape_ascii());
        }
        whole.len()
    }
}

#[test]
fn damage_behind_the_data_costs_no_entry() {
    for seed in 0..120 {
        let mut random = Random::seeded(seed);
        let sound = Sound::drawn(&mut random);
        let all = sound.blocks.len();
        let id = Some(sound.table_id);
        assert_eq!(sound.search(&sound.bytes, None, "whole"), all);
        // Nothing but the data is left, or any part of what follows.
        for left in [sound.data_end, sound.data_end + random.index(sound.bytes.len() - sound.data_end)] {
            assert_eq!(sound.search(&sound.bytes[..left], id, &format!("seed {seed}: {left} left")), all);
        }
        // One byte of filter, index, properties or footer is wrong: the id is known, or stands in the footer.
        for _ in 0..20 {
            let mut bytes = sound.bytes.clone();
            let at = sound.data_end + random.index(bytes.len() - sound.data_end);
            bytes[at] ^= 1 << random.below(8);
            let what = format!("seed {seed}: byte {at} of {}", bytes.len());
            assert_eq!(sound.search(&bytes, id, &what), all);
            let id_at = bytes.len() - 32;
            if !(id_at..id_at + 8).contains(&at) {
                assert_eq!(sound.search(&bytes, None, &what), all, "{what}, by the id in the footer");
            }
        }
        // Other bytes follow, as on media that pad files.
        for _ in 0..4 {
            let mut bytes = sound.bytes.clone();
            let mut more = vec![0; 1 + random.index(9000)];
            if random.chance(1, 2) {
                random.fill_bytes(&mut more);
            }
            bytes.extend(more);
            for id in [id, None] {
                assert_eq!(sound.search(&bytes, id, &format!("seed {seed}: {} bytes", bytes.len())), all);
            }
        }
    }
}

#[test]
fn every_block_that_is_whole_is_found_between_damaged_ones() {
    let (mut found, mut lost) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::seeded(seed);
        let sound = Sound::drawn(&mut random);
        for round in 0..6 {
            let mut bytes = sound.bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.index(bytes.len());
                let length = [1, 1, 40, 600, 5000][random.index(5)].min(bytes.len() - at);
                match random.below(3) {
                    0 => bytes[at..at + length].fill(0),
                    1 => random.fill_bytes(&mut bytes[at..at + length]),
                    // As if sectors had moved.
                    _ => bytes.copy_within(at..at + length, at / 2),
                }
            }
            bytes.truncate([bytes.len(), bytes.len(), random.index(bytes.len())][random.index(3)]);
            let whole = sound.search(&bytes, Some(sound.table_id), &format!("seed {seed}, round {round}"));
            found += whole;
            lost += sound.blocks.len() - whole;
        }
    }
    println!("reached: table/salvage: {found} blocks found, {lost} lost");
    assert!(found > 3000 && lost > 1000, "{found} {lost}");
}

/// Values that are tables of the same kind, and blocks of another table, are not this table's blocks.
#[test]
fn blocks_of_other_tables_are_not_taken() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut random = Random::seeded(3);
        let options = TableBuildOptions { compression, table_id: 5, ..super::tests::build_options() };
        let inner = Sound::new(random_entries(&mut random, 60), &options);
        let value = |number: u64| if number.is_multiple_of(3) { inner.bytes.clone() } else { vec![number as u8; 100] };
        let entry = |number| (internal(format!("key{number:03}").as_bytes(), 1, EntryKind::Put), value(number));
        let options = TableBuildOptions { table_id: 6, ..options };
        let outer = Sound::new((0..30).map(entry).collect(), &options);
        assert_eq!(outer.search(&outer.bytes, Some(6), "whole"), outer.blocks.len());
        let mut both = outer.bytes[..outer.data_end].to_vec();
        both.extend(&inner.bytes);
        assert_eq!(outer.search(&both, Some(6), "with another behind"), outer.blocks.len());
    }
}

#[test]
fn any_bytes_are_searched() {
    for seed in 0..60 {
        let mut random = Random::seeded(seed);
        let mut bytes = vec![[0, 1, 2, 0x21][random.index(4)]; random.index(20_000)];
        if random.chance(1, 2) {
            random.fill_bytes(&mut bytes);
        }
        let file = MemoryFile::of(bytes).reader();
        let found = SalvagedTable::search(&*file, |_| true, Some(seed), &IoContext::default()).expect("read");
        assert!(found.is_none(), "seed {seed}");
    }
}
