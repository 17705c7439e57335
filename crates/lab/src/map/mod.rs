//! Maps: what lies where on a medium, moment by moment, as a page a person can play and as a picture.
//!
//! A [`Recorder`] takes what a store tells of itself ([`varve::FileStore::occupancy`]) at a number of moments and makes a
//! [`Film`]; [`page`] puts films side by side into one file of HTML that needs nothing else, and [`still`] draws their last
//! frames. A new kind of medium is a new list of [`PartRow`]s. The same films give the same bytes.

mod film;
mod imr;
mod numbers;
mod page;
mod palette;
mod still;
#[cfg(test)]
mod well_formed;

pub use film::{Film, FilmCounter, PartRow, Recorder};
pub use imr::{DrawnMap, FilmSummary, ImrMap, policies, rewrites};
pub use page::{Caption, page};
pub use still::still;
