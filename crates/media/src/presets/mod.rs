//! Devices one can buy, as numbers.
//!
//! A preset is a named set of model parameters with what the maker or a measurement promises.
//! Every number names its source; where no source has one, the comment says what was assumed. A
//! preset can be had in any capacity and at any scale.

mod barracuda_3tb;
mod data_sheet;
mod measured_4tb;
mod nvme_ssd;
mod sata_ssd;
mod st14000nm0007;
mod st500dm002;
mod st6000nm0034;
mod st8000as0022;
mod traced;
mod zn540;

pub use traced::{atlas_10k_as_traced, cheetah_9lp_as_traced};

use crate::device::{Device, Geometry, NominalPerformance};
use crate::emulated::{
    Backing, CacheRecorded, Conventional, Disk, DiskParameters, Emulated, Interlaced, Pacing, Rules, SeekCurve, Ssd,
    SsdParameters, Timing, Translation, TranslationLayer, TranslationParameters, Zoned, data_share,
};
use crate::zones::ZoneGeometry;
use std::sync::Arc;
use varve_env::Env;

/// Parameters of a timing model that can be resized and scaled. Implemented by the parameters of
/// every kind of device, so that what handles presets needs not know the kinds.
pub trait TimingParameters: std::fmt::Debug + Send + Sync {
    /// The similar device with every size and time divided by `divisor`; rates stay.
    fn scaled(&self, divisor: u64) -> Arc<dyn TimingParameters>;

    /// The same device with another capacity.
    fn with_capacity(&self, capacity_bytes: u64) -> Arc<dyn TimingParameters>;

    /// The same device with eight bytes of protection information behind every `interval_bytes`, where that takes time.
    fn with_protection(&self, interval_bytes: u32) -> Arc<dyn TimingParameters>;

    /// The same device with its read and write caches off; `None` if it cannot do without.
    fn without_caches(&self) -> Option<Arc<dyn TimingParameters>>;

    /// Addressable bytes.
    fn capacity_bytes(&self) -> u64;

    /// The model in its first state.
    fn timing(&self) -> Box<dyn Timing>;

    /// Time of the arm's movements by distance, if there is an arm.
    fn seek_curve(&self) -> Option<&SeekCurve>;
}

impl TimingParameters for DiskParameters {
    fn scaled(&self, divisor: u64) -> Arc<dyn TimingParameters> {
        Arc::new(DiskParameters::scaled(self, divisor))
    }

    fn with_capacity(&self, capacity_bytes: u64) -> Arc<dyn TimingParameters> {
        Arc::new(DiskParameters::with_capacity(self, capacity_bytes))
    }

    fn with_protection(&self, interval_bytes: u32) -> Arc<dyn TimingParameters> {
        Arc::new(DiskParameters::with_protection(self, interval_bytes))
    }

    fn without_caches(&self) -> Option<Arc<dyn TimingParameters>> {
        Some(Arc::new(DiskParameters::without_caches(self)))
    }

    fn capacity_bytes(&self) -> u64 {
        DiskParameters::capacity_bytes(self)
    }

    fn timing(&self) -> Box<dyn Timing> {
        Box::new(Disk::new(self.clone()))
    }

    fn seek_curve(&self) -> Option<&SeekCurve> {
        Some(&self.mechanism.seek)
    }
}

impl TimingParameters for SsdParameters {
    fn scaled(&self, divisor: u64) -> Arc<dyn TimingParameters> {
        Arc::new(SsdParameters::scaled(self, divisor))
    }

    fn with_capacity(&self, capacity_bytes: u64) -> Arc<dyn TimingParameters> {
        Arc::new(SsdParameters::with_capacity(self, capacity_bytes))
    }

    /// Flash pages have spare bytes for tuples.
    fn with_protection(&self, _interval_bytes: u32) -> Arc<dyn TimingParameters> {
        Arc::new(self.clone())
    }

    /// Pages are gathered in it.
    fn without_caches(&self) -> Option<Arc<dyn TimingParameters>> {
        None
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn timing(&self) -> Box<dyn Timing> {
        Box::new(Ssd::new(self.clone()))
    }

    fn seek_curve(&self) -> Option<&SeekCurve> {
        None
    }
}

/// What a source promises about a device, and under which conditions; `None` where it says nothing.
/// Rates are of requests of [`Promises::sequential_request_bytes`], [`Promises::sequential_depth`] at
/// a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promises {
    /// Request size of the sequential rates.
    pub sequential_request_bytes: u64,
    /// Requests in flight of the sequential rates.
    pub sequential_depth: u32,
    /// Sequential read at the beginning of the device.
    pub outer_read_bytes_per_second: Option<u64>,
    /// Sequential write at the beginning of the device.
    pub outer_write_bytes_per_second: Option<u64>,
    /// Sequential read over the whole device.
    pub average_read_bytes_per_second: Option<u64>,
    /// Sequential write over the whole device.
    pub average_write_bytes_per_second: Option<u64>,
    /// Random reads of 4 KiB per second, one at a time.
    pub random_reads_per_second: Option<f64>,
}

