//! How a write buffer is made and opened.

use super::ahead::Front;
use super::device::{BufferedDevice, Shared, State, WriteBuffer};
use super::error::BufferError;
use super::journal::{Layout, MapJournal, Recovered};
use super::pages::PageMap;
use super::parameters::{BufferParameters, BufferStatistics};
use super::record::{Found, PAGE_BYTES, Role, SUPERBLOCK_BYTES, Superblock, VERSION};
use super::room::{DiskLoad, Queue};
use crate::idler::{ControlledDevice, GhostCache};
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Capabilities, Counters, Device, Geometry, IoClass, IoContext, MediaCache,
    MediaError, SyncOrder, WRITE_BUFFER_RESERVED_BYTES, ZoneId, ZoneType,
};

/// Reserved at the end of a disk without zones; of one with zones it is the last zone.
const RESERVED_BYTES: u64 = WRITE_BUFFER_RESERVED_BYTES;

/// Pieces in which the areas of the map are zeroed.
const CLEARED_BYTES: u64 = 4 << 20;

/// What may be made, and what lost, when a write buffer is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferOpening {
    /// Make it where both devices are blank.
    pub create: bool,
    /// Make it anew, whatever the devices hold.
    pub format: bool,
    /// Make the buffer anew where the one that the disk had is not there or cannot be read: the newest writes, synced or not, are lost.
    pub accepts_loss: bool,
}

impl Default for BufferOpening {
    /// Made on blank devices, and nothing is lost.
    fn default() -> Self {
        BufferOpening { create: true, format: false, accepts_loss: false }
    }
}

/// The two devices, looked at.
struct Pair<'a> {
    env: &'a Env,
    disk: &'a Device,
    fast: &'a Device,
    disk_order: Arc<SyncOrder>,
    fast_order: Arc<SyncOrder>,
    /// Where the mark of the disk is, which is all that can be used of it.
    usable_bytes: u64,
    wanted: Superblock,
    layout: Layout,
    context: IoContext,
}

fn unsuitable(device: &Device, expected: impl Into<String>, found: impl Into<String>) -> BufferError {
    let device = device.block.name().to_owned();
    BufferError::Unsuitable { device, expected: expected.into(), found: found.into() }
}

