//! `ssd:` and `nvme:` emulated solid-state drives.

use super::emulated::{self, ACCOUNT, BACKING, GUARD, MODEL, PACE, PI, SCALE};
use crate::registry::{ArgumentDescription, KindDescription, MediumKind, ValueForm};

const CAPACITY: ArgumentDescription =
    ArgumentDescription { value: ValueForm::Size, default: Some("the model's"), meaning: "its capacity" };

pub(crate) const SSD: MediumKind = MediumKind {
    description: KindDescription {
        name: "ssd",
        summary: "an emulated solid-state drive on SATA",
        argument: CAPACITY,
        options: &[MODEL, BACKING, SCALE, PI, GUARD, PACE, ACCOUNT],
        examples: &["ssd:100GB", "ssd:100GB?backing=file:/tmp/ssd.img"],
    },
    is_emulated: true,
    build: |construction, part| {
        emulated::build_preset(construction, part, "sata-ssd", |capabilities| !capabilities.rotational)
    },
};

pub(crate) const NVME: MediumKind = MediumKind {
    description: KindDescription {
        name: "nvme",
        summary: "an emulated solid-state drive on NVMe",
        argument: CAPACITY,
        options: &[MODEL, BACKING, SCALE, PI, GUARD, PACE, ACCOUNT],
        examples: &["nvme:100GB", "nvme:100GB?model=zn540"],
    },
    is_emulated: true,
    build: |construction, part| {
        emulated::build_preset(construction, part, "nvme-ssd", |capabilities| !capabilities.rotational)
    },
};
