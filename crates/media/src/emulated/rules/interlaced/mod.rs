//! Interlaced magnetic recording: bottom tracks under top tracks.

pub(crate) mod conformance;

use super::{Conventional, Rules};
use crate::device::{Capabilities, Device, Geometry};
use crate::error::{MediaError, Operation};
use crate::ranges::RangeSet;
use crate::request::{Request, Transfer};
use crate::tracks::{DestroyedData, TrackControl, TrackDescription, TrackGeometry, TrackId, TrackTier};
use crate::{BlockDevice, Emulated, RuledDevice};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// A write to a bottom track destroys the same span of both neighbouring top tracks (Hajkazemi et
/// al., "Track-based translation layers for interlaced magnetic recording", ATC 2019; KVIMR, section
/// 2.2): reading it is an unreadable sector until it is rewritten or discarded. Top tracks destroy
/// nothing, nor does a discard. The disk writes whole physical sectors, so a span is whole physical
/// sectors too.
///
/// Destroying *live* data ([`TrackControl`]) is counted; *strict* rules refuse the write instead. They
/// judge a write when it is submitted: of a batch that writes a top track and the bottom track under it
/// both are admitted, and what that destroys is counted. Strict rules also refuse one write that runs
/// from a top track into the next bottom track at a place where it would destroy its own beginning.
///
/// What is live and what is unreadable is known to the device in memory only. Opened again over a file
/// or a disk that lasts, everything can be read, the stale bytes of what was destroyed too, and counts
/// as live ([`Interlaced::with_everything_live`]) until the host marks free what it does not need.
///
/// Memory: about 40 bytes for each separate live range, so for a host that writes whole tracks at
/// most that for each top track; never more than 40 bytes for every second sector of the top tracks.
pub struct Interlaced {
    state: Arc<Mutex<TopTrackState>>,
    geometry: Arc<TrackGeometry>,
    physical_sector_bytes: u64,
    strict: bool,
}

#[derive(Default)]
struct TopTrackState {
    /// Of top tracks only, by device offset.
    live: RangeSet,
    destroyed: DestroyedData,
}

impl Interlaced {
    /// Rules for a device of these tracks on which nothing is live, which the host learns by
    /// [`Interlaced::control`].
    pub fn new(tracks: &TrackGeometry, physical_sector_bytes: u32, strict: bool) -> Self {
        Interlaced {
            state: Arc::default(),
            geometry: Arc::new(tracks.clone()),
            physical_sector_bytes: u64::from(physical_sector_bytes.max(1)),
            strict,
        }
    }

    /// The same rules with everything on the top tracks live: for a device that was used before,
    /// whose host knows what is free.
    pub fn with_everything_live(self) -> Self {
        let geometry = self.geometry.clone();
        let tops = (0..geometry.track_count).map(TrackId).filter(|&track| geometry.tier(track) == TrackTier::Top);
        self.state.lock().live = RangeSet::of_ascending(tops.map(|track| geometry.range(track)));
        self
    }

    /// The same rules with nothing in `range` live.
    pub(crate) fn without_live(self, range: Range<u64>) -> Self {
        self.state.lock().live.remove(range);
        self
    }

    /// Sizes of a device like `geometry` cut to these tracks.
    pub fn cut(&self, geometry: &Geometry) -> Geometry {
        let capacity_bytes = self.geometry.capacity_bytes().min(geometry.capacity_bytes);
        Geometry { capacity_bytes, ..geometry.clone() }
    }

    /// The track commands of the device under these rules, called `device` in messages.
    pub fn control(&self, device: &str) -> Arc<dyn TrackControl> {
        Arc::new(Control {
            device: device.to_owned(),
            state: self.state.clone(),
            geometry: self.geometry.clone(),
            strict: self.strict,
        })
    }

    /// The device that `make` makes under these rules, called `name` in messages, with its commands. Its geometry must be
    /// one that was [cut](Interlaced::cut).
    pub fn device(self, name: &str, make: impl FnOnce(Box<dyn Rules>) -> Emulated) -> Device {
        let control = self.control(name);
        Device { tracks: Some(control), ..Device::of_blocks(Arc::new(make(Box::new(self)))) }
    }

    /// Interlaced tracks on another device, cut to whole tracks: an interlaced disk on a conventional
    /// one, whose time is its own (the emulation of KVIMR, section 4.1). What was destroyed is known
    /// until the device is dropped and no longer: opened again, everything can be read, and so the
    /// stale bytes of what was destroyed.
    pub fn over(self, inner: &Arc<dyn BlockDevice>) -> Device {
        let control = self.control(inner.name());
        let geometry = self.cut(inner.geometry());
        let block = RuledDevice::new(inner.clone(), geometry, Box::new(self));
        Device { tracks: Some(control), ..Device::of_blocks(Arc::new(block)) }
    }

