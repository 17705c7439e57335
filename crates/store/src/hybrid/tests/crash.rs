//! Power cuts of both devices at one moment, at every persistence point of loads in which tables move, blocks are cached, log
//! zones are emptied and band tables roll over.

use super::load::{Hints, Load};
use super::shared::sharing;
use super::*;
use crate::band::Need;
use crate::conformance::{Model, verify_store};
use parking_lot::Mutex;
use std::sync::Arc;
use varve_env::Random;
use varve_media::{CrashDevice, CrashVariant, DeviceCrashState};

const SEEDS: u64 = 15;
/// Of so many points one is cut.
const EVERY: u64 = 7;

/// What both devices may have after a power cut, and what may be in it.
#[derive(Clone)]
pub(super) struct Cut {
    pub(super) states: [DeviceCrashState; 2],
    pub(super) model: Model,
    /// Tables share zones.
    pub(super) shares: bool,
}

impl Cut {
    /// Opens an image, and says what is wrong with it.
    pub(super) fn verify(&self, env: &Env, variant: CrashVariant, seed: u64) -> Result<(), String> {
        let devices: Vec<Device> =
            (0..).zip(&self.states).map(|(number, state)| state.image(variant, seed ^ number << 40)).collect();
        let usual = if self.shares { sharing() } else { open_options() };
        let options = HybridOpenOptions { tiers: Some(TIERS.to_vec()), ..usual.clone() };
        let store = HybridStore::open(env, devices.clone(), &options).map_err(|error| error.to_string())?;
        verify_whole(&store)?;
        verify_places(&store)?;
        verify_store(&store, &self.model)?;
        verify_whole(&store)?;
        verify_places(&store)?;
        let before = contents(&store)?;
        drop(store);
        // In another order, which is the same set.
        let reversed: Vec<Device> = devices.into_iter().rev().collect();
        let options = HybridOpenOptions { tiers: Some(vec![0, 1]), ..usual };
        let store = HybridStore::open(env, reversed, &options).map_err(|error| format!("once more: {error}"))?;
        match contents(&store)? == before {
            true => Ok(()),
            false => Err("another open finds something else".to_owned()),
        }
    }
}

/// Every name and what it has.
fn contents(store: &HybridStore) -> Result<Vec<(String, Vec<u8>)>, String> {
    let names = store.list().map_err(|error| error.to_string())?;
    names
        .into_iter()
        .map(|entry| read(store, &entry.name).map(|data| (entry.name, data)).map_err(|error| error.to_string()))
        .collect()
}

/// Nothing is on a device but the parts of files and cache zones that are known, each once, and no zone is promised to nobody.
pub(super) fn verify_whole(store: &HybridStore) -> Result<(), String> {
    verify_whole_but(store, "\0cache-")
}

/// [`verify_whole`], where the store has files of its own whose names begin so.
pub(super) fn verify_whole_but(store: &HybridStore, own: &str) -> Result<(), String> {
    let core = &store.core;
    let files = core.files.read();
    let mut zones = 0;
    for (device, member) in core.members.iter().enumerate() {
        for name in member.files.names() {
            if name.starts_with("\0cache-") {
                zones += 1;
                continue;
            }
            if name.starts_with(own) {
                continue;
            }
            let is_part = files.get(&name).is_some_and(|file| file.parts().iter().any(|part| part.device == device));
            let is_older = files.get(&name).is_some_and(|file| file.supersedes.lock().contains(&device));
            if !is_part && !is_older {
                return Err(format!("{name:?} on device {device} is nobody's"));
            }
        }
        let promised = member.promised.load(std::sync::atomic::Ordering::Relaxed);
        if promised != 0 {
            return Err(format!("{promised} zones of device {device} are promised to nobody"));
        }
    }
    let known = core.cache.as_ref().map_or(0, |cache| cache.zones.lock().len() + cache.found.lock().len());
    match zones == known {
        true => Ok(()),
        false => Err(format!("{zones} cache zones on the devices, {known} known")),
    }
}

