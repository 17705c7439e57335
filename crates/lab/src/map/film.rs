//! What lies where, moment by moment.

use super::loads::FilmSummary;
use super::numbers;
use crate::error::LabError;
use std::collections::BTreeMap;
use varve::store::{Occupancy, OccupancyPiece, PieceUsage};

/// A part of a medium whose cells are drawn in a row of their own: a tier of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRow {
    /// Name of the part, as in [`OccupancyPiece::part`].
    pub part: &'static str,
    /// Half cells it is drawn to the right of where it would be, so that a cell stands where it does on the medium.
    pub shift_half_cells: u8,
}

/// A number of the store that is shown beside the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilmCounter {
    /// What is counted. Totals; the picture shows what an interval added too.
    pub name: String,
    /// `1`, `bytes` or `nanos`.
    pub unit: String,
}

/// What a cell can hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CellState {
    pub(super) usage: PieceUsage,
    pub(super) level: Option<u8>,
    /// Frame in whose interval it was written.
    pub(super) born: u32,
    /// Tables that hold keys of its table's range, in films that show it.
    pub(super) overlap: u8,
    /// Eighths of it that count, rounded up.
    pub(super) live_eighths: u8,
    pub(super) file: String,
}

/// All of a piece counts, as far as a film shows.
pub(super) const WHOLE: u8 = 8;

/// What a store tells at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// What lies where.
    pub occupancy: &'a Occupancy,
    /// Operations done.
    pub operations: u64,
    /// On the clock of the env.
    pub nanos: u64,
    /// One number for each counter of the film.
    pub counters: &'a [u64],
    /// By name of its file, how many other tables hold keys of a table's range. Given at every moment or at none; with
    /// it the film shows overlap, and how much of each piece counts.
    pub overlaps: Option<&'a BTreeMap<String, usize>>,
}

/// One part of the medium of a film.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// The device it is of: rows of one device share strips, and the next device is drawn below.
    pub(super) device: u16,
    pub(super) shift_half_cells: u8,
    /// Number of the piece that each cell is, among all pieces of its device.
    pub(super) pieces: Vec<u32>,
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) operations: u64,
    /// Since the first frame.
    pub(super) nanos: u64,
    pub(super) counters: Vec<u64>,
    /// Cells that changed since the frame before: cells to skip, cells that change alike, difference (signed) of their
    /// new state to that of the run before.
    pub(super) changes: String,
    /// Cells that were saved and restored since the frame before: cells to skip, cells alike, how often each was.
    pub(super) rewrites: String,
}

/// The moment before the first frame: nothing was stored yet, so it is no picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) operations: u64,
    pub(super) counters: Vec<u64>,
}

/// What one store held at a number of moments, as differences from one to the next.
///
/// A film of 50,000 tracks and 100 frames takes about a megabyte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Film {
    pub(super) name: String,
    pub(super) detail: String,
    pub(super) rows: Vec<Row>,
    pub(super) counters: Vec<FilmCounter>,
    pub(super) states: Vec<CellState>,
    /// Counters before the first frame.
    pub(super) begin: Option<Begin>,
    pub(super) frames: Vec<Frame>,
    /// State of each cell in the last frame, row by row.
    pub(super) last: Vec<u32>,
    /// Whether each cell was rewritten in the last interval.
    pub(super) last_rewritten: Vec<bool>,
    /// Whether it shows how much tables overlap and how much of each piece counts.
    pub(super) has_overlaps: bool,
}

/// Makes a film.
pub struct Recorder {
    film: Film,
    /// Cell of each piece that is drawn, by device and offset.
    cells: BTreeMap<(u16, u64), usize>,
    indices: BTreeMap<CellState, u32>,
    rewrites: Vec<u32>,
    /// Time of each frame, on the clock of the env.
    nanos: Vec<u64>,
}

