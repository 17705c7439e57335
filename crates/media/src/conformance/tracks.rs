//! The contract of interlaced tracks: what a write destroys, and what the device says about it.

use super::subject::{Subject, context, pattern};
use super::{Clause, Violation};
use crate::device::BlockDeviceExt;
use crate::error::MediaErrorKind;
use crate::ranges::RangeSet;
use crate::request::Request;
use crate::tracks::{DestroyedData, TrackControl, TrackGeometry, TrackId, TrackTier};
use std::io::IoSlice;
use std::ops::Range;

/// Whether a sector can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readability {
    Readable,
    Unreadable,
    /// Destroyed and written by requests in flight at once.
    Either,
}

/// A write or discard of a batch.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) range: Range<u64>,
    pub(super) is_write: bool,
}

/// Which sectors of a device the writes so far destroyed, as the device's own geometry has it.
pub(super) struct TrackModel {
    geometry: TrackGeometry,
    physical_sector_bytes: u64,
    unreadable: RangeSet,
    either: RangeSet,
}

impl TrackModel {
    pub(super) fn new(geometry: &TrackGeometry, physical_sector_bytes: u32) -> Self {
        TrackModel {
            geometry: geometry.clone(),
            physical_sector_bytes: physical_sector_bytes.into(),
            unreadable: RangeSet::default(),
            either: RangeSet::default(),
        }
    }

    /// Follows a batch that was done.
    pub(super) fn done(&mut self, batch: &[Change]) {
        for Change { range, .. } in batch {
            self.unreadable.remove(range.clone());
            self.either.remove(range.clone());
        }
        let mut certain = Vec::new();
        for (index, change) in batch.iter().enumerate().filter(|(_, change)| change.is_write) {
            let mut others = RangeSet::default();
            for (_, other) in batch.iter().enumerate().filter(|(other, _)| *other != index) {
                others.insert(other.range.clone());
            }
            for (_, span) in self.geometry.destroyed_by_write(change.range.clone(), self.physical_sector_bytes) {
                let mut alone = RangeSet::default();
                alone.insert(span.clone());
                for shared in others.within(span.clone()) {
                    alone.remove(shared.clone());
                    self.either.insert(shared);
                }
                certain.extend(alone.within(span));
            }
        }
        for span in certain {
            self.either.remove(span.clone());
            self.unreadable.insert(span);
        }
    }

    /// Cuts a range into parts of one readability each.
    pub(super) fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, Readability)> {
        let mut known: Vec<(Range<u64>, Readability)> =
            self.unreadable.within(range.clone()).map(|part| (part, Readability::Unreadable)).collect();
        known.extend(self.either.within(range.clone()).map(|part| (part, Readability::Either)));
        known.sort_by_key(|(part, _)| part.start);
        let mut parts = Vec::new();
        let mut at = range.start;
        for (part, readability) in known {
            if at < part.start {
                parts.push((at..part.start, Readability::Readable));
            }
            at = part.end;
            parts.push((part, readability));
        }
        if at < range.end {
            parts.push((at..range.end, Readability::Readable));
        }
        parts
    }
}

/// A device with tracks under check.
struct Tracks<'a> {
    subject: &'a Subject,
    control: &'a dyn TrackControl,
    geometry: TrackGeometry,
    physical_sector_bytes: u64,
}

