//! `imr`: files on an interlaced disk.

use crate::error::Error;
use crate::registry::{self, FileStoreKind, INSIDE, OptionDescription, ValueForm};
use crate::spec::{Part, Spec, SpecOption, Value};
use crate::stack::{Base, BuiltDevice, Construction, build_base, refused};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use varve_engine::Profile;
use varve_media::Device;
use varve_store::{
    AllocationName, FileStore, ImrDevices, ImrFormatOptions, ImrOpenOptions, ImrPlace, ImrStore, RewriteName,
    TrackWrites,
};

pub(crate) const IMR: FileStoreKind = FileStoreKind {
    name: "imr",
    summary: "tables on whole tracks of an interlaced disk (KVIMR), all other files on a device beside it or on \
              reserved top tracks",
    needs: "one device with interlaced tracks, or a conventional one",
    options: &[
        OptionDescription {
            name: "allocation",
            value: ValueForm::Choice(AllocationName::TEXTS),
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
            name: "track-writes",
            value: ValueForm::Choice(&["forced", "cached"]),
            default: "forced",
            meaning: "tracks with gaps between them go to the medium by forced unit access, many at once, where the disk can, or \
                      all through its cache",
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
            meaning: "space for logs and manifests, decided when the disk is laid out",
        },
        OptionDescription {
            name: "map",
            value: ValueForm::Choice(&["beside", INSIDE]),
            default: "beside",
            meaning: "where it is kept which table has which tracks when logs have a device of their own: on that, or \
                      on the disk; decided when the disk is laid out",
        },
        OptionDescription {
            name: "track-size",
            value: ValueForm::Size,
            default: "2MiB",
            meaning: "tracks of a conventional disk under this store, decided when the disk is laid out",
        },
    ],
    accepts: |base| device_of(base).is_some_and(|device| device.block.capabilities().zones.is_none()),
    is_preferred: |_| false,
    logs: Some(logs),
    open,
};

/// Least size of the drive beside an emulated disk, before it is scaled.
const DRIVE_BYTES_MIN: u64 = 1 << 30;
/// As on interlaced disks: KVIMR, section 2.2.
const CONVENTIONAL_TRACK_BYTES: u64 = 2 << 20;

fn device_of(base: &Base) -> Option<&Device> {
    match base {
        Base::Devices(devices) => match devices.as_slice() {
            [BuiltDevice { device, .. }] => Some(device),
            _ => None,
        },
        Base::Directory(_) => None,
    }
}

fn format_options(construction: &Construction<'_>, device: &Device, part: &Part) -> Result<ImrFormatOptions, Error> {
    let defaults = ImrFormatOptions::default();
    let usual = match construction.profile {
        Profile::Paper => AllocationName::CompactionAware,
        _ => defaults.allocation,
    };
    let track_bytes = part.size_bytes("track-size")?;
    let conventional = device.block.capabilities().tracks.is_none();
    if track_bytes.is_some() && !conventional {
        let expected = "no track size for an interlaced disk, which has tracks by itself";
        return Err(part.value_error("track-size", expected).into());
    }
    Ok(ImrFormatOptions {
        allocation: allocation(part)?.unwrap_or(usual),
        rewrite: rewrite(part)?.unwrap_or(defaults.rewrite),
        table_bytes_max: part.size_bytes("table-size")?,
        small_files_bytes: part.size_bytes("small-files")?,
        conventional_track_bytes: conventional.then_some(track_bytes.unwrap_or(CONVENTIONAL_TRACK_BYTES)),
        map: if part.text("map")? == Some(INSIDE) { ImrPlace::Inside } else { ImrPlace::Beside },
        overwrite: construction.format,
        // Images are searched when they are opened.
        is_searched: true,
        ..defaults
    })
}

fn open(
    construction: &Construction<'_>,
    base: &Base,
    part: &Part,
    logs: Option<&BuiltDevice>,
) -> Result<Arc<dyn FileStore>, Error> {
    let device = device_of(base).ok_or_else(|| refused(part, &IMR, base))?;
    let devices = ImrDevices { disk: device.clone(), logs: logs.map(|built| built.device.clone()) };
    let options = format_options(construction, device, part)?;
    if construction.format || !ImrStore::probe(device)? {
        if !construction.create && !construction.format {
            return Err(Error::missing(device.block.name()));
        }
        ImrStore::format(construction.env, devices.clone(), &options)?;
    }
    let track_writes = match part.text("track-writes")? {
        Some("cached") => TrackWrites::Cached,
        _ => TrackWrites::Forced,
    };
    let options = ImrOpenOptions { allocation: allocation(part)?, rewrite: rewrite(part)?, track_writes };
    Ok(Arc::new(ImrStore::open(construction.env, devices, &options)?))
}

