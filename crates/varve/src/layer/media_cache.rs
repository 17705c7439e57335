//! What the media cache of a disk holds, as layers that follow it are told.

use crate::error::Error;
use crate::registry::small_number;
use crate::spec::{Part, SpecErrorKind};
use varve_media::{MediaCache, ZoneGeometry};

/// As the options `cache` and `extents` say, or else as the disk does.
pub(super) fn media_cache(part: &Part, zones: &ZoneGeometry, cache: &str, extents: &str) -> Result<MediaCache, Error> {
    let bytes = part.size_bytes(cache)?.or(zones.media_cache.map(|cache| cache.bytes));
    let extents_max = small_number(part, extents)?.or(zones.media_cache.map(|cache| cache.extents_max));
    match (bytes, extents_max) {
        (Some(bytes), Some(extents_max)) => Ok(MediaCache { bytes, extents_max }),
        _ => {
            let expected =
                format!("{cache}=SIZE and {extents}=N too: this disk does not say what its media cache holds");
            Err(part.argument_error(SpecErrorKind::InvalidValue, expected).into())
        }
    }
}
