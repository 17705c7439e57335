//! `hybrid`: files on zoned devices of different speed.

use crate::error::Error;
use crate::registry::{FileStoreKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction, refused};
use std::sync::Arc;
use varve_engine::Profile;
use varve_media::{Device, ZoneType};
use varve_store::{
    BandStore, CachingName, DivisionName, FileStore, HybridFormatOptions, HybridOpenOptions, HybridStore,
    HybridTechnique, MigrationName, MissingDevices, PlacementName,
};

const RESERVE: &str = "reserve-tables";
const PLACEMENT: &str = "placement";
const MIGRATION: &str = "migration";
const CACHING: &str = "caching";
const DIVISION: &str = "division";
const LOG_ZONES: &str = "log-and-cache-zones";
const MIGRATION_RATE: &str = "migration-rate";
const AUTO_INTERVAL: &str = "auto-interval-us";
const SHARED_ZONES: &str = "shared-zones";
const CLEANING_RATE: &str = "cleaning-rate";
const TABLE_SIZE: &str = "tiered-table-size";
const TRANSFER_SIZE: &str = "transfer-size";
const TIERS: &str = "tiers";
const MISSING: &str = "missing-devices";
const OPEN_TABLES: &str = "open-tables";
const WITHOUT: &str = "without";

pub(crate) const HYBRID: FileStoreKind = FileStoreKind {
    name: "hybrid",
    summary: "tables on fast zones or slow ones by their level, moved and cached by how they are read (HHZS)",
    needs: "one to eight devices with zones, each of which must be written in order or has conventional ones before those",
    options: &[
        OptionDescription {
            name: RESERVE,
            value: ValueForm::Number(1),
            default: "2",
            meaning: "outputs of compactions for which zones are kept, so that those can always finish, decided when the \
                      device is laid out",
        },
        OptionDescription {
            name: PLACEMENT,
            value: ValueForm::Choice(&["basic-1", "basic-2", "basic-3", "basic-4", "auto", "write-guided"]),
            default: "write-guided",
            meaning: "where new tables go: levels below a number to the fast devices, SpanDB's automated placement, or what \
                      running flushes and compactions are about to need",
        },
        OptionDescription {
            name: MIGRATION,
            value: ValueForm::Choice(&["none", "workload-aware", "amortized"]),
            default: "amortized",
            meaning: "whether tables move between fast and slow devices by level and by how often they are read",
        },
        OptionDescription {
            name: CACHING,
            value: ValueForm::Choice(&["none", "fifo", "frequency", "records"]),
            default: "records",
            meaning: "which blocks of slow devices that the block cache gives up are kept on the fast ones: the latest, or those \
                      that are read most",
        },
        OptionDescription {
            name: DIVISION,
            value: ValueForm::Choice(&["fixed", "by-worth"]),
            default: "by-worth",
            meaning: "how zones of the fast devices are divided between tables and cached blocks: a number for logs and blocks, or \
                      by what another one is worth to each (with caching=frequency or records)",
        },
        OptionDescription {
            name: LOG_ZONES,
            value: ValueForm::Number(0),
            default: "2",
            meaning: "zones of the fast devices that are kept for logs and cached blocks together, where they are not divided \
                      by worth",
        },
        OptionDescription {
            name: MIGRATION_RATE,
            value: ValueForm::Size,
            default: "4MiB",
            meaning: "bytes of tables moved in a second at most",
        },
        OptionDescription {
            name: SHARED_ZONES,
            value: ValueForm::Choice(&["yes", "no"]),
            default: "yes where two tables have space in a zone",
            meaning: "whether tables that are at most half as large as a zone share zones with others that are expected to live as \
                      long",
        },
        OptionDescription {
            name: CLEANING_RATE,
            value: ValueForm::Size,
            default: "16MiB",
            meaning: "bytes copied in a second at most to empty zones that tables share, while nobody waits for one",
        },
        OptionDescription {
            name: AUTO_INTERVAL,
            value: ValueForm::Number(1),
            default: "1000000",
            meaning: "how often the automated placement looks at what the fast devices do",
        },
        OptionDescription {
            name: TABLE_SIZE,
            value: ValueForm::Size,
            default: "64MiB where two such tables have space in a zone of the fast devices, else such a zone",
            meaning: "size of a full table, at most a zone of the fast devices",
        },
        OptionDescription {
            name: TRANSFER_SIZE,
            value: ValueForm::Size,
            default: "16MiB for disks, 1MiB otherwise",
            meaning: "bytes of a table that are written at once, at most a 16th of a zone",
        },
        OptionDescription {
            name: TIERS,
            value: ValueForm::Text,
            default: "by random reads a second, and where those are unknown disks behind solid-state devices",
            meaning: "a digit for each device, 0 the fastest; needed where several solid-state devices do not say how fast they are",
        },
        OptionDescription {
            name: OPEN_TABLES,
            value: ValueForm::Choice(&["expected", "counted"]),
            default: "expected",
            meaning: "whether a table that a compaction writes is among those of its level from its creation on, as the prototype of \
                      HHZS has it, or expected until it is finished",
        },
        OptionDescription {
            name: WITHOUT,
            value: ValueForm::Choice(&["kept-copies", "followed-records", "idle-promotion", "request-order"]),
            default: "nothing is left out",
            meaning: "a technique to leave out, for measurements: copies kept when their zone goes, copies of records that compactions \
                      write again, tables that come up while disks are idle, or the order of requests by class",
        },
        OptionDescription {
            name: MISSING,
            value: ValueForm::Choice(&["refuse", "read-only", "give-up"]),
            default: "refuse",
            meaning: "what becomes of a set of which a device is not in the spec: it is not opened; what is on the others is read, and \
                      nothing written; or the others become the store permanently, once 'repair' has made a database of them",
        },
    ],
    accepts: |base| match base {
        Base::Devices(devices) => {
            let has_zones = |built: &BuiltDevice| {
                built.device.block.capabilities().zones.as_ref().is_some_and(|zones| {
                    zones.conventional_zones > 0 || zones.sequential_type == ZoneType::SequentialWriteRequired
                })
            };
            (1..=8).contains(&devices.len()) && devices.iter().all(has_zones)
        }
        Base::Directory(_) => false,
    },
    is_preferred,
    logs: None,
    open,
};

