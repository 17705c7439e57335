//! Entries for the fuzz targets: they take anything and must not panic.

use crate::conformance::STORES;

/// Every decoder of a structure on a medium.
pub fn decoders(bytes: &[u8]) {
    crate::journal::decode_anything(bytes);
    STORES.iter().for_each(|store| (store.decode_anything)(bytes));
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

/// Opens every store on a medium that begins with `bytes`, and inspects it.
pub fn openings(bytes: &[u8]) {
    STORES.iter().for_each(|store| (store.open_anything)(bytes));
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
                openings(&bytes[..length]);
            }
        }
        decoders(&[]);
        identity(&[]);
        imr_map(&[]);
        imr_intent(&[]);
        band_table(&[]);
        log_frame(&[]);
        openings(&[]);
    }
}
