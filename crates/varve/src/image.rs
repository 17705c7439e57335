//! What emulated devices hold, to begin with elsewhere.

use crate::error::Error;
use crate::layer::changes_shape;
use crate::spec::{Part, SpecErrorKind};
use crate::stack::{Stack, StackDevice};
use std::sync::Arc;
use varve_media::emulated::CompressedBacking;
use varve_media::{Device, IoContext, ZoneDescription, ZoneId};

/// The contents of the emulated devices of a [closed](crate::Varve::close_into_image) database: bytes, and what zones are in.
/// Others can [begin](crate::DatabaseBuilder::begin_with) with it, each with a copy of its own, so that what takes long to load is
/// loaded once.
///
/// Bytes are shared with the devices it was taken of and those that begin with it, chunk by chunk, until they are
/// written anew. Cloning is cheap.
#[derive(Clone)]
pub struct MediaImage {
    devices: Arc<[DeviceImage]>,
}

impl MediaImage {
    /// That of the device at `index`, counted as devices are made.
    pub(crate) fn device(&self, index: usize) -> Option<&DeviceImage> {
        self.devices.get(index)
    }

    /// Bytes of memory that it holds, shared ones included.
    pub fn stored_bytes(&self) -> u64 {
        self.devices.iter().map(|device| varve_media::emulated::Backing::stored_bytes(&device.bytes)).sum()
    }
}

impl std::fmt::Debug for MediaImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaImage").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

/// What one device holds.
#[derive(Debug)]
pub(crate) struct DeviceImage {
    capacity_bytes: u64,
    bytes: CompressedBacking,
    zones: Option<Vec<ZoneDescription>>,
}

impl DeviceImage {
    fn of(device: &Device, held: &CompressedBacking) -> Result<DeviceImage, Error> {
        let whole = |zones: &Arc<dyn varve_media::ZoneControl>| {
            let count = device.block.capabilities().zones.as_ref().map_or(0, |zones| zones.zone_count);
            zones.report(ZoneId(0), count, &IoContext::default())
        };
        let failed = |error| varve_media::MediaError::io(device.block.name(), varve_media::Operation::Read, 0, error);
        Ok(DeviceImage {
            capacity_bytes: device.block.geometry().capacity_bytes,
            bytes: held.snapshot().map_err(failed)?,
            zones: device.zones.as_ref().map(whole).transpose()?,
        })
    }

    /// A copy of the bytes, for a device of this capacity.
    pub(crate) fn begin(&self, part: &Part, capacity_bytes: u64) -> Result<CompressedBacking, Error> {
        if self.capacity_bytes != capacity_bytes {
            let expected = format!("a device of {} bytes, as the image has, not {capacity_bytes}", self.capacity_bytes);
            return Err(part.argument_error(SpecErrorKind::InvalidValue, expected).into());
        }
        self.bytes.snapshot().map_err(|error| {
            Error::Media(varve_media::MediaError::io(&part.to_string(), varve_media::Operation::Read, 0, error))
        })
    }

    /// What its zones were in, if it had so many.
    pub(crate) fn zones(&self, zone_count: u32) -> Option<&[ZoneDescription]> {
        self.zones.as_deref().filter(|zones| zones.len() == zone_count as usize)
    }
}

/// Devices whose contents are wanted once nobody has them open any more.
pub(crate) struct ImageSource {
    devices: Vec<StackDevice>,
    held: Vec<Arc<CompressedBacking>>,
}

impl ImageSource {
    /// Those of a stack.
    ///
    /// # Errors
    /// [`Error::Spec`] where not every device is one with `backing=compressed`, or where some can lose bytes to the writing of
    /// others (tracks).
    pub(crate) fn of(stack: &Stack) -> Result<ImageSource, Error> {
        let (devices, held) = (stack.devices().to_vec(), stack.held().to_vec());
        let is_plain = |device: &StackDevice| {
            let capabilities = device.device().block.capabilities();
            let overlaps = capabilities.zones.as_ref().is_some_and(|zones| zones.track_overlap.is_some());
            capabilities.tracks.is_none() && !overlaps
        };
        // Under a layer that changes the shape of a device its zones are others than those of the bytes.
        let is_of_shape = !stack.spec().parts().iter().any(changes_shape);
        if held.len() != devices.len() || !devices.iter().all(is_plain) || !is_of_shape {
            let expected =
                "devices with backing=compressed, without buffer= and relocate=, none of which has tracks that overlap";
            return Err(stack.spec().error(SpecErrorKind::Combination, expected).into());
        }
        Ok(ImageSource { devices, held })
    }

    /// What they hold now.
    pub(crate) fn image(&self) -> Result<MediaImage, Error> {
        let devices = self.devices.iter().zip(&self.held);
        let devices: Result<Vec<_>, _> = devices.map(|(device, held)| DeviceImage::of(device.device(), held)).collect();
        Ok(MediaImage { devices: devices?.into() })
    }
}
