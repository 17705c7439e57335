//! Tables of a load, written, read and removed again one after the other on a disk that does nothing else.
//!
//! A load under another allocation has other tables, for what takes longer moves when jobs begin. Here each allocation has the
//! same ones in the same order: what a disk takes for them differs by where they lie and by nothing else.

use super::super::floor::{read_each, write_step};
use super::super::lives::Lives;
use super::super::settings::Setup;
use crate::error::LabError;
use crate::experiment::emulated::{bare, stack};
use crate::media::IoContext;
use std::collections::BTreeMap;
use varve::env::Env;
use varve::media::{Device, TrackId};
use varve::store::{CreateOptions, FileKind, FileStore, Occupancy, PieceUsage, StoreError};

/// The tracks of each table of a load, in the order of the file.
pub(super) type Places = Vec<Vec<usize>>;

/// What a disk took, between each look and the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    /// Nanoseconds for tables that came, and
    pub(super) write_nanos: Vec<u64>,
    /// for those that went.
    pub(super) read_nanos: Vec<u64>,
    /// Tracks of tables that do not follow the one before them.
    pub(super) gaps: u64,
}

impl Replayed {
    /// Nanoseconds between looks.
    pub(super) fn each(&self) -> impl Iterator<Item = u64> + '_ {
        self.write_nanos.iter().zip(&self.read_nanos).map(|(write, read)| write + read)
    }

    pub(super) fn nanos(&self) -> u64 {
        self.each().sum()
    }
}

/// What came and what went until each look, by the numbers of the tables.
pub(super) fn changes(lives: &Lives) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut changes = vec![(Vec::new(), Vec::new()); lives.looks];
    for (table, life) in lives.tables.iter().enumerate() {
        if let Some((came, _)) = changes.get_mut(life.from) {
            came.push(table);
        }
        if let Some((_, went)) = changes.get_mut(life.to) {
            went.push(table);
        }
    }
    changes
}

/// Where the store of a setup places tables that come and go like this, on a device of its own. Tables are of an unknown level.
///
/// # Errors
/// What the store says.
pub(super) fn places_of_store(env: &Env, setup: &Setup, lives: &Lives) -> Result<Places, LabError> {
    let stack = stack(env, &setup.spec())?;
    let files = &**stack.files();
    let name = |table: usize| format!("{table:06}");
    let mut places = vec![Vec::new(); lives.tables.len()];
    for (came, went) in changes(lives) {
        came.iter().try_for_each(|table| write(files, &name(*table), lives.tables[*table].bytes)).map_err(failed)?;
        for (table, tracks) in tracks_of(files, &came, name) {
            places[table] = tracks;
        }
        for table in came {
            let (found, wanted) = (places[table].len(), lives.tables[table].tracks);
            if found != wanted {
                return Err(LabError::invalid("table", format!("it has {found} tracks and had {wanted}")));
            }
        }
        went.into_iter().try_for_each(|table| files.remove(&name(table)).map_err(failed))?;
    }
    Ok(places)
}

fn failed(error: StoreError) -> LabError {
    LabError::invalid("table", error.to_string())
}

fn write(files: &dyn FileStore, name: &str, bytes: u64) -> Result<(), StoreError> {
    let options = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
    let context = IoContext::default();
    let mut file = files.create(name, &options)?;
    file.append(&vec![0; bytes as usize], &context)?;
    file.sync(&context)?;
    file.finish(&context)
}

/// Tracks of the disk that hold each of these tables, ascending: a table without gaps is in this order, and others nearly.
fn tracks_of(
    files: &dyn FileStore,
    tables: &[usize],
    name: impl Fn(usize) -> String,
) -> impl Iterator<Item = (usize, Vec<usize>)> {
    let occupancy = if tables.is_empty() { Occupancy::default() } else { files.occupancy() };
    let number = |table: &usize| {
        let position = occupancy.files.iter().position(|file| file.name == name(*table))?;
        Some((position as u32, (*table, Vec::new())))
    };
    let mut found: BTreeMap<u32, (usize, Vec<usize>)> = tables.iter().filter_map(number).collect();
    for (track, piece) in occupancy.pieces.iter().filter(|piece| piece.device == 0).enumerate() {
        let tracks = piece.file.filter(|_| piece.usage == PieceUsage::Table).and_then(|file| found.get_mut(&file));
        if let Some((_, tracks)) = tracks {
            tracks.push(track);
        }
    }
    found.into_values()
}

/// What the disk of a setup takes for tables in these places. On an interlaced disk they are written as the store writes them by
/// forced unit access: bottoms, and then tops. The medium refuses what would destroy a table.
///
/// # Errors
/// What the device says.
pub(super) fn by_place(env: &Env, setup: &Setup, lives: &Lives, places: &Places) -> Result<Replayed, LabError> {
    let device = bare(env, &setup.spec())?;
    let track_bytes = setup.scale.of(setup.variation.track_bytes);
    let disk = Disk { device: &device, track_bytes, is_interlaced: setup.scheme.is_interlaced() };
    let follows = |pair: &[usize]| pair[0] + 1 == pair[1];
    let gaps = places.iter().flat_map(|tracks| tracks.windows(2)).filter(|pair| !follows(pair)).count() as u64;
    let mut replayed = Replayed { gaps, ..Replayed::default() };
    for (came, went) in changes(lives) {
        let begin = env.now();
        went.iter().try_for_each(|table| disk.read(&places[*table], lives.tables[*table].bytes))?;
        let between = env.now();
        came.iter().try_for_each(|table| disk.write(&places[*table], lives.tables[*table].bytes))?;
        replayed.read_nanos.push((between - begin).as_nanos() as u64);
        replayed.write_nanos.push((env.now() - between).as_nanos() as u64);
        went.iter().try_for_each(|table| disk.remove(&places[*table]))?;
    }
    Ok(replayed)
}

