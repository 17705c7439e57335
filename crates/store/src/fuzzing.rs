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

/// Opens a store on a medium that begins with `bytes` but for the first, which says which store, and inspects it. Openings
/// cost a hundred times what decoding does: bytes that name no store are decoded as what an opening reads first.
pub fn openings(bytes: &[u8]) {
    let Some((&which, medium)) = bytes.split_first() else { return };
    match STORES.get(usize::from(which)) {
        Some(store) => (store.open_anything)(medium),
        None => crate::journal::decode_superblock(medium),
    }
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
                (0..=STORES.len()).for_each(|which| openings(&[&[which as u8], &bytes[..length]].concat()));
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