type Check = fn(&Tracks<'_>) -> Result<(), Violation>;

/// Every check of tracks; a device without passes.
pub(super) const CHECKS: [fn(&Subject) -> Result<(), Violation>; 7] = [
    |subject| run(subject, description),
    |subject| run(subject, same_span),
    |subject| run(subject, tops_are_free),
    |subject| run(subject, ascending_order),
    |subject| run(subject, one_batch),
    |subject| run(subject, counts),
    |subject| run(subject, strictness),
];

fn run(subject: &Subject, check: Check) -> Result<(), Violation> {
    let block = &subject.device.block;
    match (&block.capabilities().tracks, &subject.device.tracks) {
        (Some(geometry), Some(control)) => check(&Tracks {
            subject,
            control: &**control,
            geometry: geometry.clone(),
            physical_sector_bytes: block.geometry().physical_sector_bytes.into(),
        }),
        _ => Ok(()),
    }
}

impl Tracks<'_> {
    fn mark_free(&self, clause: Clause, tracks: impl IntoIterator<Item = TrackId>) -> Result<(), Violation> {
        for track in tracks {
            clause.succeed(&format!("marking track {track} free"), self.control.mark_free(track))?;
        }
        Ok(())
    }

    /// Writes all of a track and gives what it wrote.
    fn fill(&self, clause: Clause, track: TrackId, salt: u64) -> Result<Vec<u8>, Violation> {
        let data = pattern(salt, self.geometry.length_bytes(track) as usize);
        self.subject.write(clause, self.geometry.start_bytes(track), &data)?;
        Ok(data)
    }

    /// Live data destroyed since `before`: writes and bytes.
    fn destroyed_since(&self, before: DestroyedData) -> (u64, u64) {
        let DestroyedData { writes, bytes } = self.control.destroyed();
        (writes.wrapping_sub(before.writes), bytes.wrapping_sub(before.bytes))
    }

    /// A few bottom tracks: the first, with one neighbour, one between, and the last.
    fn bottoms(&self) -> [TrackId; 3] {
        [TrackId(0), TrackId(2), TrackId((self.geometry.track_count - 1) / 2 * 2)]
    }
}

fn description(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("describes its tracks");
    let Tracks { geometry, control, subject, .. } = tracks;
    let capacity_bytes = subject.device.block.geometry().capacity_bytes;
    clause.require(geometry.capacity_bytes() == capacity_bytes, || {
        format!("the tracks have {} bytes, the device {capacity_bytes}", geometry.capacity_bytes())
    })?;
    for tier in [TrackTier::Bottom, TrackTier::Top] {
        let bytes = geometry.track_bytes(tier);
        clause.require(bytes > 0 && bytes.is_multiple_of(tracks.physical_sector_bytes), || {
            format!("{tier} tracks of {bytes} bytes are not whole physical sectors")
        })?;
    }
    let count = geometry.track_count;
    let first = TrackId(count.saturating_sub(5));
    let reported = clause.succeed("a report beyond the last track", control.report(first, u32::MAX))?;
    clause.require(reported.len() as u32 == count - first.0, || {
        format!("a report of the last tracks has {} of {}", reported.len(), count - first.0)
    })?;
    for (number, found) in
        (first.0..).zip(&reported).chain((0..).zip(&control.report(TrackId(0), 3).unwrap_or_default()))
    {
        let alone = clause.succeed("describing a track", control.describe(TrackId(number)))?;
        clause.require(Some(&alone) == geometry.describe(TrackId(number)).as_ref() && alone == *found, || {
            format!("track {number}: described as {alone:?}, reported as {found:?}, geometry {geometry:?}")
        })?;
    }
    let kind = MediaErrorKind::InvalidRequest;
    clause.fail("describing a track behind the last", kind, control.describe(TrackId(count)))?;
    clause.fail("a report from behind the last track", kind, control.report(TrackId(count), 1))?;
    clause.fail("marking a track behind the last", kind, control.mark_free(TrackId(count)))
}