/// Appends runs of equal values that are not `None`: skipped, length, value.
fn append_runs<T: PartialEq + Copy>(
    values: impl Iterator<Item = Option<T>>,
    text: &mut String,
    mut append_value: impl FnMut(T, &mut String),
) {
    let (mut skipped, mut run) = (0, None);
    let mut end = |skipped: u64, (value, length): (T, u64), text: &mut String| {
        numbers::append(skipped, text);
        numbers::append(length, text);
        append_value(value, text);
    };
    for value in values {
        match (run, value) {
            (Some((now, length)), Some(value)) if now == value => run = Some((now, length + 1)),
            (before, value) => {
                if let Some(run) = before {
                    end(skipped, run, text);
                    skipped = 0;
                }
                run = value.map(|value| (value, 1));
                skipped += u64::from(value.is_none());
            }
        }
    }
    if let Some(run) = run {
        end(skipped, run, text);
    }
}

impl Recorder {
    /// A recorder of the pieces that `first` has in these parts; parts that it has not are left out. Pieces must not
    /// change their places.
    ///
    /// # Errors
    /// No piece is in these parts.
    pub fn new(
        name: &str,
        detail: &str,
        rows: &[PartRow],
        counters: Vec<FilmCounter>,
        first: &Occupancy,
    ) -> Result<Recorder, LabError> {
        let (mut cells, mut drawn) = (BTreeMap::new(), Vec::new());
        for device in 0..first.devices.len() as u16 {
            for row in rows {
                let of_device = first.pieces.iter().filter(|piece| piece.device == device).enumerate();
                let of_row: Vec<(u32, &OccupancyPiece)> = of_device
                    .filter(|(_, piece)| piece.part == row.part)
                    .map(|(number, piece)| (number as u32, piece))
                    .collect();
                for (_, piece) in &of_row {
                    cells.insert((device, piece.offset_bytes), cells.len());
                }
                if !of_row.is_empty() {
                    let pieces = of_row.iter().map(|(number, _)| *number).collect();
                    let name = match first.devices.as_slice() {
                        [_] => row.part.to_owned(),
                        devices => {
                            let name = devices[usize::from(device)].name.as_str();
                            // Without the options of its spec.
                            format!("{} of {}", row.part, name.split('?').next().unwrap_or(name))
                        }
                    };
                    drawn.push(Row { name, device, shift_half_cells: row.shift_half_cells, pieces });
                }
            }
        }
        if cells.is_empty() {
            let parts: Vec<&str> = rows.iter().map(|row| row.part).collect();
            let reason = format!("the store of {name} tells of no {}", parts.join(" or "));
            return Err(LabError::invalid("map", reason));
        }
        let free = CellState {
            usage: PieceUsage::Free,
            level: None,
            born: 0,
            overlap: 0,
            live_eighths: WHOLE,
            file: String::new(),
        };
        let film = Film {
            name: name.to_owned(),
            detail: detail.to_owned(),
            rows: drawn,
            counters,
            states: vec![free.clone()],
            begin: None,
            frames: Vec::new(),
            last: vec![0; cells.len()],
            last_rewritten: vec![false; cells.len()],
            has_overlaps: false,
        };
        Ok(Recorder {
            rewrites: vec![0; cells.len()],
            cells,
            indices: BTreeMap::from([(free, 0)]),
            nanos: Vec::new(),
            film,
        })
    }

