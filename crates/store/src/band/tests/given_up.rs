//! Zones that become read-only or offline while the store is open, and while it is not.

use super::*;
use parking_lot::Mutex;
use varve_media::{
    BlockDevice, Capabilities, MediaError, Operation, Request, Transfer, ZoneCondition, ZoneControl, ZoneDescription,
    ZoneRefusal,
};

/// Gives up zones of a device when it is told to.
#[derive(Clone)]
pub(super) struct GivingUp {
    inner: Device,
    given_up: Arc<Mutex<BTreeMap<u32, ZoneCondition>>>,
}

impl GivingUp {
    pub(super) fn new(inner: Device) -> GivingUp {
        GivingUp { inner, given_up: Arc::default() }
    }

    pub(super) fn device(&self) -> Device {
        let this = Arc::new(self.clone());
        Device { zones: Some(this.clone()), ..Device::of_blocks(this) }
    }

    pub(super) fn give_up(&self, band: u32, condition: ZoneCondition) {
        self.given_up.lock().insert(band, condition);
    }

    fn control(&self) -> &dyn ZoneControl {
        &**self.inner.zones.as_ref().unwrap()
    }

    fn judge(&self, zone: u32, writes: bool) -> Result<(), MediaError> {
        let refusal = match self.given_up.lock().get(&zone) {
            Some(ZoneCondition::Offline) => ZoneRefusal::Offline,
            Some(_) if writes => ZoneRefusal::ReadOnly,
            _ => return Ok(()),
        };
        let (device, operation) = (self.inner.block.name().to_owned(), Operation::Zone);
        Err(MediaError::Zone { device, operation, zone: ZoneId(zone), offset_bytes: 0, refusal })
    }
}

impl BlockDevice for GivingUp {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        for request in requests.iter_mut() {
            let writes = !matches!(request.transfer, Transfer::Read { .. });
            let zone_bytes = self.capabilities().zones.as_ref().unwrap().zone_bytes;
            request.outcome = self.judge((request.offset_bytes / zone_bytes) as u32, writes);
            if request.outcome.is_ok() {
                let _ = self.inner.block.execute(std::slice::from_mut(request), context);
            }
        }
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

impl ZoneControl for GivingUp {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        let mut zones = self.control().report(first, count, context)?;
        let given_up = self.given_up.lock();
        for (zone, number) in zones.iter_mut().zip(first.0..) {
            zone.condition = given_up.get(&number).copied().unwrap_or(zone.condition);
        }
        Ok(zones)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.judge(zone.0, true)?;
        self.control().open(zone, context)
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.judge(zone.0, true)?;
        self.control().close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.judge(zone.0, true)?;
        self.control().finish(zone, context)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.judge(zone.0, true)?;
        self.control().reset(zone, context)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.judge(zone.0, true)?;
        self.control().append(zone, data, context)
    }
}

fn band_of_table(store: &BandStore, name: &str) -> u32 {
    *store.core.state.lock().names[name].bands.lock().last().unwrap()
}

fn band_of_log(store: &BandStore, name: &str) -> u32 {
    store.core.state.lock().names[name].pieces.read().iter().last().unwrap().band
}

#[test]
fn writes_go_on_in_another_band_when_one_becomes_read_only() {
    let env = Env::sim(1);
    for device in formatted_both(&env, 16) {
        let zoned = GivingUp::new(device);
        let store = BandStore::open(&env, zoned.device()).unwrap();
        let context = IoContext::default();
        let mut table = create(&store, "table", FileKind::Table, None);
        let mut log = create(&store, "log", FileKind::Log, None);
        for (file, writer) in [(1, &mut table), (2, &mut log)] {
            writer.append(&content(file, 0, 50_000), &context).unwrap();
            writer.sync(&context).unwrap();
        }
        let given_up = [band_of_table(&store, "table"), band_of_log(&store, "log")];
        given_up.iter().for_each(|band| zoned.give_up(*band, ZoneCondition::ReadOnly));
        for (file, writer) in [(1, &mut table), (2, &mut log)] {
            writer.append(&content(file, 50_000, 60_000), &context).unwrap();
            writer.sync(&context).unwrap();
        }
        table.finish(&context).unwrap();
        drop(log);
        let verify = |store: &BandStore| {
            assert_eq!(read(store, "table").unwrap(), content(1, 0, 110_000));
            assert_eq!(read(store, "log").unwrap(), content(2, 0, 110_000));
            let findings = store.check().unwrap();
            assert_eq!(codes(&findings, Severity::Error), [""; 0], "{findings:?}");
            assert_eq!(codes(&findings, Severity::Warning), ["band-read-only"; 2]);
        };
        verify(&store);
        assert_eq!((measure(&store, "bands retired"), measure(&store, "writes moved to another band")), (2, 2));
        drop(store);
        let store = BandStore::open(&env, zoned.device()).unwrap();
        verify(&store);
        // Never taken again, however often what is there comes and goes.
        store.remove("table").unwrap();
        store.remove("log").unwrap();
        for round in 0..40 {
            write(&store, "table", FileKind::Table, None, &content(round, 0, BAND_BYTES)).unwrap();
            write(&store, "log", FileKind::Log, None, &content(round, 0, 100_000)).unwrap();
            assert!(!given_up.contains(&band_of_table(&store, "table")));
            assert!(!given_up.contains(&band_of_log(&store, "log")));
        }
        assert_eq!(store.core.state.lock().bands.retired().len(), 2);
        assert_eq!(store.core.device.block.counters().errors, 0);
    }
}

