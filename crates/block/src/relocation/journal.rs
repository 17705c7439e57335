//! The journal: which zone each logical zone is in, durably.
//!
//! It is the shared [journal](crate::journal) on the last two zones of the device.

use super::map::{JOURNAL_ZONES, ZoneMap};
use super::mark::{FIRST_ZONE, mark_bytes};
use super::record::{self, Flaw, Move};
use crate::journal::{self, AreaZones, Areas, BeginError, Journal, JournalError, Owner};
use std::sync::Arc;
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Device, IoClass, IoContext, MediaError, Operation, RELOCATION_LAYER,
    RELOCATION_UNIT_BYTES, SyncOrder, ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, is_zero,
};

/// Records are aligned to it.
pub(super) const UNIT_BYTES: u64 = RELOCATION_UNIT_BYTES;
/// Changes that a zone of the journal must have room for, and those for which one is used at most: what is read when
/// it is opened is bounded by it.
const CHANGES_MIN: u64 = 2;
const CHANGES_MAX: u64 = 1024;
/// Bytes of a conventional zone that are looked at to see whether the device is blank.
const LOOKED_AT_BYTES: u64 = 64 << 10;

pub(super) const OWNER: Owner = Owner { layer: *RELOCATION_LAYER, identity: [0; 16] };

/// What to do with a device that has no journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Formatting {
    /// Makes one where the device is blank: its zones empty, conventional ones beginning with zeros.
    #[default]
    IfBlank,
    /// Makes one, whatever is there: what the last zones hold is lost, and the others are what they are, each in its place.
    Anew,
    /// Makes none, and writes nothing when it is opened: for devices that are only read.
    Never,
}

/// Why a relocation was not committed.
pub(super) enum CommitError {
    /// The map before it is what will be found.
    NotDone,
    /// Either may be found: nothing may be acknowledged any more.
    Unknown(MediaError),
}

impl From<BeginError> for CommitError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::NotDone(_) => CommitError::NotDone,
            BeginError::Unknown(error) => CommitError::Unknown(error),
        }
    }
}

/// The journal of an open device. Used by one thread.
pub(super) struct MapJournal {
    journal: Journal,
    geometry: ZoneGeometry,
    /// Something was written to it.
    has_changed: bool,
}

fn context() -> IoContext {
    IoContext::of(IoClass::Metadata)
}

/// Minimum size of a journal zone, in bytes, by the number of logical zones.
pub(super) fn zone_bytes_min(logical_zones: u32) -> u64 {
    area_bytes(logical_zones, CHANGES_MIN)
}

fn area_bytes(logical_zones: u32, changes: u64) -> u64 {
    journal::area_bytes(record::checkpoint_bytes(logical_zones), changes, record::CHANGE_BYTES, UNIT_BYTES)
}

/// Bytes at the start of a zone that may have been written.
fn written_bytes(found: &ZoneDescription) -> u64 {
    super::core::written_bytes(found)
}

struct Opening<'a> {
    device: &'a Device,
    order: &'a Arc<SyncOrder>,
    zones: &'a Arc<dyn ZoneControl>,
    geometry: &'a ZoneGeometry,
    reported: &'a [ZoneDescription],
}

