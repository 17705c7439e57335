//! What the kinds of emulated devices share: their options, their backing, their description.

use crate::description::DeviceDescription;
use crate::error::Error;
use crate::layer::asks_for;
use crate::registry::{OptionDescription, ValueForm, file_mode, file_path_of, scale_of};
use crate::spec::{ByteSize, Part, SpecErrorKind, Value};
use crate::stack::{Base, BuiltDevice, Construction};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_media::emulated::{Backing, CompressedBacking, Emulated, FileBacking, NoBacking, Pacing, RamBacking};
use varve_media::presets::Preset;
use varve_media::{Capabilities, Device, GuardKind, MadePlace, MediaError, ProtectionType, check_image_path};

/// Where bytes can be besides a file.
pub(super) const BACKING_WORDS: &[&str] = &["ram", "compressed", "none"];

/// Where the bytes are.
pub(super) const BACKING: OptionDescription = OptionDescription {
    name: "backing",
    value: ValueForm::ChoiceOrFile(BACKING_WORDS),
    default: "ram",
    meaning: "where its bytes are: memory, memory compressed by LZ4 (for devices larger than memory, of data that \
              repeats), nowhere (timing only, reads give zeros), or a sparse file that lasts",
};

/// Which preset.
pub(super) const MODEL: OptionDescription = OptionDescription {
    name: "model",
    value: ValueForm::Text,
    default: "a common one",
    meaning: "which device it imitates, in any case of letters; 'varve media list' shows all",
};

/// Similarity.
pub(super) const SCALE: OptionDescription = OptionDescription {
    name: "scale",
    value: ValueForm::Scale,
    default: "1",
    meaning: "divide its sizes (the capacity too) and its times, keep its rates",
};

/// What is promised of random reads.
pub(super) const RANDOM_READS: OptionDescription = OptionDescription {
    name: "random-reads",
    value: ValueForm::Number(1),
    default: "the model's, multiplied by the scale",
    meaning: "random reads a second that it promises, for policies that ask whether reads wait for it; its time stays \
              the model's",
};

/// Wall-clock time instead of virtual time.
pub(super) const PACE: OptionDescription = OptionDescription {
    name: "pace",
    value: ValueForm::Flag,
    default: "virtual time",
    meaning: "take real time, as the device would",
};

/// Wall-clock time without waiting.
pub(super) const ACCOUNT: OptionDescription = OptionDescription {
    name: "account",
    value: ValueForm::Flag,
    default: "virtual time",
    meaning: "in real time, count what the device would have taken without waiting for it",
};

/// Protection information.
pub(super) const PI: OptionDescription = OptionDescription {
    name: "pi",
    value: ValueForm::Choice(&["1", "2", "3"]),
    default: "none",
    meaning: "keep T10 protection information of this type: 8 bytes per sector, which the device verifies on write and on read",
};

/// Caches of a disk.
pub(super) const CACHES: OptionDescription = OptionDescription {
    name: "caches",
    value: ValueForm::Choice(&["on", "off"]),
    default: "on",
    meaning: "the disk's read and write caches; off, every read waits for the platter and every write goes there at once",
};

/// Checksum of the protection information.
pub(super) const GUARD: OptionDescription = OptionDescription {
    name: "guard",
    value: ValueForm::Choice(&["crc", "ip"]),
    default: "crc",
    meaning: "checksum of the protection information: the CRC of the standard, or the Internet checksum",
};

/// Type and guard of the protection information that `pi` and `guard` ask for.
///
/// # Errors
/// `guard` without `pi`. `backing=file:`, because tuples are kept in memory only.
pub(super) fn protection(part: &Part) -> Result<Option<(ProtectionType, GuardKind)>, Error> {
    let number = part.text(PI.name)?.and_then(|text| text.parse().ok());
    let Some(protection_type) = number.and_then(ProtectionType::of_number) else {
        return match part.option(GUARD.name) {
            Some(_) => Err(part.value_error(GUARD.name, "pi=1, pi=2 or pi=3 with it").into()),
            None => Ok(None),
        };
    };
    if let Some(Value::Spec(_)) = part.option(BACKING.name).and_then(|option| option.value()) {
        let expected = "ram, compressed or none with pi: a file has no place for protection information";
        return Err(part.value_error(BACKING.name, expected).into());
    }
    let guard = if part.text(GUARD.name)? == Some("ip") { GuardKind::IpChecksum } else { GuardKind::Crc };
    Ok(Some((protection_type, guard)))
}

