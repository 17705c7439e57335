//! Maps: what lies where on a medium, moment by moment, as a page a person can play and as a picture.
//!
//! A [`Recorder`] takes what a store tells of itself ([`varve::store::FileStore::occupancy`]) at a number of moments and makes a
//! [`Film`]; [`page`] puts films side by side into one file of HTML that needs nothing else, and [`still`] draws their last
//! frames. A new kind of medium is a new list of [`PartRow`]s; several devices are drawn below each other. The same films give
//! the same bytes.

mod film;
mod hybrid;
mod idler;
mod imr;
mod lettering;
mod loads;
mod numbers;
mod page;
mod palette;
mod smr;
mod still;
#[cfg(test)]
mod well_formed;

pub use film::{Film, FilmCounter, Moment, PartRow, Recorder};
pub use hybrid::HybridMap;
pub use idler::IdlerMap;
pub use imr::{ImrMap, policies, rewrites};
pub use loads::{DrawnMap, FilmSummary};
pub use page::{Caption, page};
pub use smr::{SmrMap, schemes};
pub use still::still;
