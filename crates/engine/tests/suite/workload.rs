//! A workload drawn from a seed: on what it stands, with which options, and what several clients do there at once.

use super::medium::{CrashState, Image, Kind, Recorder, imr_kinds, shares};
use super::options::short_option_set;
use super::oracle::{Batch, MayLose, Oracle, State, count_key, prefix};
use super::totals::verify_totals;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use varve_engine::{
    Db, Error, ErrorKind, Options, ReadOptions, Snapshot, TreeKind, WriteBatch, WriteOptions, WriteState,
};
use varve_env::{Env, Random, SimOptions};
use varve_media::{CrashVariant, FaultInjector, FaultPlan};
use varve_store::Finding;

/// On what workloads stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Directories,
    Devices,
}

impl On {
    /// Of the kinds of stores one.
    fn draw(self, random: &mut Random) -> Kind {
        let of_media = shares().filter(|(kind, _)| kind.is_plain() == (self == On::Directories));
        let kinds: Vec<Kind> = of_media.flat_map(|(kind, share)| std::iter::repeat_n(kind, share)).collect();
        // Of interlaced disks there are many.
        let tracks = if self == On::Devices { imr_kinds() } else { Vec::new() };
        match random.index(kinds.len() + tracks.len().min(4)) {
            place if place < kinds.len() => kinds[place],
            _ => tracks[random.index(tracks.len())],
        }
    }
}

/// Space of devices; where tables of two trees need twice as much, still enough.
const DEVICE_BYTES: u64 = 8 << 20;

/// What is free of an interlaced disk with [`IMR_BYTES`] for tables.
const IMR_FREE_TRACKS: u64 = 400;

const IMR_BYTES: u64 = 4 << 20;

/// Virtual time no workload needs: one that takes it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Openings that are tried under faults before a phase is given up.
const OPENINGS_MAX: usize = 3;

/// What a seed decides before anything happens.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) tree: TreeKind,
    pub(crate) options: Options,
    pub(crate) clients: usize,
    /// Batches of all clients together.
    batches: u64,
    universe: u64,
    /// One value of so many is large; 0 is none.
    large_one_in: u64,
    large_bytes: u64,
    perturb: bool,
}

impl Setting {
    /// The setting of a seed.
    pub(crate) fn draw(seed: u64, on: On) -> Setting {
        let mut random = Random::named(seed, "setting");
        let kind = on.draw(&mut random);
        let tree = crate::trees::draw(&mut random);
        let options = short_option_set(tree, seed);
        // A batch of several frames of a log, where there is space for a few.
        let roomy = [Kind::PLAIN, Kind::PLAIN_LOGS_APART, Kind::EXTENT, Kind::EXTENT_LOGS_APART].contains(&kind);
        let large_bytes = match random.below(4) {
            0 if roomy => 300 << 10,
            0 | 1 => 20 << 10,
            _ => 3 << 10,
        };
        let large_one_in = match large_bytes {
            0..16_384 => 12,
            16_384..65_536 => 24,
            _ => 80,
        };
        Setting {
            seed,
            kind,
            tree,
            options,
            clients: [1, 1, 2, 3][random.index(4)],
            batches: 30 + random.below(70),
            universe: [6, 24, 60][random.index(3)],
            large_one_in,
            large_bytes,
            perturb: random.chance(2, 3),
        }
    }

    /// Of the world in which step `step` of the workload happens.
    pub(crate) fn simulation(&self, step: u64) -> Env {
        let seed = self.seed.wrapping_mul(1009).wrapping_add(step);
        Env::sim_with(SimOptions { seed, perturb: self.perturb, time_limit: Some(TIME_LIMIT), ..SimOptions::default() })
    }

    /// Acknowledged writes may be in the process only. The layout of ext4 has its page cache there.
    fn holds_back(&self) -> bool {
        let by_default = if self.kind.is_plain() { 0 } else { 1 << 20 };
        self.options.log_buffer_size.unwrap_or(by_default) > 0
            || self.options.log_write_behind_size.unwrap_or_default() > 0
            || self.kind == Kind::EXTENT_EXT4
    }

    /// An empty medium of its kind; formatted once, as that takes longer than many workloads.
    pub(crate) fn fresh(&self) -> Image {
        empty(self.kind)
    }
}