/// The device with the protection information its part asks for.
pub(super) fn protected(
    construction: &Construction<'_>,
    part: &Part,
    device: Emulated,
    protection: Option<(ProtectionType, GuardKind)>,
) -> Emulated {
    let has_bytes = !construction.describe && part.text(BACKING.name).ok().flatten() != Some("none");
    match protection {
        // Without data, tuples would contradict the zeros that are read.
        Some((protection_type, guard)) if !has_bytes => {
            device.with_protection(protection_type, guard, Box::new(NoBacking))
        }
        Some((protection_type, guard)) => device.with_protection(protection_type, guard, Box::new(RamBacking::new())),
        None => device,
    }
}

/// What a device imitates.
pub(super) struct Model<'a> {
    pub(super) name: &'a str,
    pub(super) summary: &'a str,
    pub(super) scale_divisor: u64,
    /// Constants of the timing model, one to a line.
    pub(super) timing: String,
}

impl<'a> Model<'a> {
    /// The model of a preset whose sizes were divided by `scale_divisor`.
    pub(super) fn of_preset(preset: &'a Preset, scale_divisor: u64) -> Self {
        let timing = format!("{:#?}", preset.parameters());
        Model { name: preset.name(), summary: preset.description(), scale_divisor, timing }
    }
}

/// The capacity the argument asks for, at least `sector_bytes`.
pub(super) fn capacity_bytes(part: &Part, sector_bytes: u64) -> Result<Option<u64>, Error> {
    match part.argument_size_bytes() {
        Some(bytes) if bytes < sector_bytes => {
            let expected = format!("a capacity of at least one sector of {sector_bytes} bytes");
            Err(part.argument_error(SpecErrorKind::InvalidValue, expected).into())
        }
        capacity => Ok(capacity),
    }
}

/// The error of a size of `full_bytes` that the scale of the part makes less than `least_bytes`: says how far it can go.
pub(super) fn too_small(part: &Part, what: &str, full_bytes: u64, least_bytes: u64) -> Error {
    let most = full_bytes / least_bytes.max(1);
    match (part.option(SCALE.name), most) {
        (Some(_), 1..) => {
            let expected = format!(
                "a scale at which a {what} of {} is at least {}: 1/{most} is the smallest",
                ByteSize(full_bytes),
                ByteSize(least_bytes)
            );
            part.value_error(SCALE.name, expected).into()
        }
        _ => {
            let expected = format!("a {what} of at least one physical sector of {least_bytes} bytes");
            match part.option(what) {
                Some(_) => part.value_error(what, expected).into(),
                None => part.argument_error(SpecErrorKind::InvalidValue, expected).into(),
            }
        }
    }
}

/// The device a preset describes, in the capacity and at the scale the part asks for. `default` is the
/// preset when no model is named; `suits` says by properties which models the kind takes.
pub(super) fn build_preset(
    construction: &Construction<'_>,
    part: &Part,
    default: &str,
    suits: fn(&Capabilities) -> bool,
) -> Result<Base, Error> {
    let (preset, scale_divisor) = scaled_preset(part, default, suits)?;
    let protection = protection(part)?;
    let preset = if protection.is_some() { preset.with_protection() } else { preset };
    let preset = match part.text(CACHES.name)? {
        Some("off") => preset.without_caches().ok_or_else(|| part.value_error(CACHES.name, "on for this model"))?,
        _ => preset,
    };
    let (backing, _) = backing(construction, part, preset.geometry().capacity_bytes)?;
    let device = preset.build(construction.env, &part.to_string(), backing, pacing(part));
    let device = Device::of_blocks(Arc::new(protected(construction, part, device, protection)));
    refuse_image_of_zones(construction, part, &device)?;
    Ok(built(construction, part, device, Model::of_preset(&preset, scale_divisor)))
}

