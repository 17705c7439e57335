//! What a walk over all of a database finds.

use std::collections::BTreeMap;
use varve_engine::DbIterator;

/// Walks forward over everything, which must be what the model has.
pub(crate) fn compare_forward(walk: &mut DbIterator, model: &BTreeMap<Vec<u8>, Vec<u8>>, note: &str) {
    walk.seek_to_first();
    for (key, value) in model {
        assert!(walk.valid(), "{note}: {} is missing", key.escape_ascii());
        assert_eq!((walk.key(), walk.value()), (&**key, &**value), "{note}");
        walk.next();
    }
    assert!(!walk.valid() && walk.status().is_ok(), "{note}: {:?}", walk.status());
}
