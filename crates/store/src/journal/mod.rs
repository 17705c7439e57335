//! A durable log of changes with checkpoints, on a region of a block device.
//!
//! What a store knows about its files is a *state*; a *change* turns one state into the next. Both are
//! bytes to this module. It keeps:
//!
//! - two *superblocks* ([`superblock`]), which say where everything is and which checkpoint is valid;
//! - two *checkpoint* areas ([`checkpoint`]), one holding the state as of the start of the log, the
//!   other free for the next;
//! - a *log* ([`log`]) of commits, each a group of changes that happens whole or not at all.
//!
//! A store that writes zones in order only, on a device without conventional zones, has all of this in [zones], generation by
//! generation: which one counts is decided in [generations], and how it is written in [copies].
//!
//! A *generation* begins when the store is opened and at every checkpoint. The log of a generation
//! starts at the beginning of the log's region, so it overwrites that of the generation before, and
//! every unit of it carries the generation: stale bytes are never replayed. Both superblocks are
//! durable before the first commit of a generation is written; until then the old generation, its
//! checkpoint and its log are untouched. So a crash finds either generation whole, and a single
//! damaged superblock costs nothing: the other one has the same generation.
//!
//! *The medium's assumption*: a physical sector is written whole or not at all, and a write does not
//! disturb its neighbours. Superblocks fit one sector of 512 bytes; the units of the log are physical
//! sectors. Superblocks and log are there twice, so one damaged sector of them costs nothing; a damaged
//! checkpoint is an error.
//!
//! *What cannot be read* is never taken for absent. Where the log ends is said by units that can be read (see
//! [`log`]). Of the superblocks one that can be read is enough, even when it is the older one: a generation that only
//! the other has was not begun when its writer was interrupted, so it has no commit, and its state is that of the
//! generation before with the log of that one. When neither can be read that is an error, and so is a checkpoint that
//! cannot be read. Whoever opens a journal reads all there is, and begins the next generation last.

mod checkpoint;
mod copies;
mod generations;
mod log;
mod place;
mod superblock;
mod zones;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod worn_tests;
#[cfg(test)]
mod zone_tests;

use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::identity::block::{IdentityBlock, Presence};
use crate::identity::{self, Identity, OpenedAs};
use copies::{Copies, Written};
use generations::Begun;
use log::{CommitShape, LogReader, LogTail};
use place::Place;
use std::sync::Arc;
use superblock::{CheckpointReference, Superblock};
use varve_media::{AlignedBuffer, Device, IoClass, IoContext, MediaError, SyncOrder};

pub(crate) use superblock::{Slot, StoreKind, read_slots, seal, write_identity};
pub(crate) use zones::{active_metadata_zones, group_zones, groups, lies_in_zones};

/// Runs every decoder of this module on bytes that may be anything.
pub(crate) fn decode_anything(bytes: &[u8]) {
    decode_superblock(bytes);
    let _ = log::classify(bytes, 1, 1);
    let _ = checkpoint::decode_header("fuzz", 0, 1, 1, bytes);
}

/// Decodes bytes as a superblock or an identity block, as they are and with a checksum that is right. What is taken says
/// the same when it is written again.
pub(crate) fn decode_superblock(bytes: &[u8]) {
    let _ = superblock::decode("fuzz", 0, bytes);
    let mut sealed = [0; superblock::SUPERBLOCK_BYTES];
    let length = bytes.len().min(sealed.len());
    sealed[..length].copy_from_slice(&bytes[..length]);
    seal(&mut sealed);
    match superblock::decode("fuzz", 0, &sealed) {
        Slot::Valid(found) => assert_eq!(superblock::encode(&found), sealed, "a superblock that reads otherwise"),
        Slot::Identity(found) => assert_eq!(found.encode(), sealed, "an identity block that reads otherwise"),
        Slot::Blank | Slot::Foreign(_) | Slot::OtherVersion(_) | Slot::Damaged(_) => {}
    }
}

/// Where the two superblocks are, in bytes from the start of the device.
pub(crate) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 64 << 10];
/// What the superblocks and the space between them take.
pub(crate) const SUPERBLOCK_RESERVED_BYTES: u64 = 128 << 10;
/// Least log of changes and least checkpoint area.
pub(crate) const REGION_BYTES_MIN: u64 = 64 << 10;
/// Largest request this module makes.
const TRANSFER_BYTES: usize = 1 << 20;