/// A disk without a store.
struct Disk<'a> {
    device: &'a Device,
    track_bytes: u64,
    is_interlaced: bool,
}

impl Disk<'_> {
    /// Where each track begins that has a part of a table, and the bytes of that part in whole sectors.
    fn pieces(&self, tracks: &[usize], bytes: u64) -> Vec<(usize, u64)> {
        let sector_bytes = u64::from(self.device.block.geometry().sector_bytes);
        let length = |number: usize| (bytes - (number as u64 * self.track_bytes).min(bytes)).min(self.track_bytes);
        let pieces = tracks.iter().enumerate().map(|(number, track)| (*track, length(number)));
        pieces.map(|(track, length)| (track, length.next_multiple_of(sector_bytes))).collect()
    }

    fn write(&self, tracks: &[usize], bytes: u64) -> Result<(), LabError> {
        let is_first = |(track, _): &(usize, u64)| !self.is_interlaced || is_bottom(*track);
        let (first, second): (Vec<_>, Vec<_>) = self.pieces(tracks, bytes).into_iter().partition(is_first);
        for step in [first, second].into_iter().filter(|step| !step.is_empty()) {
            let is_forced = self.is_interlaced && step.len() > 1;
            write_step(&*self.device.block, &self.on_device(step), is_forced)?;
        }
        Ok(())
    }

    fn read(&self, tracks: &[usize], bytes: u64) -> Result<(), LabError> {
        read_each(&*self.device.block, &self.on_device(self.pieces(tracks, bytes)))
    }

    fn on_device(&self, pieces: Vec<(usize, u64)>) -> Vec<(u64, u64)> {
        pieces.into_iter().map(|(track, length)| (track as u64 * self.track_bytes, length)).collect()
    }

    fn remove(&self, tracks: &[usize]) -> Result<(), LabError> {
        let Some(control) = &self.device.tracks else { return Ok(()) };
        for &top in tracks.iter().filter(|track| !is_bottom(**track)) {
            control.mark_free(TrackId(top as u32))?;
        }
        Ok(())
    }
}

/// Tiers alternate, the outermost track is a bottom.
fn is_bottom(track: usize) -> bool {
    track.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::super::super::lives::{FirstTrack, Life};
    use super::super::super::scheme::Scheme;
    use super::*;
    use crate::experiment::{Scale, simulate};

    /// Tables of a track to three that come and go.
    fn lives(track_bytes: u64) -> Lives {
        let life = |number: usize| {
            let tracks = 1 + number % 3;
            let to = if number.is_multiple_of(5) { usize::MAX } else { number + 4 };
            Life { from: number, to, tracks, bytes: tracks as u64 * track_bytes - 4096 * (number as u64 % 2) }
        };
        let first =
            (0..2000).map(|track| FirstTrack { is_bottom: is_bottom(track), is_usable: track > 400, table: None });
        Lives { tables: (0..60).map(life).collect(), looks: 61, first: first.collect(), ..Lives::default() }
    }

    #[test]
    fn tables_lie_where_the_store_places_them() {
        for scheme in [Scheme::CmrContiguous, Scheme::CostAware] {
            let setup = Setup::new(scheme, Scale::one_in(64), 1);
            let lives = lives(setup.scale.of(setup.variation.track_bytes));
            let replayed = simulate(1, move |env| {
                let places = places_of_store(env, &setup, &lives)?;
                for (place, life) in places.iter().zip(&lives.tables) {
                    assert_eq!(place.len(), life.tracks);
                }
                let mut of_those_that_stay: Vec<usize> =
                    (0..60).step_by(5).flat_map(|table| places[table].clone()).collect();
                let all = of_those_that_stay.len();
                of_those_that_stay.sort_unstable();
                of_those_that_stay.dedup();
                assert_eq!(of_those_that_stay.len(), all);
                by_place(env, &setup, &lives, &places)
            });
            let replayed = replayed.unwrap();
            assert_eq!(replayed.write_nanos.iter().filter(|nanos| **nanos > 0).count(), 60, "{scheme:?}");
            // Those that stay are never read, nor those that would go behind the last look.
            let read = replayed.read_nanos.iter().filter(|nanos| **nanos > 0).count();
            assert_eq!(read, (0..60).filter(|number| number % 5 > 0 && number + 4 < 61).count(), "{scheme:?}");
        }
    }

    #[test]
    fn what_would_destroy_a_table_is_refused() {
        let setup = Setup::new(Scheme::CostAware, Scale::one_in(64), 1);
        let track_bytes = setup.scale.of(setup.variation.track_bytes);
        let life = |from: usize, to: usize| Life { from, to, tracks: 1, bytes: track_bytes };
        let run = |second_comes: usize| {
            let tables = vec![life(0, 2), life(second_comes, usize::MAX)];
            let lives = Lives { tables, looks: 5, ..Lives::default() };
            let setup = setup.clone();
            simulate(1, move |env| by_place(env, &setup, &lives, &vec![vec![501], vec![500]]))
        };
        // A bottom beside a top that is there, and once that went.
        assert!(matches!(run(1), Err(LabError::Media(_))));
        assert!(run(3).is_ok());
    }
}
