use super::*;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::{Env, Random, SimOptions};
use varve_media::conformance::{BlockDeviceCheck, check_block_device};
use varve_media::{BlockDeviceExt, Device, Emulated, IoContext, MediaError};

mod answers;
mod beside;
mod crash;
mod faults;
mod journal;
mod protection;
mod refusals;
mod service;

const SECTOR: u64 = 512;
const CHUNK: u64 = 8 << 10;
/// Offset of the data of small members.
const DATA_OFFSET: u64 = super::opening::DATA_OFFSETS[0];

/// Every level with few members, and RAID 5 and 6 with more.
const SHAPES: [(RaidLevel, usize); 8] = [
    (RaidLevel::Raid0, 3),
    (RaidLevel::Raid1, 2),
    (RaidLevel::Raid1, 3),
    (RaidLevel::Raid4, 3),
    (RaidLevel::Raid5, 3),
    (RaidLevel::Raid5, 5),
    (RaidLevel::Raid6, 4),
    (RaidLevel::Raid6, 6),
];

/// A blank member with space for `data_bytes` of data.
fn member(env: &Env, name: &str, data_bytes: u64) -> Device {
    Device::of_blocks(Arc::new(Emulated::immediate(env, name, DATA_OFFSET + data_bytes)))
}

fn members(env: &Env, count: usize, data_bytes: u64) -> Vec<Device> {
    (0..count).map(|number| member(env, &format!("m{number}"), data_bytes)).collect()
}

fn parameters(level: RaidLevel) -> ArrayParameters {
    let (name, chunk_bytes) = ("array".to_owned(), Some(CHUNK));
    ArrayParameters { name, level, chunk_bytes, dix: Dix::On, journal: None, protection: None }
}

fn all(members: &[Device]) -> Vec<Option<Device>> {
    members.iter().cloned().map(Some).collect()
}

/// The members without some.
fn without(members: &[Device], lost: &[usize]) -> Vec<Option<Device>> {
    members.iter().enumerate().map(|(slot, member)| (!lost.contains(&slot)).then(|| member.clone())).collect()
}

fn open(env: &Env, level: RaidLevel, members: &[Option<Device>]) -> Result<(Device, Array), ArrayError> {
    Array::open(env, members, &parameters(level), &ArrayOpening::default())
}

fn in_simulation<T: Send + 'static>(seed: u64, run: impl FnOnce(&Env) -> T + Send + 'static) -> T {
    let env = Env::sim_with(SimOptions { seed, perturb: !seed.is_multiple_of(3), ..SimOptions::default() });
    let own = env.clone();
    env.spawn("client", move || run(&own)).join().unwrap_or_else(|panicked| panicked.resume())
}

/// A user of an array, with the stamp that each sector should have: 0 reads as zeros.
struct Host {
    device: Device,
    random: Random,
    stamps: Vec<u64>,
    next: u64,
}

fn content(stamps: &[u64]) -> Vec<u8> {
    stamps.iter().flat_map(|stamp| stamp.to_le_bytes().repeat((SECTOR / 8) as usize)).collect()
}

/// The stamps of all sectors; `None` if one is torn.
fn stamps(device: &Device) -> Result<Option<Vec<u64>>, MediaError> {
    let mut data = vec![0; device.block.geometry().capacity_bytes as usize];
    device.block.read_at(0, &mut data, &IoContext::default())?;
    let stamp = |sector: &[u8]| {
        let (words, _) = sector.as_chunks::<8>();
        words.iter().all(|word| *word == words[0]).then(|| u64::from_le_bytes(words[0]))
    };
    Ok(data.chunks(SECTOR as usize).map(stamp).collect())
}

impl Host {
    fn new(device: Device, seed: u64) -> Host {
        let sectors = (device.block.geometry().capacity_bytes / SECTOR) as usize;
        Host { device, random: Random::named(seed, "host"), stamps: vec![0; sectors], next: 0 }
    }

