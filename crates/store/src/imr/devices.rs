//! The devices a store lies on: a disk with tracks and, beside it, perhaps one for logs and metadata.

use super::beside::{self, BesideGeometry};
use super::geometry::StoreGeometry;
use super::view::{DevicePart, Disk};
use super::{KIND, LOGS_KIND};
use crate::error::StoreError;
use crate::file_store::Finding;
use crate::identity::block::Presence;
use crate::identity::{Member, OpenedAs};
use crate::journal::{Journal, Recovered, corruption, presence};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, TrackControl, TrackGeometry, TrackTier};

/// What an [`ImrStore`](super::ImrStore) lies on. A disk alone is one, too.
#[derive(Clone)]
pub struct ImrDevices {
    /// Tables, and what is not elsewhere.
    pub disk: Device,
    /// A conventional device for everything that is not a table: small, quick to sync.
    pub logs: Option<Device>,
}

impl ImrDevices {
    /// A disk with logs and metadata on a device beside it.
    pub fn with_logs(disk: &Device, logs: &Device) -> Self {
        ImrDevices { disk: disk.clone(), logs: Some(logs.clone()) }
    }
}

impl From<Device> for ImrDevices {
    fn from(disk: Device) -> Self {
        ImrDevices { disk, logs: None }
    }
}

impl From<&Device> for ImrDevices {
    fn from(disk: &Device) -> Self {
        disk.clone().into()
    }
}

/// Which member of the set the device of logs is.
pub(super) const LOGS_MEMBER: usize = 1;

/// Where a part of a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImrPlace {
    /// On reserved top tracks of the disk.
    Inside,
    /// On the device beside it.
    Beside,
}

/// What of a store lies where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImrPlacement {
    /// Logs, manifests and every other file that is not a table.
    pub logs: ImrPlace,
    /// The S2TMap.
    pub map: ImrPlace,
}

/// Tracks of a disk as the store sees them.
pub(super) struct DiskTracks {
    /// The commands of an interlaced disk.
    pub(super) control: Option<Arc<dyn TrackControl>>,
    /// `None` for a conventional disk: then the store says what a track is.
    pub(super) tracks: Option<TrackGeometry>,
}

/// The track commands and sizes of a device.
pub(super) fn tracks_of(label: &str, device: &Device) -> Result<DiskTracks, StoreError> {
    let refuse = |reason: &str| StoreError::InvalidRequest { store: label.to_owned(), reason: reason.to_owned() };
    let capabilities = device.block.capabilities();
    if capabilities.zones.is_some() {
        return Err(refuse("a device with zones needs a store that writes at their write pointers"));
    }
    match (&device.tracks, capabilities.tracks.as_ref().filter(|tracks| tracks.interlaced)) {
        (_, None) => Ok(DiskTracks { control: None, tracks: None }),
        (None, Some(_)) => Err(refuse("the device has interlaced tracks and no commands for them")),
        (Some(_), Some(tracks)) if tracks.capacity_bytes() > device.block.geometry().capacity_bytes => {
            Err(refuse("the device has more tracks than bytes"))
        }
        (Some(control), Some(tracks)) => {
            Ok(DiskTracks { control: Some(control.clone()), tracks: Some(tracks.clone()) })
        }
    }
}

/// A disk for the users of an open store; without an env for one who looks at it or formats it.
fn disk_of(env: Option<&Env>, device: &Device) -> Arc<Disk> {
    match env {
        Some(env) => Disk::shared(env, device.block.clone()),
        None => Disk::new(device.block.clone()),
    }
}

/// Refuses a device that cannot hold logs.
fn check_logs(label: &str, device: &Device) -> Result<(), StoreError> {
    let capabilities = device.block.capabilities();
    if capabilities.zones.is_some() || capabilities.tracks.is_some() {
        let reason = format!("logs need a conventional device, which '{}' is not", device.block.name());
        return Err(StoreError::InvalidRequest { store: label.to_owned(), reason });
    }
    Ok(())
}

/// The device of logs, for one who formats it.
pub(super) fn logs_of(label: &str, device: &Device) -> Result<Arc<Disk>, StoreError> {
    check_logs(label, device)?;
    Ok(disk_of(None, device))
}

/// Where the store's own begins: all tops of an interlaced disk as one device, or a conventional disk.
pub(super) fn own_of(disk: &Arc<Disk>, tracks: Option<&TrackGeometry>) -> Device {
    match tracks.filter(|tracks| tracks.interlaced) {
        Some(tracks) => DevicePart::of_tops(disk, tracks, 0..tracks.tier_bytes(TrackTier::Top)),
        None => DevicePart::of_bytes(disk, 0..disk.block.geometry().capacity_bytes),
    }
}

