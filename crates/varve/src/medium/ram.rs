//! `ram:` a device of memory that takes no time.

use super::emulated::{self, BACKING, GUARD, PI};
use crate::error::Error;
use crate::registry::{ArgumentDescription, KindDescription, MediumKind, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, Construction};
use std::sync::Arc;
use varve_media::emulated::{Conventional, Emulated, Immediate};
use varve_media::{Device, Geometry};

const CAPACITY_BYTES: u64 = 1 << 30;

pub(crate) const RAM: MediumKind = MediumKind {
    description: KindDescription {
        name: "ram",
        summary: "a device that takes no time; its bytes are gone with the process",
        argument: ArgumentDescription { value: ValueForm::Size, default: Some("1GiB"), meaning: "its capacity" },
        options: &[BACKING, PI, GUARD],
        examples: &["ram:1GiB"],
    },
    is_emulated: true,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    const PHYSICAL_SECTOR_BYTES: u32 = 4096;
    let sector_bytes = u64::from(PHYSICAL_SECTOR_BYTES);
    let capacity_bytes =
        emulated::capacity_bytes(part, sector_bytes)?.unwrap_or(CAPACITY_BYTES) / sector_bytes * sector_bytes;
    let geometry = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: PHYSICAL_SECTOR_BYTES };
    let protection = emulated::protection(part)?;
    let (backing, _) = emulated::backing(construction, part, capacity_bytes)?;
    let device = Emulated::with_pacing(
        construction.env,
        &part.to_string(),
        geometry,
        Box::new(Conventional),
        Box::<Immediate>::default(),
        backing,
        emulated::pacing(part),
    );
    let model =
        emulated::Model { name: "ram", summary: "memory without delays", scale_divisor: 1, timing: String::new() };
    let device = Device::of_blocks(Arc::new(emulated::protected(construction, part, device, protection)));
    emulated::refuse_image_of_zones(construction, part, &device)?;
    Ok(emulated::built(construction, part, device, model))
}
