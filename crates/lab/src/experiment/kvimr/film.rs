//! A load as a film of the disk.

use super::load::Driver;
use super::scheme::Scheme;
use super::settings::Setup;
use crate::error::LabError;
use crate::experiment::{Scale, emulated, simulate};
use crate::map::{Film, FilmCounter, Moment, PartRow, Recorder};
use varve::store::FileStore;

/// Tracks of an interlaced disk: a bottom track lies under the halves of two tops.
const ROWS: [PartRow; 2] =
    [PartRow { part: "top", shift_half_cells: 1 }, PartRow { part: "bottom", shift_half_cells: 0 }];

/// Numbers of the store that are shown.
const COUNTERS: [&str; 4] = ["rewrites", "syncs", "tables", "tables with rewrites"];

/// A load of the paper on an interlaced disk.
#[derive(Clone, Debug)]
pub(crate) struct LoadOnInterlaced {
    /// Where tables go, as the store's option `allocation` says it.
    pub(crate) allocation: String,
    /// How tops are saved, as its option `rewrite` says it.
    pub(crate) rewrite: String,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    /// Pairs at full scale.
    pub(crate) full_pairs: u64,
    /// Moments after the first one, evenly apart by pairs; one at least.
    pub(crate) frames: u32,
}

impl LoadOnInterlaced {
    fn setup(&self) -> Setup {
        Setup { pairs: self.full_pairs, ..Setup::new(Scheme::KvimrM, self.scale, self.seed) }
    }

    /// Pairs of the load at its scale.
    pub(crate) fn pairs(&self) -> u64 {
        self.setup().scaled_pairs()
    }

    /// The disk and the store on it.
    pub(crate) fn spec(&self) -> String {
        self.setup().interlaced_spec(&format!("allocation={},rewrite={}", self.allocation, self.rewrite))
    }
}

/// The numbers that are shown, from those that a store tells.
fn counted(store: &dyn FileStore) -> Vec<u64> {
    let measures = store.statistics();
    let value = |name: &&str| measures.iter().find(|measure| measure.name == *name).map_or(0, |measure| measure.value);
    COUNTERS.iter().map(value).collect()
}

/// Loads the pairs in a world of its own and films the disk meanwhile. Calls `advance` with pairs put since it was called
/// before.
///
/// # Errors
/// What opening and loading say.
pub(crate) fn film_load(load: &LoadOnInterlaced, advance: impl Fn(u64) + Send + 'static) -> Result<Film, LabError> {
    let load = load.clone();
    simulate(load.seed, move |env| {
        let (setup, spec) = (load.setup(), load.spec());
        let target = emulated::open_varve(env, &spec, &setup.options())?;
        let store = &**target.varve().stack().files();
        let counters = COUNTERS.map(|name| FilmCounter { name: name.to_owned(), unit: "1".to_owned() }).to_vec();
        let name = format!("{}, {} rewrites", load.allocation, load.rewrite);
        let mut recorder = Recorder::new(&name, &spec, &ROWS, counters, &store.occupancy())?;
        let mut driver = Driver::new(env, &target, &setup, advance)?;
        let mut record = |operations: u64| {
            env.settle();
            recorder.record(&Moment {
                occupancy: &store.occupancy(),
                operations,
                nanos: env.now().as_nanos(),
                counters: &counted(store),
                overlaps: None,
            });
        };
        record(0);
        let (pairs, frames) = (load.pairs(), u64::from(load.frames.max(1)));
        let moment = |frame: u64| (u128::from(pairs) * u128::from(frame) / u128::from(frames)) as u64;
        let mut frame = 1;
        for number in 0..pairs {
            driver.put(number, 0)?;
            // More frames than pairs: some are alike.
            while frame <= frames && moment(frame) <= number + 1 {
                record(number + 1);
                frame += 1;
            }
        }
        Ok(recorder.finish())
    })
}