/// A device one can buy. See the module's comment.
#[derive(Clone, Debug)]
pub struct Preset {
    name: String,
    description: &'static str,
    sector_bytes: u32,
    physical_sector_bytes: u32,
    nominal: NominalPerformance,
    promises: Promises,
    parameters: Arc<dyn TimingParameters>,
    /// One zone of the device, if it is sold with zones.
    zones: Option<ZoneGeometry>,
}

/// The nominal rates where eight bytes of protection information follow every `interval_bytes`.
fn protected_rates(nominal: NominalPerformance, interval_bytes: u32) -> NominalPerformance {
    NominalPerformance {
        sequential_read_bytes_per_second: data_share(nominal.sequential_read_bytes_per_second, interval_bytes),
        sequential_write_bytes_per_second: data_share(nominal.sequential_write_bytes_per_second, interval_bytes),
        ..nominal
    }
}

impl Preset {
    /// Every preset, by name.
    pub fn all() -> Vec<Preset> {
        let mut presets = vec![
            barracuda_3tb::preset(),
            measured_4tb::preset(),
            nvme_ssd::preset(),
            sata_ssd::preset(),
            st14000nm0007::preset(),
            st500dm002::preset(),
            st6000nm0034::preset(),
            st8000as0022::preset(),
            traced::atlas_10k(),
            traced::cheetah_9lp(),
            zn540::preset(),
        ];
        presets.sort_by(|a, b| a.name.cmp(&b.name));
        presets
    }

    /// The preset called `name`.
    pub fn find(name: &str) -> Option<Preset> {
        Preset::all().into_iter().find(|preset| preset.name == name)
    }

    /// Name, as in a device spec.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in one line.
    pub fn description(&self) -> &str {
        self.description
    }