impl<'a> Pair<'a> {
    fn new(
        env: &'a Env,
        disk: &'a Device,
        fast: &'a Device,
        parameters: &BufferParameters,
    ) -> Result<Pair<'a>, BufferError> {
        let (of_disk, of_fast) = (disk.block.geometry(), fast.block.geometry());
        let capabilities = disk.block.capabilities();
        for device in [disk, fast] {
            let capabilities = device.block.capabilities();
            if capabilities.protection.is_some() {
                return Err(unsuitable(device, "blocks without protection information", "some"));
            }
            if capabilities.tracks.is_some() {
                return Err(unsuitable(device, "tracks that do not overlap", "some that do"));
            }
        }
        if fast.block.capabilities().zones.is_some() {
            return Err(unsuitable(fast, "a device without zones for its pages", "zones"));
        }
        if capabilities.zones.as_ref().is_some_and(|zones| !zones.can_be_written_anywhere()) {
            return Err(unsuitable(disk, "zones that may be written anywhere", "zones that must be written in order"));
        }
        let sector_bytes = of_disk.sector_bytes;
        if !(512..=PAGE_BYTES).contains(&u64::from(sector_bytes)) || !PAGE_BYTES.is_multiple_of(sector_bytes.into()) {
            return Err(unsuitable(disk, "sectors of 512 bytes to 4 KiB", format!("{sector_bytes} bytes")));
        }
        if of_fast.sector_bytes > sector_bytes || !sector_bytes.is_multiple_of(of_fast.sector_bytes.max(1)) {
            let found = format!("{} bytes", of_fast.sector_bytes);
            return Err(unsuitable(
                fast,
                format!("sectors that make up those of the disk ({sector_bytes} bytes)"),
                found,
            ));
        }
        // Pages are written over in place, so what the host takes for one sector must be one there.
        if of_fast.physical_sector_bytes < sector_bytes {
            let found = format!("{} bytes", of_fast.physical_sector_bytes);
            let expected = format!("physical sectors no smaller than the sectors of the disk ({sector_bytes} bytes)");
            return Err(unsuitable(fast, expected, found));
        }
        let is_even = |zones: &varve_media::ZoneGeometry| {
            zones.zone_bytes.is_multiple_of(PAGE_BYTES)
                && zones.zone_capacity_bytes == zones.zone_bytes
                && zones.address_bytes() == of_disk.capacity_bytes
        };
        if capabilities.zones.as_ref().is_some_and(|zones| !is_even(zones)) {
            return Err(unsuitable(
                disk,
                "zones of one size in whole pages of 4 KiB, writable to their ends",
                "others",
            ));
        }
        if parameters.page_count == 0 {
            return Err(unsuitable(fast, "a page or more", "none"));
        }
        let reserved_bytes = capabilities.zones.as_ref().map_or(RESERVED_BYTES, |zones| zones.zone_bytes);
        let usable_bytes = of_disk.capacity_bytes.saturating_sub(reserved_bytes);
        if usable_bytes == 0 {
            return Err(unsuitable(
                disk,
                format!("more than {reserved_bytes} bytes"),
                of_disk.capacity_bytes.to_string(),
            ));
        }
        let staging_bytes = match (&capabilities.zones, parameters.rewrite_pages) {
            (Some(zones), Some(_)) if parameters.order.is_by_zones() => zones.zone_bytes,
            _ => 0,
        };
        let layout = Layout::new(parameters.page_count, staging_bytes, of_fast.physical_sector_bytes);
        if layout.end() > of_fast.capacity_bytes {
            let (device, needed_bytes) = (fast.block.name().to_owned(), layout.end());
            return Err(BufferError::TooSmall { device, needed_bytes, found_bytes: of_fast.capacity_bytes });
        }
        let wanted = Superblock {
            // Of a new pair: drawn when it is made.
            identity: [0; 16],
            disk_bytes: of_disk.capacity_bytes,
            staging_bytes: layout.staging_bytes,
            area_bytes: layout.area_bytes,
            page_count: parameters.page_count,
            sector_bytes,
            unit_bytes: layout.unit_bytes as u32,
        };
        let context = IoContext::of(IoClass::Metadata);
        let [disk_order, fast_order] = [disk, fast].map(|device| SyncOrder::shared(env, device.block.clone()));
        Ok(Pair { env, disk, fast, disk_order, fast_order, usable_bytes, wanted, layout, context })
    }

    fn look(&self, device: &Device, offset_bytes: u64, role: Role) -> Result<Found, MediaError> {
        let alignment = device.block.capabilities().buffer_alignment_bytes as usize;
        let mut bytes = AlignedBuffer::new(SUPERBLOCK_BYTES, alignment);
        device.block.read_at(offset_bytes, &mut bytes, &self.context)?;
        Ok(Superblock::decode(&bytes, role))
    }

    fn write(&self, (device, order): (&Device, &SyncOrder), offset_bytes: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let alignment = device.block.capabilities().buffer_alignment_bytes as usize;
        device.block.write_at(offset_bytes, &AlignedBuffer::copy_of(bytes, alignment), &self.context)?;
        order.sync(&self.context)
    }

    /// Zeros bytes of the buffer's device, in pieces: the areas of a large buffer are gigabytes.
    fn clear(&self, range: std::ops::Range<u64>) -> Result<(), MediaError> {
        let alignment = self.fast.block.capabilities().buffer_alignment_bytes as usize;
        let zeros = AlignedBuffer::new(CLEARED_BYTES.min(range.end - range.start) as usize, alignment);
        let mut at = range.start;
        while at < range.end {
            let length = CLEARED_BYTES.min(range.end - at);
            self.fast.block.write_at(at, &zeros[..length as usize], &self.context)?;
            at += length;
        }
        self.fast_order.sync(&self.context)
    }

    /// Marks the disk as one with this buffer.
    fn mark(&self, superblock: &Superblock) -> Result<(), MediaError> {
        if let (Some(control), Some(zones)) = (&self.disk.zones, &self.disk.block.capabilities().zones)
            && let Some(zone) = zones.zone_at(self.usable_bytes)
            && zones.zone_type(zone) != ZoneType::Conventional
        {
            control.reset(zone, &self.context)?;
        }
        self.write((self.disk, &self.disk_order), self.usable_bytes, &superblock.encode(Role::Disk))
    }

    /// Where the last sectors of the buffer's device repeat its superblock, where its pages end before that. An opening
    /// without this layer knows the device by it, whatever became of the first sector.
    fn last_unit(&self) -> Option<u64> {
        let unit = SUPERBLOCK_BYTES as u64;
        let at = (self.fast.block.geometry().capacity_bytes / unit * unit).checked_sub(unit)?;
        (at >= self.layout.end()).then_some(at)
    }

    /// Refuses a buffer's device whose last sectors hold something else.
    fn refuse_used_end(&self) -> Result<(), BufferError> {
        let Some(at) = self.last_unit() else { return Ok(()) };
        match self.look(self.fast, at, Role::Buffer)? {
            Found::Other(flaw) if flaw.is_foreign() => {
                let found = format!("{} at offset {at}", flaw.found);
                Err(BufferError::NotBlank { device: self.fast.block.name().to_owned(), found })
            }
            _ => Ok(()),
        }
    }

    /// Makes both anew, with another identity than those that are there, in a simulation too. A buffer whose making was cut short is one that
    /// holds nothing, or none.
    fn format(&self, there: [&Found; 2]) -> Result<MapJournal, MediaError> {
        let there = there.map(|found| match found {
            Found::Superblock(superblock) => u128::from_le_bytes(superblock.identity),
            _ => 0,
        });
        let names = [self.disk.block.name(), self.fast.block.name()];
        let mut identity = [0; 16];
        let stream = format!("write buffer {names:?} {} {there:?}", self.env.now().as_nanos());
        self.env.random(&stream).fill_bytes(&mut identity);
        let superblock = Superblock { identity, ..self.wanted.clone() };
        // What was there before must not be found beside what is.
        self.write((self.fast, &self.fast_order), 0, &[0; SUPERBLOCK_BYTES])?;
        self.clear(self.layout.area(0)..self.layout.area(2))?;
        let mut journal = MapJournal::blank((self.fast, &self.fast_order), &self.layout, identity);
        journal.append(Vec::new(), None, true, &self.context)?;
        if let Some(at) = self.last_unit() {
            self.write((self.fast, &self.fast_order), at, &superblock.encode(Role::Buffer))?;
        }
        self.write((self.fast, &self.fast_order), 0, &superblock.encode(Role::Buffer))?;
        self.mark(&superblock)?;
        Ok(journal)
    }

    fn same_parameters(&self, found: &Superblock) -> Result<(), BufferError> {
        let device = || self.fast.block.name().to_owned();
        for (what, found, wanted) in [
            ("pages", u64::from(found.page_count), u64::from(self.wanted.page_count)),
            ("bytes of the disk", found.disk_bytes, self.wanted.disk_bytes),
            ("bytes for the copy of a zone", found.staging_bytes, self.wanted.staging_bytes),
            ("bytes of a sector", found.sector_bytes.into(), self.wanted.sector_bytes.into()),
            ("bytes of a unit", found.unit_bytes.into(), self.wanted.unit_bytes.into()),
            ("bytes of an area", found.area_bytes, self.wanted.area_bytes),
        ] {
            if found != wanted {
                return Err(BufferError::OtherParameters { device: device(), what, found, wanted });
            }
        }
        Ok(())
    }

    fn recover(&self, superblock: &Superblock) -> Result<(MapJournal, Recovered), BufferError> {
        self.same_parameters(superblock)?;
        let opened = MapJournal::open((self.fast, &self.fast_order), superblock, &self.layout, &self.context);
        opened.map_err(|error| BufferError::of_journal(self.fast.block.name(), error))
    }

    fn open(&self, opening: BufferOpening) -> Result<(MapJournal, Recovered), BufferError> {
        let (disk, fast) = (self.disk.block.name(), self.fast.block.name());
        let of_disk = self.look(self.disk, self.usable_bytes, Role::Disk)?;
        let of_fast = self.look(self.fast, 0, Role::Buffer)?;
        let new = || Ok((self.format([&of_disk, &of_fast])?, Recovered::default()));
        if opening.format {
            return new();
        }
        for (device, found) in [(disk, &of_disk), (fast, &of_fast)] {
            if let Found::OtherVersion(found) = found {
                return Err(BufferError::other_version(device, VERSION, *found));
            }
        }
        match (&of_disk, &of_fast) {
            (Found::Blank, Found::Blank) if opening.create => {
                self.refuse_used_end()?;
                new()
            }
            (Found::Blank, Found::Blank) => {
                Err(BufferError::NotThere { disk: disk.to_owned(), device: fast.to_owned() })
            }
            (Found::Superblock(marked), Found::Superblock(superblock)) if marked.identity == superblock.identity => {
                match self.recover(superblock) {
                    Err(BufferError::Damaged { .. }) if opening.accepts_loss => new(),
                    opened => opened,
                }
            }
            (Found::Superblock(_), Found::Blank) if opening.accepts_loss => new(),
            (Found::Superblock(marked), found) => Err(BufferError::Missing {
                disk: disk.to_owned(),
                device: fast.to_owned(),
                found: match found {
                    Found::Blank => "it is blank".to_owned(),
                    Found::Superblock(_) => "it is the buffer of another".to_owned(),
                    Found::Other(flaw) => format!("{}: expected {}, found {}", flaw.what, flaw.expected, flaw.found),
                    Found::OtherVersion(version) => format!("version {version}"),
                },
                pages_max: marked.page_count,
            }),
            (Found::Blank, Found::Superblock(superblock)) => {
                let (journal, recovered) = self.recover(superblock)?;
                if !journal.is_fresh() {
                    let (device, disk) = (fast.to_owned(), disk.to_owned());
                    let pages = recovered.entries.len() as u64;
                    return Err(BufferError::OtherDisk { device, disk, pages });
                }
                self.mark(superblock)?;
                Ok((journal, recovered))
            }
            (Found::Other(flaw), _) if flaw.is_foreign() => {
                let found = format!("{} at offset {}", flaw.found, self.usable_bytes);
                Err(BufferError::NotBlank { device: disk.to_owned(), found })
            }
            (_, Found::Other(flaw)) if flaw.is_foreign() => {
                Err(BufferError::NotBlank { device: fast.to_owned(), found: flaw.found.clone() })
            }
            (Found::Other(flaw), _) => Err(BufferError::damaged(disk, flaw.clone())),
            (_, Found::Other(flaw)) => Err(BufferError::damaged(fast, flaw.clone())),
            (Found::OtherVersion(found), _) | (_, Found::OtherVersion(found)) => {
                Err(BufferError::other_version(disk, VERSION, *found))
            }
        }
    }
}

