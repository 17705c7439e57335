//! Writing the copies of a generation in [zones](super::zones), and passing over zones that are worn.
//!
//! The zones of the present copies are finished before the next generation is written, so that one zone of each copy is
//! active at a time. A group is emptied only while another one holds the present generation or the next one.
//!
//! A group that the device gave up, or that refuses a reset or a write, is *given up*: nothing is written to it any more.
//! When that happens to a commit, the commit is not acknowledged before the next generation, whose state has it, is in two
//! other groups.

use super::generations::{self, mark_in, rank};
use super::log;
use super::place::Place;
use super::superblock::{self, Slot, Superblock};
use super::zones::{GroupLayout, MetadataZones, checkpoint_bytes_max, log_bytes_max};
use super::{JournalRegions, Region, SUPERBLOCK_RESERVED_BYTES, media_error};
use crate::error::StoreError;
use crate::identity::block::IdentityBlock;
use varve_media::{Device, MediaError, Operation, ZoneCondition, ZoneRefusal};

/// The groups of an open journal.
pub(super) struct Copies {
    groups: Vec<Place>,
    /// Copies of a generation.
    copies: usize,
    /// Groups that hold the present generation. None while a store is made.
    current: Vec<usize>,
    /// The group with the mark of a store that is made, which is written last.
    marked: Option<usize>,
    /// Groups that are not written any more: a bit for each.
    given_up: u8,
    /// Why the last of them was given up.
    cause: Option<StoreError>,
}

/// Why a generation was not written into a group.
enum Refusal {
    /// The group cannot be written; another one may be.
    Group(StoreError),
    /// Nothing can be.
    Device(StoreError),
}

/// A generation as it was written.
pub(super) struct Written {
    pub(super) superblock: Superblock,
    pub(super) position_units: u64,
}

impl Copies {
    pub(super) fn new(groups: Vec<Place>, copies: usize, current: Vec<usize>, given_up: u8) -> Copies {
        Copies { groups, copies, current, marked: None, given_up, cause: None }
    }

    /// Where the first copy of the present generation lies.
    pub(super) fn place(&self) -> &Place {
        &self.groups[self.current.first().copied().unwrap_or(0)]
    }

    /// Groups that hold the present generation.
    pub(super) fn current(&self) -> &[usize] {
        &self.current
    }

    pub(super) fn group(&self, group: usize) -> &Place {
        &self.groups[group]
    }

    fn is_given_up(&self, group: usize) -> bool {
        self.given_up >> group & 1 == 1
    }

    /// Gives up a group, unless a generation needs all of them.
    fn give_up(&mut self, group: usize, error: StoreError) -> Result<(), StoreError> {
        if self.copies == 1 {
            return Err(error);
        }
        self.given_up |= 1 << group;
        self.cause = Some(error);
        Ok(())
    }

