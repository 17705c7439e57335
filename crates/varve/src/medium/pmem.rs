//! `pmem:` byte-addressable persistent memory.

use super::emulated::{self, ACCOUNT, PACE};
use crate::description::DeviceDescription;
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, file_mode, file_path_of,
};
use crate::spec::{Part, SpecOption, Value};
use crate::stack::{Base, BuiltDevice, Construction};
use std::path::{Path, PathBuf};
use varve_media::{ByteAddressable, Geometry, MadePlace, MediaError, MemoryFileOptions, MemoryModel, PersistentMemory};

const CAPACITY_BYTES: u64 = 1 << 30;
/// Sector of the block device on the memory, logical and physical: the smallest that stores take.
const SECTOR_BYTES: u32 = 512;

pub(crate) const PMEM: MediumKind = MediumKind {
    description: KindDescription {
        name: "pmem",
        summary: "persistent memory: emulated, or a file that is mapped into the process",
        argument: ArgumentDescription {
            value: ValueForm::Size,
            default: Some("1GiB, or that of the file"),
            meaning: "its capacity",
        },
        options: &[
            OptionDescription {
                name: "backing",
                value: ValueForm::ChoiceOrFile(&["ram"]),
                default: "ram",
                meaning: "where its bytes are: memory of the process, whose time is emulated, or a file, best on a file \
                          system on persistent memory (DAX), which takes the time it takes",
            },
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
        examples: &["pmem:8GiB", "pmem:8GiB?model=optane", "pmem:8GiB?backing=file:/mnt/pmem0/varve"],
    },
    is_emulated: true,
    build,
};

/// The file that a part has its bytes in.
fn file_of(part: &Part) -> Option<PathBuf> {
    match part.option("backing").and_then(SpecOption::value) {
        Some(Value::Spec(spec)) => file_path_of(spec),
        _ => None,
    }
}

/// Returns true for memory in a file, which takes real time.
pub(crate) fn is_real(part: &Part) -> bool {
    part.kind() == PMEM.description.name && file_of(part).is_some()
}

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    if let Some(path) = file_of(part) {
        return build_on_file(construction, part, &path);
    }
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

/// Memory in a file.
fn build_on_file(construction: &Construction<'_>, part: &Part, path: &Path) -> Result<Base, Error> {
    for option in ["model", PACE.name, ACCOUNT.name] {
        if part.option(option).is_some() {
            let expected = "no such option with backing=file: memory in a file takes the time it takes";
            return Err(part.value_error(option, expected).into());
        }
    }
    let asked_bytes = emulated::capacity_bytes(part, SECTOR_BYTES.into())?;
    let is_new = path.metadata().map_or(true, |found| found.len() == 0);
    let options = MemoryFileOptions {
        capacity_bytes: asked_bytes.or(is_new.then_some(CAPACITY_BYTES)),
        create: construction.create,
        read_only: construction.read_only || construction.describe,
        mode: file_mode(part)?,
    };
    let memory = match PersistentMemory::open(construction.env, path, &options) {
        Err(MediaError::NotFound { name, .. }) => return Err(Error::missing(name)),
        Err(MediaError::Unsuitable { device: name, found, expected, .. }) if path.is_file() => {
            let found = format!("expected {expected}, found {found}");
            let advice = "name another file, or move this one away to make a new one".to_owned();
            return Err(Error::Foreign { name, found, advice });
        }
        memory => memory?.named(&part.to_string()),
    };
    if memory.was_made() {
        construction.note_made(MadePlace::File(path.to_owned()));
    }
    let geometry = Geometry {
        capacity_bytes: memory.capacity_bytes(),
        sector_bytes: SECTOR_BYTES,
        physical_sector_bytes: SECTOR_BYTES,
    };
    let device = memory.into_device(&geometry)?;
    emulated::refuse_image_of_zones(construction, part, &device)?;
    let description = DeviceDescription {
        name: part.to_string(),
        model: path.display().to_string(),
        summary: "persistent memory in a file".to_owned(),
        backing: format!("file:{}", path.display()),
        ..DeviceDescription::of(&device)
    };
    Ok(Base::Devices(vec![BuiltDevice { device, description, members: None }]))
}
