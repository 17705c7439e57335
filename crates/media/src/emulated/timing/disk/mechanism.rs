//! Where bytes are on the platters, and how the head gets to them.

use super::seek::SeekCurve;
use crate::device::SeekTimes;

/// Order in which a cylinder's tracks are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurfaceOrder {
    /// From the first surface to the last in every cylinder.
    #[default]
    Forward,
    /// Forward in even cylinders, backward in odd ones, so that a new cylinder begins on the
    /// surface where the last one ended.
    Alternating,
}

/// Cylinders that hold the same number of bytes per track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutZone {
    /// Cylinders of the zone.
    pub cylinders: u64,
    /// Bytes of a track.
    pub track_bytes: u64,
    /// Addressable bytes; less than all tracks where the drive keeps spares.
    pub data_bytes: u64,
    /// Rotation between the end of a track and the beginning of the next of the same cylinder.
    pub track_skew_nanos: u64,
    /// Rotation between the end of a cylinder and the beginning of the next.
    pub cylinder_skew_nanos: u64,
}

/// The moving parts of a disk. Pure: what time it is and where the arm is comes in with each call.
#[derive(Clone, Debug, PartialEq)]
pub struct MechanismParameters {
    /// Time of one rotation.
    pub rotation_nanos: u64,
    /// Recording surfaces, one head each.
    pub surfaces: u64,
    /// Order of a cylinder's tracks.
    pub surface_order: SurfaceOrder,
    /// Zones from the outer edge inwards.
    pub zones: Vec<LayoutZone>,
    /// Seek time over distances of a drive with `stroke_cylinders`.
    pub seek: SeekCurve,
    /// Cylinders the seek curve spans. When the zones have fewer or more, distances are stretched so
    /// that the whole stroke still takes as long; neighbouring cylinders stay neighbours.
    pub stroke_cylinders: u64,
    /// Time to change the surface within a cylinder.
    pub head_switch_nanos: u64,
    /// Extra settling before writing after any movement.
    pub write_settle_nanos: u64,
}

impl MechanismParameters {
    /// The times that the disk states of itself.
    pub(super) fn seek_times(&self) -> SeekTimes {
        SeekTimes {
            shortest_nanos: self.seek.nanos(1),
            longest_nanos: self.seek.nanos(self.stroke_cylinders.saturating_sub(1).max(1)),
            rotation_nanos: self.rotation_nanos,
        }
    }
}

/// Where the arm is and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) cylinder: u64,
    pub(super) surface: u64,
    pub(super) nanos: u64,
}

/// Time of one piece of work, by what it was spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) seek_nanos: u64,
    pub(super) rotation_nanos: u64,
    pub(super) transfer_nanos: u64,
    /// Movements over at least one cylinder.
    pub(super) seeks: u64,
}

impl Access {
    pub(super) fn add(&mut self, other: Access) {
        self.seek_nanos += other.seek_nanos;
        self.rotation_nanos += other.rotation_nanos;
        self.transfer_nanos += other.transfer_nanos;
        self.seeks += other.seeks;
    }
}

#[derive(Debug)]
struct Zone {
    first_byte: u64,
    first_cylinder: u64,
    /// Angle, in nanoseconds of rotation, of the zone's first byte.
    first_angle: u64,
    layout: LayoutZone,
}

/// A byte's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cylinder: u64,
    pub(super) surface: u64,
    /// When it passes under the head, as nanoseconds after the index mark.
    angle: u64,
    /// Byte's position in its track.
    in_track: u64,
    /// Bytes from here to the end of the track's data.
    pub(super) rest_of_track: u64,
    pub(super) track_bytes: u64,
}

/// The moving parts, prepared for look-ups.
#[derive(Debug)]
pub(super) struct Mechanism {
    parameters: MechanismParameters,
    zones: Vec<Zone>,
    cylinders: u64,
    capacity_bytes: u64,
}

/// The angle of `count` revolutions by `nanos`, without overflow on any number of tracks.
fn turned(count: u64, nanos: u64, period: u64) -> u64 {
    (count % period) * (nanos % period) % period
}