#[test]
fn a_free_band_that_is_given_up_is_passed_over() {
    let env = Env::sim(1);
    let zoned = GivingUp::new(formatted(&env, &zones(16)));
    let store = BandStore::open(&env, zoned.device()).unwrap();
    // Bands that were used once are reset before they are used again.
    for round in 0..20 {
        write(&store, "table", FileKind::Table, None, &content(round, 0, 1000)).unwrap();
        store.remove("table").unwrap();
    }
    (4..12).for_each(|band| zoned.give_up(band, ZoneCondition::Offline));
    for round in 0..20 {
        write(&store, "table", FileKind::Table, None, &content(round, 0, 1000)).unwrap();
        assert!(band_of_table(&store, "table") >= 12);
        store.remove("table").unwrap();
    }
    assert_eq!(codes(&store.check().unwrap(), Severity::Error), [""; 0]);
}

#[test]
fn files_of_an_offline_band_are_lost_with_an_error_and_no_others() {
    let env = Env::sim(1);
    for (sealed, name) in [(false, "unsealed"), (true, "sealed")] {
        let zoned = GivingUp::new(formatted(&env, &zones(24)));
        let store = BandStore::open(&env, zoned.device()).unwrap();
        write(&store, "kept.sst", FileKind::Table, None, &content(1, 0, 50_000)).unwrap();
        write(&store, "lost.sst", FileKind::Table, None, &content(2, 0, 50_000)).unwrap();
        write(&store, "lost.log", FileKind::Log, None, &content(3, 0, 100_000)).unwrap();
        let lost = [band_of_table(&store, "lost.sst"), band_of_log(&store, "lost.log")];
        let later = [("kept.log", 4), ("other.log", 5)];
        if sealed {
            // Too large for what is left of the band.
            for (name, file) in later {
                write(&store, name, FileKind::Log, None, &content(file, 0, 170_000)).unwrap();
            }
            assert_ne!(band_of_log(&store, "other.log"), lost[1]);
        }
        lost.iter().for_each(|band| zoned.give_up(*band, ZoneCondition::Offline));
        std::mem::forget(store);
        let mut store = BandStore::open(&env, zoned.device()).unwrap();
        for round in 0..3 {
            assert_eq!(read(&store, "kept.sst").unwrap(), content(1, 0, 50_000), "{name}");
            if sealed {
                assert_eq!(read(&store, "other.log").unwrap(), content(5, 0, 170_000));
            }
            for lost in ["lost.sst", "lost.log"] {
                let error = read(&store, lost).map(|data| data.len()).expect_err("it was lost");
                assert!(error.to_string().contains("offline"), "{name}, round {round}: {error}");
            }
            let findings = store.check().unwrap();
            // One of the logs behind it began in the same band.
            let damaged_files = if sealed { 2 } else { 1 };
            let expected = [vec!["file-damaged"; damaged_files], vec!["band-offline"; 2]].concat();
            assert_eq!(codes(&findings, Severity::Error), expected, "{name}, round {round}: {findings:?}");
            write(&store, "new.log", FileKind::Log, None, &content(6, 0, 1000)).unwrap();
            write(&store, "new.sst", FileKind::Table, None, &content(7, 0, 1000)).unwrap();
            drop(store);
            store = BandStore::open(&env, zoned.device()).unwrap();
            assert_eq!(read(&store, "new.log").unwrap(), content(6, 0, 1000), "{name}, round {round}");
            assert_eq!(read(&store, "new.sst").unwrap(), content(7, 0, 1000), "{name}, round {round}");
        }
        store.remove("lost.sst").unwrap();
        store.remove("lost.log").unwrap();
        store.sync_names().unwrap();
        assert_eq!(codes(&store.check().unwrap(), Severity::Fatal), [""; 0]);
    }
}

