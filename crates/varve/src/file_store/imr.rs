//! `imr`: files on an interlaced disk.

use crate::error::Error;
use crate::registry::{FileStoreKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction, refused};
use std::sync::Arc;
use varve_media::Device;
use varve_store::{AllocationName, FileStore, ImrFormatOptions, ImrOpenOptions, ImrStore, RewriteName};

const ALLOCATIONS: &[&str] = &[
    "cost-aware",
    "compaction-aware",
    "sequential",
    "three-phase",
    "zigzag",
    "region",
    "cost-aware-without-cover",
    "cost-aware-without-lifetime",
    "cost-aware-without-relief",
    "cost-aware-without-reserve",
    "cost-aware-without-whole",
    "cost-aware-without-locality",
];

pub(crate) const IMR: FileStoreKind = FileStoreKind {
    name: "imr",
    summary: "tables on whole tracks of an interlaced disk (KVIMR), all other files on reserved top tracks",
    needs: "one device with interlaced tracks",
    options: &[
        OptionDescription {
            name: "allocation",
            value: ValueForm::Choice(ALLOCATIONS),
            default: "as the disk was laid out; cost-aware for a new one",
            meaning: "which tracks a table gets",
        },
        OptionDescription {
            name: "rewrite",
            value: ValueForm::Choice(&["merged", "naive"]),
            default: "as the disk was laid out; merged for a new one",
            meaning: "how top tracks are saved when a bottom track beside them is written",
        },
        OptionDescription {
            name: "table-size",
            value: ValueForm::Size,
            default: "a 256th of the disk, at most 96MiB",
            meaning: "largest table whose neighbours are saved at once, decided when the disk is laid out",
        },
        OptionDescription {
            name: "small-files",
            value: ValueForm::Size,
            default: "a 32nd of the disk, from 4MiB to 2GiB",
            meaning: "room for logs and manifests, decided when the disk is laid out",
        },
    ],
    accepts: |base| device_of(base).is_some_and(|device| device.block.capabilities().tracks.is_some()),
    open,
};

fn device_of(base: &Base) -> Option<&Device> {
    match base {
        Base::Devices(devices) => match devices.as_slice() {
            [BuiltDevice { device, .. }] => Some(device),
            _ => None,
        },
        Base::Directory(_) => None,
    }
}

fn open(construction: &Construction<'_>, base: &Base, part: &Part) -> Result<Arc<dyn FileStore>, Error> {
    let device = device_of(base).ok_or_else(|| refused(part, &IMR, base))?;
    let (allocation, rewrite) = (allocation(part)?, rewrite(part)?);
    if construction.format || !ImrStore::probe(device)? {
        if !construction.create && !construction.format {
            return Err(Error::missing(device.block.name()));
        }
        let defaults = ImrFormatOptions::default();
        let options = ImrFormatOptions {
            allocation: allocation.unwrap_or(defaults.allocation),
            rewrite: rewrite.unwrap_or(defaults.rewrite),
            table_bytes_max: part.size_bytes("table-size")?,
            small_files_bytes: part.size_bytes("small-files")?,
            overwrite: construction.format,
            ..defaults
        };
        ImrStore::format(construction.env, device, &options)?;
    }
    Ok(Arc::new(ImrStore::open(construction.env, device.clone(), &ImrOpenOptions { allocation, rewrite })?))
}

fn allocation(part: &Part) -> Result<Option<AllocationName>, Error> {
    Ok(part.text("allocation")?.and_then(AllocationName::of_text))
}

fn rewrite(part: &Part) -> Result<Option<RewriteName>, Error> {
    Ok(part.text("rewrite")?.map(|name| if name == "naive" { RewriteName::Naive } else { RewriteName::Merged }))
}
