//! `dev:` a block device of the machine, or a file used as one.

use super::emulated;
use crate::description::DeviceDescription;
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, file_mode, whole_number,
};
use crate::spec::{Part, SpecErrorKind};
use crate::stack::{Base, BuiltDevice, Construction};
use varve_media::{FileDevice, FileDeviceOptions, IoEngine, MadePlace, MediaErrorKind};

pub(crate) const DEV: MediumKind = MediumKind {
    description: KindDescription {
        name: "dev",
        summary: "a real block device, or a file used as one, past the page cache",
        argument: ArgumentDescription { value: ValueForm::Path, default: None, meaning: "the device or file" },
        options: &[
            OptionDescription {
                name: "size",
                value: ValueForm::Size,
                default: "all of it",
                meaning: "bytes to use; makes the file, sparse, when it is not there",
            },
            OptionDescription {
                name: "buffered",
                value: ValueForm::Flag,
                default: "O_DIRECT where it can be had",
                meaning: "go through the page cache",
            },
            OptionDescription {
                name: "engine",
                value: ValueForm::Choice(&["auto", "uring", "positional"]),
                default: "auto",
                meaning: "how requests reach the kernel: io_uring, or pread and pwrite",
            },
            OptionDescription {
                name: "depth",
                value: ValueForm::Number(1),
                default: "64",
                meaning: "requests in flight at once, at most, under io_uring",
            },
            OptionDescription {
                name: "random-reads",
                value: ValueForm::Number(1),
                default: "unknown; a disk is taken for slower than a solid-state device",
                meaning: "random reads a second of 4 KiB, one at a time: how fast it is beside other devices (store=hybrid)",
            },
        ],
        examples: &[
            "dev:/dev/sdb",
            "dev:/dev/nvme0n1?store=hybrid,random-reads=17000+dev:/dev/sdb?random-reads=115",
            "dev:/srv/varve.img?size=10GiB",
        ],
    },
    is_emulated: false,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    let built = open(construction, part)?;
    if let Some(path) = part.argument_path() {
        emulated::refuse_file_of_zones(construction, part, &path, &built.device)?;
    }
    Ok(Base::Devices(vec![built]))
}

/// The one device of a part of this kind.
pub(super) fn open(construction: &Construction<'_>, part: &Part) -> Result<BuiltDevice, Error> {
    let Some(path) = part.argument_path() else {
        return Err(part.argument_error(SpecErrorKind::Missing, "a path").into());
    };
    let defaults = FileDeviceOptions::default();
    let queue_depth = match part.text("depth")?.and_then(whole_number) {
        None => defaults.queue_depth,
        Some(depth) => u32::try_from(depth)
            .ok()
            .filter(|depth| (1..=4096).contains(depth))
            .ok_or_else(|| part.value_error("depth", "a depth from 1 to 4096"))?,
    };
    let options = FileDeviceOptions {
        capacity_bytes: part.size_bytes("size")?,
        create: construction.create && part.option("size").is_some(),
        read_only: construction.read_only,
        direct: !part.has_flag("buffered"),
        engine: match part.text("engine")? {
            Some("uring") => IoEngine::Uring,
            Some("positional") => IoEngine::Positional,
            _ => IoEngine::Auto,
        },
        queue_depth,
        random_reads_per_second: part.text("random-reads")?.and_then(whole_number),
        mode: file_mode(part)?,
        ..defaults
    };
    let device = FileDevice::open(&path, &options).map_err(|error| match error.kind() {
        MediaErrorKind::NotFound if options.capacity_bytes.is_none() => {
            let name = path.display().to_string();
            Error::Missing { name, advice: "name a device that is there, or add ?size=SIZE to make a file" }
        }
        MediaErrorKind::NotFound => Error::missing(path.display().to_string()),
        _ => error.into(),
    })?;
    let engine = match device.engine() {
        IoEngine::Uring => "io_uring",
        _ => "pread and pwrite",
    };
    if device.was_made() {
        construction.note_made(MadePlace::File(path.clone()));
    }
    let device = device.into_device()?;
    let description = DeviceDescription {
        name: part.to_string(),
        model: path.display().to_string(),
        summary: format!("hardware through {engine}"),
        // These are the usual ones, which nobody promised.
        sequential_read_bytes_per_second: None,
        sequential_write_bytes_per_second: None,
        ..DeviceDescription::of(&device)
    };
    Ok(BuiltDevice { device, description, members: None })
}