impl WriteBuffer {
    /// `disk` with a write buffer on `fast`: one conventional device, less a zone (or 1 MiB) at its end; and a handle. Blank devices become a
    /// pair. `control` is that of the disk, if it is under any: what it holds back for a while is not asked of the disk then.
    ///
    /// Reads the page map and, of a disk with zones, a report of all of them. A zone that was being written anew is written back first.
    ///
    /// # Errors
    /// [`BufferError`], each with what to do.
    pub fn open(
        env: &Env,
        disk: &Device,
        fast: &Device,
        parameters: BufferParameters,
        opening: BufferOpening,
        control: Option<ControlledDevice>,
    ) -> Result<(Device, WriteBuffer), BufferError> {
        let pair = Pair::new(env, disk, fast, &parameters)?;
        let (mut journal, recovered) = pair.open(opening)?;
        let zones = disk.block.capabilities().zones.clone();
        let pages_per_group = match &zones {
            Some(zones) if parameters.order.is_by_zones() => zones.zone_bytes / PAGE_BYTES,
            _ => 1,
        };
        let usable_pages = pair.usable_bytes.div_ceil(PAGE_BYTES);
        let is_on_disk = recovered.entries.iter().all(|entry| entry.page < usable_pages);
        let Some(map) = Some(())
            .filter(|()| is_on_disk)
            .and_then(|()| PageMap::new(parameters.page_count, pages_per_group, &recovered.entries))
        else {
            return Err(BufferError::Damaged {
                device: fast.block.name().to_owned(),
                what: "page map",
                expected: "each page once, and on the disk".to_owned(),
                found: "one twice, or one that is not".to_owned(),
            });
        };
        // What it was found to say cannot be taken for one that was cut short any more.
        journal.seal(&pair.context)?;
        let of_disk = disk.block.geometry();
        let geometry = Geometry {
            capacity_bytes: pair.usable_bytes,
            sector_bytes: of_disk.sector_bytes,
            // More is not whole after a power cut: a part of it may be recorded as held, and another not.
            physical_sector_bytes: of_disk.sector_bytes,
        };
        let of_disk = disk.block.capabilities().clone();
        let discard = of_disk.discard && zones.is_none();
        let capabilities =
            Capabilities { zones: None, volatile_cache: true, forced_unit_access: false, discard, ..of_disk };
        let state = State {
            map,
            pointers: None,
            queue: Queue::default(),
            evictions: 0,
            leaving_pages: 0,
            is_rewriting: false,
            is_recording: false,
            has_failed: false,
            discards: BTreeMap::new(),
            next_discard: 0,
            disk_load: DiskLoad::default(),
            rests: false,
            is_closed: false,
            busy: None,
            staged: recovered.staged,
            serves_copy: false,
            writes_in_flight: BTreeMap::new(),
            reads_in_flight: BTreeMap::new(),
            copy_readers: 0,
            is_disk_dirty: false,
            is_fast_dirty: false,
            completed: 0,
            durable: 0,
            stopped: None,
            statistics: BufferStatistics::default(),
            counters: Counters::default(),
        };
        let shared = Shared {
            name: disk.block.name().to_owned(),
            geometry,
            capabilities,
            env: env.clone(),
            disk: disk.clone(),
            fast: fast.clone(),
            disk_order: pair.disk_order.clone(),
            fast_order: pair.fast_order.clone(),
            control,
            parameters,
            layout: pair.layout.clone(),
            zones,
            journal: Mutex::new(env, "page map", journal),
            state: Mutex::new(env, "write buffer", state),
            changed: Condvar::new(env, "write buffer"),
            work: Condvar::new(env, "eviction"),
        };
        shared.finish_copy(&pair.context)?;
        shared.look_at_zones(&pair.context)?;
        let front = Arc::new(Front::new(env, shared));
        let device = Device::of_blocks(Arc::new(BufferedDevice { front: Arc::clone(&front) }));
        Ok((device, WriteBuffer { front }))
    }
}