    /// Writes to every copy. False when one of them could not be written: then the next generation must begin.
    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        let mut failed = Vec::new();
        for &group in &self.current {
            if let Err(error) = self.groups[group].write(offset_bytes, bytes, false) {
                failed.push((group, error));
            }
        }
        if failed.len() == self.current.len()
            && let Some((_, error)) = failed.pop()
        {
            return Err(error);
        }
        let is_whole = failed.is_empty();
        failed.into_iter().try_for_each(|(group, error)| self.give_up(group, error))?;
        Ok(is_whole)
    }

    /// Begins the generation behind that of `superblock`. Durable when it returns.
    pub(super) fn begin(
        &mut self,
        superblock: &Superblock,
        state: &[u8],
        sync: &dyn Fn() -> Result<(), StoreError>,
    ) -> Result<Written, StoreError> {
        let mut present = superblock.clone();
        loop {
            let written = self.write_generation(&present, state, sync)?;
            // Each copy says which groups are given up.
            if written.superblock.given_up == self.given_up {
                return Ok(written);
            }
            present = written.superblock;
        }
    }

    fn write_generation(
        &mut self,
        present: &Superblock,
        state: &[u8],
        sync: &dyn Fn() -> Result<(), StoreError>,
    ) -> Result<Written, StoreError> {
        self.give_up_worn()?;
        for group in self.current.clone() {
            if let Err(error) = self.groups[group].finish() {
                self.give_up(group, error)?;
            }
        }
        let mut spare: Vec<usize> = (0..self.groups.len()).filter(|group| !self.current.contains(group)).collect();
        spare.sort_by_key(|group| self.marked == Some(*group));
        let targets = [&spare[..], &self.current[..]].concat();
        let mut first: Option<Written> = None;
        let mut written: Vec<usize> = Vec::new();
        for target in targets {
            if written.len() == self.copies || self.usable() < self.copies {
                break;
            }
            if self.is_given_up(target) || !self.is_held_elsewhere(target, &written, present) {
                continue;
            }
            let (generation, given_up) = (present.generation + 1, self.given_up);
            let superblock = Superblock { generation, given_up, ..present.clone() };
            let outcome = write_copy(&self.groups[target], superblock, state, sync);
            self.current.retain(|group| *group != target);
            match outcome {
                Ok(copy) => {
                    first.get_or_insert(copy);
                    written.push(target);
                }
                Err(Refusal::Group(error)) => {
                    // Its zones must not count as active.
                    let _ = self.groups[target].finish();
                    self.give_up(target, error)?;
                }
                Err(Refusal::Device(error)) => return Err(error),
            }
        }
        match first.filter(|_| written.len() == self.copies) {
            Some(first) => {
                self.current = written;
                Ok(first)
            }
            None => Err(self.too_few()),
        }
    }

    /// Groups that can be written.
    fn usable(&self) -> usize {
        self.groups.len() - self.given_up.count_ones() as usize
    }

    /// True if another group holds the present generation or was already written, so that this one may be emptied.
    fn is_held_elsewhere(&self, target: usize, written: &[usize], present: &Superblock) -> bool {
        let is_sound = |group: &usize| {
            *group != target && (!self.is_given_up(*group) || generations::holds(&self.groups[*group], present))
        };
        self.marked.is_some() || written.iter().any(|group| *group != target) || self.current.iter().any(is_sound)
    }

    /// Gives up groups with a zone that the device gave up.
    fn give_up_worn(&mut self) -> Result<(), StoreError> {
        if self.copies == 1 {
            return Ok(());
        }
        for group in 0..self.groups.len() {
            let place = &self.groups[group];
            let failed = |error| media_error(&place.label, "metadata zones", error);
            let (zone, found) = match place.worn_zone() {
                Ok(None) => continue,
                Ok(Some(worn)) => worn,
                Err(error) => {
                    let error = failed(error);
                    self.give_up(group, error)?;
                    continue;
                }
            };
            let is_offline = found.condition == ZoneCondition::Offline;
            let error = failed(MediaError::Zone {
                device: place.device.block.name().to_owned(),
                operation: Operation::Write,
                zone,
                offset_bytes: found.start_bytes,
                refusal: if is_offline { ZoneRefusal::Offline } else { ZoneRefusal::ReadOnly },
            });
            self.give_up(group, error)?;
        }
        Ok(())
    }

    /// Fewer groups can be written than a generation has copies.
    fn too_few(&self) -> StoreError {
        self.cause.clone().unwrap_or_else(|| StoreError::InvalidRequest {
            store: self.place().label.clone(),
            reason: "too few groups of zones for metadata can be written".to_owned(),
        })
    }

    /// Nothing more is written to the present generation now: none of its zones is active afterwards.
    fn finish(&self) -> Result<(), StoreError> {
        self.current.iter().try_for_each(|group| self.groups[*group].finish())
    }
}

/// Says durably that a store is being made, in place of whatever is there; `None` of a device whose journal will lie elsewhere.
pub(super) fn mark(device: &Device, label: &str, block: &IdentityBlock) -> Option<Result<(), StoreError>> {
    let zones = MetadataZones::of(device, label)?;
    Some(mark_in_zones(&zones, block))
}

fn mark_in_zones(zones: &MetadataZones<'_>, block: &IdentityBlock) -> Result<(), StoreError> {
    let header = zones.writable_header()?;
    if zones.geometry.active_zones_max > 0 {
        // Whatever is being written there is given up.
        zones.finish_all()?;
    }
    // The newest generation goes last, so that nothing older ever counts. What cannot be read may be it.
    let found = superblock::slots_in(&header);
    let is_marked = mark_in(&found).is_some();
    let scan = zones.scan().unwrap_or_default();
    let groups = scan.layout.map_or_else(Vec::new, |layout| zones.groups(layout));
    let slots: Vec<[Slot; 2]> = groups.iter().map(superblock::slots_in).collect();
    let newest = slots.iter().map(rank).max().unwrap_or_default();
    let may_be_newest = |slots: &[Slot; 2]| {
        let is_damaged = slots.iter().any(|slot| matches!(slot, Slot::Damaged(_)));
        let is_known = slots.iter().any(|slot| matches!(slot, Slot::Valid(_) | Slot::Identity(_)));
        rank(slots) == newest || (is_damaged && !is_known)
    };
    let mut kept: Vec<&Place> = vec![&header];
    if !is_marked {
        let newest =
            groups.iter().zip(&slots).filter(|(group, slots)| may_be_newest(slots) && !group.overlaps(&header));
        kept.extend(newest.map(|(group, _)| group));
    }
    // Files of a store whose superblocks lie at fixed offsets go after those, which are in the first zones.
    if !scan.is_at_fixed_offsets {
        zones.reset_all_but(&kept)?;
    }
    match is_marked {
        true => header.reset_from_the_end()?,
        false => header.reset()?,
    }
    header.write(0, &superblock::header(&header, block.encode()), false)?;
    header.sync()?;
    header.finish()?;
    zones.reset_all_but(&[&header])
}