    /// Adds a frame. The first moment is the begin of the film: it is no frame, and frames count from it.
    pub fn record(&mut self, moment: &Moment<'_>) {
        let Moment { occupancy, nanos, overlaps, .. } = *moment;
        self.film.has_overlaps |= overlaps.is_some();
        self.nanos.push(nanos);
        let mut states = self.film.last.clone();
        let mut rewritten: Vec<u32> = vec![0; states.len()];
        // A file has many pieces.
        let mut seen: BTreeMap<(Option<u32>, PieceUsage, u8), u32> = BTreeMap::new();
        for piece in &occupancy.pieces {
            let Some(&cell) = self.cells.get(&(piece.device, piece.offset_bytes)) else { continue };
            let live_eighths = match overlaps {
                Some(_) if piece.usage != PieceUsage::Free => live_eighths(piece),
                _ => WHOLE,
            };
            let index = *seen.entry((piece.file, piece.usage, live_eighths)).or_insert_with(|| {
                let file = piece.file.and_then(|file| occupancy.files.get(file as usize));
                let written = file.and_then(|file| file.written_nanos).unwrap_or(0);
                let overlap = overlaps.zip(file).and_then(|(overlaps, file)| overlaps.get(&file.name));
                let state = CellState {
                    usage: piece.usage,
                    level: file.and_then(|file| file.level),
                    // The first time is that of the begin.
                    born: (self.nanos.partition_point(|&time| time < written) as u32).saturating_sub(1),
                    overlap: overlap.map_or(0, |&tables| u8::try_from(tables).unwrap_or(u8::MAX)),
                    live_eighths,
                    file: file.map(|file| file.name.clone()).unwrap_or_default(),
                };
                let next = self.film.states.len() as u32;
                *self.indices.entry(state).or_insert_with_key(|state| {
                    self.film.states.push(state.clone());
                    next
                })
            });
            states[cell] = index;
            rewritten[cell] = piece.rewrites.saturating_sub(self.rewrites[cell]);
            self.rewrites[cell] = piece.rewrites;
        }
        if self.film.begin.is_none() {
            self.film.begin = Some(Begin { operations: moment.operations, counters: moment.counters.to_vec() });
            self.film.last = states;
            return;
        }
        // The first frame shows all there is.
        let former = if self.film.frames.is_empty() { vec![0; states.len()] } else { self.film.last.clone() };
        let (mut changes, mut rewrites) = (String::new(), String::new());
        let changed = former.iter().zip(&states).map(|(&before, &after)| (before != after).then_some(after));
        let mut before = 0;
        append_runs(changed, &mut changes, |state, text| {
            numbers::append_signed(i64::from(state) - before, text);
            before = i64::from(state);
        });
        append_runs(rewritten.iter().map(|&count| (count > 0).then_some(count)), &mut rewrites, |count, text| {
            numbers::append(u64::from(count), text);
        });
        self.film.last = states;
        self.film.last_rewritten = rewritten.iter().map(|&count| count > 0).collect();
        self.film.frames.push(Frame {
            operations: moment.operations,
            nanos: nanos - self.nanos[0],
            counters: moment.counters.to_vec(),
            changes,
            rewrites,
        });
    }

    /// The film.
    pub fn finish(self) -> Film {
        self.film
    }
}

/// The part of a piece that counts, in eighths, rounded up.
fn live_eighths(piece: &OccupancyPiece) -> u8 {
    let eighths = u128::from(piece.used_bytes) * u128::from(WHOLE);
    eighths.div_ceil(u128::from(piece.length_bytes.max(1))).min(u128::from(WHOLE)) as u8
}

impl Film {
    /// The rows of each device, which are drawn below each other, with the index of the first cell of the first.
    pub(super) fn devices(&self) -> Vec<(usize, &[Row])> {
        let of_device = self.rows.chunk_by(|one, other| one.device == other.device);
        let with_first = |first: &mut usize, rows| {
            let cells: usize = <[Row]>::iter(rows).map(|row| row.pieces.len()).sum();
            *first += cells;
            Some((*first - cells, rows))
        };
        of_device.scan(0, with_first).collect()
    }

    /// The last frame in numbers.
    pub(super) fn summary(&self) -> Option<FilmSummary> {
        let last = self.frames.last()?;
        let named = self.counters.iter().map(|counter| counter.name.clone());
        Some(FilmSummary {
            name: self.name.clone(),
            operations: last.operations,
            nanos: last.nanos,
            counters: named.zip(last.counters.iter().copied()).collect(),
        })
    }

