//! `extent`: files on a raw conventional device.

use super::band;
use crate::error::Error;
use crate::registry::{FileStoreKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction, refused};
use std::sync::Arc;
use varve_media::ZoneGeometry;
use varve_store::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore, FileStore};

pub(crate) const EXTENT: FileStoreKind = FileStoreKind {
    name: "extent",
    summary: "files in extents of a raw device",
    needs: "one device that can be written anywhere without loss, as a conventional one, or a shingled one with its translation layer",
    options: &[
        OptionDescription {
            name: "layout",
            value: ValueForm::Choice(&["first-fit", "ext4"]),
            default: "first-fit",
            meaning: "where files go, decided when the device is laid out; ext4 imitates that file system",
        },
        OptionDescription {
            name: "group-size",
            value: ValueForm::Size,
            default: "128MiB",
            meaning: "block group of the ext4 layout",
        },
        OptionDescription {
            name: "journal-size",
            value: ValueForm::Size,
            default: "as mke2fs",
            meaning: "journal of the ext4 layout",
        },
    ],
    accepts: |base| match base {
        Base::Devices(devices) => match devices.as_slice() {
            [built] => {
                let capabilities = built.device.block.capabilities();
                let zones = capabilities.zones.as_ref();
                zones.is_none_or(ZoneGeometry::can_be_written_anywhere) && capabilities.tracks.is_none()
            }
            _ => false,
        },
        Base::Directory(_) => false,
    },
    is_preferred,
    logs: None,
    open,
};

/// Returns true for one zoned device that takes writes anywhere, where bands are not the default.
fn is_preferred(base: &Base) -> bool {
    let Base::Devices(devices) = base else { return false };
    let [BuiltDevice { device, .. }] = devices.as_slice() else { return false };
    device.block.capabilities().zones.as_ref().is_some_and(ZoneGeometry::can_be_written_anywhere)
        && !band::is_default_of(device)
}

fn open(
    construction: &Construction<'_>,
    base: &Base,
    part: &Part,
    _logs: Option<&BuiltDevice>,
) -> Result<Arc<dyn FileStore>, Error> {
    let device = match base {
        Base::Devices(devices) => match devices.as_slice() {
            [BuiltDevice { device, .. }] => device,
            _ => return Err(refused(part, &EXTENT, base)),
        },
        Base::Directory(_) => return Err(refused(part, &EXTENT, base)),
    };
    // Images are searched for marks of layers when they are opened.
    let options = ExtentFormatOptions { layout: layout(part)?, overwrite: construction.format, is_searched: true };
    if construction.format || !ExtentStore::probe(device)? {
        if !construction.create && !construction.format {
            return Err(Error::missing(device.block.name()));
        }
        ExtentStore::format(construction.env, device, &options)?;
    }
    Ok(Arc::new(ExtentStore::open(construction.env, device.clone())?))
}

fn layout(part: &Part) -> Result<ExtentLayout, Error> {
    let defaults = Ext4Options::default();
    let ext4 = Ext4Options {
        group_bytes: part.size_bytes("group-size")?.unwrap_or(defaults.group_bytes),
        journal_bytes: part.size_bytes("journal-size")?.or(defaults.journal_bytes),
    };
    Ok(match part.text("layout")? {
        Some("ext4") => ExtentLayout::Ext4(ext4),
        Some("next-fit") => ExtentLayout::NextFit,
        _ => ExtentLayout::FirstFit,
    })
}