/// Empties the zones of a journal in zones, of a device on which a store with a journal at fixed offsets is marked as being made.
/// They would otherwise be taken for a newer store once that store's files lie among them.
pub(super) fn give_up_zones(device: &Device, label: &str) -> Result<(), StoreError> {
    let Some(zones) = MetadataZones::of(device, label) else { return Ok(()) };
    match zones.scan() {
        Ok(scan) if scan.layout.is_some() => zones.reset_all_but(&[&zones.header_at(0)]),
        _ => Ok(()),
    }
}

/// Writes the first generation of a store that was marked.
pub(super) fn write_first(
    device: &Device,
    label: &str,
    mut superblock: Superblock,
    state: &[u8],
) -> Result<(), StoreError> {
    let zones = MetadataZones::of(device, label).ok_or_else(|| StoreError::InvalidRequest {
        store: label.to_owned(),
        reason: "a journal in zones is for a device without conventional zones".to_owned(),
    })?;
    let groups = zones.groups(GroupLayout::of(&superblock.regions));
    // The mark goes last.
    let is_marked = |group: &Place| mark_in(&superblock::slots_in(group)).is_some();
    // Where none of them begins with it, whichever.
    let marked = groups.iter().position(is_marked).unwrap_or(0);
    let sync = || super::sync(device, label);
    let mut copies = Copies::new(groups, superblock.regions.copies(), Vec::new(), 0);
    copies.marked = Some(marked);
    superblock.generation -= 1;
    copies.begin(&superblock, state, &sync)?;
    copies.finish()
}

/// Writes a generation into a group, in place of what is there, and begins it.
fn write_copy(
    place: &Place,
    mut superblock: Superblock,
    state: &[u8],
    sync: &dyn Fn() -> Result<(), StoreError>,
) -> Result<Written, Refusal> {
    let group_bytes = place.capacity_bytes();
    let area_bytes = checkpoint_bytes_max(group_bytes);
    let (reference, checkpoint) =
        super::checkpoint::encode(place, area_bytes, superblock.store_id, superblock.generation, state)
            .map_err(Refusal::Device)?;
    let unit_bytes = superblock.regions.unit_bytes;
    let checkpoint_at = SUPERBLOCK_RESERVED_BYTES;
    // The unit may be larger than what a checkpoint is rounded to.
    let log_at = (checkpoint_at + checkpoint.len() as u64).next_multiple_of(u64::from(unit_bytes));
    let log_bytes = log_bytes_max(group_bytes.saturating_sub(log_at)) / u64::from(unit_bytes) * u64::from(unit_bytes);
    superblock.capacity_bytes = group_bytes;
    superblock.active_checkpoint = 0;
    superblock.checkpoint = reference;
    superblock.regions = JournalRegions {
        log: Region { offset_bytes: log_at, length_bytes: log_bytes },
        checkpoints: [Region { offset_bytes: checkpoint_at, length_bytes: log_at - checkpoint_at }, Region::default()],
        ..superblock.regions
    };
    place.reset().map_err(Refusal::Group)?;
    let header = superblock::header(place, superblock::encode(&superblock));
    let mut whole = place.buffer(log_at as usize);
    whole[..header.len()].copy_from_slice(&header);
    whole[header.len()..header.len() + checkpoint.len()].copy_from_slice(&checkpoint);
    place.write(0, &whole, false).map_err(Refusal::Group)?;
    sync().map_err(Refusal::Device)?;
    let shape = log::shape(0, unit_bytes, false, 0);
    let mut commit = place.buffer((shape.units * u64::from(unit_bytes)) as usize);
    log::encode(&mut commit, shape, &superblock, 0, &[]);
    place.write(log_at, &commit, false).map_err(Refusal::Group)?;
    sync().map_err(Refusal::Device)?;
    Ok(Written { superblock, position_units: shape.units })
}
