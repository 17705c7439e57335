//! Requests divided at the ends of zones.

use super::core::Part;
use crate::idler::Work;
use std::ops::Range;
use varve_media::{ZoneGeometry, ZoneId};

/// The zones that bytes of the device lie in, and which bytes of each.
pub(super) fn parts(zones: &ZoneGeometry, range: &Range<u64>, work: Work) -> impl Iterator<Item = Part> + use<> {
    let (zone_bytes, range) = (zones.zone_bytes, range.clone());
    zones.zones_in(&range).map(move |zone| {
        let start = zone_bytes.saturating_mul(zone.0.into());
        let own = range.start.max(start) - start..range.end.min(start.saturating_add(zone_bytes)) - start;
        Part { zone: ZoneId(zone.0), range: own, work }
    })
}
