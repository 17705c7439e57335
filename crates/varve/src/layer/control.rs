//! `control=` holds requests back so that a shingled disk cleans before it must.

use super::media_cache::media_cache;
use crate::error::Error;
use crate::registry::{LayerKind, OptionDescription, ValueForm, scale_of, whole_number};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction};
use varve_block::idler::{ControlledDevice, Controller, FixedIdle, GhostCache, Idler, IdlerParameters};
use varve_media::Device;

const CONTROL: &str = "control";
const EXECUTION: &str = "control-execution-ms";
const IDLE: &str = "control-idle-ms";
const CACHE: &str = "control-cache";
const EXTENTS: &str = "control-extents";

/// AT-IC as the paper found it best (Zhang, section 4.5).
const EXECUTION_MILLIS: u64 = 5000;
const IDLE_MILLIS: u64 = 2000;

pub(crate) const CONTROL_LAYER: LayerKind = LayerKind {
    options: &[
        OptionDescription {
            name: CONTROL,
            value: ValueForm::Choice(&["at-ic", "idler"]),
            default: "none",
            meaning: "holds requests back so that a host-aware disk cleans its media cache before it is full: at fixed times, or as \
                      Idler does; times are those of a disk in full size; relocate=on cleans from the host instead",
        },
        OptionDescription {
            name: EXECUTION,
            value: ValueForm::Number(1),
            default: "5000",
            meaning: "of at-ic: how long requests are served",
        },
        OptionDescription {
            name: IDLE,
            value: ValueForm::Number(1),
            default: "2000",
            meaning: "of at-ic: how long they are held back then",
        },
        OptionDescription {
            name: CACHE,
            value: ValueForm::Size,
            default: "what an emulated disk has",
            meaning: "of idler: the media cache of the disk",
        },
        OptionDescription {
            name: EXTENTS,
            value: ValueForm::Number(1),
            default: "what an emulated disk has",
            meaning: "of idler: extents that its map holds",
        },
    ],
    changes_shape: false,
    wrap,
};

fn wrap(construction: &Construction<'_>, base: Base, part: &Part) -> Result<Base, Error> {
    let Some(wanted) = part.text(CONTROL)? else { return Ok(base) };
    let Base::Devices(devices) = base else {
        return Err(part.value_error(CONTROL, "no control of a directory: of a host-aware disk").into());
    };
    let controlled = devices.into_iter().map(|BuiltDevice { device, description, members }| {
        let controller = controller(part, wanted, &device)?;
        let (device, control) = ControlledDevice::new(construction.env, &device, controller);
        construction.handles.borrow_mut().control = Some(control);
        Ok(BuiltDevice { device, description, members })
    });
    controlled.collect::<Result<Vec<_>, Error>>().map(Base::Devices)
}

fn controller(part: &Part, wanted: &str, device: &Device) -> Result<Box<dyn Controller>, Error> {
    let divisor = scale_of(part)?;
    let millis = |name: &str, default: u64| {
        let found = part.text(name)?.and_then(whole_number).unwrap_or(default);
        Ok::<_, Error>(found.saturating_mul(1_000_000) / divisor)
    };
    if wanted == "at-ic" {
        return Ok(Box::new(FixedIdle::new(millis(EXECUTION, EXECUTION_MILLIS)?, millis(IDLE, IDLE_MILLIS)?)));
    }
    let Some(zones) = device.block.capabilities().zones.clone().filter(|zones| zones.can_be_written_anywhere()) else {
        let expected = "at-ic, or a disk that reports zones which may be written anywhere, as hasmr:";
        return Err(part.value_error(CONTROL, expected).into());
    };
    let ghost = GhostCache::new(&zones, media_cache(part, &zones, CACHE, EXTENTS)?);
    Ok(Box::new(Idler::new(IdlerParameters::default().scaled(divisor), ghost)))
}