/// The preset the part asks for, resized and scaled, and what its sizes were divided by.
pub(super) fn scaled_preset(
    part: &Part,
    default: &str,
    suits: fn(&Capabilities) -> bool,
) -> Result<(Preset, u64), Error> {
    let wanted = part.text("model")?.unwrap_or(default).to_ascii_lowercase();
    let suitable = |preset: &Preset| suits(&preset_capabilities(preset));
    let Some(preset) = Preset::find(&wanted).filter(suitable) else {
        let known = Preset::all().into_iter().filter(suitable).map(|preset| preset.name().to_owned());
        let expected = format!("a model for {}:", part.kind());
        return Err(part.value_error("model", expected).with_known(known).into());
    };
    let physical_sector_bytes = u64::from(preset.geometry().physical_sector_bytes);
    let scale_divisor = scale_of(part)?;
    let asked_bytes = capacity_bytes(part, physical_sector_bytes)?;
    let full_bytes = asked_bytes.unwrap_or(preset.geometry().capacity_bytes);
    if full_bytes / scale_divisor < physical_sector_bytes {
        return Err(too_small(part, "capacity", full_bytes, physical_sector_bytes));
    }
    let scaled = if scale_divisor == 1 { preset } else { preset.scaled(scale_divisor) };
    let scaled = match asked_bytes {
        Some(capacity_bytes) => scaled.with_capacity(capacity_bytes / scale_divisor),
        None => scaled,
    };
    Ok((scaled, scale_divisor))
}

/// What a device of this preset can do.
pub(crate) fn preset_capabilities(preset: &Preset) -> Capabilities {
    let mut capabilities = Capabilities { nominal: Some(preset.nominal()), ..Capabilities::of_blocks() };
    preset.parameters().timing().describe(&mut capabilities);
    capabilities
}

/// The backing the options ask for, and whether it holds what an earlier device wrote.
pub(super) fn backing(
    construction: &Construction<'_>,
    part: &Part,
    capacity_bytes: u64,
) -> Result<(Box<dyn Backing>, bool), Error> {
    match part.option("backing").and_then(|option| option.value()) {
        Some(Value::Spec(spec)) if construction.describe => {
            // What no image can be in is said although the image is not opened.
            file_path_of(spec).map_or(Ok(()), |path| check_image_path(&path))?;
            Ok((Box::new(NoBacking), false))
        }
        _ if construction.describe => Ok((Box::new(NoBacking), false)),
        Some(Value::Text(text)) if text == b"none" => Ok((Box::new(NoBacking), false)),
        Some(Value::Text(text)) if text == b"compressed" => {
            let bytes = match construction.next_image() {
                Some(_) if part.option(PI.name).is_some() => {
                    let expected = "no pi here: an image of a device has no protection information";
                    return Err(part.value_error(PI.name, expected).into());
                }
                Some(image) => Arc::new(image.begin(part, capacity_bytes)?),
                None => Arc::<CompressedBacking>::default(),
            };
            construction.handles.borrow_mut().held.push(Arc::clone(&bytes));
            Ok((Box::new(bytes), false))
        }
        Some(Value::Spec(spec)) => {
            let Some(path) = file_path_of(spec) else {
                return Err(part.value_error("backing", "file:PATH").into());
            };
            let opened = match construction.create {
                _ if construction.read_only => FileBacking::open_read_only(&path),
                true => FileBacking::open_with_mode(&path, capacity_bytes, file_mode(part)?),
                false => FileBacking::open_existing(&path, capacity_bytes),
            };
            match opened {
                Err(MediaError::NotFound { name, .. }) if !construction.create => Err(Error::missing(name)),
                opened => {
                    let file = opened?;
                    let used = !file.is_new();
                    if file.was_made() {
                        construction.note_made(MadePlace::File(path));
                    }
                    Ok((Box::new(file), used))
                }
            }
        }
        _ => Ok((Box::new(RamBacking::new()), false)),
    }
}

/// Refuses the image of a device without zones when a record next to it says that it has some; see
/// [`refuse_file_of_zones`].
pub(super) fn refuse_image_of_zones(
    construction: &Construction<'_>,
    part: &Part,
    device: &Device,
) -> Result<(), Error> {
    match part.option("backing").and_then(|option| option.value()) {
        Some(Value::Spec(spec)) => {
            let Some(path) = file_path_of(spec) else { return Ok(()) };
            refuse_file_of_zones(construction, part, &path, device)
        }
        _ => Ok(()),
    }
}

