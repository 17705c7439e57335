//! `imr:` an interlaced disk, emulated or on a real one.

use super::emulated::{self, ACCOUNT, MODEL, Model, PACE, SCALE};
use super::hardware;
use crate::description::DeviceDescription;
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, hardware_backing, ratio,
};
use crate::spec::{ByteSize, Part, SpecErrorKind};
use crate::stack::{Base, BuiltDevice, Construction};
use varve_media::{Interlaced, TrackGeometry};

/// KVIMR, section 2.2: "the IMR track size (which is 2 MB)".
const TRACK_BYTES: u64 = 2 << 20;

/// Options that say what a real disk says by itself.
const TIMING_OPTIONS: [OptionDescription; 4] = [MODEL, SCALE, PACE, ACCOUNT];

pub(crate) const IMR: MediumKind = MediumKind {
    description: KindDescription {
        name: "imr",
        summary: "an interlaced disk: writing a bottom track destroys the same span of the tops beside it",
        argument: ArgumentDescription { value: ValueForm::Size, default: Some("the model's"), meaning: "its capacity" },
        options: &[
            OptionDescription {
                name: "track",
                value: ValueForm::Size,
                default: "2MiB",
                meaning: "size of a top track",
            },
            OptionDescription {
                name: "ratio",
                value: ValueForm::Ratio,
                default: "1",
                meaning: "size of a bottom track to that of a top track; published drives are near 1.25",
            },
            OptionDescription {
                name: "strict",
                value: ValueForm::Flag,
                default: "such writes are done and counted",
                meaning: "refuse writes that would destroy live data",
            },
            MODEL,
            OptionDescription {
                name: "backing",
                value: ValueForm::ChoiceOrFileOrDevice(emulated::BACKING_WORDS),
                default: "ram",
                meaning: "where its bytes are: memory, memory compressed by LZ4, nowhere, a sparse file that lasts, \
                          or a real disk with its own time; on the last two what was destroyed is known until they \
                          are closed",
            },
            SCALE,
            PACE,
            ACCOUNT,
        ],
        examples: &[
            "imr:100GB?track=2MiB",
            "imr:10GB?ratio=5/4,strict,backing=file:/tmp/imr.img",
            "imr:100GB?backing=dev:/dev/sdb",
        ],
    },
    is_emulated: true,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    if let Some(real) = hardware_backing(part) {
        return build_on_hardware(construction, part, real);
    }
    let (preset, scale_divisor) = emulated::scaled_preset(part, "st500dm002", |capabilities| capabilities.rotational)?;
    let geometry = preset.geometry();
    let tracks = tracks(part, scale_divisor, geometry.capacity_bytes, geometry.physical_sector_bytes)?;
    let (backing, used) = emulated::backing(construction, part, tracks.capacity_bytes())?;
    let rules = rules(construction, part, &tracks, geometry.physical_sector_bytes, used);
    let pacing = emulated::pacing(part);
    let device = preset.build_interlaced(construction.env, &part.to_string(), rules, backing, pacing);
    emulated::refuse_image_of_zones(construction, part, &device)?;
    Ok(emulated::built(construction, part, device, Model::of_preset(&preset, scale_divisor)))
}

fn build_on_hardware(construction: &Construction<'_>, part: &Part, real: &Part) -> Result<Base, Error> {
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
    let tracks = tracks(part, 1, capacity_bytes, geometry.physical_sector_bytes)?;
    let rules = rules(construction, part, &tracks, geometry.physical_sector_bytes, true);
    let device = rules.over(&inner.block);
    if let Some(path) = real.argument_path() {
        emulated::refuse_file_of_zones(construction, part, &path, &device)?;
    }
    let description = DeviceDescription {
        name: part.to_string(),
        model: description.model,
        summary: format!("interlaced tracks on {}", description.summary),
        backing: real.to_string(),
        ..DeviceDescription::of(&device)
    };
    Ok(Base::Devices(vec![BuiltDevice { device, description, members: None }]))
}

fn rules(
    construction: &Construction<'_>,
    part: &Part,
    tracks: &TrackGeometry,
    physical_sector_bytes: u32,
    used: bool,
) -> Interlaced {
    let rules = Interlaced::new(tracks, physical_sector_bytes, part.has_flag("strict"));
    // What an earlier run left may be somebody's; one who formats says that it is not.
    if used && !construction.format { rules.with_everything_live() } else { rules }
}

/// The tracks the part asks for, in whole physical sectors.
fn tracks(
    part: &Part,
    scale_divisor: u64,
    capacity_bytes: u64,
    physical_sector_bytes: u32,
) -> Result<TrackGeometry, Error> {
    let sector_bytes = u64::from(physical_sector_bytes);
    let asked_bytes = part.size_bytes("track")?.unwrap_or(TRACK_BYTES);
    let (numerator, denominator) = part.text("ratio")?.and_then(ratio).unwrap_or((1, 1));
    let whole = |bytes: u128| (bytes / u128::from(sector_bytes)) as u64 * sector_bytes;
    let top_bytes = whole(u128::from(asked_bytes / scale_divisor));
    let bottom_bytes = whole(u128::from(top_bytes) * u128::from(numerator) / u128::from(denominator));
    if top_bytes == 0 || bottom_bytes == 0 {
        let smaller_bytes =
            (u128::from(asked_bytes) * u128::from(numerator.min(denominator)) / u128::from(denominator)) as u64;
        return Err(emulated::too_small(part, "track", smaller_bytes, sector_bytes));
    }
    TrackGeometry::fit(capacity_bytes, bottom_bytes, top_bytes).ok_or_else(|| {
        let most = TrackGeometry::TRACKS_MAX;
        if capacity_bytes < bottom_bytes || part.option("track").is_none() {
            let size = ByteSize(bottom_bytes);
            let expected =
                format!("a capacity of one bottom track of {size}, at most {most} tracks, not {capacity_bytes} bytes");
            return part.argument_error(SpecErrorKind::InvalidValue, expected).into();
        }
        let expected = format!(
            "at most {most} tracks on {capacity_bytes} bytes, divided by the scale; those of {} are more",
            ByteSize(top_bytes)
        );
        part.value_error("track", expected).into()
    })
}
