//! Power cuts at every persistence point of a workload, during the recovery, and during that one's.

use super::model::{FileHandle, Model};
use super::subject::{Image, Subject};
use super::{Outcome, check_is_clean, content, ensure, read_file, text, write_file};
use crate::file_store::{CreateOptions, FileKind, FileStore, WritableFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_env::{Env, Random};
use varve_media::IoContext;

/// A suite of power cuts. The same numbers give the same cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashSuite {
    /// Decides the workload and every random variant.
    pub seed: u64,
    /// Operations of the workload.
    pub operations: u64,
    /// Images of every persistence point, all variants among them.
    pub images_of_point: u64,
    /// Crashed states whose recovery is cut at every point.
    pub recoveries: u64,
}

/// What a suite did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Persistence points of the workload.
    pub points: u64,
    /// Images opened and verified, of whatever kind.
    pub images: u64,
    /// Cuts during a recovery.
    pub cuts_in_recovery: u64,
    /// Cuts during the recovery from those.
    pub cuts_in_second_recovery: u64,
    /// What was wrong, the first few.
    pub failures: Vec<String>,
}

/// A state that a power cut may have left, and what may be in it.
pub(super) struct Crashed {
    pub(super) image: Box<dyn Image>,
    pub(super) model: Model,
}

/// Failures kept.
const FAILURES_MAX: usize = 8;

impl CrashSuite {
    /// Runs the workload on a fresh medium and verifies every cut.
    pub fn run(&self, env: &Env, subject: &dyn Subject) -> CrashReport {
        let mut report = CrashReport::default();
        let crashed = match self.workload(env, subject) {
            Ok(crashed) => crashed,
            Err(message) => {
                report.failures.push(format!("{}: the workload: {message}", subject.name()));
                return report;
            }
        };
        report.points = crashed.len() as u64;
        let mut random = Random::named(self.seed, "crash suite");
        for (point, crashed) in crashed.iter().enumerate() {
            for number in 0..self.images_of_point {
                let seed = random.next_u64();
                let outcome = self.verify(env, crashed, number, seed, None);
                self.note(&mut report, subject, outcome, || format!("point {point}, image {number}, seed {seed}"));
                if report.failures.len() >= FAILURES_MAX {
                    return report;
                }
            }
        }
        for _ in 0..self.recoveries {
            let (point, number, seed) = (random.index(crashed.len()), random.next_u64(), random.next_u64());
            self.cut_recovery(env, subject, &crashed[point], (number, seed), &mut random, &mut report, point);
            if report.failures.len() >= FAILURES_MAX {
                return report;
            }
        }
        report
    }

    fn note(&self, report: &mut CrashReport, subject: &dyn Subject, outcome: Outcome, place: impl Fn() -> String) {
        report.images += 1;
        if let Err(message) = outcome {
            report.failures.push(format!("{}: suite seed {}, {}: {message}", subject.name(), self.seed, place()));
        }
    }

    /// Cuts the recovery of one crashed state at every point, and the recovery of one image of each.
    #[allow(clippy::too_many_arguments)]
    fn cut_recovery(
        &self,
        env: &Env,
        subject: &dyn Subject,
        crashed: &Crashed,
        (number, seed): (u64, u64),
        random: &mut Random,
        report: &mut CrashReport,
        point: usize,
    ) {
        let place = format!("point {point}, image {number}, seed {seed}");
        let (outcome, cuts) = self.verify_and_cut(env, crashed, number, seed);
        self.note(report, subject, outcome, || place.clone());
        for (cut, image) in cuts.into_iter().enumerate() {
            let again = Crashed { image, model: crashed.model.clone() };
            for _ in 0..2 {
                let (number, seed) = (random.next_u64(), random.next_u64());
                let place = format!("{place}; cut {cut} of its recovery, image {number}, seed {seed}");
                report.cuts_in_recovery += 1;
                let (outcome, mut cuts) = self.verify_and_cut(env, &again, number, seed);
                self.note(report, subject, outcome, || place.clone());
                if cuts.is_empty() {
                    continue;
                }
                let cut = random.index(cuts.len());
                let last = Crashed { image: cuts.swap_remove(cut), model: crashed.model.clone() };
                let (number, seed) = (random.next_u64(), random.next_u64());
                report.cuts_in_second_recovery += 1;
                let outcome = self.verify(env, &last, number, seed, None);
                self.note(report, subject, outcome, || {
                    format!("{place}; cut {cut} of that recovery, image {number}, seed {seed}")
                });
            }
        }
    }

