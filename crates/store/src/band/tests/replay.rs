//! Tables that come and go, replayed without a device: how scattered they come to lie, and what whole bands and bands in
//! one piece would cost.

use super::super::allocation::{BandView, Purpose, TableGrowth};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use varve_env::Random;

/// Bands of a full table.
const TABLE_BANDS: u32 = 16;
/// Full tables that the device has space for.
const TABLES: u32 = 500;
/// Most tables that one compaction reads.
const INPUTS_MAX: usize = 12;

/// How a table gets its bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The store's policy.
    NextStretch,
    /// One band after the other, the next one that is free.
    NextBand,
    /// The shortest extent that is long enough, or else the longest, in place of the next.
    BestStretch,
}

/// A table: its number and its bands.
struct Table {
    file: u64,
    bands: Vec<u32>,
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    /// Extents to a table, on average over the later three quarters of the compactions.
    extents: f64,
    /// The same of full tables.
    extents_of_full: f64,
    /// Tables of a hundred for which no one extent was long enough.
    without_extent_percent: f64,
}

#[derive(Default)]
struct Counted {
    tables: usize,
    extents: usize,
    full: usize,
    extents_of_full: usize,
}

impl Counted {
    fn add(&mut self, table: &Table) {
        let count = extents(table.bands.iter().copied()).len();
        self.tables += 1;
        self.extents += count;
        if table.bands.len() as u32 == TABLE_BANDS {
            self.full += 1;
            self.extents_of_full += count;
        }
    }
}

struct Replay {
    fit: Fit,
    free: BTreeSet<u32>,
    aside: BTreeMap<u64, Range<u32>>,
    cursor: u32,
    tables: Vec<Table>,
    next_file: u64,
    created: u64,
    without_extent: u64,
}

/// Free bands in extents.
fn extents(bands: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
    let mut found: Vec<Range<u32>> = Vec::new();
    for band in bands {
        match found.last_mut().filter(|last| last.end == band) {
            Some(last) => last.end += 1,
            None => found.push(band..band + 1),
        }
    }
    found
}

impl Replay {
    fn new(fit: Fit) -> Replay {
        let free = (0..TABLES * TABLE_BANDS).collect();
        let (aside, tables) = (BTreeMap::new(), Vec::new());
        Replay { fit, free, aside, cursor: 0, tables, next_file: 1, created: 0, without_extent: 0 }
    }

    fn used(&self) -> u32 {
        TABLES * TABLE_BANDS - self.free.len() as u32
    }

    /// Writes tables at the same time, band by band in turn. Each has its size and the one it says of itself.
    fn create(&mut self, sizes: &[(u32, u32)]) {
        let mut open: Vec<(Table, u32, u32)> = Vec::new();
        for (size, expected) in sizes {
            let is_long_enough = |extent: &Range<u32>| extent.len() as u32 >= *size;
            self.created += 1;
            self.without_extent += u64::from(!extents(self.free.iter().copied()).iter().any(is_long_enough));
            open.push((Table { file: self.next_file, bands: Vec::new() }, *size, *expected));
            self.next_file += 1;
        }
        while open.iter().any(|(table, size, _)| (table.bands.len() as u32) < *size) {
            for (table, size, expected) in &mut open {
                let have = table.bands.len() as u32;
                if have < *size {
                    let bands = expected.saturating_sub(have).clamp(1, TABLE_BANDS);
                    let growth = TableGrowth { file: table.file, bands, shares: false, full_band: None, job: None };
                    table.bands.push(self.take(growth));
                }
            }
        }
        for (table, _, _) in open {
            if let Some(rest) = self.aside.remove(&table.file).filter(|rest| rest.end == self.cursor) {
                self.cursor = rest.start;
            }
            self.tables.push(table);
        }
    }

    fn take(&mut self, table: TableGrowth) -> u32 {
        if self.fit == Fit::BestStretch && !self.aside.contains_key(&table.file) {
            let free = extents(self.free.iter().copied());
            let fitting = free.iter().filter(|extent| extent.len() as u32 >= table.bands);
            let best = fitting.min_by_key(|extent| (extent.len(), extent.start));
            self.cursor = best.map_or(0, |extent| extent.start);
        }
        let table = if self.fit == Fit::NextBand { TableGrowth { bands: 1, ..table } } else { table };
        let (free, aside, cursor) = (&self.free, &self.aside, self.cursor);
        let view = BandView { free, aside, cursor, reserve_bands: 0, cleaning_bands: 0, log_reserve_bands: 0 };
        let extent = view.extent(Purpose::CompactionOutput, table).expect("a free band");
        if self.aside.get(&table.file).is_none_or(|own| *own != extent) {
            self.cursor = extent.end;
        }
        match extent.len() {
            1 => self.aside.remove(&table.file),
            _ => self.aside.insert(table.file, extent.start + 1..extent.end),
        };
        self.free.remove(&extent.start);
        extent.start
    }