/// No two files have one place, and zones are known to be shared by those that share them.
fn verify_places(store: &HybridStore) -> Result<(), String> {
    let findings = store.check().map_err(|error| error.to_string())?;
    let is_of_places = |code: &str| ["band-overlap", "band-owners", "band-leak", "pointer-behind"].contains(&code);
    match findings.iter().find(|finding| is_of_places(finding.code)) {
        None => Ok(()),
        Some(finding) => Err(finding.message.clone()),
    }
}

/// What loads reached, all together.
#[derive(Debug, Default)]
struct Reached {
    points: u64,
    images: u64,
    moved_down: u64,
    moved_up: u64,
    cached: u64,
    zones_given_up: u64,
    continued: u64,
    cleaned: u64,
    checkpoints: u64,
    emptied: u64,
}

impl std::fmt::Display for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Reached {
            points,
            images,
            moved_down,
            moved_up,
            cached,
            zones_given_up,
            continued,
            cleaned,
            checkpoints,
            emptied,
        } = self;
        write!(f, "{points} points, {images} images, {moved_down} moved down, {moved_up} moved up, {cached} cached, ")?;
        write!(
            f,
            "{zones_given_up} zones given up, {continued} continued, {cleaned} cleaned, {checkpoints} checkpoints, {emptied} emptied"
        )
    }
}

/// Runs a load of a seed, and verifies images of one point of every so many.
fn cut_together(seed: u64, operations: u64, every: u64, shares: bool, reached: &mut Reached) {
    let env = Env::sim(seed);
    let fast_zones = 6 + seed % 7;
    // So few that zones have to be emptied.
    let slow_zones = if shares { 9 + seed % 4 } else { 60 };
    let devices = formatted(&env, slow_zones, fast_zones, [0, 4, 5, 8][(seed % 4) as usize]);
    let crash: Vec<CrashDevice> = devices.iter().map(|device| CrashDevice::new(&env, device).unwrap()).collect();
    let below: Vec<Device> = crash.iter().map(CrashDevice::device).collect();
    let placement = PlacementName::ALL[(seed % PlacementName::ALL.len() as u64) as usize];
    let usual = if shares { sharing() } else { open_options() };
    let options = HybridOpenOptions { placement, tiers: Some(TIERS.to_vec()), ..usual };
    let store = Arc::new(HybridStore::open(&env, below, &options).unwrap());
    let model = Arc::new(Mutex::new(Model::default()));
    let cuts: Arc<Mutex<(u64, Vec<Cut>)>> = Arc::default();
    for (number, device) in crash.iter().enumerate() {
        let (other, cuts, model) = (crash[1 - number].clone(), cuts.clone(), model.clone());
        device.on_persistence_point(move |point| {
            let mut cuts = cuts.lock();
            cuts.0 += 1;
            if (cuts.0 + seed).is_multiple_of(every) {
                let mut states = [point.capture(), other.capture()];
                if number == 1 {
                    states.reverse();
                }
                cuts.1.push(Cut { states, model: model.lock().clone(), shares });
            }
        });
    }
    let load = Load::new(store.clone(), model.clone(), seed, Hints::ALL);
    let mut load = if shares { load.with_tables_of(9000) } else { load };
    load.run(operations);
    assert!(load.bad_errors().is_empty(), "seed {seed}: {:?}", load.bad_errors());
    drop(load);
    verify_whole(&store).unwrap_or_else(|message| panic!("seed {seed}: at the end: {message}"));
    assert_sound(&store);
    for (name, count) in [
        ("tables moved to the slow tier", &mut reached.moved_down),
        ("tables moved to the fast tier", &mut reached.moved_up),
        ("blocks cached", &mut reached.cached),
        ("cache zones given up", &mut reached.zones_given_up),
        ("files that went on on another device", &mut reached.continued),
        ("log bands emptied", &mut reached.cleaned),
        ("checkpoints", &mut reached.checkpoints),
        ("zones of tables emptied", &mut reached.emptied),
    ] {
        *count += measure(&store, name);
    }
    let (points, cuts) = std::mem::take(&mut *cuts.lock());
    reached.points += points;
    let mut random = Random::named(seed, "cuts");
    for (number, cut) in cuts.iter().enumerate() {
        for _ in 0..2 {
            let variant = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
            let image = random.next_u64();
            reached.images += 1;
            let outcome = cut.verify(&env, variant, image);
            outcome
                .unwrap_or_else(|message| panic!("seed {seed}, cut {number}, {variant:?}, image {image}: {message}"));
        }
    }
}