    /// Verifies an image and returns what power cuts during its recovery could have left.
    fn verify_and_cut(&self, env: &Env, crashed: &Crashed, number: u64, seed: u64) -> (Outcome, Vec<Box<dyn Image>>) {
        let cuts = Arc::new(Mutex::new(Some(Vec::new())));
        let outcome = self.verify(env, crashed, number, seed, Some(cuts.clone()));
        let cuts = cuts.lock().take().unwrap_or_default();
        (outcome, cuts)
    }

    /// Opens an image and verifies it; collects the points of the opening.
    fn verify(
        &self,
        env: &Env,
        crashed: &Crashed,
        number: u64,
        seed: u64,
        cuts: Option<Arc<Mutex<Option<Vec<Box<dyn Image>>>>>>,
    ) -> Outcome {
        let variants = crashed.image.medium(env, varve_media::CrashVariant::KeepAll, 0).variants();
        // All variants in turn; beyond them only those that another seed makes different.
        let all = variants.len() as u64;
        let variant = if number < all {
            variants[number as usize]
        } else {
            let random: Vec<_> = variants.iter().filter(|variant| variant.is_random()).collect();
            *random[(number % random.len() as u64) as usize]
        };
        let medium = crashed.image.medium(env, variant, seed);
        let opening = Arc::new(Mutex::new(true));
        if let Some(cuts) = cuts {
            let opening = opening.clone();
            medium.observe(Box::new(move |image| {
                if *opening.lock()
                    && let Some(cuts) = &mut *cuts.lock()
                {
                    cuts.push(image);
                }
            }));
        }
        let outcome = medium.open().map_err(text).and_then(|store| {
            *opening.lock() = false;
            verify_store(&*store, &crashed.model)
        });
        outcome.map_err(|message| format!("{variant:?}: {message}"))
    }

    /// Runs the workload and keeps what every persistence point could leave.
    pub(super) fn workload(&self, env: &Env, subject: &dyn Subject) -> Result<Vec<Crashed>, String> {
        let medium = subject.medium(env).map_err(text)?;
        let model = Arc::new(Mutex::new(Model::default()));
        let crashed = Arc::new(Mutex::new(Vec::new()));
        let (observed_model, observed) = (model.clone(), crashed.clone());
        medium.observe(Box::new(move |image| {
            observed.lock().push(Crashed { image, model: observed_model.lock().clone() });
        }));
        let store = medium.open().map_err(text)?;
        Workload {
            store,
            model: model.clone(),
            open: Vec::new(),
            closed: Vec::new(),
            random: Random::named(self.seed, "workload"),
            next: 0,
        }
        .run(self.operations)?;
        let last = Crashed { image: medium.capture(), model: model.lock().clone() };
        let mut crashed = std::mem::take(&mut *crashed.lock());
        crashed.push(last);
        Ok(crashed)
    }
}

/// What is in a store is allowed, its structures are sound, and it can be used.
pub(crate) fn verify_store(store: &dyn FileStore, model: &Model) -> Outcome {
    let listed = store.list().map_err(text)?;
    let mut found = BTreeMap::new();
    for entry in listed {
        let data = read_file(store, &entry.name).map_err(|error| format!("'{}': {error}", entry.name))?;
        ensure!(data.len() as u64 == entry.size_bytes, "'{}' is listed with {} bytes", entry.name, entry.size_bytes);
        found.insert(entry.name, data);
    }
    model.check(&found)?;
    check_is_clean(store)?;
    write_file(store, "after the crash", 999_999, 10_000)?;
    super::expect_file(store, "after the crash", 999_999, 10_000)?;
    for (name, data) in &found {
        let again = read_file(store, name).map_err(text)?;
        ensure!(again == *data, "'{name}' changed when another file was written");
    }
    check_is_clean(store)
}

/// A writer and what it writes.
struct OpenFile {
    name: String,
    number: u64,
    handle: FileHandle,
    writer: Box<dyn WritableFile>,
    appended: u64,
}

/// Random operations that a log-structured store would do, and some it would not.
struct Workload {
    store: Arc<dyn FileStore>,
    model: Arc<Mutex<Model>>,
    open: Vec<OpenFile>,
    /// Names that may have a file.
    closed: Vec<String>,
    random: Random,
    next: u64,
}

const CONTEXT: IoContext = IoContext::of(varve_media::IoClass::Other);

