//! What the kinds with zones share.

use super::emulated::{self, ACCOUNT, MODEL, Model, PACE, RANDOM_READS, SCALE};
use super::hardware;
use crate::description::DeviceDescription;
use crate::error::Error;
use crate::layer::changes_shape;
use crate::registry::{OptionDescription, ValueForm, file_mode, file_path_of, whole_number};
use crate::spec::{ByteSize, Part, SpecErrorKind, SpecOption, Value, path_of};
use crate::stack::{Base, BuiltDevice, Construction};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_media::emulated::{Backing, Conventional};
use varve_media::presets::Preset;
use varve_media::{
    Device, Emulated, FileBacking, Geometry, Immediate, MadePlace, MediaError, MediaErrorKind, ZoneGeometry,
    ZoneRecord, Zoned,
};

/// Options that say what a real disk says by itself.
const TIMING_OPTIONS: [OptionDescription; 5] = [MODEL, SCALE, RANDOM_READS, PACE, ACCOUNT];

/// Limit on open zones.
pub(super) const OPEN: OptionDescription = OptionDescription {
    name: "open",
    value: ValueForm::Number(0),
    default: "128 for bands, 14 for zones of a drive, or the model's",
    meaning: "zones that may be open at once; 0 is no limit",
};

/// Limit on active zones.
pub(super) const ACTIVE: OptionDescription = OptionDescription {
    name: "active",
    value: ValueForm::Number(0),
    default: "no limit for bands, 14 for zones of a drive, or the model's",
    meaning: "zones that may be open or closed with data at once; 0 is no limit",
};

/// Where the bytes are.
pub(super) const BACKING: OptionDescription = OptionDescription {
    name: "backing",
    value: ValueForm::ChoiceOrFileOrDevice(emulated::BACKING_WORDS),
    default: "ram",
    meaning: "where its bytes are: memory, memory compressed by LZ4, nowhere, a sparse file that lasts, or a real \
              disk with its own time; what zones are in on the last two is kept in a file of its own",
};

/// Where zones are kept.
pub(super) const RECORD: OptionDescription = OptionDescription {
    name: "record",
    value: ValueForm::Path,
    default: "PATH.zones, where the bytes are in a file PATH",
    meaning: "file that keeps what zones are in, for bytes in a file or on a real disk; a real disk takes the time of \
              this file too at each sync, reset and finish",
};

/// The limit an option asks for.
pub(super) fn limit(part: &Part, option: OptionDescription, default: u32) -> Result<u32, Error> {
    match part.text(option.name)?.and_then(whole_number) {
        None => Ok(default),
        Some(limit) => {
            u32::try_from(limit).map_err(|_| part.value_error(option.name, "a number of zones below 2^32").into())
        }
    }
}

/// The error of zones, of which the option `option` says the size, that do not fit a device: none does, or too many do.
pub(super) fn do_not_fit(part: &Part, option: &str, zone_bytes: u64, capacity_bytes: u64, scale_divisor: u64) -> Error {
    let size = ByteSize(zone_bytes);
    if capacity_bytes < zone_bytes {
        let expected = format!("a capacity of one {option} of {size} or more, not {capacity_bytes} bytes");
        return part.argument_error(SpecErrorKind::InvalidValue, expected).into();
    }
    let most = ZoneGeometry::ZONES_MAX;
    // In whole MiB, as people write it.
    let least = capacity_bytes.div_ceil(u64::from(most)).saturating_mul(scale_divisor).next_multiple_of(1 << 20);
    let count = capacity_bytes / zone_bytes;
    let expected = format!("at most {most} zones ({option}={} or more), not {count} of {size}", ByteSize(least));
    match part.option(option) {
        Some(_) => part.value_error(option, expected).into(),
        None => part.argument_error(SpecErrorKind::InvalidValue, expected).into(),
    }
}

fn record_path(part: &Part) -> Result<Option<PathBuf>, Error> {
    match part.option(RECORD.name).and_then(SpecOption::value) {
        None => Ok(None),
        Some(value) => path_of(value).map(Some).ok_or_else(|| part.value_error(RECORD.name, "a path").into()),
    }
}

