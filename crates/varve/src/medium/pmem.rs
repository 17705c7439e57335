//! `pmem:` byte-addressable persistent memory.

use super::emulated::{self, ACCOUNT, PACE};
use crate::error::Error;
use crate::registry::{ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, Construction};
use varve_media::{Geometry, MemoryModel, PersistentMemory};

const CAPACITY_BYTES: u64 = 1 << 30;
/// Sector of the block device on the memory, logical and physical: the smallest that stores take.
const SECTOR_BYTES: u32 = 512;

pub(crate) const PMEM: MediumKind = MediumKind {
    description: KindDescription {
        name: "pmem",
        summary: "persistent memory, emulated in memory that is gone with the process",
        argument: ArgumentDescription { value: ValueForm::Size, default: Some("1GiB"), meaning: "its capacity" },
        options: &[
            OptionDescription {
                name: "model",
                value: ValueForm::Choice(&["nvdimm", "pcm", "optane", "cxl"]),
                default: "nvdimm",
                meaning: "which memory it imitates; read/write latency of a line in ns: nvdimm 50/50, pcm 100/400, optane \
                          305/90, cxl 200/200",
            },
            PACE,
            ACCOUNT,
        ],
        examples: &["pmem:8GiB", "pmem:8GiB?model=optane"],
    },
    is_emulated: true,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    let sector_bytes = u64::from(SECTOR_BYTES);
    let capacity_bytes =
        emulated::capacity_bytes(part, sector_bytes)?.unwrap_or(CAPACITY_BYTES) / sector_bytes * sector_bytes;
    let model = part.text("model")?.and_then(MemoryModel::find).unwrap_or(MemoryModel::NVDIMM);
    let memory = PersistentMemory::emulated(construction.env, &part.to_string(), capacity_bytes)?;
    let memory = memory.with_model(model, emulated::pacing(part));
    let geometry = Geometry { capacity_bytes, sector_bytes: SECTOR_BYTES, physical_sector_bytes: SECTOR_BYTES };
    let timing = format!("{model:#?}");
    let described = emulated::Model { name: model.name, summary: model.summary, scale_divisor: 1, timing };
    Ok(emulated::built(construction, part, memory.into_device(&geometry)?, described))
}
