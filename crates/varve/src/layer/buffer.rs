//! `buffer=` takes writes in on a fast device, from where they leave for the disk by zones.

use crate::error::Error;
use crate::registry::{LayerKind, OptionDescription, ValueForm, small_number};
use crate::spec::{ByteSize, Part};
use crate::stack::{Base, BuiltDevice, Construction, build_base};
use varve_block::buffer::{BufferError, BufferOpening, BufferParameters, EvictionOrder, WriteBuffer};
use varve_media::{Device, OverlayDevice};

const BUFFER: &str = "buffer";
const SIZE: &str = "buffer-size";
const ORDER: &str = "buffer-order";
const REWRITE: &str = "buffer-rewrite";
const AHEAD: &str = "buffer-ahead";
const LOST: &str = "buffer-lost";

/// Bytes of a page of a buffer.
const PAGE_BYTES: u64 = 4096;

pub(crate) const BUFFER_LAYER: LayerKind = LayerKind {
    options: &[
        OptionDescription {
            name: BUFFER,
            value: ValueForm::Spec,
            default: "none",
            meaning: "a fast device that takes writes in for the disk; both are needed from then on, as one conventional device",
        },
        OptionDescription { name: SIZE, value: ValueForm::Size, default: "64MiB", meaning: "pages of the buffer" },
        OptionDescription {
            name: ORDER,
            value: ValueForm::Choice(&["zones", "pages"]),
            default: "zones",
            meaning: "what leaves the buffer first: all of the zone, or the page, that nobody asked for longest",
        },
        OptionDescription {
            name: REWRITE,
            value: ValueForm::Number(0),
            default: "400",
            meaning: "pages of one zone above which the zone is read, merged and written anew; 0 never does. Takes a zone of the fast device",
        },
        OptionDescription {
            name: AHEAD,
            value: ValueForm::Choice(&["on", "off"]),
            default: "on",
            meaning: "when pages leave: before room is needed, where the disk has nothing else to do, and several zones at once where that was not \
                      enough; off is when room is needed, one zone after the other",
        },
        OptionDescription {
            name: LOST,
            value: ValueForm::Choice(&["refused", "accepted"]),
            default: "refused",
            meaning: "what to do where the buffer the disk had is gone or damaged, and the newest writes with it",
        },
    ],
    changes_shape: true,
    wrap,
};

fn wrap(construction: &Construction<'_>, base: Base, part: &Part) -> Result<Base, Error> {
    let Some(spec) = part.spec(BUFFER)? else { return Ok(base) };
    let control = construction.handles.borrow_mut().control.take();
    let one_device = "one device, under a buffer of one other";
    let Base::Devices(disks) = base else {
        return Err(part.value_error(BUFFER, one_device).into());
    };
    let Base::Devices(others) = build_base(construction, &spec)? else {
        return Err(part.value_error(BUFFER, one_device).into());
    };
    // What is on the fast device is not what layers above ask for.
    construction.handles.borrow_mut().control = None;
    let ([disk], [fast]) = (disks.as_slice(), others.as_slice()) else {
        return Err(part.value_error(BUFFER, one_device).into());
    };
    let parameters = parameters(part)?;
    // Opening writes: where nothing may be, into memory.
    let stays = construction.describe || construction.read_only;
    let below = |device: &Device| if stays { OverlayDevice::device(device) } else { Ok(device.clone()) };
    let (below_disk, below_fast) = (below(&disk.device)?, below(&fast.device)?);
    let accepts_loss = part.text(LOST)? == Some("accepted");
    let opening = match construction.describe {
        true => BufferOpening { create: true, format: true, accepts_loss: false },
        false => BufferOpening { create: construction.create, format: construction.format, accepts_loss },
    };
    let (env, bytes) = (construction.env, u64::from(parameters.page_count) * PAGE_BYTES);
    let opened = WriteBuffer::open(env, &below_disk, &below_fast, parameters, opening, control);
    let (device, _) = opened.map_err(|error| refusal(part, &disk.device, error))?;
    let mut description = disk.description.clone();
    description.capacity_bytes = device.block.geometry().capacity_bytes;
    description.physical_sector_bytes = device.block.geometry().physical_sector_bytes;
    description.zones = None;
    description.summary =
        format!("{}, with a write buffer of {} on {}", description.summary, ByteSize(bytes), fast.description.name);
    Ok(Base::Devices(vec![BuiltDevice { device, description, members: disk.members.clone() }]))
}

fn parameters(part: &Part) -> Result<BufferParameters, Error> {
    let usual = match part.text(AHEAD)? {
        Some("off") => BufferParameters::paper(),
        _ => BufferParameters::default(),
    };
    let page_count = match part.size_bytes(SIZE)? {
        Some(bytes) => {
            let pages = u32::try_from(bytes / PAGE_BYTES).ok().filter(|pages| *pages > 0);
            pages.ok_or_else(|| Error::from(part.value_error(SIZE, "4 KiB to 16 TiB")))?
        }
        None => usual.page_count,
    };
    let order = match part.text(ORDER)? {
        Some("pages") => EvictionOrder::Pages,
        _ => EvictionOrder::Zones,
    };
    let rewrite_pages = match small_number(part, REWRITE)? {
        Some(pages) => Some(pages).filter(|pages| *pages > 0),
        None => usual.rewrite_pages,
    };
    Ok(BufferParameters { page_count, order, rewrite_pages, ..usual })
}

fn refusal(part: &Part, disk: &Device, error: BufferError) -> Error {
    match error {
        BufferError::Media(error) => Error::Media(error),
        BufferError::NotThere { .. } => Error::missing(disk.block.name()),
        BufferError::Unsuitable { .. } => part.value_error(BUFFER, error.to_string()).into(),
        BufferError::TooSmall { .. } => part.value_error(BUFFER, error.to_string()).into(),
        error => Error::Buffer(error),
    }
}