/// A range of the device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

impl Region {
    pub(crate) fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }
}

/// Where a journal lives, fixed when it is formatted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalRegions {
    pub(crate) log: Region,
    pub(crate) checkpoints: [Region; 2],
    /// Bytes of a unit of the log: the device's physical sector.
    pub(crate) unit_bytes: u32,
    /// Zones of each of the [groups](zones) at the start of the device in which it lies, generation by generation, and
    /// within which the regions are; 0 where it lies at fixed places.
    pub(crate) group_zones: u32,
    /// Number of those groups; 0 where it lies at fixed places.
    pub(crate) groups: u8,
}

/// Groups of zones of a journal of which a generation lies in one.
pub(crate) const SINGLE_GROUPS: u8 = 2;
/// Groups of zones of a journal of which a generation lies in two.
pub(crate) const MIRRORED_GROUPS: u8 = 3;

impl JournalRegions {
    /// Groups of zones in which a generation lies.
    fn copies(&self) -> usize {
        if self.groups == MIRRORED_GROUPS { 2 } else { 1 }
    }

    /// Zones at the start of the device in which it lies.
    pub(crate) fn metadata_zones(&self) -> u64 {
        u64::from(self.group_zones) * u64::from(self.groups)
    }
}

/// Outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    Durable,
    /// One copy of the journal cannot be written any more. Nothing may be acknowledged before a generation has begun with a state
    /// that has the commit.
    NeedsGeneration,
}

/// How a commit reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitStyle {
    /// One durable write. What the commit refers to was made durable before.
    Single,
    /// As a journaling file system does it: everything but the marks, a sync of the device, and the
    /// marks as a durable write. The sync also makes durable what was written before. The commit is
    /// padded to this many units.
    Ordered { units_min: u64 },
}

/// What was found on the medium.
pub(crate) struct Recovered {
    /// What the store kept in the superblock when it was formatted.
    pub(crate) parameters: Vec<u8>,
    /// The state at the start of the log.
    pub(crate) checkpoint: Vec<u8>,
    /// Every commit since, in order.
    pub(crate) commits: Vec<Vec<u8>>,
    /// Damage that did not matter.
    pub(crate) findings: Vec<Finding>,
}

/// An open journal. One user at a time; a failed write or sync poisons it.
pub(crate) struct Journal {
    place: Place,
    /// In zones, where the generations lie.
    in_zones: Option<InZones>,
    opened_as: OpenedAs,
    order: Arc<SyncOrder>,
    superblock: Superblock,
    /// Superblocks in the order in which the next generation writes them.
    slots: [usize; 2],
    /// Both are of the present generation.
    slots_agree: bool,
    /// Unit of the log the next commit starts at.
    position_units: u64,
    /// Number of the next commit in this generation.
    sequence: u64,
    /// A generation was begun: commits may be written.
    writable: bool,
    poisoned: Option<String>,
}

/// A journal in zones.
struct InZones {
    copies: Copies,
    /// Commits that were found in each group that holds the present generation.
    found: Vec<(usize, u64)>,
    /// The state that was recovered, until there is another.
    state: Vec<u8>,
}

pub(crate) const METADATA: IoContext = IoContext::of(IoClass::Metadata);

/// A journal that is being made: both places say so, and whatever was there is gone.
pub(crate) struct Formatting {
    device: Device,
    label: String,
    pub(crate) block: IdentityBlock,
    is_in_order: bool,
}

impl Formatting {
    /// Says durably that a store is being made here, before anything else is written. Its journal will lie at fixed offsets.
    pub(crate) fn begin(
        device: &Device,
        label: &str,
        kind: StoreKind,
        store_id: u64,
        identity: Identity,
    ) -> Result<Formatting, StoreError> {
        Formatting::begin_as((device, label), kind, store_id, identity, false)
    }

    /// The same of a store that writes zones in order only, its journal included.
    pub(crate) fn begin_in_order(
        device: &Device,
        label: &str,
        kind: StoreKind,
        store_id: u64,
        identity: Identity,
    ) -> Result<Formatting, StoreError> {
        Formatting::begin_as((device, label), kind, store_id, identity, true)
    }