/// Refuses a file as a device without zones when a record next to it says that its bytes lie in zones, or when a layer
/// that `part` does not ask for has marked it.
///
/// # Errors
/// [`Error::Store`] when the device says what it was formatted as; else [`Error::Foreign`], which names the record or the
/// layer.
pub(super) fn refuse_file_of_zones(
    construction: &Construction<'_>,
    part: &Part,
    path: &Path,
    device: &Device,
) -> Result<(), Error> {
    if construction.describe {
        return Ok(());
    }
    let records = [ZONES_SUFFIX, MEDIA_CACHE_SUFFIX].map(|suffix| with_suffix(path, suffix));
    let record = records.into_iter().find(|record| says_something(record));
    // A write buffer that is added to a disk marks the end of it, whatever the first sector holds.
    let mark = layer_mark(path, device, asks_for(part, "buffer")).filter(|mark| !asks_for(part, mark.option));
    let is_store = match record {
        Some(_) if !construction.format => varve_store::check_rules(device, device)?,
        // A store of this shape was made after the layer was given up.
        None if mark.is_some() && !construction.format => varve_store::check_rules(device, device)?,
        _ => false,
    };
    let name = path.display().to_string();
    match (record, mark) {
        (Some(record), mark) => {
            let record = record.display().to_string();
            let and_layer = mark.map_or(String::new(), |mark| format!(", and the mark of {}", mark.name));
            let with_layer = mark.map_or(String::new(), |mark| format!("; {}", mark.advice));
            Err(Error::Foreign {
                found: format!(
                    "expected the bytes of a device without zones, found '{record}', the record of a device with \
                     zones{and_layer}"
                ),
                advice: format!(
                    "open it as that device, with backing=file:{name} in a spec that begins with smr:, zns: or hasmr:; \
                     if its zones are not needed any more, move '{record}' away{with_layer}"
                ),
                name,
            })
        }
        (None, Some(mark)) if !construction.format && !is_store => Err(Error::Foreign {
            found: format!(
                "expected a device that is blank or holds a store, found {} at offset {}",
                mark.name, mark.offset_bytes
            ),
            advice: mark.advice.to_owned(),
            name,
        }),
        _ => Ok(()),
    }
}

/// The mark of a layer in a file, which is read apart from the device, so that nothing of that counts as its I/O. What
/// cannot be read has none: the device says so when it is used.
fn layer_mark(path: &Path, device: &Device, searches_end: bool) -> Option<varve_store::LayerMark> {
    let file = std::fs::File::open(path).ok()?;
    let mut read = |at: u64, bytes: &mut [u8]| std::os::unix::fs::FileExt::read_exact_at(&file, bytes, at).is_ok();
    varve_store::find_layer_mark(device.block.geometry().capacity_bytes, searches_end, &mut read)
}

/// True if there is a record. One without bytes is left of a device whose making was interrupted.
fn says_something(record: &Path) -> bool {
    record.metadata().is_ok_and(|found| found.len() > 0)
}

/// End of the name of a file that keeps what the zones of an image are in.
pub(super) const ZONES_SUFFIX: &str = ".zones";
/// End of the name of a file that keeps what lies in the media cache of an image.
pub(super) const MEDIA_CACHE_SUFFIX: &str = ".media-cache";

/// The path with more at its end.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What happens in a real env.
pub(super) fn pacing(part: &Part) -> Pacing {
    if part.has_flag("account") { Pacing::Account } else { Pacing::Sleep }
}

/// The device with its description.
pub(super) fn built(construction: &Construction<'_>, part: &Part, device: Device, model: Model<'_>) -> Base {
    let backing = match part.option("backing").and_then(|option| option.value()) {
        Some(Value::Spec(spec)) => spec.to_string(),
        Some(Value::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        None => "ram".to_owned(),
    };
    let time = match (construction.env.is_virtual(), pacing(part)) {
        (true, _) => "virtual",
        (false, Pacing::Sleep) => "paced",
        (false, Pacing::Account) => "accounted",
    };
    let description = DeviceDescription {
        name: part.to_string(),
        model: model.name.to_owned(),
        summary: model.summary.to_owned(),
        backing,
        time: time.to_owned(),
        scale_divisor: model.scale_divisor,
        timing: model.timing,
        ..DeviceDescription::of(&device)
    };
    Base::Devices(vec![BuiltDevice { device, description, members: None }])
}
