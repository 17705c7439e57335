//! `hasmr:` a shingled disk that may be written anywhere: its translation layer keeps what is not written in order.

use super::emulated::{self, ACCOUNT, MODEL, Model, PACE, RANDOM_READS, SCALE};
use super::zones::{self, Kept, RECORD};
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, file_mode, small_number,
    whole_number,
};
use crate::spec::{ByteSize, Part};
use crate::stack::{Base, Construction};
use varve_media::emulated::{CleaningOrder, Translation, TranslationParameters};
use varve_media::{MadePlace, MediaCache, MediaCacheRecord, ZoneGeometry, ZoneType};

/// Those of the ST8000AS0022 (Zhang, section 4.4).
const ZONE_BYTES: u64 = 256 << 20;

pub(crate) const HASMR: MediumKind = MediumKind {
    description: KindDescription {
        name: "hasmr",
        summary: "a shingled disk written anywhere: what is not in order goes to a media cache, until the disk cleans its zone",
        argument: ArgumentDescription { value: ValueForm::Size, default: Some("the model's"), meaning: "its capacity" },
        options: &[
            OptionDescription { name: "zone", value: ValueForm::Size, default: "256MiB", meaning: "size of a zone" },
            OptionDescription {
                name: "conventional",
                value: ValueForm::Size,
                default: "0",
                meaning: "region at the start that is written as any disk, in whole zones, rounded up",
            },
            OptionDescription {
                name: "cache",
                value: ValueForm::Size,
                default: "18.2GB",
                meaning: "size of the media cache, beside the capacity; fitted to a measured ST8000AS0022",
            },
            OptionDescription {
                name: "extents",
                value: ValueForm::Number(8),
                default: "182000",
                meaning: "pieces of the address space that can be in the cache",
            },
            OptionDescription {
                name: "idle-trigger-ms",
                value: ValueForm::Number(0),
                default: "239",
                meaning: "time without a command after which the disk begins to clean; fitted to a measured ST8000AS0022",
            },
            OptionDescription {
                name: "order",
                value: ValueForm::Choice(&["oldest", "cheapest", "fullest"]),
                default: "oldest",
                meaning: "which zone is cleaned next",
            },
            OptionDescription {
                name: "device-managed",
                value: ValueForm::Flag,
                default: "host-aware: it reports its zones",
                meaning: "the disk says nothing of its zones",
            },
            MODEL,
            emulated::BACKING,
            OptionDescription {
                meaning: "file that keeps what zones are in, for bytes in a file; what lies in the media cache is kept \
                          beside it, or else beside the bytes, in PATH.media-cache",
                ..RECORD
            },
            SCALE,
            RANDOM_READS,
            PACE,
            ACCOUNT,
        ],
        examples: &["hasmr:8TB", "hasmr:100GB?cache=1GB,extents=10000", "hasmr:1TB?device-managed"],
    },
    is_emulated: true,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    let (preset, scale_divisor) =
        emulated::scaled_preset(part, "st8000as0022", |capabilities| capabilities.rotational)?;
    let preset = match part.text(RANDOM_READS.name)?.and_then(whole_number) {
        Some(reads) => preset.with_random_reads(reads),
        None => preset,
    };
    let translation = translation(part, scale_divisor)?;
    let geometry = preset.geometry();
    let sector_bytes = u64::from(geometry.physical_sector_bytes);
    let zones = zones_of(part, scale_divisor, geometry.capacity_bytes, sector_bytes, translation.media_cache)?;
    let (name, pacing) = (part.to_string(), emulated::pacing(part));
    let device = if part.has_flag("device-managed") {
        if part.option(RECORD.name).is_some() {
            return Err(part.value_error(RECORD.name, "no record: a device-managed disk has no zones to keep").into());
        }
        let (backing, _) = emulated::backing(construction, part, zones.address_bytes())?;
        let device = preset.build_device_managed(construction.env, &name, &zones, translation.clone(), backing, pacing);
        emulated::refuse_image_of_zones(construction, part, &device)?;
        device
    } else {
        let (rules, backing, kept) = zones::rules_and_bytes(construction, part, &zones)?;
        let record = kept.map(|kept| cache_record(construction, part, &kept, &zones)).transpose()?;
        let translation = Translation { parameters: translation.clone(), record };
        preset.build_translated(construction.env, &name, rules, translation, backing, pacing)
    };
    let mut model = Model::of_preset(&preset, scale_divisor);
    model.timing = format!("{}\n{translation:#?}", model.timing);
    Ok(emulated::built(construction, part, device, model))
}