/// An empty medium of this kind, formatted.
pub(crate) fn empty(kind: Kind) -> Image {
    static MADE: Mutex<BTreeMap<String, CrashState>> = Mutex::new(BTreeMap::new());
    let make = || {
        let env = Env::real();
        let space_bytes = match kind {
            _ if kind.is_imr() => IMR_BYTES,
            _ => kind.space_bytes(DEVICE_BYTES),
        };
        let image = Image::fresh_of(&env, kind, space_bytes);
        if kind.is_imr() {
            image.fill_tracks(IMR_FREE_TRACKS);
        }
        image.observed(&env, &Arc::default()).capture()
    };
    let state = MADE.lock().entry(format!("{kind:?}")).or_insert_with(make).clone();
    state.image(CrashVariant::KeepAll, 0)
}

/// All pairs, or why not.
pub(crate) fn walk_all(db: &Db) -> Result<State, Error> {
    walk(db, &ReadOptions::default())
}

fn walk(db: &Db, options: &ReadOptions<'_>) -> Result<State, Error> {
    let mut found = State::new();
    let mut walk = db.iterator(options)?;
    walk.seek_to_first();
    while walk.valid() {
        found.insert(walk.key().to_vec(), walk.value().into());
        walk.next();
    }
    walk.status().map(|()| found)
}

/// What was known at the persistence points that were sampled, by tag.
pub(crate) type Moments = Arc<Mutex<BTreeMap<u64, Oracle>>>;

/// Lets `recorder` keep each point that `workload` passes with the same chance, `count` of them in the end: those
/// whose moments are there.
pub(crate) fn sample_points(recorder: &Recorder, workload: &Arc<Workload>, count: u64) -> Moments {
    let moments = Moments::default();
    let (workload, moments_here) = (workload.clone(), moments.clone());
    let mut random = Random::named(workload.setting.seed, "points");
    let (mut passed, mut kept) = (0, Vec::new());
    *recorder.sampler.lock() = Some(Box::new(move || {
        passed += 1;
        if passed <= count {
            kept.push(passed);
        } else {
            if !random.chance(count, passed) {
                return None;
            }
            let place = random.index(kept.len());
            moments_here.lock().remove(&kept[place]);
            kept[place] = passed;
        }
        moments_here.lock().insert(passed, workload.oracle.lock().clone());
        Some(passed)
    }));
    moments
}

/// A workload that is going on.
pub(crate) struct Workload {
    pub(crate) setting: Setting,
    pub(crate) oracle: Mutex<Oracle>,
    /// Errors met, by kind.
    pub(crate) errors: Mutex<BTreeMap<String, u64>>,
    /// Faults strike: errors are answers.
    faults: bool,
    /// Unsynced writes may be gone at the next opening although there was no power cut.
    may_lose: AtomicBool,
    /// A sync that fails takes what it was to sync.
    pub(crate) drops_unsynced: AtomicBool,
    pub(crate) openings: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

/// The database of one opening, as the clients share it.
#[derive(Clone)]
struct Life {
    env: Env,
    db: Db,
    injector: Option<FaultInjector>,
    /// Some write was refused for good.
    poisoned: Arc<AtomicBool>,
}

impl Workload {
    pub(crate) fn new(setting: Setting, faults: bool) -> Arc<Workload> {
        Arc::new(Workload {
            oracle: Mutex::new(Oracle::new(setting.clients)),
            setting,
            errors: Mutex::default(),
            faults,
            may_lose: AtomicBool::new(false),
            drops_unsynced: AtomicBool::new(false),
            openings: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
        })
    }

    /// An error is an answer where something fails, or where there is no space; never that of a wrong argument.
    pub(crate) fn met(&self, what: &str, error: &Error) -> Result<(), String> {
        let text = error.to_string();
        let is_allowed = match error.kind() {
            ErrorKind::NoSpace => true,
            ErrorKind::InvalidArgument | ErrorKind::NotFound | ErrorKind::Foreign | ErrorKind::Locked => false,
            _ => self.faults,
        };
        if !is_allowed || text.contains("panic") {
            return Err(format!("{what}: {text} ({:?})", error.kind()));
        }
        *self.errors.lock().entry(format!("{:?}", error.kind())).or_default() += 1;
        Ok(())
    }

    /// What an opening must show now.
    pub(crate) fn may_lose_now(&self) -> MayLose {
        if self.may_lose.load(Ordering::SeqCst) { MayLose::Unsynced } else { MayLose::Nothing }
    }

    /// A fault may take what was written and not synced.
    pub(crate) fn unsynced_may_go(&self, even_what_was_handed_over: bool) {
        if even_what_was_handed_over || self.setting.holds_back() {
            self.may_lose.store(true, Ordering::SeqCst);
        }
    }

