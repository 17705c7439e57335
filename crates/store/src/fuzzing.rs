//! Entries for the fuzz targets: they take anything and must not panic.

use std::sync::Arc;
use varve_env::Env;
use varve_media::emulated::Zoned;
use varve_media::{
    BlockDevice, BlockDeviceExt, Device, Emulated, Interlaced, IoContext, TrackGeometry, TrackId, ZoneGeometry,
};

/// Every decoder of a structure on a medium.
pub fn decoders(bytes: &[u8]) {
    crate::journal::decode_anything(bytes);
    crate::extent::decode_anything(bytes);
    crate::imr::decode_anything(bytes);
    crate::band::decode_anything(bytes);
}

/// Superblocks and identity blocks, also with a checksum that is right.
pub fn identity(bytes: &[u8]) {
    crate::journal::decode_superblock(bytes);
}

/// The S2TMap of a store of interlaced disks: commits, checkpoints, and the parameters beside them.
pub fn imr_map(bytes: &[u8]) {
    crate::imr::decode_map(bytes);
}

/// Intents of rewrites, with a checksum that is right.
pub fn imr_intent(bytes: &[u8]) {
    crate::imr::decode_intent(bytes);
}

/// The band table of a store of bands: commits and checkpoints.
pub fn band_table(bytes: &[u8]) {
    crate::band::decode_table(bytes);
}

/// Frames of log bands, also with a checksum that is right.
pub fn log_frame(bytes: &[u8]) {
    crate::band::decode_frame(bytes);
}

/// Opens an extent store on a device that begins with `bytes`, and inspects it.
pub fn extent_open(bytes: &[u8]) {
    let env = Env::real();
    let emulated = Arc::new(Emulated::immediate(&env, "fuzz", 1 << 20));
    let mut image = bytes[..bytes.len().min(1 << 20)].to_vec();
    image.resize(image.len().next_multiple_of(512), 0);
    if emulated.write_at(0, &image, &IoContext::default()).is_err() {
        return;
    }
    let device = Device::of_blocks(emulated);
    let _ = crate::ExtentStore::inspect(&device);
    let _ = crate::ExtentStore::open(&env, device);
}

/// Opens a store on an interlaced disk whose top tracks begin with `bytes`, and inspects it.
pub fn imr_open(bytes: &[u8]) {
    const TRACK_BYTES: u64 = 64 << 10;
    let env = Env::real();
    let tracks = TrackGeometry {
        track_count: 64,
        top_track_bytes: TRACK_BYTES,
        bottom_track_bytes: TRACK_BYTES,
        interlaced: true,
    };
    let emulated: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "fuzz", tracks.capacity_bytes()));
    let device = Interlaced::new(&tracks, 4096, true).over(&emulated);
    for (number, piece) in (0..32).zip(bytes.chunks(TRACK_BYTES as usize)) {
        let mut piece = piece.to_vec();
        piece.resize(piece.len().next_multiple_of(512), 0);
        let at = tracks.start_bytes(TrackId(2 * number + 1));
        if device.block.write_at(at, &piece, &IoContext::default()).is_err() {
            return;
        }
    }
    let _ = crate::ImrStore::inspect(&device);
    let _ = crate::ImrStore::open(&env, device, &crate::ImrOpenOptions::default());
}

/// Opens a store on a device with zones of which the conventional ones begin with `bytes`, and inspects it.
pub fn band_open(bytes: &[u8]) {
    const ZONE_BYTES: u64 = 64 << 10;
    let env = Env::real();
    let Some(all) = ZoneGeometry::fit(64 * ZONE_BYTES, ZONE_BYTES) else { return };
    let rules = Zoned::new(&ZoneGeometry { conventional_zones: 16, ..all });
    let emulated: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "fuzz", 64 * ZONE_BYTES));
    let device = rules.over(&emulated);
    let mut image = bytes[..bytes.len().min(16 * ZONE_BYTES as usize)].to_vec();
    image.resize(image.len().next_multiple_of(512), 0);
    if device.block.write_at(0, &image, &IoContext::default()).is_err() {
        return;
    }
    let _ = crate::BandStore::inspect(&device);
    let _ = crate::BandStore::open(&env, device);
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn entries_take_anything() {
        let mut random = Random::seeded(3);
        let mut bytes = vec![0; 5000];
        for step in 0..300 {
            random.fill_bytes(&mut bytes);
            let length = random.index(bytes.len());
            decoders(&bytes[..length]);
            identity(&bytes[..length]);
            imr_map(&bytes[..length]);
            imr_intent(&bytes[..length]);
            band_table(&bytes[..length]);
            log_frame(&bytes[..length]);
            if step % 30 == 0 {
                extent_open(&bytes[..length]);
                imr_open(&bytes[..length]);
                band_open(&bytes[..length]);
            }
        }
        decoders(&[]);
        identity(&[]);
        imr_map(&[]);
        imr_intent(&[]);
        band_table(&[]);
        log_frame(&[]);
        extent_open(&[]);
        imr_open(&[]);
        band_open(&[]);
    }
}