    /// Sizes.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            capacity_bytes: self.parameters.capacity_bytes(),
            sector_bytes: self.sector_bytes,
            physical_sector_bytes: self.physical_sector_bytes,
        }
    }

    /// Speed the device promises, estimated where its sources are silent.
    pub fn nominal(&self) -> NominalPerformance {
        self.nominal
    }

    /// What its sources promise, for comparison with what the model does. Holds for the preset as it
    /// is sold, not scaled.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// The zones the device is sold with, as many as fit its capacity, if it is.
    pub fn zones(&self) -> Option<ZoneGeometry> {
        let zones = self.zones.clone()?;
        let zone_count = u32::try_from(self.parameters.capacity_bytes() / zones.zone_bytes).ok()?;
        Some(ZoneGeometry { zone_count, ..zones })
    }

    /// The numbers of the timing model.
    pub fn parameters(&self) -> &dyn TimingParameters {
        &*self.parameters
    }

    /// The similar device with every size and every time divided by `divisor`; rates and sector sizes
    /// stay. A workload scaled likewise takes 1/`divisor` of the time, as long as what is divided
    /// (tracks, caches, requests) stays well above a sector.
    pub fn scaled(&self, divisor: u64) -> Preset {
        let divisor = divisor.max(1);
        let nominal = NominalPerformance {
            random_reads_per_second: self.nominal.random_reads_per_second.saturating_mul(divisor),
            ..self.nominal
        };
        let sector = u64::from(self.physical_sector_bytes);
        let sectors = |bytes: u64| (bytes / divisor / sector).max(1) * sector;
        let zones = self.zones.clone().map(|zones| ZoneGeometry {
            zone_bytes: sectors(zones.zone_bytes),
            zone_capacity_bytes: sectors(zones.zone_capacity_bytes),
            ..zones
        });
        Preset { nominal, zones, parameters: self.parameters.scaled(divisor), ..self.clone() }
    }

    /// The same device with another capacity, rounded down to whole physical sectors, at least one.
    pub fn with_capacity(&self, capacity_bytes: u64) -> Preset {
        let physical = u64::from(self.physical_sector_bytes);
        let capacity_bytes = (capacity_bytes / physical * physical).max(physical);
        Preset { parameters: self.parameters.with_capacity(capacity_bytes), ..self.clone() }
    }

    /// The same device formatted for a tuple of protection information per sector. Its capacity and its seeks stay; on a disk a
    /// sector takes as much longer as it is larger (520 / 512, 4104 / 4096). [`Emulated::with_protection`] keeps the tuples.
    pub fn with_protection(&self) -> Preset {
        let is_rotational = self.parameters.seek_curve().is_some();
        let nominal = if is_rotational { protected_rates(self.nominal, self.sector_bytes) } else { self.nominal };
        Preset { nominal, parameters: self.parameters.with_protection(self.sector_bytes), ..self.clone() }
    }

    /// The same device with its read and write caches off (SCSI: WCE = 0, RCD = 1), as for measurements of its mechanics; `None`
    /// if it cannot do without.
    pub fn without_caches(&self) -> Option<Preset> {
        Some(Preset { parameters: self.parameters.without_caches()?, ..self.clone() })
    }

    /// The same device promising so many random reads a second, where one that is done stands for several.
    pub fn with_random_reads(&self, random_reads_per_second: u64) -> Preset {
        Preset { nominal: NominalPerformance { random_reads_per_second, ..self.nominal }, ..self.clone() }
    }

    /// The device, conventional, called `name` in messages, with its bytes in `backing`.
    pub fn build(&self, env: &Env, name: &str, backing: Box<dyn Backing>, pacing: Pacing) -> Emulated {
        self.build_ruled(env, name, self.geometry(), Box::new(Conventional), backing, pacing)
    }

    /// The device under other rules, in the sizes `geometry`, which they cut from its own.
    pub fn build_ruled(
        &self,
        env: &Env,
        name: &str,
        geometry: Geometry,
        rules: Box<dyn Rules>,
        backing: Box<dyn Backing>,
        pacing: Pacing,
    ) -> Emulated {
        let timing = self.parameters.timing();
        Emulated::with_pacing(env, name, geometry, rules, timing, backing, pacing).with_nominal(self.nominal)
    }

    /// The device with interlaced tracks, cut to whole ones, which lie one after the other in
    /// address order on the mechanism of the model (as in the emulation of KVIMR, section 4.1).
    pub fn build_interlaced(
        &self,
        env: &Env,
        name: &str,
        rules: Interlaced,
        backing: Box<dyn Backing>,
        pacing: Pacing,
    ) -> Device {
        let geometry = rules.cut(&self.geometry());
        rules.device(name, |rules| self.build_ruled(env, name, geometry, rules, backing, pacing))
    }

    /// The device with zones, cut to whole ones, in address order on the model: the time of everything but
    /// the zone commands is that of the device without.
    pub fn build_zoned(
        &self,
        env: &Env,
        name: &str,
        rules: Zoned,
        backing: Box<dyn Backing>,
        pacing: Pacing,
    ) -> Device {
        let geometry = rules.cut(&self.geometry());
        rules
            .with_physical_sector(geometry.physical_sector_bytes)
            .device(|rules| self.build_ruled(env, name, geometry, rules, backing, pacing))
    }

    /// The device with zones that may be written anywhere, cut to whole ones, and the translation layer that allows it. The
    /// media cache is beside the capacity, before everything else. With a record in a simulation the device is dropped by an
    /// actor: what it cleaned until then is noted.
    pub fn build_translated(
        &self,
        env: &Env,
        name: &str,
        rules: Zoned,
        translation: impl Into<Translation>,
        backing: Box<dyn Backing>,
        pacing: Pacing,
    ) -> Device {
        let mut translation = translation.into();
        let geometry = rules.cut(&self.geometry());
        let timing = self.translated(&rules, &mut translation, geometry.capacity_bytes);
        let device = rules.with_physical_sector(geometry.physical_sector_bytes).device(|rules| {
            Emulated::with_pacing(env, name, geometry, rules, timing, backing, pacing).with_nominal(self.nominal)
        });
        match translation.record {
            Some(record) => CacheRecorded::device(device, record),
            None => device,
        }
    }

    /// The same device without a word of its zones: a device-managed one.
    pub fn build_device_managed(
        &self,
        env: &Env,
        name: &str,
        zones: &ZoneGeometry,
        translation: TranslationParameters,
        backing: Box<dyn Backing>,
        pacing: Pacing,
    ) -> Device {
        let hidden = Zoned::new(zones);
        let geometry = hidden.cut(&self.geometry());
        let timing = self.translated(&hidden, &mut translation.into(), geometry.capacity_bytes);
        let rules = Box::new(Conventional);
        let device = Emulated::with_pacing(env, name, geometry, rules, timing, backing, pacing);
        Device::of_blocks(Arc::new(device.with_nominal(self.nominal)))
    }

    fn translated(&self, zones: &Zoned, translation: &mut Translation, capacity_bytes: u64) -> Box<TranslationLayer> {
        let parameters = translation.parameters.clone();
        let below = self.with_capacity(capacity_bytes.saturating_add(parameters.home_bytes()));
        let (table, below) = (zones.table(), below.parameters.timing());
        Box::new(match &mut translation.record {
            Some(record) => TranslationLayer::recorded(parameters, table, below, record),
            None => TranslationLayer::new(parameters, table, below),
        })
    }
}

#[cfg(test)]
mod tests;