    /// Opens the database and makes sure that it shows what it must.
    pub(crate) fn open(
        &self,
        env: &Env,
        image: &Image,
        injector: Option<&FaultInjector>,
    ) -> Result<Option<Db>, String> {
        let injected = || injector.map_or(0, FaultInjector::injected);
        let injected_before = injected();
        let opened = image
            .media_under(env, injector)
            .map_err(Error::from)
            .and_then(|media| Db::open(env, media, self.setting.options.clone()));
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                if injected() > injected_before {
                    self.unsynced_may_go(self.drops_unsynced.load(Ordering::SeqCst));
                }
                return self.met("opening", &error).map(|()| None);
            }
        };
        self.openings.fetch_add(1, Ordering::SeqCst);
        match walk_all(&db) {
            Ok(found) => {
                let may_lose = self.may_lose_now();
                let mut oracle = self.oracle.lock();
                oracle.verify(&found, may_lose).map_err(|what| format!("opening shows a wrong state: {what}"))?;
                oracle.settle(&found);
                self.may_lose.store(false, Ordering::SeqCst);
                Ok(Some(db))
            }
            // Nobody knows what it holds: it is opened again.
            Err(error) => {
                self.met("the first walk", &error)?;
                self.unsynced_may_go(self.drops_unsynced.load(Ordering::SeqCst));
                self.close(&db)?;
                Ok(None)
            }
        }
    }

    fn close(&self, db: &Db) -> Result<(), String> {
        let counters = db.statistics().counters;
        self.flushes.fetch_add(counters.flushes, Ordering::SeqCst);
        self.compactions.fetch_add(counters.compactions, Ordering::SeqCst);
        let Err(error) = db.close() else { return Ok(()) };
        self.unsynced_may_go(false);
        self.met("close", &error)
    }

    /// Opens, lets the clients do their part of the work, and closes. Faults may begin with a `plan` after opening.
    pub(crate) fn phase(
        self: &Arc<Self>,
        env: &Env,
        image: &Image,
        injector: Option<&FaultInjector>,
        plan: Option<FaultPlan>,
        (phase, phases): (u64, u64),
    ) -> Result<(), String> {
        let opened = (0..OPENINGS_MAX).find_map(|_| self.open(env, image, injector).transpose()).transpose()?;
        let Some(db) = opened else { return Ok(()) };
        if let (Some(injector), Some(plan)) = (injector, plan) {
            injector.set_plan(plan);
        }
        let life = Life { env: env.clone(), db, injector: injector.cloned(), poisoned: Arc::default() };
        let batches = (self.setting.batches / phases / self.setting.clients as u64).max(4);
        let clients: Vec<_> = (1..self.setting.clients)
            .map(|number| {
                let (workload, life) = (self.clone(), life.clone());
                env.spawn("client", move || workload.client(&life, number, phase, batches))
            })
            .collect();
        let mut outcome = self.client(&life, 0, phase, batches);
        for client in clients {
            outcome = outcome.and(client.join().unwrap_or_else(|panic| panic.resume()));
        }
        outcome?;
        self.close(&life.db)
    }

    /// What one client does: writes, and now and then something else.
    fn client(&self, life: &Life, number: usize, phase: u64, batches: u64) -> Result<(), String> {
        let mut random = Random::named(self.setting.seed, &format!("client {number} in phase {phase}"));
        let mut snapshots: Vec<(Snapshot, Arc<State>)> = Vec::new();
        for batch in 0..batches {
            self.write(life, number, phase << 32 | batch, &mut random)?;
            let db = &life.db;
            match random.below(100) {
                0..4 => self.durable("flush", || db.flush())?,
                4..6 => self.durable("compact_range", || db.compact_range(None, None))?,
                6..8 => {
                    let mut ends = [self.key(number, &mut random), self.key(number, &mut random)];
                    ends.sort();
                    self.answer("compact_range", db.compact_range(Some(&ends[0]), Some(&ends[1])))?;
                }
                8..12 => self.answer("wait_idle", db.wait_idle())?,
                12..24 => life.env.sleep(Duration::from_micros(random.below(2000))),
                24..36 => self.read(life, number, &mut random)?,
                36..40 if snapshots.len() < 2 => snapshots.push((db.snapshot(), self.oracle.lock().current(number))),
                40..44 if !snapshots.is_empty() => drop(snapshots.remove(random.index(snapshots.len()))),
                44..48 => {
                    for (snapshot, then) in &snapshots {
                        let options = ReadOptions::at(snapshot).with_prefix(&prefix(number));
                        match walk(db, &options) {
                            Ok(found) if found == **then => {}
                            Ok(_) => return Err(format!("client {number}: a snapshot shows another state")),
                            Err(error) => self.met("a walk over a snapshot", &error)?,
                        }
                    }
                }
                48 => self.checkpoint(life, &mut random)?,
                _ => {}
            }
        }
        self.read(life, number, &mut random)
    }

    fn answer(&self, what: &str, result: Result<(), Error>) -> Result<(), String> {
        result.or_else(|error| self.met(what, &error))
    }

    /// A call after which what was acknowledged before it is durable.
    fn durable(&self, what: &str, call: impl FnOnce() -> Result<(), Error>) -> Result<(), String> {
        let marks = self.oracle.lock().marks();
        let result = call();
        if result.is_ok() {
            self.oracle.lock().synced(&marks);
        }
        self.answer(what, result)
    }

    fn key(&self, number: usize, random: &mut Random) -> Vec<u8> {
        [prefix(number), format!("key{:03}", random.below(self.setting.universe)).into_bytes()].concat()
    }

    fn batch(&self, number: usize, count: u64, random: &mut Random) -> Batch {
        let setting = &self.setting;
        let mut batch = Batch::new();
        for _ in 0..=random.below(4) {
            let key = self.key(number, random);
            if random.chance(1, 4) {
                batch.push((key, None));
                continue;
            }
            let length = match setting.large_one_in {
                0 => random.below(240),
                one_in if random.chance(1, one_in) => random.below(setting.large_bytes),
                _ => random.below(240),
            };
            let mut value = vec![0; length as usize];
            if random.chance(1, 2) {
                random.fill_bytes(&mut value);
            } else {
                value.fill(random.below(256) as u8);
            }
            batch.push((key, Some(value.into())));
        }
        batch.push((count_key(number), Some(count.to_string().into_bytes().into())));
        batch
    }

    fn write(&self, life: &Life, number: usize, count: u64, random: &mut Random) -> Result<(), String> {
        let batch = self.batch(number, count, random);
        let sync = random.chance(1, 4);
        let mut writes = WriteBatch::new();
        for (key, value) in &batch {
            let added = match value {
                Some(value) => writes.put(key, value),
                None => writes.delete(key),
            };
            added.map_err(|error| format!("a batch refuses: {error}"))?;
        }
        let was_poisoned = life.poisoned.load(Ordering::SeqCst);
        let begun = self.oracle.lock().begin(number, &batch);
        let result = life.db.write(writes, &WriteOptions { sync });
        // An error of this class may also be that of a file that another takes the place of.
        if result.is_err() && life.db.statistics().write_state == WriteState::Poisoned {
            life.poisoned.store(true, Ordering::SeqCst);
        }
        let mut oracle = self.oracle.lock();
        match &result {
            Ok(()) if was_poisoned => return Err(format!("client {number}: a batch was taken after poison")),
            Ok(()) => oracle.acknowledge(&begun, sync),
            Err(_) => oracle.fail(&begun),
        }
        drop(oracle);
        self.answer("write", result)
    }

    /// Reads of the client's own keys: an error, or what it was told.
    fn read(&self, life: &Life, number: usize, random: &mut Random) -> Result<(), String> {
        let expected = self.oracle.lock().current(number);
        for _ in 0..6 {
            let key = self.key(number, random);
            match life.db.get(&key) {
                Ok(found) if found.as_deref() == expected.get(&key).map(|value| &**value) => {}
                Ok(found) => {
                    let found = found.map(|value| value.len());
                    return Err(format!("get of '{}' is wrong: {found:?} bytes", key.escape_ascii()));
                }
                Err(error) => self.met("get", &error)?,
            }
        }
        match walk(&life.db, &ReadOptions::default().with_prefix(&prefix(number))) {
            Ok(found) if found == *expected => Ok(()),
            Ok(_) => Err(format!("client {number}: a walk over its keys is wrong")),
            Err(error) => self.met("a walk", &error),
        }
    }

    /// Copies the database elsewhere: what says it is complete is, and what does not opens not, or is complete.
    fn checkpoint(&self, life: &Life, random: &mut Random) -> Result<(), String> {
        let kind = [Kind::PLAIN, Kind::EXTENT][random.index(2)];
        let image = empty(kind);
        let marks = self.oracle.lock().marks();
        let target = match image.store(&life.env, life.injector.as_ref()) {
            Ok(target) => target,
            Err(error) => return self.met("opening the target of a checkpoint", &error.into()),
        };
        let result = life.db.checkpoint(&*target);
        drop(target);
        let is_made = result.is_ok();
        self.answer("checkpoint", result)?;
        let oracle = self.oracle.lock().clone();
        let copied =
            examine_checkpoint(&self.setting, &life.env, &image, is_made, |found| oracle.verify_copy(found, &marks))
                .map_err(|what| format!("a checkpoint on {kind:?}: {what}"))?;
        self.checkpoints.fetch_add(u64::from(copied), Ordering::SeqCst);
        Ok(())
    }
}