/// `PATH.zones`.
fn beside(path: &Path) -> PathBuf {
    emulated::with_suffix(path, emulated::ZONES_SUFFIX)
}

/// Rules of zones as a record has them, and whether it was made just now. `raw` are the bytes of the device, as far as there are
/// any.
fn recorded(
    construction: &Construction<'_>,
    part: &Part,
    path: &Path,
    zones: &ZoneGeometry,
    raw: Option<&Device>,
    is_written: bool,
) -> Result<(Zoned, bool), Error> {
    if construction.describe {
        return Ok((Zoned::new(zones), false));
    }
    if construction.format {
        return Ok((noted(construction, path, ZoneRecord::create_with_mode(path, zones, file_mode(part)?)?), true));
    }
    // What the bytes are of says more than a record of other zones, or than one that is not there.
    let wanted = raw.map(|raw| Zoned::new(zones).over(&raw.block));
    let both = raw.zip(wanted.as_ref());
    let is_formatted = match both.filter(|_| !changes_shape(part)) {
        Some((raw, wanted)) => varve_store::check_rules(raw, wanted)?,
        None => false,
    };
    let lost = |name| Error::Missing {
        name,
        advice: "it keeps what the zones of the device are in: restore it, name it with record=PATH, or format anew",
    };
    let opened = match construction.read_only {
        true => ZoneRecord::open_read_only(path, zones),
        false => ZoneRecord::open(path, zones, false),
    };
    match opened {
        Err(MediaError::NotFound { name, .. }) if is_formatted => Err(lost(name)),
        // What lies in zones is lost without its record: only of a device on which nothing lies it may be made.
        Err(MediaError::NotFound { name, .. }) => {
            both.map_or(Ok(()), |(raw, wanted)| varve_store::check_blank(raw, wanted))?;
            match construction.create {
                // The ends are blank; what is between them may not be.
                _ if is_written => Err(lost(name)),
                true => {
                    let record = ZoneRecord::open_with_mode(path, zones, true, file_mode(part)?)?;
                    Ok((noted(construction, path, record), true))
                }
                false => Err(Error::missing(name)),
            }
        }
        record => Ok((Zoned::recorded(record?), false)),
    }
}

/// Rules with a record that may have been made just now.
fn noted(construction: &Construction<'_>, path: &Path, record: ZoneRecord) -> Zoned {
    if record.was_made() {
        construction.note_made(MadePlace::File(path.to_path_buf()));
    }
    Zoned::recorded(record)
}

/// The bytes an image file has, and whether any were ever written; `None` where there is no file, or an empty one.
fn raw_of(construction: &Construction<'_>, file: &Path, capacity_bytes: u64) -> Result<Option<(Device, bool)>, Error> {
    let name = file.display().to_string();
    let opened = match construction.read_only {
        true => FileBacking::open_read_only(file),
        false => FileBacking::open_existing(file, capacity_bytes),
    };
    let backing = match opened {
        Err(error) if error.kind() == MediaErrorKind::NotFound => return Ok(None),
        backing => backing?,
    };
    if backing.is_new() {
        return Ok(None);
    }
    let is_written = backing.stored_bytes() > 0;
    let geometry = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 512 };
    let timing = Box::<Immediate>::default();
    let bytes = Emulated::new(construction.env, &name, geometry, Box::new(Conventional), timing, Box::new(backing));
    Ok(Some((Device::of_blocks(Arc::new(bytes)), is_written)))
}

/// A device with these zones on the model of a preset.
pub(super) fn build_on_preset(
    construction: &Construction<'_>,
    part: &Part,
    preset: &Preset,
    zones: &ZoneGeometry,
    model: Model<'_>,
) -> Result<Base, Error> {
    let (rules, backing, _) = rules_and_bytes(construction, part, zones)?;
    let device = preset.build_zoned(construction.env, &part.to_string(), rules, backing, emulated::pacing(part));
    Ok(emulated::built(construction, part, device, model))
}