impl Shared {
    /// Writes the copy of a zone back that a power cut caught.
    fn finish_copy(&self, context: &IoContext) -> Result<(), BufferError> {
        let Some(staged) = self.state.lock().staged else { return Ok(()) };
        let (Some(zones), Some(control)) = (&self.zones, &self.disk.zones) else { return Ok(()) };
        let zone = ZoneId(staged.zone);
        let is_of_disk = zones.contains(zone) && zones.range(zone).end <= self.geometry.capacity_bytes;
        if !is_of_disk
            || staged.length_bytes > zones.zone_bytes
            || !staged.length_bytes.is_multiple_of(self.geometry.sector_bytes.into())
        {
            return Err(BufferError::Damaged {
                device: self.fast.block.name().to_owned(),
                what: "copy of a zone",
                expected: format!("one of {} zones", zones.zone_count),
                found: format!("{} bytes of zone {zone}", staged.length_bytes),
            });
        }
        control.reset(zone, context)?;
        self.write_back(zones.start_bytes(zone), staged.length_bytes, context)?;
        let mut state = self.state.lock();
        (state.staged, state.is_disk_dirty) = (None, true);
        drop(state);
        Ok(self.make_durable(true, context)?)
    }

    /// Learns where the write pointers are.
    fn look_at_zones(&self, context: &IoContext) -> Result<(), BufferError> {
        let (Some(zones), Some(control)) = (&self.zones, &self.disk.zones) else { return Ok(()) };
        let endless = MediaCache { bytes: u64::MAX, extents_max: u32::MAX };
        let mut pointers = GhostCache::new(zones, endless);
        let reported = control.report(ZoneId(0), zones.zone_count, context)?;
        if pointers.reported(&reported).is_none() {
            return Err(unsuitable(&self.disk, format!("a report of {} zones", zones.zone_count), "one of others"));
        }
        self.state.lock().pointers = Some(pointers);
        Ok(())
    }
}