/// Opens a checkpoint without faults; whether it is one.
pub(crate) fn examine_checkpoint(
    setting: &Setting,
    env: &Env,
    image: &Image,
    is_made: bool,
    verify: impl FnOnce(&State) -> Result<(), String>,
) -> Result<bool, String> {
    let options = Options { create_if_missing: false, ..setting.options.clone() };
    let opened = image.media(env).map_err(Error::from).and_then(|media| Db::open(env, media, options));
    let copy = match opened {
        Ok(copy) => copy,
        Err(error) if is_made => return Err(format!("it does not open: {error}")),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption) => return Ok(false),
        Err(error) => return Err(format!("half of it: {error}")),
    };
    let found = walk_all(&copy).map_err(|error| format!("it cannot be read: {error}"))?;
    verify(&found)?;
    if copy.totals().is_none_or(|totals| totals.flush_jobs > 0) {
        return Err(format!("it does not begin at zero: {:?}", copy.totals()));
    }
    let findings = copy.check().map_err(|error| format!("check: {error}"))?;
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    copy.close().map_err(|error| format!("close: {error}"))?;
    Ok(true)
}

/// Events on a medium before it is examined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// Faults were injected.
    pub(crate) met_faults: bool,
    /// A repair gave up some of the data.
    pub(crate) is_salvaged: bool,
}

