//! Keys, values and choices, deterministic from a seed.

mod counter;
mod distribution;
mod elementary;
mod key;
mod permutation;
mod value;
mod zipf;
mod zipfian;

pub use counter::AcknowledgedCounter;
pub use distribution::{Distribution, RecordChooser};
pub(crate) use elementary::{decimal_logarithm, exp, ln};
pub use key::{KeyFormat, fnv_hash_64};
pub use permutation::Permutation;
pub use value::ValueGenerator;
pub use zipf::{HashedZipf, ScatteredZipf, Zipf};
pub use zipfian::{ScrambledZipfian, SkewedLatest, ZIPFIAN_CONSTANT, Zipfian};
