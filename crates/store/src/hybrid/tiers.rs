//! The tier of each device: by its rate of random reads, else by whether it positions; never by its order.

use crate::error::StoreError;
use varve_media::{Capabilities, Device, NominalPerformance};

/// Two devices are one tier if their rates of random reads differ by at most this factor.
const LIKE: u64 = 2;

/// What the choice of a tier depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Speed {
    /// Random reads a second, if known.
    random_reads: Option<u64>,
    /// Positioning costs time.
    rotational: bool,
}

/// Rates of a device of a tier: those it promises, else the usual ones of its kind. A device behind the first tier that states
/// none is taken for a disk, also where it says that it is none.
pub(super) fn performance_of(capabilities: &Capabilities, tier: usize) -> NominalPerformance {
    capabilities.nominal.unwrap_or_else(|| NominalPerformance::typical(capabilities.rotational || tier > 0))
}

/// Returns the tier of each device, 0 the fastest, without gaps. `given` wins over what the devices say.
///
/// # Errors
/// [`StoreError::InvalidRequest`] if the number of `given` tiers is not that of the devices;
/// [`StoreError::UnknownTiers`] if the rates that are unknown decide.
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
    let speed = |device: &Device| {
        let capabilities = device.block.capabilities();
        Speed {
            random_reads: capabilities.nominal.map(|nominal| nominal.random_reads_per_second),
            rotational: capabilities.rotational,
        }
    };
    let speeds: Vec<Speed> = devices.iter().map(speed).collect();
    choose(&speeds).map_err(|unknown| {
        let name = |device: usize| format!("'{}'", devices[device].block.name());
        StoreError::UnknownTiers {
            store: label.to_owned(),
            devices: unknown.into_iter().map(name).collect::<Vec<_>>().join(", "),
        }
    })
}

/// Chooses tiers.
///
/// A rate that is unknown is taken from the kind of the device where that decides: disks of all makes read
/// 80 to 200 blocks a second, so one whose rate is unknown is like every other disk, and slower than every
/// solid-state device. Solid-state devices differ by a factor of 50, so one of several must say its rate.
///
/// # Errors
/// The devices whose unknown rates decide.
fn choose(speeds: &[Speed]) -> Result<Vec<usize>, Vec<usize>> {
    let typical = |rotational| NominalPerformance::typical(rotational).random_reads_per_second;
    let is_ambiguous = |(at, speed): &(usize, &Speed)| {
        let mut others = speeds.iter().enumerate().filter(|(other, _)| other != at).map(|(_, other)| other);
        speed.random_reads.is_none()
            && match speed.rotational {
                // A device of a rate that no disk has may still say that it is one: an array of disks.
                true => {
                    others.any(|other| other.rotational && other.random_reads.is_some_and(|rate| !is_like_a_disk(rate)))
                }
                false => others.any(|other| !other.rotational),
            }
    };
    let ambiguous: Vec<usize> = speeds.iter().enumerate().filter(is_ambiguous).map(|(at, _)| at).collect();
    if !ambiguous.is_empty() {
        return Err(ambiguous);
    }
    // Disks without a rate have the one of the disks that say it, so that they are one tier.
    let of_disks = speeds.iter().filter(|speed| speed.rotational).find_map(|speed| speed.random_reads);
    let rate = |speed: &Speed| {
        let of_kind = if speed.rotational { of_disks } else { None };
        speed.random_reads.or(of_kind).unwrap_or(typical(speed.rotational))
    };
    Ok(by_random_reads(&speeds.iter().map(rate).collect::<Vec<_>>()))
}

/// Returns true for a rate of random reads that a disk may have.
fn is_like_a_disk(random_reads: u64) -> bool {
    let typical = NominalPerformance::typical(true).random_reads_per_second;
    (typical / LIKE..=typical * LIKE).contains(&random_reads)
}

fn by_random_reads(rates: &[u64]) -> Vec<usize> {
    let mut descending = rates.to_vec();
    descending.sort_unstable_by(|one, other| other.cmp(one));
    // The first of each tier.
    let mut firsts: Vec<u64> = Vec::new();
    for rate in descending {
        if firsts.last().is_none_or(|first| rate.saturating_mul(LIKE) < *first) {
            firsts.push(rate);
        }
    }
    rates.iter().map(|rate| firsts.iter().rposition(|first| *first >= *rate).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_like_rates_are_one_tier_in_any_order() {
        for (rates, expected) in [
            (&[16_928, 115][..], &[0, 1][..]),
            (&[115, 16_928], &[1, 0]),
            (&[115, 120, 16_928, 9_000], &[1, 1, 0, 0]),
            (&[115, 500_000, 16_928], &[2, 0, 1]),
            (&[100], &[0]),
            (&[0, 0], &[0, 0]),
        ] {
            assert_eq!(by_random_reads(rates), expected, "{rates:?}");
        }
    }

    fn disk(random_reads: Option<u64>) -> Speed {
        Speed { random_reads, rotational: true }
    }

    fn drive(random_reads: Option<u64>) -> Speed {
        Speed { random_reads, rotational: false }
    }

    #[test]
    fn unknown_rates_follow_from_the_kind_of_a_device() {
        for (speeds, expected) in [
            (&[drive(None)][..], &[0][..]),
            (&[disk(None)], &[0]),
            // A ZNS drive and an HM-SMR disk of the kernel, in any order.
            (&[drive(None), disk(None)], &[0, 1]),
            (&[disk(None), drive(None)], &[1, 0]),
            (&[disk(None), disk(None), drive(None)], &[1, 1, 0]),
            (&[disk(None), disk(None)], &[0, 0]),
            // One of the two is known.
            (&[drive(Some(16_928)), disk(None)], &[0, 1]),
            (&[drive(None), disk(Some(115))], &[0, 1]),
            (&[disk(Some(80)), disk(None), drive(Some(500_000))], &[1, 1, 0]),
        ] {
            assert_eq!(choose(speeds), Ok(expected.to_vec()), "{speeds:?}");
        }
    }

    #[test]
    fn names_the_devices_whose_unknown_rates_decide() {
        for (speeds, expected) in [
            (&[drive(None), drive(None)][..], &[0, 1][..]),
            (&[drive(Some(16_928)), drive(None)], &[1]),
            (&[disk(None), drive(None), drive(None)], &[1, 2]),
            (&[disk(None), disk(Some(4_000))], &[0]),
        ] {
            assert_eq!(choose(speeds), Err(expected.to_vec()), "{speeds:?}");
        }
    }

    fn device(name: &str) -> Device {
        let env = varve_env::Env::real();
        Device::of_blocks(std::sync::Arc::new(varve_media::Emulated::immediate(&env, name, 1 << 20)))
    }

    #[test]
    fn tiers_that_are_given_count_from_nothing() {
        let devices = [device("a"), device("b"), device("c")];
        assert_eq!(tiers_of("set", &devices, Some(&[7, 2, 7])).unwrap(), [1, 0, 1]);
        let error = tiers_of("set", &devices, Some(&[1])).unwrap_err().to_string();
        assert!(error.contains("1 tiers were given for 3 devices"), "{error}");
    }

    #[test]
    fn refuses_unknown_tiers_with_what_to_do() {
        let error = tiers_of("set", &[device("a"), device("b")], None).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, StoreError::UnknownTiers { .. }), "{said}");
        assert!(said.contains("'a', 'b'") && said.contains("tiers=") && said.contains("random-reads="), "{said}");
    }
}
