//! Power cuts of devices with interlaced tracks.

use super::CrashVariant;
use super::content::{ContentChange, Pending};
use crate::device::BlockDevice;
use crate::emulated::Interlaced;
use crate::ranges::RangeSet;
use crate::tracks::TrackGeometry;
use std::ops::Range;
use std::sync::Arc;
use varve_env::Random;

/// The tracks of the device below a crash layer, and of the images made of it.
pub(super) struct TrackRules {
    pub(super) geometry: TrackGeometry,
    pub(super) physical_sector_bytes: u32,
    pub(super) is_strict: bool,
}

impl TrackRules {
    /// Parts of other tracks that writing `written` destroys.
    pub(super) fn destroyed_by(&self, written: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.geometry.destroyed_by_write(written, self.physical_sector_bytes.into()).map(|(_, span)| span)
    }

    /// Rules of an image in which this is unreadable. What the host had marked free went with the
    /// power: all that can be read counts as live.
    pub(super) fn of_image(&self, unreadable: &RangeSet) -> Interlaced {
        let rules = Interlaced::new(&self.geometry, self.physical_sector_bytes, self.is_strict);
        let everything = 0..self.geometry.capacity_bytes();
        unreadable.within(everything).fold(rules.with_everything_live(), Interlaced::without_live)
    }

    /// The rules of a device, if it has tracks.
    pub(super) fn of(block: &dyn BlockDevice, is_strict: bool) -> Option<Arc<Self>> {
        let geometry = block.capabilities().tracks.clone()?;
        let physical_sector_bytes = block.geometry().physical_sector_bytes;
        Some(Arc::new(TrackRules { geometry, physical_sector_bytes, is_strict }))
    }
}

/// What writes destroyed on one content of a device.
#[derive(Clone)]
pub(crate) struct TrackContent {
    rules: Arc<TrackRules>,
    unreadable: Arc<RangeSet>,
}

impl TrackContent {
    pub(super) fn new(rules: Arc<TrackRules>) -> Self {
        TrackContent { rules, unreadable: Arc::default() }
    }

    pub(super) fn unreadable(&self) -> &RangeSet {
        &self.unreadable
    }

    pub(super) fn written(&mut self, range: Range<u64>) {
        let mut destroyed = self.rules.destroyed_by(range.clone()).peekable();
        if self.unreadable.is_empty() && destroyed.peek().is_none() {
            return;
        }
        let unreadable = Arc::make_mut(&mut self.unreadable);
        unreadable.remove(range);
        destroyed.for_each(|span| unreadable.insert(span));
    }

    pub(super) fn discarded(&mut self, range: Range<u64>) {
        if self.unreadable.first_within(&range).is_some() {
            Arc::make_mut(&mut self.unreadable).remove(range);
        }
    }

    /// Of `range` exactly the parts `unreadable` cannot be read.
    pub(super) fn found(&mut self, range: Range<u64>, unreadable: &[Range<u64>]) {
        self.discarded(range.clone());
        for part in unreadable {
            let part = part.start.max(range.start)..part.end.min(range.end);
            if !part.is_empty() {
                Arc::make_mut(&mut self.unreadable).insert(part);
            }
        }
    }
}

/// The order in which changes that are not durable reach the medium, where order matters: that of
/// their submission, or for the variants that lose at random any that a device could have chosen.
///
/// A device keeps the order of writes to one sector. What was submitted after a durable write
/// completed comes after it.
pub(super) fn arrival_order<'a>(
    pending: &[&'a Pending],
    variant: CrashVariant,
    seed: u64,
    physical_sector_bytes: u64,
) -> Vec<&'a Pending> {
    let shuffles = matches!(variant, CrashVariant::KeepSuffix | CrashVariant::DropRandom | CrashVariant::TearRandom);
    if !shuffles {
        return pending.to_vec();
    }
    let sector = physical_sector_bytes.max(1);
    let sectors_of = |pending: &Pending| {
        let (start, length) = match &pending.change {
            ContentChange::Write { offset_bytes, data }
            | ContentChange::Store { offset_bytes, data }
            | ContentChange::Found { offset_bytes, data, .. } => (*offset_bytes, data.len() as u64),
            ContentChange::Clear { offset_bytes, length_bytes } => (*offset_bytes, *length_bytes),
            ContentChange::Truncate { size_bytes } => (*size_bytes, u64::MAX - size_bytes),
            // A device has tracks or zones.
            ContentChange::ResetZone { .. } | ContentChange::FinishZone { .. } => (0, 0),
        };
        start / sector..(start + length).div_ceil(sector)
    };
    let mut random = Random::named(seed, "crash order");
    let mut order: Vec<(&Pending, Range<u64>)> = Vec::with_capacity(pending.len());
    for &next in pending {
        let sectors = sectors_of(next);
        let follows = |(earlier, other): &(&Pending, Range<u64>)| {
            earlier.certain || (other.start < sectors.end && sectors.start < other.end)
        };
        let first = order.iter().rposition(follows).map_or(0, |last| last + 1);
        order.insert(first + random.index(order.len() - first + 1), (next, sectors));
    }
    order.into_iter().map(|(pending, _)| pending).collect()
}

#[cfg(test)]
mod tests;