    fn remove(&mut self, place: usize) {
        self.free.extend(self.tables.swap_remove(place).bands);
    }

    /// Bands that one compaction, or a flush, may take.
    fn space(&self) -> u32 {
        self.free.len() as u32
    }
}

/// Fills the device up to a share and overwrites it several times: flushes of full tables, and compactions that read
/// some tables, wherever they are, and write most of their bytes to full tables and a last one, of which all that is said
/// before is that it may become a full one. Some are written while a flush writes another.
fn overwrite(fit: Fit, fill_percent: u32) -> Outcome {
    let mut replay = Replay::new(fit);
    let mut random = Random::seeded(7);
    let all = TABLES * TABLE_BANDS;
    let (mut counted, mut written) = (Counted::default(), 0);
    while written < 8 * all {
        if replay.used() + TABLE_BANDS <= all * fill_percent / 100 {
            replay.create(&[(TABLE_BANDS, TABLE_BANDS)]);
            written += TABLE_BANDS;
        } else {
            // All of it was overwritten.
            replay.remove(random.index(replay.tables.len()));
        }
        let inputs = 2 + random.index(INPUTS_MAX - 1);
        if random.chance(1, 4) && replay.tables.len() > inputs {
            written += compact(&mut replay, &mut random, inputs);
        }
        if written > 2 * all {
            replay.tables.iter().for_each(|table| counted.add(table));
        }
    }
    Outcome {
        extents: counted.extents as f64 / counted.tables as f64,
        extents_of_full: counted.extents_of_full as f64 / counted.full as f64,
        without_extent_percent: replay.without_extent as f64 * 100.0 / replay.created as f64,
    }
}

/// Returns the bands written.
fn compact(replay: &mut Replay, random: &mut Random, inputs: usize) -> u32 {
    let mut chosen: Vec<usize> = (0..inputs).map(|_| random.index(replay.tables.len())).collect();
    chosen.sort_unstable();
    chosen.dedup();
    let bands: u32 = chosen.iter().map(|place| replay.tables[*place].bands.len() as u32).sum();
    let total = bands * (80 + random.index(20) as u32) / 100;
    // One whose outputs do not fit beside its inputs waits.
    if total + TABLE_BANDS > replay.space() {
        return 0;
    }
    let (mut left, mut written) = (total, 0);
    while left > 0 {
        let size = left.min(TABLE_BANDS);
        let mut sizes = vec![(size, total.min(TABLE_BANDS))];
        if random.chance(1, 4) && left + TABLE_BANDS <= replay.space() {
            sizes.push((TABLE_BANDS, TABLE_BANDS));
        }
        replay.create(&sizes);
        written += sizes.iter().map(|(size, _)| size).sum::<u32>();
        left -= size;
    }
    chosen.iter().rev().for_each(|place| replay.remove(*place));
    written
}

/// `cargo test -p varve-store --lib band::tests::replay -- --nocapture` prints the figures of docs/design/0003.
#[test]
fn tables_stay_in_few_stretches_on_a_device_that_is_overwritten() {
    for fill_percent in [50, 70, 85, 95] {
        let [next, best, by_band] =
            [Fit::NextStretch, Fit::BestStretch, Fit::NextBand].map(|fit| overwrite(fit, fill_percent));
        for (fit, outcome) in [("next extent", &next), ("best extent", &best), ("next band", &by_band)] {
            let Outcome { extents, extents_of_full, without_extent_percent } = outcome;
            println!(
                "{fill_percent} % full, {fit}: {extents:.2} extents to a table, {extents_of_full:.2} to a full one; \
                 {without_extent_percent:.1} % of tables without an extent that is long enough"
            );
        }
        assert!(next.extents <= by_band.extents / 3.0, "{next:?} {by_band:?}");
        assert!(next.extents <= best.extents * 1.2, "{next:?} {best:?}");
    }
}
