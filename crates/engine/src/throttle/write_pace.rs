//! How fast writers may go so that nothing they need is ever missing: a little slower all the time instead of stopped now
//! and then.
//!
//! Three things fill up while users write, and each is emptied by the medium: the log's way to it, memtables, and level 0.
//! When one is full a write waits for as long as emptying it takes. To keep that from happening writers are held to a rate
//! at which it would be full no sooner than it is emptied: as much of the rate it is emptied at as there is space to what has
//! to be emptied. With much space that is fast and with little slow, so a memtable is full when the one before it is in its
//! table, and what is filled and emptied all the time settles half full. The medium then always has something to do,
//! and a write waits for no more than its own share. bLSM's spring ("bLSM: a general purpose log structured merge tree",
//! SIGMOD 2012, section 4.3) does this with the memtable; here it is all three, and rates are measured rather than given.
//!
//! While nobody waits for the log only level 0 is looked at: who fills the other two waits now and then, for as long in all as if he were held.
//!
//! This is a pure function from what stands to a rate; [`super::Throttle`] sleeps.

/// One of the things that fill up, in bytes users write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservoir {
    /// What may be written until a write waits.
    pub(super) room_bytes: u64,
    /// What has to be emptied until there is all the space again; with nothing to do, nobody is held.
    pub(super) due_bytes: u64,
    /// Bytes per second it was emptied at of late, if it was.
    pub(super) emptied_bytes_per_second: Option<u64>,
}

/// A rate that is measured wrongly must not keep writers from going on, nor from measuring it again.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// The rate of writers, in bytes per second; nothing when they are not held.
pub(super) fn bytes_per_second(reservoirs: &[Reservoir]) -> Option<u64> {
    let rates = reservoirs.iter().filter(|reservoir| reservoir.due_bytes > 0).filter_map(|reservoir| {
        let emptied = u128::from(reservoir.emptied_bytes_per_second?);
        let rate = emptied * u128::from(reservoir.room_bytes) / u128::from(reservoir.due_bytes);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    });
    rates.min().map(|rate| rate.max(BYTES_PER_SECOND_MIN))
}

/// Users' bytes until `tables` of level 0 and `written_bytes` in memtables are the `stop` tables that stop writes.
pub(super) fn level0_room_bytes(tables: usize, stop: usize, memtable_bytes: u64, written_bytes: u64) -> u64 {
    (stop.saturating_sub(tables) as u64).saturating_mul(memtable_bytes).saturating_sub(written_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn rate(room_bytes: u64, due_bytes: u64, mebibytes_per_second: u64) -> Option<u64> {
        bytes_per_second(&[reservoir(room_bytes, due_bytes, mebibytes_per_second)])
    }

    fn reservoir(room_bytes: u64, due_bytes: u64, mebibytes_per_second: u64) -> Reservoir {
        Reservoir { room_bytes, due_bytes, emptied_bytes_per_second: Some(mebibytes_per_second * MEBIBYTE) }
    }

    #[test]
    fn it_is_full_no_sooner_than_it_is_emptied() {
        assert_eq!(rate(80, 0, 100), None, "nothing to do");
        assert_eq!(rate(80, 80, 100), Some(100 * MEBIBYTE));
        assert_eq!(rate(40, 80, 100), Some(50 * MEBIBYTE));
        assert_eq!(rate(80, 20, 100), Some(400 * MEBIBYTE));
        assert_eq!(rate(0, 80, 100), Some(BYTES_PER_SECOND_MIN));
        let most = bytes_per_second(&[Reservoir {
            room_bytes: u64::MAX,
            due_bytes: 1,
            emptied_bytes_per_second: Some(u64::MAX),
        }]);
        assert_eq!(most, Some(u64::MAX));
    }

    /// A memtable is filled while the one before it is flushed, in steps of a hundredth of the time.
    #[test]
    fn a_memtable_is_full_when_the_one_before_it_is_in_its_table() {
        let (mut filled, mut flushed) = (0.0, 0.0);
        while flushed < 79.9 * MEBIBYTE as f64 {
            let (space, due) = (80.0 * MEBIBYTE as f64 - filled, 80.0 * MEBIBYTE as f64 - flushed);
            let writers = rate(space as u64, due as u64, 100).unwrap() as f64;
            filled += writers / 1000.0;
            flushed += 100.0 * MEBIBYTE as f64 / 1000.0;
        }
        assert!((79.0..81.0).contains(&(filled / MEBIBYTE as f64)), "{filled}");
    }

    #[test]
    fn the_scarcest_decides_and_what_was_never_emptied_does_not() {
        let unknown = Reservoir { room_bytes: 1, due_bytes: 99, emptied_bytes_per_second: None };
        assert_eq!(bytes_per_second(&[unknown]), None);
        assert_eq!(bytes_per_second(&[unknown, reservoir(9, 9, 30), reservoir(9, 9, 20)]), Some(20 * MEBIBYTE));
    }

    #[test]
    fn level_0_is_full_at_its_stop() {
        assert_eq!(level0_room_bytes(4, 12, 10, 0), 80);
        assert_eq!(level0_room_bytes(4, 12, 10, 15), 65);
        assert_eq!(level0_room_bytes(11, 12, 10, 15), 0);
        assert_eq!(level0_room_bytes(13, 12, 10, 0), 0);
        assert_eq!(level0_room_bytes(0, usize::MAX, u64::MAX, 1), u64::MAX - 1);
    }
}