    fn destroyed_by(&self, written: Range<u64>) -> impl Iterator<Item = (TrackId, Range<u64>)> + '_ {
        self.geometry.destroyed_by_write(written, self.physical_sector_bytes)
    }

    /// The first live span that writing `written` would destroy.
    fn live_loss(&self, written: &Range<u64>) -> Option<(TrackId, Range<u64>)> {
        let state = self.state.lock();
        self.destroyed_by(written.clone()).find_map(|(track, span)| {
            let own = span.start.max(written.start)..span.end.min(written.end);
            let own = Some(own).filter(|own| !own.is_empty());
            let live = state.live.within(span).next();
            live.into_iter().chain(own).min_by_key(|part| part.start).map(|part| (track, part))
        })
    }
}

impl Rules for Interlaced {
    fn describe(&self, capabilities: &mut Capabilities) {
        Conventional.describe(capabilities);
        capabilities.tracks = Some((*self.geometry).clone());
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        Conventional.admit(device, request)?;
        if !self.strict || !matches!(request.transfer, Transfer::Write { .. }) {
            return Ok(());
        }
        let written = request.offset_bytes..request.offset_bytes + request.length_bytes();
        let Some((track, lost)) = self.live_loss(&written) else { return Ok(()) };
        let (first, last) = (self.geometry.track_at(written.start), self.geometry.track_at(written.end - 1));
        let tracks = match (first, last) {
            (Some(first), Some(last)) if first != last => format!("tracks {first} to {last}"),
            (Some(first), _) => format!("bottom track {first}"),
            _ => "a bottom track".to_owned(),
        };
        Err(MediaError::Rule {
            device: device.to_owned(),
            operation: Operation::Write,
            offset_bytes: request.offset_bytes,
            rule: format!(
                "writing {} bytes to {tracks} would destroy live data of top track {track} at bytes {} to {}; back it \
                 up and mark the track free first, restore it afterwards, or write elsewhere",
                written.end - written.start,
                lost.start,
                lost.end
            ),
        })
    }

    fn refused(&mut self, _request: &Request<'_>) {}

    fn may_destroy(&self, written: Range<u64>) -> bool {
        self.destroyed_by(written).next().is_some()
    }

    fn written(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for (track, within) in self.geometry.pieces(written.clone()) {
            if self.geometry.tier(track) == TrackTier::Top {
                let start = self.geometry.start_bytes(track);
                state.live.insert(start + within.start..start + within.end);
            }
        }
        let mut lost_bytes = 0;
        for (_, span) in self.destroyed_by(written) {
            lost_bytes += state.live.within(span.clone()).map(|part| part.end - part.start).sum::<u64>();
            state.live.remove(span.clone());
            destroyed.push(span);
        }
        state.destroyed.writes += u64::from(lost_bytes > 0);
        state.destroyed.bytes += lost_bytes;
    }

    fn discarded(&mut self, discarded: Range<u64>) {
        self.state.lock().live.remove(discarded);
    }

    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError> {
        Conventional.complete(device, request)
    }
}

/// The facet. Shares its state with the rules.
struct Control {
    device: String,
    state: Arc<Mutex<TopTrackState>>,
    geometry: Arc<TrackGeometry>,
    strict: bool,
}

impl Control {
    fn missing(&self, track: TrackId) -> MediaError {
        MediaError::Rule {
            device: self.device.clone(),
            operation: Operation::Track,
            offset_bytes: self.geometry.start_bytes(track),
            rule: format!(
                "there is no track {track}; tracks are numbered from 0, there are {}",
                self.geometry.track_count
            ),
        }
    }
}

impl TrackControl for Control {
    fn describe(&self, track: TrackId) -> Result<TrackDescription, MediaError> {
        self.geometry.describe(track).ok_or_else(|| self.missing(track))
    }

    fn report(&self, first: TrackId, count: u32) -> Result<Vec<TrackDescription>, MediaError> {
        if !self.geometry.contains(first) {
            return Err(self.missing(first));
        }
        let end = first.0.saturating_add(count).min(self.geometry.track_count);
        Ok((first.0..end).filter_map(|track| self.geometry.describe(TrackId(track))).collect())
    }

    fn mark_free(&self, track: TrackId) -> Result<(), MediaError> {
        if !self.geometry.contains(track) {
            return Err(self.missing(track));
        }
        self.state.lock().live.remove(self.geometry.range(track));
        Ok(())
    }

    fn destroyed(&self) -> DestroyedData {
        self.state.lock().destroyed
    }

    fn is_strict(&self) -> bool {
        self.strict
    }
}

#[cfg(test)]
mod tests;