/// Returns true for one non-rotational zoned device whose zones hold two tables or more: tables keep their size and share zones. With
/// `band`, each table takes a zone, and a drive of few zones is full after a few flushes. A device formatted for `band` stays with `band`.
fn is_preferred(base: &Base) -> bool {
    let Base::Devices(devices) = base else { return false };
    let [BuiltDevice { device, .. }] = devices.as_slice() else { return false };
    let capabilities = device.block.capabilities();
    let is_large = capabilities.zones.as_ref().is_some_and(|zones| {
        zones.sequential_type == ZoneType::SequentialWriteRequired
            && HybridStore::shares_zones_of(zones.zone_capacity_bytes)
    });
    let is_there = || HybridStore::probe(std::slice::from_ref(device)).is_ok_and(|is_hybrid| is_hybrid);
    let is_free = || BandStore::probe(device).is_ok_and(|is_band| !is_band);
    is_large && !capabilities.rotational && (is_there() || is_free())
}

/// The choice of this name among those there are.
fn chosen<T: Copy>(part: &Part, option: &str, all: &[T], name: impl Fn(T) -> String) -> Result<Option<T>, Error> {
    let Some(text) = part.text(option)? else { return Ok(None) };
    let found = all.iter().copied().find(|choice| name(*choice) == text);
    found.map(Some).ok_or_else(|| part.value_error(option, "one of its choices").into())
}

fn number<N: std::str::FromStr>(part: &Part, option: &str) -> Result<Option<N>, Error> {
    let Some(text) = part.text(option)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| part.value_error(option, "a whole number that is not so large").into())
}