/// The record of what lies in the media cache, beside that of the zones.
fn cache_record(
    construction: &Construction<'_>,
    part: &Part,
    kept: &Kept,
    zones: &ZoneGeometry,
) -> Result<MediaCacheRecord, Error> {
    let path = emulated::with_suffix(&kept.path, emulated::MEDIA_CACHE_SUFFIX);
    if construction.read_only {
        return Ok(MediaCacheRecord::open_read_only(&path, zones)?);
    }
    if !kept.is_new {
        return Ok(MediaCacheRecord::open(&path, zones, file_mode(part)?)?);
    }
    let record = MediaCacheRecord::create(&path, zones, file_mode(part)?)?;
    if record.was_made() {
        construction.note_made(MadePlace::File(path));
    }
    Ok(record)
}

/// What the part says of the translation layer.
fn translation(part: &Part, scale_divisor: u64) -> Result<TranslationParameters, Error> {
    let number = |name: &str| Ok::<_, Error>(part.text(name)?.and_then(whole_number));
    let own = TranslationParameters::st8000as0022();
    let mut changed = own.clone();
    if let Some(bytes) = part.size_bytes("cache")? {
        changed.media_cache.bytes = bytes;
    }
    if let Some(extents) = small_number(part, "extents")? {
        changed.media_cache.extents_max = extents;
    }
    if let Some(millis) = number("idle-trigger-ms")? {
        changed.idle_trigger_nanos = millis.saturating_mul(1_000_000);
    }
    changed.order = match part.text("order")? {
        Some("cheapest") => CleaningOrder::Cheapest,
        Some("fullest") => CleaningOrder::Fullest,
        Some(_) => CleaningOrder::Oldest,
        None => own.order,
    };
    let scaled = changed.scaled(scale_divisor);
    let MediaCache { bytes, extents_max } = scaled.media_cache;
    if bytes < CACHE_BYTES_MIN {
        return Err(emulated::too_small(part, "cache", changed.media_cache.bytes, CACHE_BYTES_MIN));
    }
    if extents_max < EXTENTS_MIN {
        return Err(emulated::too_small(part, "extents", changed.media_cache.extents_max.into(), EXTENTS_MIN.into()));
    }
    Ok(scaled)
}

/// A cache takes some sectors, and its map some extents.
const CACHE_BYTES_MIN: u64 = 64 << 10;
const EXTENTS_MIN: u32 = 8;

/// The zones the part asks for, in whole physical sectors.
fn zones_of(
    part: &Part,
    scale_divisor: u64,
    capacity_bytes: u64,
    sector_bytes: u64,
    media_cache: MediaCache,
) -> Result<ZoneGeometry, Error> {
    let asked_bytes = part.size_bytes("zone")?.unwrap_or(ZONE_BYTES);
    let zone_bytes = asked_bytes / scale_divisor / sector_bytes * sector_bytes;
    if zone_bytes == 0 {
        return Err(emulated::too_small(part, "zone", asked_bytes, sector_bytes));
    }
    let fit = ZoneGeometry::fit(capacity_bytes, zone_bytes)
        .ok_or_else(|| zones::do_not_fit(part, "zone", zone_bytes, capacity_bytes, scale_divisor))?;
    let conventional_bytes = part.size_bytes("conventional")?.unwrap_or(0) / scale_divisor;
    let conventional_zones = u32::try_from(conventional_bytes.div_ceil(zone_bytes)).unwrap_or(u32::MAX);
    if conventional_zones >= fit.zone_count {
        let expected = format!("less than the {} of the disk", ByteSize(fit.address_bytes()));
        return Err(part.value_error("conventional", expected).into());
    }
    let sequential_type = ZoneType::SequentialWritePreferred;
    Ok(ZoneGeometry { conventional_zones, sequential_type, media_cache: Some(media_cache), ..fit })
}
