//! Media, at full size, and the configurations that are compared on each.

use crate::error::LabError;
use crate::experiment::emulated;
use crate::experiment::{Scale, simulate};
use std::fmt;
use varve::options::{Favour, Profile};
use varve::{Options, TreeKind};

/// A size of data, and the models of the media below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// What options were tuned on: 70 memtables of data.
    Tuning,
    /// Four times the data on other models.
    Judging,
    /// Little data, for tests.
    #[cfg(test)]
    Smoke,
}

/// Bytes of a memtable at full size, the default.
const MEMTABLE_BYTES: u64 = 64 << 20;

impl Set {
    /// Bytes of keys and values at full size.
    pub(super) fn data_bytes(self) -> u64 {
        match self {
            Set::Tuning => 70 * MEMTABLE_BYTES,
            Set::Judging => 280 * MEMTABLE_BYTES,
            #[cfg(test)]
            Set::Smoke => 12 * MEMTABLE_BYTES,
        }
    }

    /// Seeds: none is in both sets.
    pub(super) fn seeds(self, first: u64) -> impl Iterator<Item = u64> {
        let offset = match self {
            Set::Judging => 10,
            _ => 0,
        };
        (first + offset..).take(3)
    }
}

/// A kind of medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    InterlacedEmpty,
    InterlacedFull,
    Shingled,
    HostAware,
    Zoned,
    Hybrid,
    SolidState,
}

