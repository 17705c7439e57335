//! Which devices are fast: by what they promise, never by their kind or their order.

use crate::error::StoreError;
use varve_media::Device;

/// Devices of which one does no more than so many times the random reads of another are one tier.
const LIKE: u64 = 2;

/// The tier of each device, 0 the fastest, without gaps.
///
/// Errors: tiers that were given for another number of devices.
pub(super) fn tiers_of(label: &str, devices: &[Device], given: Option<&[u8]>) -> Result<Vec<usize>, StoreError> {
    if let Some(given) = given {
        if given.len() != devices.len() {
            let reason = format!("{} tiers were given for {} devices; give one for each", given.len(), devices.len());
            return Err(StoreError::InvalidRequest { store: label.to_owned(), reason });
        }
        let mut different: Vec<u8> = given.to_vec();
        different.sort_unstable();
        different.dedup();
        return Ok(given.iter().map(|tier| different.partition_point(|other| other < tier)).collect());
    }
    let promised =
        |device: &Device| device.block.capabilities().nominal.as_ref().map(|nominal| nominal.random_reads_per_second);
    Ok(by_random_reads(&devices.iter().map(promised).collect::<Vec<_>>()))
}

/// Those that promise nothing are with the fastest: what nobody knows is not kept from use.
fn by_random_reads(promised: &[Option<u64>]) -> Vec<usize> {
    let mut rates: Vec<u64> = promised.iter().flatten().copied().collect();
    rates.sort_unstable_by(|one, other| other.cmp(one));
    // The first of each tier.
    let mut firsts: Vec<u64> = Vec::new();
    for rate in rates {
        if firsts.last().is_none_or(|first| rate.saturating_mul(LIKE) < *first) {
            firsts.push(rate);
        }
    }
    let tier = |rate: u64| firsts.iter().rposition(|first| *first >= rate).unwrap_or(0);
    promised.iter().map(|rate| rate.map_or(0, tier)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_like_speed_are_one_tier_in_any_order() {
        for (promised, expected) in [
            (&[Some(16_928), Some(115)][..], &[0, 1][..]),
            (&[Some(115), Some(16_928)], &[1, 0]),
            (&[Some(115), Some(120), Some(16_928), Some(9_000)], &[1, 1, 0, 0]),
            (&[Some(115), Some(500_000), Some(16_928)], &[2, 0, 1]),
            (&[Some(100)], &[0]),
            (&[None, None], &[0, 0]),
            (&[None, Some(100), Some(10)], &[0, 0, 1]),
            (&[Some(0), Some(0)], &[0, 0]),
        ] {
            assert_eq!(by_random_reads(promised), expected, "{promised:?}");
        }
    }

    #[test]
    fn tiers_that_are_given_count_from_nothing() {
        let env = varve_env::Env::real();
        let device =
            |name| Device::of_blocks(std::sync::Arc::new(varve_media::Emulated::immediate(&env, name, 1 << 20)));
        let devices = [device("a"), device("b"), device("c")];
        assert_eq!(tiers_of("set", &devices, Some(&[7, 2, 7])).unwrap(), [1, 0, 1]);
        let error = tiers_of("set", &devices, Some(&[1])).unwrap_err().to_string();
        assert!(error.contains("1 tiers were given for 3 devices"), "{error}");
    }
}