    /// Sectors of a request: mostly few, sometimes several stripes.
    fn range(&mut self) -> std::ops::Range<usize> {
        let sectors = self.stamps.len() as u64;
        let most = if self.random.chance(1, 4) { 200 } else { 24 };
        let length = (1 + self.random.below(most)).min(sectors);
        let first = self.random.below(sectors - length + 1);
        first as usize..(first + length) as usize
    }

    fn write(&mut self, range: std::ops::Range<usize>) -> Result<(), MediaError> {
        self.next += 1;
        self.stamps[range.clone()].fill(self.next);
        self.device.block.write_at(range.start as u64 * SECTOR, &content(&self.stamps[range]), &IoContext::default())
    }

    fn discard(&mut self, range: std::ops::Range<usize>) -> Result<(), MediaError> {
        self.stamps[range.clone()].fill(0);
        let (at, length) = (range.start as u64 * SECTOR, range.len() as u64 * SECTOR);
        self.device.block.discard_at(at, length, &IoContext::default())
    }

    /// Writes, discards, syncs or reads.
    fn step(&mut self) -> Result<(), MediaError> {
        let range = self.range();
        match self.random.below(8) {
            0 => self.device.block.sync(&IoContext::default()),
            1 => self.discard(range),
            2 | 3 => {
                let mut data = vec![0; range.len() * SECTOR as usize];
                self.device.block.read_at(range.start as u64 * SECTOR, &mut data, &IoContext::default())?;
                assert!(data == content(&self.stamps[range.clone()]), "sectors {range:?} have other data");
                Ok(())
            }
            _ => self.write(range),
        }
    }

    /// Writes, discards or syncs. Keeps the stamps that each sector may have after a power cut: that of the last sync, and
    /// later ones.
    fn step_within(&mut self, allowed: &Mutex<Vec<BTreeSet<u64>>>) {
        let range = self.range();
        match self.random.below(6) {
            0 => {
                self.device.block.sync(&IoContext::default()).unwrap();
                for (allowed, &stamp) in allowed.lock().iter_mut().zip(&self.stamps) {
                    *allowed = BTreeSet::from([stamp]);
                }
            }
            1 => {
                range.clone().for_each(|sector| _ = allowed.lock()[sector].insert(0));
                self.discard(range).unwrap();
            }
            _ => {
                let stamp = self.next + 1;
                range.clone().for_each(|sector| _ = allowed.lock()[sector].insert(stamp));
                self.write(range).unwrap();
            }
        }
    }

    fn check(&self) {
        let found = stamps(&self.device).expect("a read of everything").expect("a torn sector");
        for (sector, (found, expected)) in found.iter().zip(&self.stamps).enumerate() {
            assert_eq!(found, expected, "sector {sector}");
        }
    }
}

/// Each choice of at most `most` of `count` members.
fn losses(count: usize, most: usize) -> Vec<Vec<usize>> {
    let mut losses = vec![Vec::new()];
    for first in 0..count {
        if most >= 1 {
            losses.push(vec![first]);
        }
        losses.extend((first + 1..count).filter(|_| most >= 2).map(|second| vec![first, second]));
    }
    losses
}

#[test]
fn every_level_is_a_block_device_whole_and_degraded() {
    let mut checked = 0;
    for (level, count) in SHAPES {
        // Of the members that a level can lose: none, the first, the last, two.
        let tolerated = level.tolerated(count);
        let cases = [vec![], vec![0], vec![count - 1], vec![0, 2]];
        for lost in cases.into_iter().filter(|lost| lost.len() <= tolerated && lost.iter().all(|slot| *slot < count)) {
            let make = |env: &Env| {
                let members = members(env, count, 256 << 10);
                let (device, array) = open(env, level, &all(&members)).expect("an array of blank members");
                lost.iter().for_each(|slot| array.fail(*slot).expect("a member that may be lost"));
                device
            };
            let options = BlockDeviceCheck { steps: 100, ..BlockDeviceCheck::default() };
            if let Err(broken) = check_block_device(&make, &options) {
                panic!("{level} of {count} without {lost:?}: {broken:?}");
            }
            checked += 1;
        }
    }
    println!("reached: block raid/conformance: {checked} arrays");
    assert!(checked > 20);
}