impl Medium {
    pub(super) const ALL: [Medium; 8] = [
        Medium::Disk,
        Medium::InterlacedEmpty,
        Medium::InterlacedFull,
        Medium::Shingled,
        Medium::HostAware,
        Medium::Zoned,
        Medium::Hybrid,
        Medium::SolidState,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Medium::Disk => "disk",
            Medium::InterlacedEmpty => "imr, mostly empty",
            Medium::InterlacedFull => "imr, well filled",
            Medium::Shingled => "smr",
            Medium::HostAware => "hasmr",
            Medium::Zoned => "zns",
            Medium::Hybrid => "zns+smr",
            Medium::SolidState => "ssd",
        }
    }

    /// Its spec at full size, and what belongs to each device behind the last option.
    fn devices(self, set: Set) -> Vec<String> {
        let megabytes = |data: f64| format!("{}MB", (set.data_bytes() as f64 * data / 1e6) as u64);
        let of = |tuning: &'static str, judging: &'static str| if set == Set::Judging { judging } else { tuning };
        let disk = of("st500dm002", "barracuda-3tb");
        match self {
            Medium::Disk => vec![format!("disk:450GB?model={disk}")],
            Medium::InterlacedEmpty => vec![format!("imr:450GB?model={disk}")],
            Medium::InterlacedFull => vec![format!("imr:{}?model={disk}", megabytes(1.8))],
            Medium::Shingled => vec![format!("smr:200GB?model={}", of("barracuda-3tb", "st14000nm0007"))],
            Medium::HostAware => vec![of("hasmr:1TB?model=st8000as0022", "hasmr:2TB?model=st14000nm0007").to_owned()],
            Medium::Zoned => vec![of("zns:100GB?model=zn540", "zns:200GB?model=zn540,zone=256MiB").to_owned()],
            // Zones as small as drives have them, so that half of the data fills several.
            Medium::Hybrid => vec![
                format!("zns:{}?model=zn540,zone={}", megabytes(0.6), of("128MiB", "256MiB")),
                "smr:100GB?model=st14000nm0007".to_owned(),
            ],
            Medium::SolidState => vec![format!("ssd:450GB?model={}", of("sata-ssd", "nvme-ssd"))],
        }
    }

    /// Its spec at a scale, with these options of the store.
    pub(super) fn spec(self, set: Set, scale: Scale, store: &str) -> String {
        let mut devices = self.devices(set);
        for device in &mut devices {
            device.push_str(&format!(",scale={scale},backing=compressed"));
        }
        if !store.is_empty() {
            devices[0].push_str(&format!(",{store}"));
        }
        devices.join("+")
    }

    /// What is compared here: the default first.
    pub(super) fn configurations(self) -> Vec<Configuration> {
        let mut all = vec![
            Configuration::of("default", |_| ()),
            Configuration::of("paper", |options| options.profile = Profile::Paper),
            Configuration::of("plain leveled", |options| {
                options.profile = Profile::Paper;
                options.tree = Some(TreeKind::Leveled);
            }),
            Configuration::of("favour=writes", |options| options.favour = Favour::Writes),
            Configuration::of("favour=scans", |options| options.favour = Favour::Scans),
        ];
        let unpaced = Configuration::of("favour=writes, unpaced", |options| {
            options.favour = Favour::Writes;
            options.pace_background_work = Some(false);
        });
        let paced = Configuration::of("leveled, paced", |options| {
            options.favour = Favour::Writes;
            options.tree = Some(TreeKind::Leveled);
        });
        let ordered = Configuration::of("two levels for scans", |options| {
            options.favour = Favour::Scans;
            options.tree = Some(TreeKind::TwoLevel);
        });
        match self {
            Medium::Disk | Medium::SolidState => all.extend([unpaced, paced]),
            Medium::InterlacedEmpty | Medium::InterlacedFull => {
                all.push(Configuration::of("compaction-aware", |_| ()).with_store("allocation=compaction-aware"));
            }
            Medium::Shingled => all.extend([unpaced, paced, ordered]),
            Medium::HostAware => {
                all.extend([unpaced, paced, ordered, Configuration::of("extents", |_| ()).with_store("store=extent")]);
            }
            Medium::Zoned => all.push(Configuration::of("hybrid of one", |_| ()).with_store("store=hybrid")),
            Medium::Hybrid => {
                all.push(Configuration::of("64 MiB tables", |_| ()).with_store("tiered-table-size=TABLE"));
            }
        }
        all
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A configuration of a medium.
#[derive(Clone, Copy)]
pub(super) struct Configuration {
    pub(super) name: &'static str,
    change: fn(&mut Options),
    store: &'static str,
}

impl Configuration {
    fn of(name: &'static str, change: fn(&mut Options)) -> Configuration {
        Configuration { name, change, store: "" }
    }

    fn with_store(self, store: &'static str) -> Configuration {
        Configuration { store, ..self }
    }

    /// Options of its store in a spec, at a scale.
    pub(super) fn store(&self, scale: Scale) -> String {
        self.store.replace("TABLE", &format!("{}B", scale.of(MEMTABLE_BYTES) / 4096 * 4096))
    }

    /// Options as they hold on the medium at full size, with every size and time divided: blocks, and what is read at once
    /// first, keep their size, as sectors and pages do.
    ///
    /// # Errors
    /// A spec that nothing can be built from.
    pub(super) fn options(&self, medium: Medium, set: Set, scale: Scale) -> Result<Options, LabError> {
        let mut given = Options::default();
        (self.change)(&mut given);
        let spec = medium.spec(set, Scale::FULL, &self.store(Scale::FULL));
        let full = simulate(1, move |env| {
            let stack = emulated::stack(env, &spec)?;
            let files = stack.files().properties();
            let logs = stack.logs().map(|logs| logs.properties());
            let (options, _) = given.for_medium(files, logs, None);
            Ok(options.on_stores(files, logs.unwrap_or(files)))
        })?;
        let size = |bytes: u64| scale.of(bytes);
        let small = |bytes: Option<usize>| bytes.map(|bytes| size(bytes as u64) as usize);
        Ok(Options {
            write_buffer_size: size(full.write_buffer_size as u64) as usize,
            max_bytes_for_level_base: size(full.max_bytes_for_level_base),
            target_file_size_base: size(full.target_file_size_base),
            max_compaction_bytes: size(full.max_compaction_bytes),
            soft_pending_compaction_bytes_limit: size(full.soft_pending_compaction_bytes_limit),
            hard_pending_compaction_bytes_limit: size(full.hard_pending_compaction_bytes_limit),
            block_cache_capacity: size(full.block_cache_capacity as u64) as usize,
            log_buffer_size: small(full.log_buffer_size),
            log_write_behind_size: small(full.log_write_behind_size),
            compaction_readahead_size: small(full.compaction_readahead_size),
            iterator_readahead_size: full
                .iterator_readahead_size
                .map(|bytes| (size(bytes as u64) as usize).max(64 << 10)),
            max_write_stall_ms: full.max_write_stall_ms.map(|millis| if millis == 0 { 0 } else { size(millis).max(1) }),
            ..full
        })
    }
}