fn same_span(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("a write to a bottom track destroys the same span of its neighbours");
    let Tracks { geometry, subject, .. } = tracks;
    let sector = subject.sector;
    for bottom in tracks.bottoms() {
        let length = geometry.length_bytes(bottom);
        let middle = length / 2 / sector * sector;
        for (salt, within) in [
            (1, 0..sector),
            (2, middle..middle + 3 * sector),
            (3, length - sector..length),
            (4, sector..length - 5 * sector),
            (5, 0..length),
        ] {
            let neighbours: Vec<TrackId> = geometry.neighbours(bottom).collect();
            let mut filled = Vec::new();
            for &top in &neighbours {
                filled.push((geometry.start_bytes(top), tracks.fill(clause, top, salt)?));
            }
            tracks.mark_free(clause, neighbours.iter().copied())?;
            for (at, data) in &filled {
                subject.expect(clause, *at, data)?;
            }
            let data = pattern(salt + 10, (within.end - within.start) as usize);
            let at = geometry.start_bytes(bottom) + within.start;
            subject.write(clause, at, &data)?;
            subject.expect(clause, at, &data)?;
            for (at, data) in &filled {
                subject.expect(clause, *at, data)?;
            }
            // What is written or discarded can be read again, no more and no less.
            for (top, (_, span)) in
                neighbours.iter().zip(geometry.overlapped_span(bottom, within, tracks.physical_sector_bytes))
            {
                let data = pattern(salt + 20, sector as usize);
                subject.write(clause, span.start, &data)?;
                subject.expect(clause, span.start, &data)?;
                if span.end - span.start > 2 * sector {
                    subject.discard(clause, span.start + sector, sector)?;
                    subject.expect(clause, span.start + sector, &vec![0; sector as usize])?;
                    subject.expect(clause, span.start + 2 * sector, &data)?;
                }
                tracks.mark_free(clause, [*top])?;
            }
        }
    }
    Ok(())
}

fn tops_are_free(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("a write to a top track destroys nothing");
    let numbers = [0, 2, 1, 3, 4].map(TrackId);
    let mut contents = Vec::new();
    for track in numbers {
        tracks.mark_free(clause, tracks.geometry.neighbours(track))?;
        contents.push((track, tracks.fill(clause, track, u64::from(track.0))?));
    }
    // Track 4 was last and destroyed track 3.
    contents.retain(|(track, _)| *track != TrackId(3));
    let before = tracks.control.destroyed();
    for round in 0..3 {
        for (_, data) in contents.iter_mut().filter(|(track, _)| *track == TrackId(1)) {
            *data = tracks.fill(clause, TrackId(1), 100 + round)?;
        }
        contents.retain(|(track, _)| *track != TrackId(3));
        contents.push((TrackId(3), tracks.fill(clause, TrackId(3), 200 + round)?));
        for (track, data) in &contents {
            tracks.subject.expect(clause, tracks.geometry.start_bytes(*track), data)?;
        }
    }
    clause
        .require(tracks.destroyed_since(before) == (0, 0), || "writes to top tracks counted as destructive".to_owned())
}

fn ascending_order(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("a write reaches its sectors in ascending order");
    let Tracks { geometry, subject, .. } = tracks;
    let sector = subject.sector;
    let start = geometry.start_bytes(TrackId(1)) + geometry.top_track_bytes / 2 / sector * sector;
    let end = geometry.start_bytes(TrackId(3)) + geometry.top_track_bytes / 4 / sector * sector;
    let data = pattern(1, (end - start) as usize);
    tracks.mark_free(clause, [1, 3].map(TrackId))?;
    if tracks.control.is_strict() {
        let result = subject.device.block.write_at(start, &subject.buffer(&data), &context());
        clause.fail("a write that destroys its own beginning", MediaErrorKind::InvalidRequest, result)?;
        return subject.expect(clause, start, &vec![0; data.len()]);
    }
    // The bottom track in the middle destroys the top track before it, not what comes after it.
    subject.write(clause, start, &data)?;
    subject.expect(clause, start, &data)?;
    let begin = geometry.start_bytes(TrackId(1));
    subject.expect(clause, begin, &vec![0; (start - begin) as usize])?;
    let rest = geometry.range(TrackId(3)).end - end;
    subject.expect(clause, end, &vec![0; rest as usize])
}