    /// The data of the film for the page.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let level = |state: &CellState| state.level.map_or('-', |level| char::from(b'0' + level.min(9)));
        let usages: Vec<&str> = USAGES.iter().map(|usage| usage.name()).collect();
        let usage = |state: &CellState| USAGES.iter().position(|usage| *usage == state.usage).unwrap_or(0);
        let row = |row: &Row| {
            // Numbers of tracks of a tier are evenly apart: one run.
            let mut pieces = String::new();
            let steps = row.pieces.iter().scan(0, |before, &piece| Some(piece - std::mem::replace(before, piece)));
            append_runs(steps.map(Some), &mut pieces, |step, text| numbers::append(u64::from(step), text));
            serde_json::json!({
                "name": row.name, "device": row.device, "shift": row.shift_half_cells, "pieces": pieces,
            })
        };
        let listed = |of: fn(&CellState) -> u64| {
            let mut text = String::new();
            self.states.iter().for_each(|state| numbers::append(of(state), &mut text));
            text
        };
        let frame = |frame: &Frame| {
            serde_json::json!({
                "operations": frame.operations,
                "nanos": frame.nanos,
                "counters": frame.counters,
                "changes": frame.changes,
                "rewrites": frame.rewrites,
            })
        };
        let counter = |counter: &FilmCounter| serde_json::json!({ "name": counter.name, "unit": counter.unit });
        serde_json::json!({
            "name": self.name,
            "detail": self.detail,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "usages": usages,
            "counters": self.counters.iter().map(counter).collect::<Vec<_>>(),
            "begin": self.begin.as_ref().map(|begin| serde_json::json!({
                "operations": begin.operations, "nanos": 0, "counters": begin.counters,
            })),
            "states": {
                "usage": self.states.iter().map(|state| usage(state).to_string()).collect::<String>(),
                "level": self.states.iter().map(level).collect::<String>(),
                "born": listed(|state| u64::from(state.born)),
                "overlap": listed(|state| u64::from(state.overlap)),
                "live": self.states.iter().map(|state| state.live_eighths.to_string()).collect::<String>(),
                "file": self.states.iter().map(|state| state.file.as_str()).collect::<Vec<_>>(),
            },
            "frames": self.frames.iter().map(frame).collect::<Vec<_>>(),
        })
    }
}