/// A store whose metadata was read, and nothing written.
pub(super) struct Mounted {
    pub(super) label: String,
    pub(super) disk: Arc<Disk>,
    pub(super) control: Option<Arc<dyn TrackControl>>,
    /// The store's own part of the disk, from its superblock on.
    pub(super) own: Device,
    pub(super) geometry: StoreGeometry,
    pub(super) store_id: u64,
    pub(super) beside: Option<Beside>,
    /// The S2TMap.
    pub(super) journal: Journal,
    pub(super) recovered: Recovered,
    /// What only names the pair, on the device without the S2TMap.
    pub(super) anchor: Option<Journal>,
    /// What is wrong with its superblocks.
    pub(super) anchor_findings: Vec<Finding>,
    /// The device of the store of small files.
    pub(super) small_files: Device,
}

/// The device beside the disk.
pub(super) struct Beside {
    pub(super) device: Arc<Disk>,
    pub(super) geometry: BesideGeometry,
}

/// The geometry a disk's superblock has.
fn geometry_of(label: &str, journal: &Journal, parameters: &[u8]) -> Result<StoreGeometry, StoreError> {
    StoreGeometry::decode(parameters, journal.regions())
        .map_err(|found| corruption(label, "superblock", 0, "parameters of an imr store", found))
}

/// The device of the small files that lie on the disk.
pub(super) fn small_files_inside(disk: &Arc<Disk>, geometry: &StoreGeometry) -> Device {
    let range = geometry.small_files.offset_bytes..geometry.small_files.end_bytes();
    match geometry.tracks.interlaced {
        true => DevicePart::of_tops(disk, &geometry.tracks, range),
        false => DevicePart::of_bytes(disk, range),
    }
}

/// Reads what is on the devices of a store. Whoever opens it says in which env; whoever only looks does not.
pub(super) fn mount(env: Option<&Env>, devices: &ImrDevices) -> Result<Mounted, StoreError> {
    let label = devices.disk.block.name().to_owned();
    let DiskTracks { control, tracks } = tracks_of(&label, &devices.disk)?;
    let disk = disk_of(env, &devices.disk);
    let own = own_of(&disk, tracks.as_ref());
    let said = super::presence::require(&label, &devices.disk, &own)?;
    let (journal, mut recovered) = Journal::recover(&own, &label, &OpenedAs::new(KIND, &devices.disk))?;
    recovered.findings.extend(said);
    let geometry = geometry_of(&label, &journal, &recovered.parameters)?;
    super::recovery::check_tracks(&label, &geometry, tracks.as_ref())?;
    let store_id = journal.store_id();
    let is_beside = geometry.placement.logs == ImrPlace::Beside;
    let other = |expected: String, found: String, advice: &str| StoreError::Foreign {
        store: label.clone(),
        structure: "pair of disk and logs".to_owned(),
        offset_bytes: 0,
        expected,
        found,
        advice: advice.to_owned(),
    };
    let members = journal.identity().members.clone();
    let of_logs = || match members.get(LOGS_MEMBER) {
        Some(Member { id, capacity_bytes }) => {
            format!("the device with the logs of store {store_id:016x}: id {id:016x}, {capacity_bytes} bytes")
        }
        None => format!("the device with the logs of store {store_id:016x}"),
    };
    let Some(logs) = &devices.logs else {
        if is_beside {
            return Err(other(of_logs(), "no such device".to_owned(), "name the device of its logs, too"));
        }
        let small_files = small_files_inside(&disk, &geometry);
        return Ok(Mounted {
            label,
            disk,
            control,
            own,
            geometry,
            store_id,
            beside: None,
            journal,
            recovered,
            anchor: None,
            anchor_findings: Vec::new(),
            small_files,
        });
    };
    if !is_beside {
        let found = format!("the device '{}'", logs.block.name());
        return Err(other("no device for logs: they are on the disk".to_owned(), found, "open the disk alone"));
    }
    check_logs(&label, logs)?;
    let device = disk_of(env, logs);
    let whole = DevicePart::of_bytes(&device, 0..logs.block.geometry().capacity_bytes);
    let (name, opened_as) = (logs.block.name(), OpenedAs::new(LOGS_KIND, logs));
    let found = match presence(&whole, name, &opened_as)? {
        Presence::Store => None,
        Presence::Blank => Some("which is blank"),
        Presence::Unfinished => Some("which was being formatted"),
    };
    if let Some(found) = found {
        let advice = "restore the device of its logs, or name the right one: what is not in tables yet is only there, and \
                      nothing makes up for it";
        return Err(other(of_logs(), format!("'{name}', {found}"), advice));
    }
    let (logs_journal, logs_recovered) = Journal::recover(&whole, name, &opened_as)?;
    if logs_journal.store_id() != store_id || logs_journal.identity().members != members {
        return Err(other(
            of_logs(),
            format!("'{name}' with those of store {:016x}", logs_journal.store_id()),
            "open the disk with the device it was formatted with",
        ));
    }
    let besides = beside::decode(&logs_recovered.parameters, logs_journal.regions(), logs_journal.capacity_bytes())
        .filter(|found| found.has_map == (geometry.placement.map == ImrPlace::Beside))
        .ok_or_else(|| {
            let found = format!("{} bytes of something else", logs_recovered.parameters.len());
            corruption(logs.block.name(), "superblock", 0, "parameters of a device of logs", found)
        })?;
    let range = besides.small_files.offset_bytes..besides.small_files.end_bytes();
    let small_files = DevicePart::of_bytes(&device, range);
    let has_map = besides.has_map;
    let beside = Some(Beside { device, geometry: besides });
    let ((journal, recovered), (anchor, at_anchor)) = match has_map {
        true => ((logs_journal, logs_recovered), (journal, recovered)),
        false => ((journal, recovered), (logs_journal, logs_recovered)),
    };
    Ok(Mounted {
        label,
        disk,
        control,
        own,
        geometry,
        store_id,
        beside,
        journal,
        recovered,
        anchor: Some(anchor),
        anchor_findings: at_anchor.findings,
        small_files,
    })
}

