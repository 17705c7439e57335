//! Colours of levels and uses, for the page and the still picture.

use varve::store::PieceUsage;

/// Colour of each level: those of Okabe and Ito ("Color Universal Design", 2008), which people with colour blindness
/// tell apart too. The last is for levels above, and for none.
pub(super) const LEVELS: [&str; 8] =
    ["#D55E00", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#56B4E9", "#C8B400", "#8C8C8C"];

/// How much of its colour the oldest data keeps; the rest is the paper's.
pub(super) const OLDEST_STRENGTH: f64 = 0.35;

/// Strength of the colour of data of an age, from 1 for new data. Falls fast at first: what was written lately is told
/// apart best.
pub(super) fn strength(age: u32, oldest: u32) -> f64 {
    let share = f64::from(age) / f64::from(oldest.max(1));
    1.0 - (1.0 - OLDEST_STRENGTH) * share.min(1.0).sqrt()
}

/// What a use is called in the legend and what is said of it.
pub(super) const USES: [(PieceUsage, &str, &str); 10] = [
    (PieceUsage::Free, "free", "nothing that counts"),
    (PieceUsage::Table, "table", "colour is its level; the older, the fainter"),
    (PieceUsage::File, "file", "of a store that does not tell kinds of files apart"),
    (PieceUsage::Removed, "removed, not yet free", "its removal is not durable, or somebody reads it"),
    (PieceUsage::Metadata, "metadata", "of the store"),
    (PieceUsage::SmallFiles, "small files", "logs, manifest"),
    (PieceUsage::Backup, "backup region", "copies of what an unfinished rewrite endangers"),
    (PieceUsage::Reserved, "reserved", "kept unused"),
    (PieceUsage::CachedBlocks, "cached blocks", "copies of blocks of a slower device"),
    (PieceUsage::Retired, "retired", "the device does not write it any more"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_is_fainter() {
        assert_eq!(strength(0, 100), 1.0);
        assert!((0..100).all(|age| strength(age + 1, 100) < strength(age, 100)));
        assert!((strength(100, 100) - OLDEST_STRENGTH).abs() < 1e-9);
        assert_eq!(strength(500, 100), strength(100, 100));
        assert_eq!(strength(0, 0), 1.0);
    }
}
