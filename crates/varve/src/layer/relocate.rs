//! `relocate=` cleans a host-aware shingled disk from the host.

use super::media_cache::media_cache;
use crate::description::ZonesDescription;
use crate::error::Error;
use crate::registry::{LayerKind, OptionDescription, ValueForm, scale_of, small_number};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction};
use varve_block::relocation::{Formatting, RelocatingDevice, RelocationParameters};
use varve_media::{Device, MediaCache, OverlayDevice};

const RELOCATE: &str = "relocate";
const SPARES: &str = "relocate-spares";
const UTILIZATION: &str = "relocate-utilization";
const CACHE: &str = "relocate-cache";
const EXTENTS: &str = "relocate-extents";

pub(crate) const RELOCATE_LAYER: LayerKind = LayerKind {
    options: &[
        OptionDescription {
            name: RELOCATE,
            value: ValueForm::Choice(&["on", "anew"]),
            default: "off",
            meaning: "moves zones of a host-aware disk that are out of order to empty ones, so that the disk has nothing to clean; a blank \
                      disk is made ready for it, with anew any, whose last zones are lost",
        },
        OptionDescription {
            name: SPARES,
            value: ValueForm::Number(1),
            default: "2",
            meaning: "zones kept empty to move others to, when a disk is made ready",
        },
        OptionDescription {
            name: UTILIZATION,
            value: ValueForm::Number(0),
            default: "80",
            meaning: "hundredths of the media cache that may be in use before a zone is moved",
        },
        OptionDescription {
            name: CACHE,
            value: ValueForm::Size,
            default: "what an emulated disk has",
            meaning: "the media cache of the disk",
        },
        OptionDescription {
            name: EXTENTS,
            value: ValueForm::Number(1),
            default: "what an emulated disk has",
            meaning: "extents that its map holds",
        },
    ],
    changes_shape: true,
    wrap,
};

fn wrap(construction: &Construction<'_>, base: Base, part: &Part) -> Result<Base, Error> {
    let Some(wanted) = part.text(RELOCATE)? else { return Ok(base) };
    let Base::Devices(devices) = base else {
        return Err(part.value_error(RELOCATE, "no relocation in a directory: on a host-aware disk").into());
    };
    // Where nothing may be written, and where the device is only to say of what shape it is, opening writes to memory.
    let formatting = match wanted {
        _ if construction.describe || construction.format => Formatting::Anew,
        _ if construction.read_only || !construction.create => Formatting::Never,
        "anew" => Formatting::Anew,
        _ => Formatting::IfBlank,
    };
    let rests = construction.describe || construction.read_only;
    let relocated = devices.into_iter().map(|built| {
        let (limits, parameters) = (limits(part, &built.device)?, parameters(part, rests)?);
        let below = if rests { OverlayDevice::device(&built.device)? } else { built.device };
        let (device, _) = RelocatingDevice::open(construction.env, &below, limits, parameters, formatting)?;
        let mut description = built.description;
        description.capacity_bytes = device.block.geometry().capacity_bytes;
        description.zones = ZonesDescription::of(&device);
        Ok(BuiltDevice { device, description, members: built.members })
    });
    relocated.collect::<Result<Vec<_>, Error>>().map(Base::Devices)
}

fn parameters(part: &Part, read_only: bool) -> Result<RelocationParameters, Error> {
    let divisor = scale_of(part)?;
    let mut parameters = RelocationParameters::default().scaled(divisor);
    parameters.spares = small_number(part, SPARES)?.unwrap_or(parameters.spares);
    if let Some(percent) = small_number(part, UTILIZATION)? {
        if percent >= 100 {
            return Err(part.value_error(UTILIZATION, "hundredths, below 100").into());
        }
        parameters.utilization = f64::from(percent) / 100.0;
        parameters.urgent_utilization = parameters.urgent_utilization.max(parameters.utilization);
    }
    if read_only {
        parameters.utilization = f64::MAX;
    }
    Ok(parameters)
}

/// What the cache of the disk holds.
fn limits(part: &Part, device: &Device) -> Result<MediaCache, Error> {
    let zones = device.block.capabilities().zones.as_ref().filter(|zones| zones.can_be_written_anywhere());
    let Some(zones) = zones else {
        let expected = "a disk that reports zones which may be written anywhere, as hasmr:";
        return Err(part.value_error(RELOCATE, expected).into());
    };
    media_cache(part, zones, CACHE, EXTENTS)
}