/// A record of zones beside a file.
pub(super) struct Kept {
    /// What further records are named after: the record's path, where the spec says it, or else the file's.
    pub(super) path: PathBuf,
    /// Nothing was written to the zones.
    pub(super) is_new: bool,
}

/// Rules of these zones as they were left, where their bytes are, and where the zones are kept, if they are.
pub(super) fn rules_and_bytes(
    construction: &Construction<'_>,
    part: &Part,
    zones: &ZoneGeometry,
) -> Result<(Zoned, Box<dyn Backing>, Option<Kept>), Error> {
    let file = match part.option("backing").and_then(SpecOption::value) {
        Some(Value::Spec(spec)) => file_path_of(spec),
        _ => None,
    };
    let (rules, kept) = match file.filter(|_| !construction.describe) {
        // The record first: an image without one is not taken, unless it is blank.
        Some(file) => {
            let named = record_path(part)?;
            let path = named.clone().unwrap_or_else(|| beside(&file));
            let raw = raw_of(construction, &file, zones.address_bytes())?;
            if raw.is_none() && !construction.create {
                return Err(Error::missing(file.display().to_string()));
            }
            let (rules, is_new) = recorded(
                construction,
                part,
                &path,
                zones,
                raw.as_ref().map(|(raw, _)| raw),
                raw.as_ref().is_some_and(|(_, written)| *written),
            )?;
            (rules, Some(Kept { path: named.unwrap_or(file), is_new }))
        }
        None if part.option(RECORD.name).is_some() && !construction.describe => {
            let expected = "no record, or backing=file:PATH: what is in memory needs none";
            return Err(part.value_error(RECORD.name, expected).into());
        }
        None => {
            let begun = construction.next_image().and_then(|image| image.zones(zones.zone_count));
            (begun.map_or_else(|| Zoned::new(zones), |begun| Zoned::continued(zones, begun)), None)
        }
    };
    let (backing, _) = emulated::backing(construction, part, zones.address_bytes())?;
    Ok((rules, backing, kept))
}

/// A device with the zones that `zones` makes of a capacity and a physical sector, on real hardware.
pub(super) fn build_on_hardware(
    construction: &Construction<'_>,
    part: &Part,
    real: &Part,
    zones: impl FnOnce(u64, u32) -> Result<ZoneGeometry, Error>,
) -> Result<Base, Error> {
    if let Some(option) = TIMING_OPTIONS.iter().find(|option| part.option(option.name).is_some()) {
        let expected = format!("no option '{}' with a real device, which takes its own time", option.name);
        return Err(part.value_error(option.name, expected).into());
    }
    let BuiltDevice { device: inner, description, .. } = hardware::open(construction, real)?;
    let geometry = inner.block.geometry();
    let capacity_bytes = part.argument_size_bytes().unwrap_or(geometry.capacity_bytes);
    if capacity_bytes > geometry.capacity_bytes {
        let expected = format!("at most the {} of the device", ByteSize(geometry.capacity_bytes));
        return Err(part.argument_error(SpecErrorKind::InvalidValue, expected).into());
    }
    let zones = zones(capacity_bytes, geometry.physical_sector_bytes)?;
    let rules = match (record_path(part)?, real.argument_path()) {
        (Some(path), _) => recorded(construction, part, &path, &zones, Some(&inner), false)?.0,
        // Nothing lasts there.
        (None, Some(path)) if path.starts_with("/dev") => {
            let expected = "record=PATH with a real disk: a file on another one that keeps what its zones are in";
            return Err(part.value_error("backing", expected).into());
        }
        (None, Some(path)) => recorded(construction, part, &beside(&path), &zones, Some(&inner), false)?.0,
        (None, None) => Zoned::new(&zones),
    };
    let device = rules.over(&inner.block);
    let description = DeviceDescription {
        name: part.to_string(),
        model: description.model,
        summary: format!("zones on {}", description.summary),
        backing: real.to_string(),
        ..DeviceDescription::of(&device)
    };
    Ok(Base::Devices(vec![BuiltDevice { device, description, members: None }]))
}