impl Workload {
    fn run(mut self, operations: u64) -> Outcome {
        for step in 0..operations {
            self.step().map_err(|message| format!("step {step}: {message}"))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Outcome {
        match self.random.below(20) {
            0..4 => self.create(),
            4..9 => self.append_and_flush(),
            9..12 => self.sync(),
            12..14 => self.finish(),
            14..16 => self.rename(),
            16..18 => self.remove(),
            18 => {
                self.store.sync_names().map_err(text)?;
                self.model.lock().names_synced();
                Ok(())
            }
            _ => self.replace_pointer(),
        }
    }

    fn create(&mut self) -> Outcome {
        if self.open.len() >= 4 {
            return self.finish();
        }
        self.next += 1;
        let number = self.next;
        let name = match self.closed.is_empty() || self.random.chance(3, 4) {
            true => format!("f{number}"),
            false => self.closed[self.random.index(self.closed.len())].clone(),
        };
        // One writer of a name at a time.
        if self.open.iter().any(|open| open.name == name) {
            return Ok(());
        }
        let kinds = [FileKind::Log, FileKind::Table, FileKind::Manifest, FileKind::Other];
        let expected = [None, Some(3000), Some(40_000)];
        let options = CreateOptions {
            kind: kinds[self.random.index(kinds.len())],
            expected_size_bytes: expected[self.random.index(expected.len())],
            direct: self.random.chance(1, 3),
            ..CreateOptions::default()
        };
        let handle = self.model.lock().create(&name, number);
        let writer = self.store.create(&name, &options).map_err(text)?;
        self.closed.retain(|closed| *closed != name);
        self.open.push(OpenFile { name, number, handle, writer, appended: 0 });
        Ok(())
    }

    fn append_and_flush(&mut self) -> Outcome {
        if self.open.is_empty() {
            return self.create();
        }
        let index = self.random.index(self.open.len());
        let length = match self.random.below(6) {
            0 => self.random.below(40_000),
            1 => self.random.below(5000),
            _ => self.random.below(700),
        };
        let flush = self.random.chance(1, 2);
        let open = &mut self.open[index];
        self.model.lock().append(open.handle, length);
        open.writer.append(&content(open.number, open.appended, length), &CONTEXT).map_err(text)?;
        open.appended += length;
        self.model.lock().appended(open.handle, length);
        if flush { open.writer.flush(&CONTEXT).map_err(text) } else { Ok(()) }
    }

    fn sync(&mut self) -> Outcome {
        if self.open.is_empty() {
            return self.create();
        }
        let index = self.random.index(self.open.len());
        let open = &mut self.open[index];
        open.writer.sync(&CONTEXT).map_err(text)?;
        self.model.lock().synced(open.handle);
        Ok(())
    }

    fn finish(&mut self) -> Outcome {
        if self.open.is_empty() {
            return self.create();
        }
        let mut open = self.open.swap_remove(self.random.index(self.open.len()));
        if self.random.chance(3, 4) {
            open.writer.sync(&CONTEXT).map_err(text)?;
            self.model.lock().synced(open.handle);
        }
        open.writer.finish(&CONTEXT).map_err(text)?;
        self.closed.push(open.name);
        Ok(())
    }

    fn rename(&mut self) -> Outcome {
        if self.closed.is_empty() {
            return self.finish();
        }
        let index = self.random.index(self.closed.len());
        let from = self.closed.swap_remove(index);
        let to = match self.closed.is_empty() || self.random.chance(1, 2) {
            true => {
                self.next += 1;
                format!("r{}", self.next)
            }
            false => self.closed.swap_remove(self.random.index(self.closed.len())),
        };
        self.model.lock().rename(&from, &to);
        self.store.rename(&from, &to).map_err(text)?;
        self.model.lock().renamed();
        self.closed.push(to);
        Ok(())
    }

    fn remove(&mut self) -> Outcome {
        if self.closed.is_empty() {
            return self.finish();
        }
        let name = self.closed.swap_remove(self.random.index(self.closed.len()));
        self.model.lock().remove(&name);
        self.store.remove(&name).map_err(text)
    }

    /// How a store replaces a small file: write, sync, rename over the old one.
    fn replace_pointer(&mut self) -> Outcome {
        self.next += 1;
        let number = self.next;
        let options = CreateOptions { kind: FileKind::Pointer, ..CreateOptions::default() };
        let handle = self.model.lock().create("CURRENT.new", number);
        let mut writer = self.store.create("CURRENT.new", &options).map_err(text)?;
        self.model.lock().append(handle, 20);
        writer.append(&content(number, 0, 20), &CONTEXT).map_err(text)?;
        self.model.lock().appended(handle, 20);
        writer.sync(&CONTEXT).map_err(text)?;
        self.model.lock().synced(handle);
        writer.finish(&CONTEXT).map_err(text)?;
        self.model.lock().rename("CURRENT.new", "CURRENT");
        self.store.rename("CURRENT.new", "CURRENT").map_err(text)?;
        self.model.lock().renamed();
        Ok(())
    }
}