impl Opening<'_> {
    fn name(&self) -> String {
        self.device.block.name().to_owned()
    }

    fn areas(&self) -> Areas {
        let first = ZoneId(self.geometry.zone_count - JOURNAL_ZONES);
        let zones = [first, ZoneId(first.0 + 1)];
        let capacity = self.geometry.zone_capacity_bytes / UNIT_BYTES * UNIT_BYTES;
        let reported = zones.map(|zone| self.reported.get(zone.0 as usize));
        let pointers = reported.map(|found| {
            let found = found.filter(|found| !found.non_sequential)?;
            Some(match found.condition {
                ZoneCondition::Full => found.capacity_bytes,
                _ => found.write_pointer_bytes.saturating_sub(found.start_bytes),
            })
        });
        Areas {
            device: self.device.clone(),
            order: Arc::clone(self.order),
            unit_bytes: UNIT_BYTES,
            offsets: zones.map(|zone| self.geometry.start_bytes(zone)),
            area_bytes: capacity.min(area_bytes(self.geometry.zone_count, CHANGES_MAX)),
            zones: Some(AreaZones {
                control: Arc::clone(self.zones),
                zones,
                written_bytes: reported.map(|found| found.map_or(capacity, written_bytes)),
                pointers,
            }),
        }
    }

    fn other_version(&self, readable: u32, found: u32) -> MediaError {
        let what = "the journal of relocated zones".to_owned();
        MediaError::OtherVersion { device: self.name(), what, readable, found }
    }

    /// The journal that is there, with its map; `None` without one.
    fn find(&self) -> Result<Option<(Journal, ZoneMap)>, JournalError> {
        let mut map: Option<ZoneMap> = None;
        let mut other_version = None;
        let found = Journal::open(self.areas(), OWNER, &context(), &mut |replayed| {
            let result = match (&mut map, replayed.is_checkpoint) {
                (Some(map), false) => Move::apply(replayed.payload, map),
                _ => record::decode_checkpoint(self.geometry, replayed.payload).map(|found| map = Some(found)),
            };
            result.map_err(|flaw| {
                let (what, expected, found) = match flaw {
                    Flaw::Damaged { what, expected, found } => (what, expected, found),
                    Flaw::OtherVersion(found) => {
                        other_version = Some(found);
                        ("version", record::VERSION.to_string(), found.to_string())
                    }
                };
                journal::Flaw { what, offset_bytes: replayed.offset_bytes, expected, found }
            })
        });
        if let Some(found) = other_version {
            return Err(JournalError::OtherVersion { readable: record::VERSION, found });
        }
        Ok(found?.zip(map))
    }

    fn error(&self, error: JournalError) -> MediaError {
        match error {
            JournalError::Media(error) => error,
            JournalError::OtherVersion { readable, found } => self.other_version(readable, found),
            JournalError::Damaged(journal::Flaw { what, offset_bytes, expected, found }) => MediaError::Damaged {
                device: self.name(),
                offset_bytes,
                what: format!("{what} in the journal of relocated zones"),
                expected,
                found,
            },
        }
    }

    fn read(&self, offset_bytes: u64, length_bytes: u64) -> Result<AlignedBuffer, MediaError> {
        let alignment = self.device.block.capabilities().buffer_alignment_bytes.max(1) as usize;
        let mut buffer = AlignedBuffer::new(length_bytes as usize, alignment);
        self.device.block.read_at(offset_bytes, &mut buffer, &context())?;
        Ok(buffer)
    }

    /// Refuses a journal of version 1.
    fn refuse_version_1(&self) -> Result<(), MediaError> {
        let areas = self.areas();
        let written = areas.zones.as_ref().map_or([0; 2], |zones| zones.written_bytes);
        for (at, _) in areas.offsets.into_iter().zip(written).filter(|(_, written)| *written >= UNIT_BYTES) {
            if record::is_of_version_1(&self.read(at, UNIT_BYTES)?) {
                return Err(self.other_version(record::VERSION, 1));
            }
        }
        Ok(())
    }

    /// True if creating a journal loses no data: all zones but those of the journal are empty.
    fn is_blank(&self) -> Result<bool, MediaError> {
        let journal = self.geometry.zone_count - JOURNAL_ZONES;
        for (zone, found) in (0..self.geometry.zone_count).zip(self.reported) {
            let is_blank = match found.condition {
                ZoneCondition::Empty => true,
                ZoneCondition::NotWritePointer => {
                    is_zero(&self.read(found.start_bytes, self.geometry.zone_bytes.min(LOOKED_AT_BYTES))?)
                }
                // The mark, or what is left of it.
                _ if zone == FIRST_ZONE.0 && written_bytes(found) <= mark_bytes() => {
                    let slot = self.read(found.start_bytes, UNIT_BYTES)?;
                    is_zero(&slot) || journal::begins_record(&slot)
                }
                _ if zone >= journal => {
                    let slot = self.read(found.start_bytes, UNIT_BYTES)?;
                    is_zero(&slot) || journal::begins_record(&slot)
                }
                _ => false,
            };
            if !is_blank {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a journal. Zones of a device with data are all in their places.
    fn format(&self, spares: u32, is_blank: bool) -> Result<(Journal, ZoneMap), MediaError> {
        let map = match is_blank {
            true => ZoneMap::of_blank(self.geometry, spares),
            false => ZoneMap::new(self.geometry, spares),
        };
        let Some(map) = map else {
            return Err(MediaError::Unsuitable {
                device: self.name(),
                operation: Operation::Open,
                found: format!("a disk of {} zones that can be moved", self.geometry.sequential_zones()),
                expected: format!("one of {spares} spares, {JOURNAL_ZONES} for the journal, and more"),
            });
        };
        let mut areas = self.areas();
        if let Some(zones) = &mut areas.zones {
            for (zone, written) in zones.zones.into_iter().zip(&mut zones.written_bytes) {
                if *written > 0 {
                    zones.control.reset(zone, &context())?;
                    *written = 0;
                }
            }
        }
        let mut journal = Journal::blank(areas, OWNER);
        let checkpoint = record::encode_checkpoint(self.geometry, &map);
        journal.begin(&checkpoint, &context()).map_err(BeginError::into_inner)?;
        Ok((journal, map))
    }
}

impl MapJournal {
    /// Opens the journal of a device, or makes one with so many spares. `reported` is of all its zones.
    ///
    /// # Errors
    /// [`MediaError::Damaged`], [`MediaError::OtherVersion`], [`MediaError::Unsuitable`] where there is none and the device is not blank; what
    /// the device says.
    pub(super) fn open(
        (device, order): (&Device, &Arc<SyncOrder>),
        zones: &Arc<dyn ZoneControl>,
        geometry: &ZoneGeometry,
        reported: &[ZoneDescription],
        spares: u32,
        formatting: Formatting,
    ) -> Result<(MapJournal, ZoneMap), MediaError> {
        let opening = Opening { device, order, zones, geometry, reported };
        let of = |(journal, map)| (MapJournal { journal, geometry: geometry.clone(), has_changed: false }, map);
        if formatting == Formatting::Anew {
            // What cannot be read is not blank.
            return opening.format(spares, opening.is_blank().unwrap_or(false)).map(of);
        }
        let found = opening.find();
        if matches!(found, Ok(None)) {
            opening.refuse_version_1()?;
        }
        let can_be_made = |opening: &Opening<'_>| Ok(formatting != Formatting::Never && opening.is_blank()?);
        let (mut journal, map) = match found {
            Ok(Some(found)) => found,
            Ok(None) if can_be_made(&opening)? => return opening.format(spares, true).map(of),
            // Its making was cut short, and there are no data to find.
            Err(JournalError::Damaged(_)) if can_be_made(&opening)? => return opening.format(spares, true).map(of),
            Err(error) => return Err(opening.error(error)),
            Ok(None) => {
                return Err(MediaError::Unsuitable {
                    device: opening.name(),
                    operation: Operation::Open,
                    found: "a disk with data on it and no journal of relocated zones".to_owned(),
                    expected: "one that is empty, or was made for it, or is to be formatted anew".to_owned(),
                });
            }
        };
        // A process that ended leaves what the device has not made durable yet.
        if formatting != Formatting::Never {
            order.sync(&context())?;
            journal.seal(&context())?;
        }
        Ok(of((journal, map)))
    }

    /// Whether a record can be written.
    pub(super) fn is_prepared(&self) -> bool {
        self.journal.is_prepared(record::CHANGE_BYTES)
    }

    /// Makes ready for a record, with the present map: begins a generation where this one has no more room or is in doubt, and empties
    /// the zone that is not in use. So what does not work is known before anything is copied.
    pub(super) fn prepare(&mut self, map: &ZoneMap) -> Result<(), CommitError> {
        self.has_changed = true;
        if !self.journal.has_room(record::CHANGE_BYTES) {
            self.journal.begin(&record::encode_checkpoint(&self.geometry, map), &context())?;
        }
        self.journal.empty_other(&context()).map_err(|_| CommitError::NotDone)
    }

    /// Makes a relocation durable. `before` is the map before it. The journal must be [prepared](MapJournal::prepare), and all that was written to
    /// its new zone durable.
    pub(super) fn commit(&mut self, before: &ZoneMap, moved: Move) -> Result<(), CommitError> {
        if !self.is_prepared() {
            return Err(CommitError::NotDone);
        }
        self.has_changed = true;
        let Err(error) = self.journal.append(&moved.encode(), &context()) else { return Ok(()) };
        // It may have arrived: a checkpoint of what was before says that it does not count.
        match self.journal.begin(&record::encode_checkpoint(&self.geometry, before), &context()) {
            Ok(()) => Err(CommitError::NotDone),
            Err(_) => Err(CommitError::Unknown(error)),
        }
    }

    /// Writes a seal behind what was recorded since the opening, so that damage to both copies of the last record is noticed.
    pub(super) fn seal(&mut self) {
        if self.has_changed {
            let _ = self.journal.seal(&context());
        }
    }
}