#[test]
fn nothing_is_lost_when_both_devices_lose_their_power_at_any_point() {
    let mut reached = Reached::default();
    for seed in 0..SEEDS {
        let operations = if seed % 5 == 4 { 900 } else { 150 };
        cut_together(seed, operations, EVERY, false, &mut reached);
    }
    println!("reached: hybrid power cuts: {reached}");
    let Reached { moved_down, moved_up, cached, zones_given_up, continued, cleaned, checkpoints, .. } = reached;
    for (what, count) in [
        ("moves down", moved_down),
        ("moves up", moved_up),
        ("cached blocks", cached),
        ("cache zones given up", zones_given_up),
        ("files of several devices", continued),
        ("cleaned log zones", cleaned),
        ("roll-overs", checkpoints),
    ] {
        assert!(count > 0, "the loads had no {what}");
    }
}

/// The same where tables share zones, and zones are emptied all the time.
#[test]
fn nothing_is_lost_of_tables_that_share_zones() {
    let mut reached = Reached::default();
    for seed in 100..100 + SEEDS {
        cut_together(seed, 400, EVERY, true, &mut reached);
    }
    println!("reached: hybrid power cuts, shared zones: {reached}");
    let Reached { moved_down, moved_up, continued, emptied, .. } = reached;
    for (what, count) in [
        ("moves down", moved_down),
        ("moves up", moved_up),
        ("files of several devices", continued),
        ("emptied zones", emptied),
    ] {
        assert!(count > 0, "the loads had no {what}");
    }
}

/// Zones are emptied, with nothing beside, and both devices lose their power at each of the points of that.
#[test]
fn nothing_is_lost_at_any_point_of_emptying_a_zone() {
    let (mut points, mut images, mut emptied) = (0, 0, 0);
    for seed in 200..212 {
        let env = Env::sim(seed);
        let devices = formatted(&env, 14, 7, [0, 5][(seed % 2) as usize]);
        let crash: Vec<CrashDevice> = devices.iter().map(|device| CrashDevice::new(&env, device).unwrap()).collect();
        let below: Vec<Device> = crash.iter().map(CrashDevice::device).collect();
        let options = HybridOpenOptions {
            tiers: Some(TIERS.to_vec()),
            migration: MigrationName::None,
            cleaning_bytes_per_second: 0,
            ..sharing()
        };
        let store = Arc::new(HybridStore::open(&env, below, &options).unwrap());
        let model = Arc::new(Mutex::new(Model::default()));
        let mut load = Load::new(store.clone(), model.clone(), seed, Hints::ALL).with_tables_of(4000);
        load.run(300);
        drop(load);
        let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
        for (number, device) in crash.iter().enumerate() {
            let (other, cuts, model) = (crash[1 - number].clone(), cuts.clone(), model.clone());
            device.on_persistence_point(move |point| {
                let mut states = [point.capture(), other.capture()];
                if number == 1 {
                    states.reverse();
                }
                cuts.lock().push(Cut { states, model: model.lock().clone(), shares: true });
            });
        }
        let before = measure(&store, "zones of tables emptied");
        for device in 0..2 {
            (0..4).take_while(|_| store.core.clean_in_need(device, Need::Space)).count();
        }
        emptied += measure(&store, "zones of tables emptied") - before;
        let cuts = std::mem::take(&mut *cuts.lock());
        points += cuts.len();
        for (number, cut) in cuts.iter().enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                images += 1;
                let outcome = cut.verify(&env, variant, seed ^ number as u64);
                outcome.unwrap_or_else(|message| panic!("seed {seed}, point {number}, {variant:?}: {message}"));
            }
        }
        verify_whole(&store).unwrap();
        assert_sound(&store);
    }
    println!("reached: hybrid power cuts of emptying: {emptied} zones, {points} points, {images} images");
    assert!(emptied > 6 && points > 100, "{emptied} zones, {points} points");
}
