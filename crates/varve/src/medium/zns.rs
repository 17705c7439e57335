//! `zns:` a zoned solid-state drive.

use super::emulated::{self, ACCOUNT, MODEL, Model, PACE, SCALE};
use super::zones::{self, ACTIVE, BACKING, OPEN, RECORD};
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, hardware_backing,
};
use crate::spec::Part;
use crate::stack::{Base, Construction};
use varve_media::ZoneGeometry;
use varve_media::presets::Preset;

/// Zones of a drive that has none by itself: those of the ZN540.
const ZONE_BYTES: u64 = 2 << 30;
const ZONE_CAPACITY_BYTES: u64 = 1077 << 20;
const OPEN_ZONES: u32 = 14;

pub(crate) const ZNS: MediumKind = MediumKind {
    description: KindDescription {
        name: "zns",
        summary: "a zoned solid-state drive: zones that must be written in order, few of them open",
        argument: ArgumentDescription {
            value: ValueForm::Size,
            default: Some("the model's"),
            meaning: "its writable bytes, rounded up to whole zones",
        },
        options: &[
            OptionDescription {
                name: "zone",
                value: ValueForm::Size,
                default: "the model's, or 2GiB",
                meaning: "distance between the starts of zones",
            },
            OptionDescription {
                name: "zone-capacity",
                value: ValueForm::Size,
                default: "the model's, or 1077MiB, at most the zone",
                meaning: "writable bytes of a zone",
            },
            OPEN,
            ACTIVE,
            MODEL,
            BACKING,
            RECORD,
            SCALE,
            PACE,
            ACCOUNT,
        ],
        examples: &["zns:21GiB", "zns:1GiB?zone=64MiB,zone-capacity=48MiB", "zns:100GB?model=nvme-ssd"],
    },
    is_emulated: true,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    if let Some(real) = hardware_backing(part) {
        return zones::build_on_hardware(construction, part, real, |capacity_bytes, physical_sector_bytes| {
            let one = one_zone(part, 1, physical_sector_bytes, None)?;
            let fit = ZoneGeometry::fit(capacity_bytes, one.zone_bytes);
            let zone_count = fit
                .map(|fit| fit.zone_count)
                .ok_or_else(|| zones::do_not_fit(part, "zone", one.zone_bytes, capacity_bytes, 1))?;
            Ok(ZoneGeometry { zone_count, ..one })
        });
    }
    let (preset, scale_divisor) = emulated::scaled_preset(part, "zn540", |capabilities| !capabilities.rotational)?;
    let geometry = preset.geometry();
    let zones = one_zone(part, scale_divisor, geometry.physical_sector_bytes, Some(&preset))?;
    let zone_count = u32::try_from(geometry.capacity_bytes.div_ceil(zones.zone_capacity_bytes)).ok();
    let Some(zone_count) = zone_count.filter(|&zone_count| zone_count <= ZoneGeometry::ZONES_MAX) else {
        // What is written in a zone decides how many there are.
        let option = if part.option("zone-capacity").is_some() { "zone-capacity" } else { "zone" };
        let (writable_bytes, capacity_bytes) = (zones.zone_capacity_bytes, geometry.capacity_bytes);
        return Err(zones::do_not_fit(part, option, writable_bytes, capacity_bytes, scale_divisor));
    };
    let zones = ZoneGeometry { zone_count, ..zones };
    let Some(address_bytes) = zones.zone_bytes.checked_mul(u64::from(zone_count)) else {
        let expected = format!("zones of which {zone_count} have addresses below 2^64 bytes");
        return Err(part.value_error("zone", expected).into());
    };
    let preset = preset.with_capacity(address_bytes);
    let model = Model::of_preset(&preset, scale_divisor);
    zones::build_on_preset(construction, part, &preset, &zones, model)
}

/// One zone as the part asks for, in whole physical sectors.
fn one_zone(
    part: &Part,
    scale_divisor: u64,
    physical_sector_bytes: u32,
    preset: Option<&Preset>,
) -> Result<ZoneGeometry, Error> {
    let sector_bytes = u64::from(physical_sector_bytes);
    let whole = |bytes: u64| bytes / scale_divisor / sector_bytes * sector_bytes;
    let own = preset.and_then(Preset::zones);
    let own_or = |own: Option<u64>, other: u64| own.unwrap_or_else(|| whole(other));
    let zone_bytes = match part.size_bytes("zone")? {
        Some(bytes) => whole(bytes),
        None => own_or(own.as_ref().map(|zones| zones.zone_bytes), ZONE_BYTES),
    };
    let zone_capacity_bytes = match part.size_bytes("zone-capacity")? {
        Some(bytes) => whole(bytes),
        None => own_or(own.as_ref().map(|zones| zones.zone_capacity_bytes), ZONE_CAPACITY_BYTES).min(zone_bytes),
    };
    for (option, bytes) in [("zone", zone_bytes), ("zone-capacity", zone_capacity_bytes)] {
        if bytes == 0
            && scale_divisor > 1
            && let Some(asked_bytes) = part.size_bytes(option)?
        {
            return Err(emulated::too_small(part, option, asked_bytes, sector_bytes));
        }
        if bytes == 0 || bytes > zone_bytes {
            let expected = format!(
                "from one physical sector of {sector_bytes} bytes to the length of a zone, divided by the scale"
            );
            return Err(part.value_error(option, expected).into());
        }
    }
    let limits = own.map_or((OPEN_ZONES, OPEN_ZONES), |zones| (zones.open_zones_max, zones.active_zones_max));
    let open_zones_max = zones::limit(part, OPEN, limits.0)?;
    let active_zones_max = zones::limit(part, ACTIVE, limits.1)?;
    let fit = ZoneGeometry::fit(zone_bytes, zone_bytes).ok_or_else(|| part.value_error("zone", "a size"))?;
    Ok(ZoneGeometry { zone_capacity_bytes, open_zones_max, active_zones_max, ..fit })
}
