//! Entries for the fuzz targets: they take anything and must not panic.

use std::sync::Arc;
use varve_env::Env;
use varve_media::{BlockDeviceExt, Device, Emulated, IoContext};

/// Every decoder of a structure on a medium.
pub fn decoders(bytes: &[u8]) {
    crate::journal::decode_anything(bytes);
    crate::extent::decode_anything(bytes);
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
            if step % 30 == 0 {
                extent_open(&bytes[..length]);
            }
        }
        decoders(&[]);
        extent_open(&[]);
    }
}