/// The device of logs: the one `logs` names; else what the disk was laid out with; else, for an emulated
/// disk, a small emulated solid-state drive whose bytes are where those of the disk are.
fn logs(construction: &Construction<'_>, base: &Base, part: &Part) -> Result<Option<BuiltDevice>, Error> {
    let device = device_of(base).ok_or_else(|| refused(part, &IMR, base))?;
    let is_new = construction.describe || construction.format;
    let placement = if is_new { None } else { ImrStore::placement(device)? };
    let spec = match part.logs()? {
        Some(spec) => spec,
        None if part.has_logs_inside() => return Ok(None),
        None => {
            if placement.is_some_and(|(placement, _)| placement.logs == ImrPlace::Inside) {
                return Ok(None);
            }
            let scale = registry::scale_of(part)?;
            let options = format_options(construction, device, part)?;
            let bytes = match (placement, options.small_files_bytes) {
                (Some((_, bytes)), _) => bytes.saturating_mul(scale),
                (None, Some(_)) => ImrStore::logs_bytes(device, &options)?.saturating_mul(scale),
                // Also beside a small disk there is space for the logs of write buffers of the usual size.
                (None, None) => ImrStore::logs_bytes(device, &options)?.saturating_mul(scale).max(DRIVE_BYTES_MIN),
            };
            match emulated_beside(part, bytes)? {
                Some(spec) => spec,
                None => return Ok(None),
            }
        }
    };
    let refuse = || {
        let expected = "one conventional device for logs; for a file, dev:PATH?size=SIZE";
        part.value_error("logs", expected)
    };
    // What holds the logs of a store that is there is not made anew.
    let built = match placement {
        Some((placement, _)) if placement.logs == ImrPlace::Beside => existing(construction, &spec)?,
        _ => build_base(construction, &spec)?,
    };
    match built {
        Base::Devices(built) => match <[BuiltDevice; 1]>::try_from(built) {
            Ok([built]) if built.device.block.capabilities().tracks.is_none() => Ok(Some(built)),
            _ => Err(refuse().into()),
        },
        Base::Directory(_) => Err(refuse().into()),
    }
}

/// The medium of logs of a store that is there: as it is, or an error that says that it is lost.
fn existing(construction: &Construction<'_>, spec: &Spec) -> Result<Base, Error> {
    let handles = RefCell::new(construction.handles.take());
    let existing = Construction {
        create: false,
        env: construction.env,
        handles,
        begin_with: construction.begin_with.clone(),
        ..*construction
    };
    let built = build_base(&existing, spec);
    construction.handles.replace(existing.handles.into_inner());
    built.map_err(|error| match error {
        Error::Missing { name, .. } => Error::Missing {
            name,
            advice: "the logs of this store are there: restore it, or name it with logs=...; what is not in tables yet is \
                     nowhere else",
        },
        other => other,
    })
}

/// The drive of so many bytes, not yet scaled, beside an emulated disk, at the same scale; `None` beside real hardware,
/// and where bytes are nowhere.
fn emulated_beside(part: &Part, bytes: u64) -> Result<Option<Spec>, Error> {
    if !registry::is_emulated(part) {
        return Ok(None);
    }
    let backing = match part.option("backing").and_then(SpecOption::value) {
        Some(Value::Text(text)) if text == b"none" => return Ok(None),
        Some(Value::Spec(image)) => registry::file_path_of(image).map(|path| {
            let mut path = path.into_os_string();
            path.push(".logs");
            Spec::of_path(Path::new(&path))
        }),
        _ => None,
    };
    let mut options: Vec<String> = backing.iter().map(|image| format!("backing={image}")).collect();
    options.extend(part.text("scale")?.map(|scale| format!("scale={scale}")));
    options.extend(["pace", "account"].into_iter().filter(|flag| part.has_flag(flag)).map(str::to_owned));
    let separator = if options.is_empty() { "" } else { "?" };
    Ok(Some(format!("ssd:{bytes}{separator}{}", options.join(",")).parse()?))
}

fn allocation(part: &Part) -> Result<Option<AllocationName>, Error> {
    Ok(part.text("allocation")?.and_then(AllocationName::of_text))
}

fn rewrite(part: &Part) -> Result<Option<RewriteName>, Error> {
    Ok(part.text("rewrite")?.map(|name| if name == "naive" { RewriteName::Naive } else { RewriteName::Merged }))
}