impl Past {
    /// The findings that are damage. An injected fault may cost one of the two copies of a zoned store's metadata, which is
    /// reported as a warning; without faults both are there.
    fn damage(self, findings: Vec<Finding>) -> Vec<Finding> {
        findings.into_iter().filter(|finding| !self.met_faults || finding.code != "metadata-redundancy").collect()
    }
}

/// Opens what is left, without faults, and twice: it is all there, whole, and stays, and unless some of it was lost
/// what it counted is what was done. What is there.
pub(crate) fn examine(
    setting: &Setting,
    image: &Image,
    step: u64,
    past: Past,
    verify: impl FnOnce(&State) -> Result<(), String>,
) -> Result<State, String> {
    let env = setting.simulation(step);
    let open = |note: &str| -> Result<Db, String> {
        let media = image.media(&env).map_err(|error| format!("the store does not open {note}: {error}"))?;
        Db::open(&env, media, setting.options.clone()).map_err(|error| format!("it does not open {note}: {error}"))
    };
    let db = open("afterwards")?;
    let found = walk_all(&db).map_err(|error| format!("a walk afterwards: {error}"))?;
    verify(&found)?;
    let totals = if past.is_salvaged { None } else { Some(verify_totals(&db)?) };
    let findings = past.damage(db.check().map_err(|error| format!("check: {error}"))?);
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    match step % 3 {
        // It is closed, or left as it is.
        0 => db.close().map_err(|error| format!("close afterwards: {error}"))?,
        1 => db.wait_idle().map_err(|error| format!("wait_idle afterwards: {error}"))?,
        _ => return Ok(found),
    }
    drop(db);
    let db = open("once more")?;
    if walk_all(&db).map_err(|error| format!("a second walk: {error}"))? != found {
        return Err("the second opening shows another state".to_owned());
    }
    if let Some(totals) = totals {
        let again = verify_totals(&db)?;
        if again.compactions < totals.compactions || again.flush_jobs < totals.flush_jobs {
            return Err(format!("the totals were {totals:?}, and are {again:?}"));
        }
    }
    db.close().map_err(|error| format!("the second close: {error}"))?;
    if image.destroyed_bytes() > 0 {
        return Err(format!("{} bytes of live data were destroyed", image.destroyed_bytes()));
    }
    Ok(found)
}