    fn begin_as(
        (device, label): (&Device, &str),
        kind: StoreKind,
        store_id: u64,
        identity: Identity,
        is_in_order: bool,
    ) -> Result<Formatting, StoreError> {
        // An older store's generations must stay older: its units would look like those of a sibling.
        let generation = read_slots(device, label)
            .iter()
            .filter_map(|slot| match slot {
                Slot::Valid(superblock) => Some(superblock.generation.saturating_add(1)),
                Slot::Identity(block) => Some(block.generation),
                _ => None,
            })
            .filter(|generation| *generation < superblock::GENERATION_END)
            .max()
            .unwrap_or(1)
            .max(1);
        let block = IdentityBlock { kind, store_id, generation, is_unfinished: true, identity };
        let formatting = Formatting { device: device.clone(), label: label.to_owned(), block, is_in_order };
        formatting.mark()?;
        Ok(formatting)
    }

    /// Says it again, where writing elsewhere may have destroyed it.
    pub(crate) fn mark(&self) -> Result<(), StoreError> {
        if self.is_in_order
            && let Some(marked) = copies::mark(&self.device, &self.label, &self.block)
        {
            return marked;
        }
        for offset_bytes in SUPERBLOCK_OFFSETS {
            write_identity(&self.device, &self.label, offset_bytes, &self.block)?;
        }
        sync(&self.device, &self.label)?;
        copies::give_up_zones(&self.device, &self.label)
    }

    /// Writes the journal, whose state is `state`. From then on the store is there.
    pub(crate) fn finish(self, regions: &JournalRegions, parameters: &[u8], state: &[u8]) -> Result<(), StoreError> {
        let Formatting { device, label, block, .. } = self;
        let IdentityBlock { kind, store_id, generation, identity, .. } = block;
        let mut superblock = Superblock {
            kind,
            store_id,
            generation,
            identity,
            capacity_bytes: device.block.geometry().capacity_bytes,
            regions: *regions,
            given_up: 0,
            active_checkpoint: 0,
            checkpoint: CheckpointReference { generation, length_bytes: 0, checksum: 0 },
            parameters: parameters.to_vec(),
        };
        if regions.group_zones > 0 {
            return copies::write_first(&device, &label, superblock, state);
        }
        let place = Place::whole(&device, &label);
        zero(&device, &label, regions.log)?;
        superblock.checkpoint = checkpoint::write(&place, regions.checkpoints[0], store_id, generation, state)?;
        for slot in 0..2 {
            superblock::write(&place, slot, &superblock)?;
            place.sync()?;
        }
        Ok(())
    }
}