impl Mechanism {
    pub(super) fn new(parameters: MechanismParameters) -> Self {
        let period = parameters.rotation_nanos.max(1);
        let surfaces = parameters.surfaces.max(1);
        let (mut first_byte, mut first_cylinder, mut first_angle) = (0, 0, 0);
        let mut zones = Vec::with_capacity(parameters.zones.len());
        for layout in parameters.zones.iter().filter(|zone| zone.data_bytes > 0 && zone.track_bytes > 0) {
            let tracks = layout.data_bytes.div_ceil(layout.track_bytes);
            let cylinders = layout.cylinders.max(tracks.div_ceil(surfaces)).max(1);
            zones.push(Zone { first_byte, first_cylinder, first_angle, layout: layout.clone() });
            first_byte += layout.data_bytes;
            first_cylinder += cylinders;
            let cylinder_angle = turned(surfaces - 1, layout.track_skew_nanos, period) + layout.cylinder_skew_nanos;
            first_angle = (first_angle + turned(cylinders, cylinder_angle, period)) % period;
        }
        Mechanism {
            parameters: MechanismParameters { rotation_nanos: period, surfaces, ..parameters },
            zones,
            cylinders: first_cylinder,
            capacity_bytes: first_byte,
        }
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    pub(super) fn rotation_nanos(&self) -> u64 {
        self.parameters.rotation_nanos
    }

    /// Where a byte is. Bytes beyond the end are taken to be in the last track.
    pub(super) fn place(&self, byte: u64) -> Place {
        let number = self.zones.partition_point(|zone| zone.first_byte <= byte).saturating_sub(1);
        let Some(zone) = self.zones.get(number) else {
            return Place { cylinder: 0, surface: 0, angle: 0, in_track: 0, rest_of_track: u64::MAX, track_bytes: 1 };
        };
        let layout = &zone.layout;
        let surfaces = self.parameters.surfaces;
        let in_zone = (byte - zone.first_byte).min(layout.data_bytes - 1);
        let track = in_zone / layout.track_bytes;
        let in_track = in_zone % layout.track_bytes;
        let (cylinder, mut surface) = (track / surfaces, track % surfaces);
        if self.parameters.surface_order == SurfaceOrder::Alternating
            && !(zone.first_cylinder + cylinder).is_multiple_of(2)
        {
            surface = surfaces - 1 - surface;
        }
        let period = self.parameters.rotation_nanos;
        let skew = turned(track - cylinder, layout.track_skew_nanos, period)
            + turned(cylinder, layout.cylinder_skew_nanos, period);
        let angle = zone.first_angle + skew + in_track * period / layout.track_bytes;
        Place {
            cylinder: zone.first_cylinder + cylinder,
            surface,
            angle: angle % period,
            in_track,
            rest_of_track: (layout.track_bytes - in_track).min(layout.data_bytes - in_zone),
            track_bytes: layout.track_bytes,
        }
    }

    fn seek_nanos(&self, from: u64, to: u64) -> u64 {
        let distance = from.abs_diff(to);
        if distance <= 1 || self.cylinders == 0 {
            return self.parameters.seek.nanos(distance);
        }
        let stretched =
            u128::from(distance) * u128::from(self.parameters.stroke_cylinders) / u128::from(self.cylinders);
        self.parameters.seek.nanos((stretched as u64).max(1))
    }

    /// Time to get from where the head is to reading or writing at `place`: moving, then waiting.
    pub(super) fn positioning(&self, head: &Head, place: &Place, write: bool) -> Access {
        let mut seek_nanos = self.seek_nanos(head.cylinder, place.cylinder);
        if head.surface != place.surface {
            seek_nanos = seek_nanos.max(self.parameters.head_switch_nanos);
        }
        if write && seek_nanos > 0 {
            seek_nanos += self.parameters.write_settle_nanos;
        }
        let period = self.parameters.rotation_nanos;
        let now_angle = (head.nanos + seek_nanos) % period;
        let rotation_nanos = (place.angle + period - now_angle) % period;
        let seeks = u64::from(head.cylinder != place.cylinder);
        Access { seek_nanos, rotation_nanos, transfer_nanos: 0, seeks }
    }

    /// Positions to `byte` and moves over bytes up to `until` or the end of the track, whichever is
    /// first; returns the time and the byte behind.
    pub(super) fn step(&self, head: &mut Head, byte: u64, until: u64, write: bool) -> (Access, u64) {
        let place = self.place(byte);
        let mut access = self.positioning(head, &place, write);
        let length = place.rest_of_track.min(until - byte);
        access.transfer_nanos = self.sweep_nanos(&place, length);
        head.cylinder = place.cylinder;
        head.surface = place.surface;
        head.nanos += access.seek_nanos + access.rotation_nanos + access.transfer_nanos;
        (access, byte + length)
    }

    /// Time the platter takes to turn over `length` bytes from `place` on. Differences of the same
    /// rounded angles [`Mechanism::place`] gives, so a continued transfer never waits a revolution.
    fn sweep_nanos(&self, place: &Place, length: u64) -> u64 {
        let period = self.parameters.rotation_nanos;
        (place.in_track + length) * period / place.track_bytes - place.in_track * period / place.track_bytes
    }

    /// Does all of `byte..until`, track by track.
    pub(super) fn access(&self, head: &mut Head, byte: u64, until: u64, write: bool) -> Access {
        let mut total = Access::default();
        let mut at = byte;
        while at < until {
            let (access, next) = self.step(head, at, until, write);
            total.add(access);
            at = next;
        }
        total
    }

    /// Reads on from `byte` until `until` or until time `nanos`, whichever is first; returns the
    /// byte behind. Only whole multiples of `unit_bytes` of a track count as read.
    pub(super) fn read_until(&self, head: &mut Head, byte: u64, until: u64, nanos: u64, unit_bytes: u64) -> u64 {
        let mut at = byte;
        while at < until {
            let mut after = *head;
            let (access, next) = self.step(&mut after, at, until, false);
            if after.nanos <= nanos {
                *head = after;
                at = next;
                continue;
            }
            let begins = head.nanos + access.seek_nanos + access.rotation_nanos;
            if begins < nanos && access.transfer_nanos > 0 {
                let swept = u128::from(nanos - begins) * u128::from(next - at) / u128::from(access.transfer_nanos);
                let whole = swept as u64 / unit_bytes.max(1) * unit_bytes.max(1);
                if whole > 0 {
                    self.step(head, at, at + whole, false);
                    at += whole;
                }
            }
            break;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two zones of 2 surfaces: tracks of 1,000 and 500 bytes, a rotation of 1,000 ns, skews that
    /// cover the switches exactly.
    fn small() -> Mechanism {
        let zone = |track_bytes| LayoutZone {
            cylinders: 10,
            track_bytes,
            data_bytes: 20 * track_bytes,
            track_skew_nanos: 100,
            cylinder_skew_nanos: 200,
        };
        Mechanism::new(MechanismParameters {
            rotation_nanos: 1_000,
            surfaces: 2,
            surface_order: SurfaceOrder::Forward,
            zones: vec![zone(1_000), zone(500)],
            seek: SeekCurve::Table(vec![(1, 200), (20, 2_100)]),
            stroke_cylinders: 20,
            head_switch_nanos: 100,
            write_settle_nanos: 50,
        })
    }

    #[test]
    fn rotational_position_follows_from_the_clock() {
        let mechanism = small();
        let place = mechanism.place(250);
        for (now, wait) in [(0, 250), (250, 0), (251, 999), (7_000, 250), (7_600, 650)] {
            let head = Head { cylinder: 0, surface: 0, nanos: now };
            let access = mechanism.positioning(&head, &place, false);
            assert_eq!((access.seek_nanos, access.rotation_nanos), (0, wait), "at {now}");
        }
    }

    #[test]
    fn sequential_transfer_pays_switches_and_nothing_else() {
        let mechanism = small();
        let mut head = Head { cylinder: 0, surface: 0, nanos: 0 };
        let access = mechanism.access(&mut head, 0, 30_000, false);
        // 40 tracks; 20 switches of surface, 19 of cylinder.
        assert_eq!(
            access,
            Access { seek_nanos: 20 * 100 + 19 * 200, rotation_nanos: 0, transfer_nanos: 40_000, seeks: 19 }
        );
        assert_eq!(head.nanos, 45_800);
        // In two requests, back to back, it takes exactly as long.
        let mut halves = Head { cylinder: 0, surface: 0, nanos: 0 };
        mechanism.access(&mut halves, 0, 12_345, false);
        mechanism.access(&mut halves, 12_345, 30_000, false);
        assert_eq!(halves, head);
    }

    #[test]
    fn writing_settles_and_then_misses_a_turn_that_the_skew_does_not_cover() {
        let mechanism = small();
        let mut head = Head { cylinder: 0, surface: 0, nanos: 0 };
        let access = mechanism.access(&mut head, 0, 2_000, true);
        assert_eq!((access.seek_nanos, access.rotation_nanos), (150, 950));
    }

    #[test]
    fn reading_until_a_time_equals_reading_until_the_byte() {
        let mechanism = small();
        for nanos in (0..46_000).step_by(173) {
            let mut head = Head { cylinder: 0, surface: 0, nanos: 0 };
            let byte = mechanism.read_until(&mut head, 0, 30_000, nanos, 10);
            assert!(head.nanos <= nanos);
            let mut other = Head { cylinder: 0, surface: 0, nanos: 0 };
            mechanism.access(&mut other, 0, byte, false);
            assert_eq!(head, other);
        }
    }

    #[test]
    fn alternating_order_stays_on_the_surface() {
        let mut parameters = small().parameters;
        parameters.surface_order = SurfaceOrder::Alternating;
        let mechanism = Mechanism::new(parameters);
        let surfaces: Vec<u64> = (0..6).map(|track| mechanism.place(track * 1_000).surface).collect();
        assert_eq!(surfaces, [0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn fewer_cylinders_keep_the_full_stroke() {
        let mut parameters = small().parameters;
        for zone in &mut parameters.zones {
            zone.cylinders = 5;
            zone.data_bytes /= 2;
        }
        let half = Mechanism::new(parameters);
        assert_eq!(half.seek_nanos(0, 10), small().seek_nanos(0, 20));
        assert_eq!(half.seek_nanos(3, 4), small().seek_nanos(3, 4));
    }
}
