//! `smr:` a shingled disk of bands, emulated or on a real one.

use super::emulated::{self, ACCOUNT, MODEL, Model, PACE, RANDOM_READS, SCALE};
use super::zones::{self, ACTIVE, BACKING, OPEN, RECORD};
use crate::error::Error;
use crate::registry::{
    ArgumentDescription, KindDescription, MediumKind, OptionDescription, ValueForm, hardware_backing, whole_number,
};
use crate::spec::{ByteSize, Part};
use crate::stack::{Base, Construction};
use varve_media::{TrackOverlap, ZoneGeometry, ZoneType};

/// SMRDB, section 5: bands of 80 MB.
const BAND_BYTES: u64 = 80 << 20;
/// Region that can be written anywhere.
const CONVENTIONAL_BYTES: u64 = 1 << 30;
/// As on interlaced disks.
const TRACK_BYTES: u64 = 2 << 20;
/// Zones open at once that host-managed disks promise to keep open.
const OPEN_ZONES: u32 = 128;

pub(crate) const SMR: MediumKind = MediumKind {
    description: KindDescription {
        name: "smr",
        summary: "a shingled disk: bands that must be written in order, and a small region that need not",
        argument: ArgumentDescription { value: ValueForm::Size, default: Some("the model's"), meaning: "its capacity" },
        options: &[
            OptionDescription { name: "band", value: ValueForm::Size, default: "80MiB", meaning: "size of a band" },
            OptionDescription {
                name: "conventional",
                value: ValueForm::Size,
                default: "1GiB, or an eighth of a smaller disk",
                meaning: "region at the start that is written as any disk, in whole bands, rounded up; 0 for none",
            },
            OptionDescription {
                name: "host-aware",
                value: ValueForm::Flag,
                default: "host-managed, where a write beside the write pointer is refused",
                meaning: "bands are better written in order and need not be",
            },
            OptionDescription {
                name: "overlap-tracks",
                value: ValueForm::Number(1),
                default: "no write destroys anything",
                meaning: "raw shingled tracks, host-aware: a write to a track destroys the same span of so many tracks \
                          after it, as far as its band goes",
            },
            OptionDescription {
                name: "track",
                value: ValueForm::Size,
                default: "2MiB",
                meaning: "size of such a track",
            },
            OPEN,
            ACTIVE,
            MODEL,
            BACKING,
            RECORD,
            SCALE,
            RANDOM_READS,
            PACE,
            ACCOUNT,
        ],
        examples: &[
            "smr:8TiB?band=80MiB,conventional=1GiB",
            "smr:10GB?model=barracuda-3tb,backing=file:/tmp/smr.img",
            "smr:100GB?backing=dev:/dev/sdb,record=/var/lib/varve/sdb.zones",
        ],
    },
    is_emulated: true,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    if let Some(real) = hardware_backing(part) {
        for option in ["host-aware", "overlap-tracks"] {
            if part.option(option).is_some() {
                let expected =
                    format!("no '{option}' with a real device, whose bytes would show where bands were skipped");
                return Err(part.value_error(option, expected).into());
            }
        }
        return zones::build_on_hardware(construction, part, real, |capacity_bytes, physical_sector_bytes| {
            bands(part, 1, capacity_bytes, physical_sector_bytes)
        });
    }
    let (preset, scale_divisor) =
        emulated::scaled_preset(part, "barracuda-3tb", |capabilities| capabilities.rotational)?;
    let preset = match part.text(RANDOM_READS.name)?.and_then(whole_number) {
        Some(reads) => preset.with_random_reads(reads),
        None => preset,
    };
    let geometry = preset.geometry();
    let bands = bands(part, scale_divisor, geometry.capacity_bytes, geometry.physical_sector_bytes)?;
    let model = Model::of_preset(&preset, scale_divisor);
    zones::build_on_preset(construction, part, &preset, &bands, model)
}

/// The bands the part asks for, in whole physical sectors.
fn bands(
    part: &Part,
    scale_divisor: u64,
    capacity_bytes: u64,
    physical_sector_bytes: u32,
) -> Result<ZoneGeometry, Error> {
    let sector_bytes = u64::from(physical_sector_bytes);
    let asked_bytes = part.size_bytes("band")?.unwrap_or(BAND_BYTES);
    let band_bytes = asked_bytes / scale_divisor / sector_bytes * sector_bytes;
    if band_bytes == 0 {
        return Err(emulated::too_small(part, "band", asked_bytes, sector_bytes));
    }
    let fit = ZoneGeometry::fit(capacity_bytes, band_bytes)
        .ok_or_else(|| zones::do_not_fit(part, "band", band_bytes, capacity_bytes, scale_divisor))?;
    let conventional_bytes = match part.size_bytes("conventional")? {
        Some(bytes) => bytes / scale_divisor,
        None => (CONVENTIONAL_BYTES / scale_divisor).min(capacity_bytes / 8),
    };
    let conventional_zones = u32::try_from(conventional_bytes.div_ceil(band_bytes)).unwrap_or(u32::MAX);
    if conventional_zones >= fit.zone_count {
        let expected = format!("less than the {} of the disk", ByteSize(fit.address_bytes()));
        return Err(part.value_error("conventional", expected).into());
    }
    let track_overlap = track_overlap(part, scale_divisor, &fit, sector_bytes)?;
    let sequential_type = match part.has_flag("host-aware") || track_overlap.is_some() {
        true => ZoneType::SequentialWritePreferred,
        false => ZoneType::SequentialWriteRequired,
    };
    let open_zones_max = zones::limit(part, OPEN, OPEN_ZONES)?;
    let active_zones_max = zones::limit(part, ACTIVE, 0)?;
    Ok(ZoneGeometry { conventional_zones, sequential_type, open_zones_max, active_zones_max, track_overlap, ..fit })
}

/// The overlapping tracks the part asks for, of which bands are whole numbers.
fn track_overlap(
    part: &Part,
    scale_divisor: u64,
    bands: &ZoneGeometry,
    sector_bytes: u64,
) -> Result<Option<TrackOverlap>, Error> {
    let Some(tracks) = part.text("overlap-tracks")?.and_then(whole_number) else {
        return match part.option("track") {
            Some(_) => Err(part.value_error("track", "no size of tracks without overlap-tracks=N").into()),
            None => Ok(None),
        };
    };
    let track_bytes = part.size_bytes("track")?.unwrap_or(TRACK_BYTES) / scale_divisor / sector_bytes * sector_bytes;
    if track_bytes == 0 || !bands.zone_bytes.is_multiple_of(track_bytes) {
        let expected =
            format!("tracks of which a band of {} is a whole number, divided by the scale", ByteSize(bands.zone_bytes));
        return Err(part.value_error("track", expected).into());
    }
    let tracks = u32::try_from(tracks).map_err(|_| part.value_error("overlap-tracks", "a number of tracks"))?;
    Ok(Some(TrackOverlap { tracks, track_bytes }))
}