/// What is on a device, or on the part of it that is a journal's, for a store that would be opened or made there. Says
/// [`Presence::Blank`] of zeros in both places, whatever is elsewhere.
pub(crate) fn presence(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<Presence, StoreError> {
    if let Some(presence) = generations::presence(device, label, opened_as) {
        return presence;
    }
    superblock::presence(device, label, opened_as, read_slots(device, label))
}

/// The same of a whole device, which is blank only when it is blank everywhere.
pub(crate) fn presence_on_device(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<Presence, StoreError> {
    presence_without_layers(device, label, opened_as)
        .map_err(|error| identity::name_layer(device, label, opened_as, error))
}

fn presence_without_layers(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<Presence, StoreError> {
    let presence = match presence(device, label, opened_as) {
        // What holds something known says more by that than by what lies where superblocks would.
        Err(StoreError::Foreign { structure, .. }) if structure == "superblock" => {
            identity::refuse_used_by_others(device, label, opened_as)?;
            presence(device, label, opened_as)?
        }
        presence => presence?,
    };
    match presence {
        Presence::Blank => identity::refuse_used(device, label, opened_as)?,
        Presence::Unfinished => identity::refuse_used_by_others(device, label, opened_as)?,
        Presence::Store => {}
    }
    Ok(presence)
}

/// The store that was being made here.
pub(crate) fn unfinished_store_id(device: &Device, label: &str) -> Option<u64> {
    read_slots(device, label).iter().find_map(|slot| match slot {
        Slot::Identity(block) if block.is_unfinished => Some(block.store_id),
        _ => None,
    })
}

impl Journal {
    /// Reads everything; writes nothing.
    pub(crate) fn recover(
        device: &Device,
        label: &str,
        opened_as: &OpenedAs,
    ) -> Result<(Journal, Recovered), StoreError> {
        if let Some(begun) = generations::recover(device, label, opened_as) {
            return Ok(Journal::of_zones(device, opened_as, begun?));
        }
        let place = Place::whole(device, label);
        // Where a journal in zones is found, it is the one to refuse.
        let slots = read_slots(device, label);
        let slots_agree = superblock::agree(&slots);
        let (superblock, chosen, findings) = superblock::choose(&place, opened_as, slots)?;
        let region = superblock.regions.checkpoints[superblock.active_checkpoint];
        let checkpoint = checkpoint::read(&place, region, &superblock)?;
        let LogTail { commits, position_units } = LogReader::new(&place, &superblock).read()?;
        let recovered = Recovered { parameters: superblock.parameters.clone(), checkpoint, commits, findings };
        let journal = Journal {
            place,
            in_zones: None,
            opened_as: opened_as.clone(),
            order: SyncOrder::alone(device.block.clone()),
            slots: [1 - chosen, chosen],
            slots_agree,
            position_units,
            sequence: recovered.commits.len() as u64,
            superblock,
            writable: false,
            poisoned: None,
        };
        Ok((journal, recovered))
    }

    /// The same of a journal in zones.
    fn of_zones(device: &Device, opened_as: &OpenedAs, begun: Begun) -> (Journal, Recovered) {
        let Begun { groups, holders, given_up, place, superblock, findings, checkpoint, tail } = begun;
        let LogTail { commits, position_units } = tail;
        let current = holders.iter().map(|(group, _)| *group).collect();
        let copies = Copies::new(groups, superblock.regions.copies(), current, given_up);
        let recovered = Recovered { parameters: superblock.parameters.clone(), checkpoint, commits, findings };
        let journal = Journal {
            place,
            in_zones: Some(InZones { copies, found: holders, state: recovered.checkpoint.clone() }),
            opened_as: opened_as.clone(),
            order: SyncOrder::alone(device.block.clone()),
            slots: [0, 1],
            slots_agree: true,
            position_units,
            // One more begins the log.
            sequence: recovered.commits.len() as u64 + 1,
            superblock,
            writable: false,
            poisoned: None,
        };
        (journal, recovered)
    }

    /// Its syncs are among these from now on: of the device it lies on.
    pub(crate) fn set_sync_order(&mut self, order: &Arc<SyncOrder>) {
        self.order = order.clone();
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.order.sync(&METADATA).map_err(|error| media_error(&self.place.label, "sync", error))
    }

    /// The number of the present generation.
    pub(crate) fn generation(&self) -> u64 {
        self.superblock.generation
    }

    /// Number no other format of this kind of store has.
    pub(crate) fn store_id(&self) -> u64 {
        self.superblock.store_id
    }

    /// What its device says of itself.
    pub(crate) fn identity(&self) -> &Identity {
        &self.superblock.identity
    }

    /// Where it lies.
    pub(crate) fn regions(&self) -> &JournalRegions {
        &self.superblock.regions
    }

    /// Bytes of the device when it was formatted.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        match self.superblock.regions.group_zones {
            0 => self.superblock.capacity_bytes,
            _ => self.superblock.identity.shape.capacity_bytes,
        }
    }

    /// Bytes a state may have.
    pub(crate) fn state_bytes_max(&self) -> u64 {
        let regions = &self.superblock.regions;
        let area = match regions.group_zones {
            0 => regions.checkpoints.iter().map(|region| region.length_bytes).min().unwrap_or(0),
            _ => zones::checkpoint_bytes_max(self.place.capacity_bytes()),
        };
        area.saturating_sub(checkpoint::HEADER_BYTES as u64)
    }

    /// Whether a commit of this size still goes into the log of this generation.
    pub(crate) fn fits(&self, payload_bytes: usize, style: CommitStyle) -> bool {
        let units = self.shape_of(payload_bytes, style).units;
        let log_units = self.superblock.regions.log.length_bytes / u64::from(self.superblock.regions.unit_bytes);
        units <= log::COMMIT_UNITS_MAX && self.position_units + units <= log_units
    }

    fn shape_of(&self, payload_bytes: usize, style: CommitStyle) -> CommitShape {
        let unit_bytes = self.superblock.regions.unit_bytes;
        match style {
            CommitStyle::Single => log::shape(payload_bytes, unit_bytes, false, 0),
            CommitStyle::Ordered { units_min } => log::shape(payload_bytes, unit_bytes, true, units_min),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            Some(cause) => Err(StoreError::Poisoned { store: self.place.label.clone(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Runs a step that writes; its failure is the last thing this journal does.
    fn poisoning<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.check()?;
        step(self).inspect_err(|error| self.poisoned = Some(error.to_string()))
    }

    /// Writes a group of changes durably. It must [fit](Journal::fits).
    pub(crate) fn commit(&mut self, payload: &[u8], style: CommitStyle) -> Result<Committed, StoreError> {
        assert!(self.writable && self.fits(payload.len(), style), "a commit goes into a begun generation with space");
        self.poisoning(|journal| {
            let shape = journal.shape_of(payload.len(), style);
            let unit_bytes = journal.superblock.regions.unit_bytes as usize;
            let place = journal.place.clone();
            let mut bytes = place.buffer(shape.units as usize * unit_bytes);
            let superblock = &journal.superblock;
            log::encode(&mut bytes, shape, superblock, journal.sequence, payload);
            let offset = superblock.regions.log.offset_bytes + journal.position_units * unit_bytes as u64;
            journal.position_units += shape.units;
            journal.sequence += 1;
            if let Some(zones) = &mut journal.in_zones {
                let is_whole = zones.copies.write(offset, &bytes)?;
                journal.sync()?;
                journal.writable = is_whole;
                return Ok(if is_whole { Committed::Durable } else { Committed::NeedsGeneration });
            }
            match style {
                CommitStyle::Single => place.write(offset, &bytes, true)?,
                CommitStyle::Ordered { .. } => {
                    let (first, marks) = bytes.split_at(bytes.len() - 2 * unit_bytes);
                    place.write(offset, first, false)?;
                    journal.sync()?;
                    place.write(offset + first.len() as u64, marks, true)?;
                }
            }
            Ok(Committed::Durable)
        })
    }

    /// Begins a generation whose state is `state`, or, without one, the state of the checkpoint there
    /// is: only for a log that is empty. Durable when it returns.
    pub(crate) fn begin(&mut self, state: Option<&[u8]>) -> Result<(), StoreError> {
        if self.in_zones.is_some() {
            return self.poisoning(|journal| journal.begin_in_zones(state));
        }
        self.poisoning(|journal| {
            assert!(state.is_some() || journal.position_units == 0, "a log with commits needs a checkpoint");
            let mut next = journal.superblock.clone();
            next.generation += 1;
            if !journal.slots_agree {
                // The other one may name the area that is about to be written: it must not be believed any more, nor
                // one that cannot be read now and can be next time.
                superblock::write(&journal.place, journal.slots[0], &journal.superblock)?;
                journal.sync()?;
                journal.slots_agree = true;
            }
            if let Some(state) = state {
                next.active_checkpoint = 1 - next.active_checkpoint;
                let region = next.regions.checkpoints[next.active_checkpoint];
                next.checkpoint = checkpoint::write(&journal.place, region, next.store_id, next.generation, state)?;
            }
            for slot in journal.slots {
                superblock::write(&journal.place, slot, &next)?;
                journal.sync()?;
            }
            journal.superblock = next;
            journal.position_units = 0;
            journal.sequence = 0;
            journal.writable = true;
            Ok(())
        })
    }

    /// The next generation takes the place of the one before the present one, and then of a copy of that.
    fn begin_in_zones(&mut self, state: Option<&[u8]>) -> Result<(), StoreError> {
        let order = self.order.clone();
        let label = self.place.label.clone();
        let Some(InZones { copies, found, state: recovered }) = &mut self.in_zones else { return Ok(()) };
        assert!(state.is_some() || self.sequence == 1, "a log with commits needs a checkpoint");
        let sync = || order.sync(&METADATA).map_err(|error| media_error(&label, "sync", error));
        let Written { superblock, position_units } =
            copies.begin(&self.superblock, state.unwrap_or(recovered), &sync)?;
        self.place = copies.place().clone();
        (*recovered, *found) = (Vec::new(), Vec::new());
        self.superblock = superblock;
        self.position_units = position_units;
        self.sequence = 1;
        self.writable = true;
        Ok(())
    }

    /// Reads everything again and compares: what is damaged on the medium while the store is open.
    pub(crate) fn check_medium(&self) -> Vec<Finding> {
        match Journal::recover(&self.place.device, &self.place.label, &self.opened_as) {
            Err(error) => vec![Finding::unreadable(&error)],
            Ok((found, recovered)) => {
                let mut findings = recovered.findings;
                let expected = (self.generation(), self.sequence);
                let actual = (found.generation(), found.sequence);
                if self.writable && expected != actual {
                    findings.push(Finding {
                        severity: Severity::Fatal,
                        code: "metadata-lost",
                        message: format!(
                            "{}: the log should end at generation {}, commit {}; the medium has generation {}, commit {}",
                            self.place.label, expected.0, expected.1, actual.0, actual.1
                        ),
                    });
                } else if self.writable {
                    findings.extend(self.short_copies(&found));
                }
                findings
            }
        }
    }

    /// Copies of the present generation in zones that lack something that is in another, as they are found on the medium.
    fn short_copies(&self, found: &Journal) -> Vec<Finding> {
        let (Some(own), Some(found)) = (&self.in_zones, &found.in_zones) else { return Vec::new() };
        let is_whole = |group: &usize| found.found.contains(&(*group, self.sequence - 1));
        let short = own.copies.current().iter().filter(|group| !is_whole(group));
        let what = "it lacks commits that were acknowledged";
        short
            .map(|group| generations::redundancy(own.copies.group(*group), what, "the next opening replaces it"))
            .collect()
    }
}

/// The most units a commit may be padded to.
pub(crate) fn clamp_units(units: u64) -> u64 {
    units.min(log::COMMIT_UNITS_MAX)
}

/// Where a structure is and what is wrong with it.
pub(crate) fn corruption(
    label: &str,
    structure: &str,
    offset_bytes: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> StoreError {
    StoreError::Corruption {
        store: label.to_owned(),
        structure: structure.to_owned(),
        offset_bytes,
        expected: expected.into(),
        found: found.into(),
        advice: "restore the store from a backup".to_owned(),
    }
}

/// Where something cannot be read on which it depends what else is there.
pub(crate) fn unreadable(
    label: &str,
    structure: &str,
    offset_bytes: u64,
    expected: impl Into<String>,
    error: MediaError,
) -> StoreError {
    StoreError::Unreadable {
        store: label.to_owned(),
        structure: structure.to_owned(),
        offset_bytes,
        expected: expected.into(),
        error: Box::new(error),
    }
}

pub(crate) fn media_error(label: &str, structure: &str, error: MediaError) -> StoreError {
    StoreError::Media { store: label.to_owned(), name: structure.to_owned(), error }
}

/// For one who formats a device or opens it.
pub(crate) fn sync(device: &Device, label: &str) -> Result<(), StoreError> {
    SyncOrder::alone(device.block.clone()).sync(&METADATA).map_err(|error| media_error(label, "sync", error))
}

/// Memory a device can take.
pub(crate) fn buffer(device: &Device, length_bytes: usize) -> AlignedBuffer {
    AlignedBuffer::new(length_bytes, device.block.capabilities().buffer_alignment_bytes as usize)
}

/// Makes a region read as zeros, durably. What already is zero is not written: memory and thinly
/// provisioned devices stay small.
pub(crate) fn zero(device: &Device, label: &str, region: Region) -> Result<(), StoreError> {
    let place = Place::whole(device, label);
    let (mut found, zeros) = (place.buffer(TRANSFER_BYTES), place.buffer(TRANSFER_BYTES));
    let mut at = region.offset_bytes;
    while at < region.end_bytes() {
        let length = (region.end_bytes() - at).min(TRANSFER_BYTES as u64) as usize;
        let blank = place.read(at, &mut found[..length]).is_ok() && found[..length] == zeros[..length];
        if !blank {
            place.write(at, &zeros[..length], false)?;
        }
        at += length as u64;
    }
    sync(device, label)
}