/// What holds where the spec says nothing.
fn usual_options(profile: Profile) -> HybridOpenOptions {
    let usual = HybridOpenOptions::default();
    match profile {
        Profile::Paper => HybridOpenOptions {
            placement: PlacementName::WriteGuided,
            migration: MigrationName::WorkloadAware,
            caching: CachingName::Fifo,
            division: DivisionName::Fixed,
            ..usual
        },
        _ => usual,
    }
}

fn open_options(part: &Part, profile: Profile) -> Result<HybridOpenOptions, Error> {
    let usual = usual_options(profile);
    let tiers = match part.text(TIERS)? {
        None => None,
        Some(text) => {
            let digits: Option<Vec<u8>> =
                text.chars().map(|digit| digit.to_digit(10).map(|digit| digit as u8)).collect();
            Some(digits.ok_or_else(|| part.value_error(TIERS, "a digit for each device, as in 01"))?)
        }
    };
    Ok(HybridOpenOptions {
        placement: chosen(part, PLACEMENT, PlacementName::ALL, PlacementName::name)?.unwrap_or(usual.placement),
        migration: chosen(part, MIGRATION, MigrationName::ALL, |name| name.name().to_owned())?
            .unwrap_or(usual.migration),
        caching: chosen(part, CACHING, CachingName::ALL, |name| name.name().to_owned())?.unwrap_or(usual.caching),
        division: chosen(part, DIVISION, DivisionName::ALL, |name| name.name().to_owned())?.unwrap_or(usual.division),
        log_and_cache_zones: number(part, LOG_ZONES)?.unwrap_or(usual.log_and_cache_zones),
        migration_bytes_per_second: part.size_bytes(MIGRATION_RATE)?.unwrap_or(usual.migration_bytes_per_second),
        shared_zones: chosen(part, SHARED_ZONES, &[true, false], |shares| {
            if shares { "yes" } else { "no" }.to_owned()
        })?,
        cleaning_bytes_per_second: part.size_bytes(CLEANING_RATE)?.unwrap_or(usual.cleaning_bytes_per_second),
        auto_interval_nanos: match number::<u32>(part, AUTO_INTERVAL)? {
            Some(micros) => u64::from(micros) * 1000,
            None => usual.auto_interval_nanos,
        },
        tiers,
        counts_open_tables: part.text(OPEN_TABLES)? == Some("counted"),
        without: chosen(part, WITHOUT, HybridTechnique::ALL, |technique| technique.name().to_owned())?,
        table_bytes: part.size_bytes(TABLE_SIZE)?,
        transfer_bytes: part.size_bytes(TRANSFER_SIZE)?,
        missing_devices: chosen(part, MISSING, MissingDevices::ALL, |name| name.name().to_owned())?
            .unwrap_or(usual.missing_devices),
        ..usual
    })
}

fn open(
    construction: &Construction<'_>,
    base: &Base,
    part: &Part,
    _logs: Option<&BuiltDevice>,
) -> Result<Arc<dyn FileStore>, Error> {
    let Base::Devices(built) = base else { return Err(refused(part, &HYBRID, base)) };
    let devices: Vec<Device> = built.iter().map(|built| built.device.clone()).collect();
    let options = open_options(part, construction.profile)?;
    let mut format = HybridFormatOptions {
        overwrite: construction.format,
        table_bytes: options.table_bytes,
        tiers: options.tiers.clone(),
        ..HybridFormatOptions::default()
    };
    if let Some(tables) = number(part, RESERVE)? {
        format.reserve_tables = tables;
    }
    if construction.format || !HybridStore::probe(&devices)? {
        if !construction.create && !construction.format {
            return Err(Error::missing(devices.first().map_or("", |device| device.block.name())));
        }
        HybridStore::format(construction.env, &devices, &format)?;
    }
    Ok(Arc::new(HybridStore::open(construction.env, devices, &options)?))
}
