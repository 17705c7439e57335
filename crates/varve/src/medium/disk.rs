//! `disk:` an emulated disk.

use super::emulated::{self, ACCOUNT, BACKING, CACHES, GUARD, MODEL, PACE, PI, SCALE};
use crate::registry::{ArgumentDescription, KindDescription, MediumKind, ValueForm};

pub(crate) const DISK: MediumKind = MediumKind {
    description: KindDescription {
        name: "disk",
        summary: "an emulated hard disk: seeks, rotation, zones, cache",
        argument: ArgumentDescription { value: ValueForm::Size, default: Some("the model's"), meaning: "its capacity" },
        options: &[MODEL, BACKING, SCALE, CACHES, PI, GUARD, PACE, ACCOUNT],
        examples: &[
            "disk:100GB?model=ST500DM002",
            "disk:10GB?backing=file:/tmp/disk.img",
            "disk:1TB?scale=1/64,layout=ext4",
            "disk:1GB?pi=1",
        ],
    },
    is_emulated: true,
    build: |construction, part| {
        emulated::build_preset(construction, part, "st500dm002", |capabilities| capabilities.rotational)
    },
};