/// What a disk says of its store: `None` when it is blank, or has what a format left behind that was interrupted. With the bytes of its device of logs.
pub(super) fn placement(device: &Device) -> Result<Option<(ImrPlacement, u64)>, StoreError> {
    let label = device.block.name();
    let DiskTracks { tracks, .. } = tracks_of(label, device)?;
    let own = own_of(&Disk::new(device.block.clone()), tracks.as_ref());
    if super::presence::presence(label, device, &own)?.0 != Presence::Store {
        return Ok(None);
    }
    let (journal, recovered) = Journal::recover(&own, label, &OpenedAs::new(KIND, device))?;
    let geometry = geometry_of(label, &journal, &recovered.parameters)?;
    Ok(Some((geometry.placement, geometry.logs_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;
    use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions};
    use crate::imr::{AllocationName, ImrFormatOptions, ImrOpenOptions, ImrStore};
    use varve_media::{Emulated, Geometry, Immediate, Interlaced, IoContext, RamBacking};

    fn disk(env: &Env, name: &str) -> Device {
        let tracks = TrackGeometry::fit(16 << 20, 8 << 10, 8 << 10).unwrap();
        let geometry =
            Geometry { capacity_bytes: tracks.capacity_bytes(), sector_bytes: 512, physical_sector_bytes: 4096 };
        let rules = Interlaced::new(&tracks, 4096, true);
        let control = rules.control(name);
        let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
        let block = Arc::new(Emulated::new(env, name, geometry, Box::new(rules), timing, backing));
        Device { tracks: Some(control), ..Device::of_blocks(block) }
    }

    fn conventional(env: &Env, name: &str, capacity_bytes: u64) -> Device {
        Device::of_blocks(Arc::new(Emulated::immediate(env, name, capacity_bytes)))
    }

    fn options() -> ImrFormatOptions {
        ImrFormatOptions { table_bytes_max: Some(64 << 10), ..ImrFormatOptions::default() }
    }

    fn write(store: &ImrStore, name: &str, kind: FileKind) {
        let mut writer = store.create(name, &CreateOptions { kind, ..CreateOptions::default() }).unwrap();
        writer.append(name.as_bytes(), &IoContext::default()).unwrap();
        writer.sync(&IoContext::default()).unwrap();
        writer.finish(&IoContext::default()).unwrap();
    }

    #[test]
    fn logs_and_map_go_where_they_belong_and_come_back() {
        for map in [ImrPlace::Inside, ImrPlace::Beside] {
            let env = Env::sim(1);
            let (disk, logs) = (disk(&env, "disk"), conventional(&env, "logs", 8 << 20));
            let devices = ImrDevices::with_logs(&disk, &logs);
            ImrStore::format(&env, devices.clone(), &ImrFormatOptions { map, ..options() }).unwrap();
            let placement = ImrPlacement { logs: ImrPlace::Beside, map };
            assert_eq!(ImrStore::placement(&disk).unwrap(), Some((placement, 8 << 20)));
            let store = ImrStore::open(&env, devices.clone(), &ImrOpenOptions::default()).unwrap();
            let writes = || [&disk, &logs].map(|device| device.block.counters().writes);
            let before = writes();
            write(&store, "log", FileKind::Log);
            let after_log = writes();
            assert_eq!(after_log[0] - before[0], u64::from(map == ImrPlace::Inside), "only the commit of the name");
            write(&store, "table", FileKind::Table);
            let after_table = writes();
            assert_eq!(after_table[0] - after_log[0], 1 + u64::from(map == ImrPlace::Inside));
            let counted: Vec<String> = store.counters().into_iter().map(|(name, _)| name).collect();
            assert_eq!(counted, ["disk", "logs"]);
            assert!(store.check().unwrap().is_empty());
            drop(store);
            assert!(ImrStore::inspect(devices.clone()).is_empty());
            let store = ImrStore::open(&env, devices, &ImrOpenOptions::default()).unwrap();
            for name in ["log", "table"] {
                let mut data = vec![0; name.len()];
                store
                    .open(name, &OpenOptions::default())
                    .unwrap()
                    .read_at(0, &mut data, &IoContext::default())
                    .unwrap();
                assert_eq!(data, name.as_bytes());
            }
        }
    }

    #[test]
    fn a_missing_or_wrong_device_of_logs_is_told_by_name() {
        let env = Env::sim(1);
        let (first, second) = (disk(&env, "first"), disk(&env, "second"));
        let (logs, other) = (conventional(&env, "logs", 8 << 20), conventional(&env, "other", 8 << 20));
        ImrStore::format(&env, ImrDevices::with_logs(&first, &logs), &options()).unwrap();
        ImrStore::format(&env, ImrDevices::with_logs(&second, &other), &options()).unwrap();
        let refused = |devices: ImrDevices, expected: &str| {
            let error = ImrStore::open(&env, devices.clone(), &ImrOpenOptions::default()).err().unwrap();
            assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(ImrStore::inspect(devices)[0].code, "metadata-unreadable");
        };
        refused(ImrDevices::from(&first), "no such device");
        refused(ImrDevices::with_logs(&first, &other), "'other' with those of store");
        refused(ImrDevices::with_logs(&first, &conventional(&env, "blank", 8 << 20)), "which is blank");
        let inside = disk(&env, "inside");
        let small = ImrFormatOptions { small_files_bytes: Some(4 << 20), ..options() };
        ImrStore::format(&env, &inside, &small).unwrap();
        refused(ImrDevices::with_logs(&inside, &logs), "open the disk alone");
        // A device of logs in use is not given to another disk.
        let error = ImrStore::format(&env, ImrDevices::with_logs(&disk(&env, "third"), &logs), &options()).unwrap_err();
        assert!(error.to_string().contains("overwrite"), "{error}");
        // None of that changed anything.
        ImrStore::open(&env, ImrDevices::with_logs(&first, &logs), &ImrOpenOptions::default()).unwrap();
    }

    #[test]
    fn a_conventional_disk_needs_a_track_size_and_costs_one_sync() {
        let env = Env::sim(1);
        let disk = conventional(&env, "disk", 32 << 20);
        let small = ImrFormatOptions { small_files_bytes: Some(4 << 20), ..options() };
        assert!(ImrStore::format(&env, &disk, &small).unwrap_err().to_string().contains("track size"));
        let allocation = AllocationName::Sequential;
        let sized = ImrFormatOptions { conventional_track_bytes: Some(8 << 10), allocation, ..small };
        let interlaced = super::tests::disk(&env, "interlaced");
        assert!(ImrStore::format(&env, &interlaced, &sized).unwrap_err().to_string().contains("says itself"));
        ImrStore::format(&env, &disk, &sized).unwrap();
        let store = ImrStore::open(&env, &disk, &ImrOpenOptions::default()).unwrap();
        for number in 0..1000 {
            write(&store, &format!("{number}"), FileKind::Table);
        }
        let statistics = store.statistics();
        assert_eq!((statistics.tables, statistics.syncs, statistics.rewrites), (1000, 1000, 0));
        assert!(statistics.bottom_bytes > 0 && statistics.bottom_bytes < statistics.bytes);
        assert!(store.check().unwrap().is_empty());
    }

    /// Logs that are written in turn, each removed when the next one is begun, need space for two.
    #[test]
    fn the_room_of_a_removed_log_is_there_when_it_is_needed() {
        let env = Env::sim(1);
        let (disk, logs) = (disk(&env, "disk"), conventional(&env, "logs", 8 << 20));
        let devices = ImrDevices::with_logs(&disk, &logs);
        ImrStore::format(&env, devices.clone(), &options()).unwrap();
        let store = ImrStore::open(&env, devices, &ImrOpenOptions::default()).unwrap();
        let total = store.core.packed_files.space().unwrap().total_bytes;
        let context = IoContext::default();
        for number in 0..12 {
            let options = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
            let mut log = store.create(&number.to_string(), &options).unwrap();
            for written in 0..100 {
                log.append(&vec![number as u8; (total * 11 / 20 / 100) as usize], &context).unwrap();
                log.sync(&context).unwrap();
                if written == 0 && number > 0 {
                    store.remove(&(number - 1).to_string()).unwrap();
                }
            }
            log.finish(&context).unwrap();
        }
        assert!(store.check().unwrap().is_empty());
    }
}