/// Every use of a piece, in the order of the page's numbers for them: one digit each.
const USAGES: [PieceUsage; 10] = [
    PieceUsage::Free,
    PieceUsage::Table,
    PieceUsage::File,
    PieceUsage::Removed,
    PieceUsage::Metadata,
    PieceUsage::SmallFiles,
    PieceUsage::Backup,
    PieceUsage::Reserved,
    PieceUsage::CachedBlocks,
    PieceUsage::Retired,
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use varve::store::{OccupancyDevice, OccupancyFile};
    use varve_env::Random;

    pub(crate) const ROWS: [PartRow; 2] =
        [PartRow { part: "top", shift_half_cells: 1 }, PartRow { part: "bottom", shift_half_cells: 0 }];

    /// A disk of `tracks` tracks, all free.
    pub(crate) fn empty_disk(tracks: u32) -> Occupancy {
        let mut occupancy = Occupancy::default();
        occupancy.devices.push(OccupancyDevice { name: "disk".into(), capacity_bytes: u64::from(tracks) * 4096 });
        occupancy.pieces = (0..tracks)
            .map(|track| OccupancyPiece {
                device: 0,
                offset_bytes: u64::from(track) * 4096,
                length_bytes: 4096,
                used_bytes: 0,
                part: if track % 2 == 0 { "bottom" } else { "top" },
                usage: PieceUsage::Free,
                file: None,
                rewrites: 0,
            })
            .collect();
        occupancy
    }

    /// Files come and go on it, `frames` times.
    pub(crate) fn film_of(seed: u64, name: &str, tracks: u32, frames: u64) -> (Film, Vec<Occupancy>) {
        let mut random = Random::seeded(seed);
        let mut disk = empty_disk(tracks);
        let counters = vec![FilmCounter { name: "rewrites".into(), unit: "1".into() }];
        let mut recorder = Recorder::new(name, "synthetic <data> & \"quotes\"", &ROWS, counters, &disk).unwrap();
        let (mut seen, mut total) = (Vec::new(), 0);
        for frame in 0..=frames {
            let nanos = 5_000 + frame * 1_000;
            for _ in 0..(if frame == 0 { 0 } else { tracks / 50 + 1 }) {
                let file = disk.files.len() as u32;
                let level = random.chance(9, 10).then(|| random.below(5) as u8);
                let written_nanos = Some(nanos - random.below(1_000));
                disk.files.push(OccupancyFile { name: format!("{file:06}.sst"), level, written_nanos });
                let start = random.below(u64::from(tracks)) as usize;
                for piece in disk.pieces.iter_mut().skip(start).step_by(2).take(16) {
                    let usage = if random.chance(1, 4) { PieceUsage::Removed } else { PieceUsage::Table };
                    let rewrites = piece.rewrites + u32::from(piece.part == "top" && random.chance(1, 3));
                    total += u64::from(rewrites - piece.rewrites);
                    *piece = OccupancyPiece { usage, file: Some(file), rewrites, ..*piece };
                }
            }
            recorder.record(&Moment {
                occupancy: &disk,
                operations: frame * 100,
                nanos,
                counters: &[total],
                overlaps: None,
            });
            seen.push(disk.clone());
        }
        (recorder.finish(), seen)
    }

    /// The cells of every frame, decoded.
    fn decode(film: &Film) -> Vec<(Vec<u32>, Vec<u64>)> {
        let mut cells = vec![0; film.last.len()];
        let mut decoded = Vec::new();
        for frame in &film.frames {
            let (mut at, mut state) = (0, 0);
            for run in numbers::read(&frame.changes).unwrap().chunks(3) {
                at += run[0] as usize;
                state += numbers::signed(run[2]);
                cells[at..at + run[1] as usize].fill(state as u32);
                at += run[1] as usize;
            }
            let (mut at, mut rewrites) = (0, vec![0; cells.len()]);
            for run in numbers::read(&frame.rewrites).unwrap().chunks(3) {
                at += run[0] as usize;
                rewrites[at..at + run[1] as usize].fill(run[2]);
                at += run[1] as usize;
            }
            decoded.push((cells.clone(), rewrites));
        }
        decoded
    }

    #[test]
    fn frames_come_back_as_they_were() {
        for seed in 0..5 {
            let (film, seen) = film_of(seed, "a", 301, 12);
            let decoded = decode(&film);
            assert_eq!(decoded.len() + 1, seen.len(), "the begin is no frame");
            assert!(decoded[0].0.iter().any(|&state| state != 0), "the first frame shows something");
            let mut before: Vec<u32> = vec![0; 301];
            for (number, ((cells, rewrites), disk)) in decoded.iter().zip(&seen[1..]).enumerate() {
                let rows = film.rows.iter().flat_map(|row| &row.pieces);
                for (cell, &piece) in rows.enumerate() {
                    let piece = &disk.pieces[piece as usize];
                    let state = &film.states[cells[cell] as usize];
                    assert_eq!(state.usage, piece.usage, "seed {seed}, frame {number}");
                    if let Some(file) = piece.file {
                        let file = &disk.files[file as usize];
                        assert_eq!((state.level, &state.file), (file.level, &file.name));
                        let written = file.written_nanos.unwrap();
                        // Written in the interval that the frame of its birth ends.
                        let born = 6_000 + u64::from(state.born) * 1_000;
                        assert!(written <= born && written + 1_000 > born, "{written}, {born}");
                    }
                    assert_eq!(rewrites[cell], u64::from(piece.rewrites - before[cell]), "seed {seed}, frame {number}");
                    before[cell] = piece.rewrites;
                }
            }
            assert_eq!(decoded.last().unwrap().0, film.last);
        }
    }

    #[test]
    fn overlap_and_what_counts_are_shown_where_they_are_told() {
        let mut disk = empty_disk(4);
        disk.files.push(OccupancyFile { name: "000007.sst".into(), level: Some(1), written_nanos: Some(1) });
        for (piece, used_bytes) in disk.pieces.iter_mut().zip([4096, 1, 2049]) {
            *piece = OccupancyPiece { usage: PieceUsage::Table, file: Some(0), used_bytes, ..*piece };
        }
        let overlaps = BTreeMap::from([("000007.sst".to_owned(), 300)]);
        let of = |overlaps| {
            let mut recorder = Recorder::new("bands", "", &ROWS[1..], Vec::new(), &disk).unwrap();
            recorder.record(&Moment { occupancy: &disk, operations: 0, nanos: 5, counters: &[], overlaps });
            recorder.finish()
        };
        let film = of(Some(&overlaps));
        let states: Vec<_> = film.last.iter().map(|&state| &film.states[state as usize]).collect();
        let shown: Vec<(u8, u8)> = states.iter().map(|state| (state.overlap, state.live_eighths)).collect();
        assert_eq!((film.has_overlaps, shown), (true, vec![(255, 8), (255, 5)]));
        let film = of(None);
        assert!(
            !film.has_overlaps && film.states.iter().all(|state| (state.overlap, state.live_eighths) == (0, WHOLE))
        );
    }

    #[test]
    fn a_film_of_a_full_size_disk_is_small() {
        let (film, _) = film_of(1, "a", 50_000, 40);
        let json = film.to_json().to_string();
        assert!(json.len() < 2_500_000, "{} bytes", json.len());
        assert!(film.states.len() > 30_000);
    }

    /// A drive of `few` zones and a disk of `many`, both with a table in the last.
    pub(crate) fn film_of_two_devices(few: u32, many: u32) -> Film {
        let (mut both, disk) = (empty_disk(few), empty_disk(many));
        both.devices[0].name = "drive".into();
        both.devices.extend(disk.devices);
        both.pieces.extend(disk.pieces.into_iter().map(|piece| OccupancyPiece { device: 1, ..piece }));
        both.files.push(OccupancyFile { name: "000007.sst".into(), level: Some(2), written_nanos: Some(1) });
        both.pieces.iter_mut().for_each(|piece| piece.part = "zone");
        for (last, usage) in [(few - 1, PieceUsage::CachedBlocks), (few + many - 1, PieceUsage::Table)] {
            let piece = &mut both.pieces[last as usize];
            *piece = OccupancyPiece { usage, file: Some(0), ..*piece };
        }
        both.pieces[0].usage = PieceUsage::Retired;
        let rows = [PartRow { part: "zone", shift_half_cells: 0 }];
        let mut recorder = Recorder::new("tiers", "", &rows, Vec::new(), &both).unwrap();
        for operations in 0..2 {
            let moment = Moment { occupancy: &both, operations, nanos: 5, counters: &[], overlaps: None };
            recorder.record(&moment);
        }
        recorder.finish()
    }

    #[test]
    fn rows_of_several_devices_are_apart() {
        let film = film_of_two_devices(20, 300);
        let names: Vec<&str> = film.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["zone of drive", "zone of disk"]);
        let devices: Vec<(usize, usize)> =
            film.devices().iter().map(|(first, rows)| (*first, rows[0].pieces.len())).collect();
        assert_eq!(devices, [(0, 20), (20, 300)]);
        let usage = |cell: usize| film.states[film.last[cell] as usize].usage;
        assert_eq!((usage(19), usage(20), usage(319)), (PieceUsage::CachedBlocks, PieceUsage::Free, PieceUsage::Table));
    }

    #[test]
    fn a_store_without_these_parts_has_no_map() {
        let mut disk = empty_disk(4);
        disk.pieces.iter_mut().for_each(|piece| piece.part = "");
        let error = Recorder::new("plain", "", &ROWS, Vec::new(), &disk).err().unwrap().to_string();
        assert!(error.contains("tells of no top or bottom"), "{error}");
    }
}