fn one_batch(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("what one batch writes and destroys is whole or unreadable");
    let Tracks { geometry, subject, .. } = tracks;
    let length = 4 * tracks.physical_sector_bytes;
    let [bottom, top] = [2, 1].map(|track| geometry.start_bytes(TrackId(track)));
    for bottom_first in [false, true] {
        tracks.mark_free(clause, [1, 3].map(TrackId))?;
        let [below, above] =
            [1, 2].map(|salt| subject.buffer(&pattern(salt + u64::from(bottom_first), length as usize)));
        let [below_slices, above_slices] = [[IoSlice::new(&below)], [IoSlice::new(&above)]];
        let mut batch = [Request::write(bottom, &below_slices), Request::write(top, &above_slices)];
        if !bottom_first {
            batch.reverse();
        }
        let executed = subject.device.block.execute(&mut batch, &context());
        // A layer may do the one after the other, and then strict rules see what they do.
        let refused = tracks.control.is_strict() && executed.is_err() && !bottom_first;
        if !refused {
            clause.succeed("a batch of a bottom and a top write", executed)?;
            let change = |at| Change { range: at..at + length, is_write: true };
            subject.done(&[change(bottom), change(top)]);
            subject.expect(clause, bottom, &below)?;
        }
        subject.expect(clause, top, &above)?;
        subject.discard(clause, top, length)?;
        subject.discard(clause, bottom, length)?;
    }
    Ok(())
}

fn counts(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("counts the live data it destroys");
    let Tracks { geometry, subject, control, physical_sector_bytes, .. } = tracks;
    let length = 2 * physical_sector_bytes;
    let [bottom, top] = [2, 1].map(|track| geometry.start_bytes(TrackId(track)));
    let data = pattern(1, length as usize);
    let expect_count = |what: &str, before: DestroyedData, expected: (u64, u64)| {
        let found = tracks.destroyed_since(before);
        clause.require(found == expected, || {
            format!("{what}: expected (writes, bytes) {expected:?} destroyed, found {found:?}")
        })
    };
    let before = control.destroyed();
    subject.write(clause, bottom, &data)?;
    expect_count("tops never written", before, (0, 0))?;
    subject.write(clause, top, &data)?;
    subject.discard(clause, top, length)?;
    subject.write(clause, bottom, &data)?;
    expect_count("discarded tops", before, (0, 0))?;
    subject.write(clause, top, &data)?;
    tracks.mark_free(clause, [TrackId(1)])?;
    subject.expect(clause, top, &data)?;
    subject.write(clause, bottom, &data)?;
    expect_count("tops marked free", before, (0, 0))?;
    if control.is_strict() {
        return Ok(());
    }
    let live = subject.sector;
    subject.write(clause, top, &data[..live as usize])?;
    subject.write(clause, bottom, &data)?;
    let lost = geometry.overlapped_span(TrackId(2), 0..length, *physical_sector_bytes).next();
    let lost = lost.map_or(0, |(_, span)| (span.end.min(top + live)).saturating_sub(span.start));
    expect_count("a live sector", before, (1, lost))?;
    subject.write(clause, bottom, &data)?;
    expect_count("a sector that was destroyed before", before, (1, lost))
}

fn strictness(tracks: &Tracks<'_>) -> Result<(), Violation> {
    let clause = Clause("refuses to destroy live data exactly when it says so");
    let Tracks { geometry, subject, control, physical_sector_bytes, .. } = tracks;
    let length = *physical_sector_bytes;
    let [bottom, top] = [2, 3].map(|track| geometry.start_bytes(TrackId(track)));
    let (above, below) = (pattern(1, length as usize), pattern(2, length as usize));
    subject.write(clause, top, &above)?;
    if control.is_strict() {
        let before = control.destroyed();
        let result = subject.device.block.write_at(bottom, &subject.buffer(&below), &context());
        clause.fail("a write under live data", MediaErrorKind::InvalidRequest, result)?;
        subject.expect(clause, bottom, &vec![0; below.len()])?;
        clause.require(tracks.destroyed_since(before) == (0, 0), || "a refused write was counted".to_owned())?;
        subject.expect(clause, top, &above)?;
        tracks.mark_free(clause, [TrackId(3)])?;
    }
    subject.write(clause, bottom, &below)?;
    subject.expect(clause, bottom, &below)?;
    subject.expect(clause, top, &above)
}