/// A sync of the device brings nothing back from a zone that died: who has something there is told, and nobody else.
#[test]
fn a_sync_is_refused_when_an_unsynced_part_lies_in_a_band_that_is_lost() {
    let env = Env::sim(1);
    let zoned = GivingUp::new(formatted(&env, &zones(24)));
    let store = BandStore::open(&env, zoned.device()).unwrap();
    let context = IoContext::default();
    let append = |writer: &mut Box<dyn WritableFile>, file, offset, length| {
        writer.append(&content(file, offset, length), &context).unwrap();
        writer.flush(&context).unwrap();
    };
    let mut writers: Vec<_> = ["safe.sst", "lost.sst"]
        .into_iter()
        .map(|name| create(&store, name, FileKind::Table, None))
        .chain(["safe.log", "lost.log", "idle.log"].into_iter().map(|name| create(&store, name, FileKind::Log, None)))
        .collect();
    for (file, writer) in (0..).zip(&mut writers) {
        append(writer, file, 0, 8192);
    }
    for safe in [0, 2] {
        writers[safe].sync(&context).unwrap();
    }
    for lost in [3, 4] {
        append(&mut writers[lost], lost as u64, 8192, 5000);
    }
    let bands = ["safe.sst", "lost.sst"].map(|name| band_of_table(&store, name));
    bands.into_iter().chain([band_of_log(&store, "lost.log")]).for_each(|band| {
        zoned.give_up(band, ZoneCondition::Offline);
    });
    for (file, writer) in (0..).zip(&mut writers[..4]) {
        let offset = if file == 3 { 13_192 } else { 8192 };
        append(writer, file, offset, 10_000);
    }
    for (number, writer) in writers.iter_mut().enumerate() {
        let outcome = writer.sync(&context);
        match number {
            0 | 2 => outcome.unwrap(),
            _ => {
                let error = outcome.expect_err("a part of it is lost");
                assert!(error.to_string().contains("offline"), "{number}: {error}");
                // It stays so.
                writer.sync(&context).expect_err("a part of it is lost");
            }
        }
    }
    // Others go on.
    write(&store, "new.log", FileKind::Log, None, &content(9, 0, 1000)).unwrap();
    write(&store, "new.sst", FileKind::Table, None, &content(9, 0, 1000)).unwrap();
    drop(writers);
    std::mem::forget(store);
    let store = BandStore::open(&env, zoned.device()).unwrap();
    for name in ["new.log", "new.sst"] {
        assert_eq!(read(&store, name).unwrap(), content(9, 0, 1000));
    }
}

/// A device all of whose zones must be written in order: its band table lies in its first zones.
#[test]
fn opens_and_goes_on_whichever_zone_of_the_band_table_is_given_up() {
    let env = Env::sim(1);
    let zones = ZoneGeometry::fit(26 * BAND_BYTES, BAND_BYTES).unwrap();
    let metadata_zones = 6;
    for (condition, zone) in [ZoneCondition::ReadOnly, ZoneCondition::Offline]
        .into_iter()
        .flat_map(|condition| (0..metadata_zones).map(move |zone| (condition, zone)))
    {
        for in_use in [false, true] {
            let device = formatted(&env, &zones);
            let store = BandStore::open(&env, device.clone()).unwrap();
            assert_eq!(store.core.geometry.first_band, metadata_zones);
            drop(with_synced_frames(&store, "log", 10));
            drop(store);
            let zoned = GivingUp::new(device);
            let what = format!("zone {zone} {condition:?}, in use: {in_use}");
            if !in_use {
                zoned.give_up(zone, condition);
            }
            let store = BandStore::open(&env, zoned.device()).unwrap_or_else(|error| panic!("{what}: {error}"));
            zoned.give_up(zone, condition);
            for number in 0..5 {
                write(&store, &format!("{number}.sst"), FileKind::Table, None, &content(number, 0, 5000)).unwrap();
            }
            assert_eq!(read(&store, "log").unwrap(), content(1, 0, 30_000), "{what}");
            let findings = store.check().unwrap();
            assert_eq!(codes(&findings, Severity::Warning), ["metadata-redundancy"], "{what}: {findings:?}");
            drop(store);
            let findings = BandStore::inspect(&zoned.device());
            assert_eq!(codes(&findings, Severity::Warning), ["metadata-redundancy"], "{what}: {findings:?}");
            let store = BandStore::open(&env, zoned.device()).unwrap_or_else(|error| panic!("{what}: {error}"));
            (0..5).for_each(|number| {
                assert_eq!(read(&store, &format!("{number}.sst")).unwrap(), content(number, 0, 5000), "{what}");
            });
        }
    }
}
