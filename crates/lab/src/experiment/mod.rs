//! Named experiments. A new one is its file, its module and its place in [`experiments`], or in the table of its folder.

mod amplification;
mod comparison;
mod db_bench;
mod defaults;
mod dix;
mod emulated;
pub(crate) mod hhzs;
pub(crate) mod idler;
pub(crate) mod kvimr;
mod load_virtual;
mod media_demerit;
mod media_presets;
mod media_seek;
mod memory_file;
mod peers;
mod scale;
mod shared_results;
pub(crate) mod smrdb;
mod together;
mod traces;
mod ycsb;

pub use amplification::{AmplificationSizes, measure_amplification};
pub use scale::Scale;
pub use shared_results::SharedResults;
pub use smrdb::measure_beside;

use crate::error::LabError;
use crate::replay::TraceFormat;
use crate::report::{Align, Report, Table};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_env::{Env, channel};

/// What is to be said while an experiment runs.
pub trait Progress: Send + Sync {
    /// A phase of work begins; `total` operations or bytes, when known.
    fn begin(&self, what: &str, total: Option<u64>);
    /// So much of it is done. Called from any thread, often; must be quick.
    fn advance(&self, done: u64);
    /// It is over.
    fn end(&self);
}

/// Says nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _done: u64) {}
    fn end(&self) {}
}

/// How to run an experiment.
#[derive(Clone)]
pub struct Settings {
    /// Scale; unset is the experiment's own.
    pub scale: Option<Scale>,
    /// Everything random follows from it.
    pub seed: u64,
    /// Directory with traces and measured curves, for the experiments that compare with them.
    pub traces: Option<PathBuf>,
    /// Format of the traces, for the experiments that replay them; unset is detected by their lines.
    pub trace_format: Option<TraceFormat>,
    /// Leave out malformed lines of traces, and report them.
    pub skips_malformed: bool,
    /// Verify every value read, where the experiment reads.
    pub verify: bool,
    /// What is to be said meanwhile.
    pub progress: Arc<dyn Progress>,
    /// What experiments run with these settings have in common.
    pub shared: SharedResults,
}

impl Default for Settings {
    /// The experiment's scale, seed 1, no traces, no verification, silent.
    fn default() -> Settings {
        Settings {
            scale: None,
            seed: 1,
            traces: None,
            trace_format: None,
            skips_malformed: false,
            verify: false,
            progress: Arc::new(Silent),
            shared: SharedResults::default(),
        }
    }
}

/// A named experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Name: a group, a slash, a word.
    pub id: &'static str,
    /// One line.
    pub title: &'static str,
    /// What it does, what it shows, what it needs; a few lines.
    pub description: &'static str,
    /// Scale it runs at unless told otherwise.
    pub default_scale: Scale,
    run: fn(&Run<'_>) -> Result<Report, LabError>,
}

/// One run of an experiment.
pub(crate) struct Run<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) scale: Scale,
    pub(crate) settings: &'a Settings,
}

impl Experiment {
    /// Reads traces in the format of [`Settings::trace_format`].
    pub fn replays_traces(&self) -> bool {
        self.id == "idler/traces"
    }
}

impl Run<'_> {
    /// An empty report of this run.
    pub(crate) fn report(&self) -> Report {
        Report::new(self.experiment.id, self.experiment.title, self.scale, self.settings.seed)
    }
}

/// Every experiment, in the order they are listed: those that are files here, then those of the folders.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    const FILES: &[Experiment] = &[
        media_presets::EXPERIMENT,
        media_demerit::EXPERIMENT,
        media_seek::EXPERIMENT,
        load_virtual::EXPERIMENT,
        amplification::EXPERIMENT,
        memory_file::LARGE_BUFFERS,
        memory_file::LARGE_CACHE,
        ycsb::ON_DISK,
        ycsb::ON_SSD,
        db_bench::ON_DISK,
        db_bench::ON_SSD,
        db_bench::ON_FILES,
        peers::EXPERIMENT,
    ];
    [
        FILES,
        defaults::EXPERIMENTS,
        kvimr::EXPERIMENTS,
        smrdb::EXPERIMENTS,
        hhzs::EXPERIMENTS,
        idler::EXPERIMENTS,
        dix::EXPERIMENTS,
    ]
    .into_iter()
    .flatten()
}

/// The experiments that `patterns` name: an id, a figure with all its parts (`kvimr/fig5` for
/// `kvimr/fig5a` and so on), a group with a star (`media/*`), or `all`. In the order of the list, each once.
///
/// # Errors
/// A pattern that names none.
pub fn select(patterns: &[String]) -> Result<Vec<&'static Experiment>, LabError> {
    let names = |pattern: &str, id: &str| match pattern.strip_suffix('*') {
        Some(prefix) => id.starts_with(prefix),
        None => pattern == "all" || pattern == id || is_part(pattern, id),
    };
    for pattern in patterns {
        if !experiments().any(|experiment| names(pattern, experiment.id)) {
            let group = pattern.split('/').next().unwrap_or(pattern);
            let near: Vec<&str> =
                experiments().map(|experiment| experiment.id).filter(|id| id.contains(group)).collect();
            let hint = if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) };
            return Err(LabError::UnknownExperiment { id: pattern.clone(), hint });
        }
    }
    let wanted = |experiment: &&Experiment| patterns.iter().any(|pattern| names(pattern, experiment.id));
    Ok(experiments().filter(wanted).collect())
}

/// Whether `id` is a part of the figure `pattern`: its name and one letter.
fn is_part(pattern: &str, id: &str) -> bool {
    pattern.ends_with(|c: char| c.is_ascii_digit())
        && id
            .strip_prefix(pattern)
            .is_some_and(|part| part.len() == 1 && part.ends_with(|c: char| c.is_ascii_lowercase()))
}

/// The smallest scale of interlaced disks: their tracks of 2 MiB are one sector of 4 KiB then.
pub(crate) const SMALLEST_OF_TRACKS: Scale = Scale::one_in(512);

/// The smallest scale of banded disks: their bands of 80 MiB are one sector of 4 KiB then.
pub(crate) const SMALLEST_OF_BANDS: Scale = Scale::one_in(20_480);

/// The smallest scale of zoned drives and disks together: of a drive's zone of 1,077 MiB there are 33 sectors.
pub(crate) const SMALLEST_OF_ZONES: Scale = Scale::one_in(8192);

/// The smallest scale at which the experiment called `id` has anything to measure.
fn smallest_scale(id: &str) -> Scale {
    match id.split_once('/') {
        // These divide counts only: a few dozen puts are left.
        Some(("smrdb", "fig8" | "fig12" | "fig14" | "fig15")) => Scale::one_in(100_000),
        Some(("smrdb", _)) => SMALLEST_OF_BANDS,
        Some(("kvimr", _)) => SMALLEST_OF_TRACKS,
        Some(("hhzs", figure)) if figure != "table1" => SMALLEST_OF_ZONES,
        // Blocks of the tree are one sector of 4 KiB then.
        Some(("idler", "ycsb")) => Scale::one_in(64),
        // A few hundred of the million pairs and more that the others have.
        _ => Scale::one_in(65_536),
    }
}

/// Runs one experiment. May be called from any thread, several at once; an experiment in virtual
/// time is an env of its own.
///
/// # Errors
/// Whatever kept the experiment from its end.
pub fn run(experiment: &Experiment, settings: &Settings) -> Result<Report, LabError> {
    let scale = settings.scale.unwrap_or(experiment.default_scale).at_least(smallest_scale(experiment.id))?;
    (experiment.run)(&Run { experiment, scale, settings })
}

/// Groups whose experiments are in virtual time alone.
const VIRTUAL: &[&str] = &["kvimr/", "smrdb/", "hhzs/", "idler/"];

/// What measures processor time, and so wants the machine for itself.
const ALONE: &[&str] = &["idler/overheads"];

/// Runs several, in their order, and gives each report as soon as those before it were given. Two that are in virtual time go on at
/// once, so that the last run of one does not leave a processor idle; what both need is measured once. Whatever depends on the machine's
/// time runs alone. The first of two shows its progress.
pub fn run_all(
    experiments: &[&'static Experiment],
    settings: &Settings,
    mut told: impl FnMut(&'static Experiment, Result<Report, LabError>),
) {
    let is_virtual = |id: &str| {
        VIRTUAL.iter().any(|group| id.starts_with(group)) && !ALONE.contains(&id) && settings.traces.is_none()
    };
    let mut rest = experiments;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|experiment| is_virtual(experiment.id)).count();
        if count < 2 {
            told(first, run(first, settings));
            rest = &rest[1..];
            continue;
        }
        let (group, later) = rest.split_at(count);
        run_group(group, settings, &mut told);
        rest = later;
    }
}

/// The same of some that are all in virtual time.
fn run_group(
    group: &[&'static Experiment],
    settings: &Settings,
    told: &mut impl FnMut(&'static Experiment, Result<Report, LabError>),
) {
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = channel::bounded(&Env::real(), "reports", group.len());
    let lanes: Vec<_> = (0..together::AT_ONCE)
        .map(|lane| {
            let (next, sender, group) = (Arc::clone(&next), sender.clone(), group.to_vec());
            let mut settings = settings.clone();
            if lane > 0 {
                settings.progress = Arc::new(Silent);
            }
            Env::real().spawn(&format!("experiments {lane}"), move || {
                while let Some(experiment) = group.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((experiment.id, run(experiment, &settings))).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    drop(sender);
    let mut done: BTreeMap<&str, Result<Report, LabError>> = BTreeMap::new();
    let mut waiting = group.iter();
    let mut first = waiting.next();
    while let Ok((id, report)) = receiver.recv() {
        done.insert(id, report);
        while let Some(experiment) = first
            && let Some(report) = done.remove(experiment.id)
        {
            told(experiment, report);
            first = waiting.next();
        }
    }
    let mut failure = lanes.into_iter().find_map(|lane| lane.join().err());
    // Of a lane that ended early: whatever it was at is told as failed.
    for experiment in first.into_iter().chain(waiting) {
        let lost = || Err(LabError::invalid("experiment", "another one ended the run"));
        let report =
            done.remove(experiment.id).unwrap_or_else(|| failure.take().map_or_else(lost, |error| Err(error.into())));
        told(experiment, report);
    }
}

/// Runs `f` in a simulated world of its own, on a thread of its own: the calling thread may be an
/// actor of another one, or be needed for the next.
pub(crate) fn simulate<T: Send + 'static>(
    seed: u64,
    f: impl FnOnce(&Env) -> Result<T, LabError> + Send + 'static,
) -> Result<T, LabError> {
    let simulation = move || {
        let env = Env::sim(seed);
        let of_client = env.clone();
        // Whoever is spawned shares a thread with the others, and takes turns with them at next to no cost.
        env.spawn("client", move || f(&of_client)).join()
    };
    Env::real().spawn("simulation", simulation).join()??
}

/// The list of experiments as a table.
pub fn list_text() -> String {
    let mut table = Table::new([("experiment", Align::Left), ("scale", Align::Left), ("what it shows", Align::Left)]);
    for experiment in experiments() {
        table.row([experiment.id.to_owned(), experiment.default_scale.to_string(), experiment.title.to_owned()]);
    }
    table.to_text()
}

/// The list of experiments as a JSON array of `{id, title, description, default_scale}`.
pub fn list_json() -> String {
    let list: Vec<serde_json::Value> = experiments()
        .map(|experiment| {
            serde_json::json!({
                "id": experiment.id,
                "title": experiment.title,
                "description": experiment.description,
                "default_scale": experiment.default_scale.to_string(),
            })
        })
        .collect();
    format!("{:#}\n", serde_json::Value::from(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_well_formed() {
        let mut seen = std::collections::BTreeSet::new();
        for experiment in experiments() {
            assert!(seen.insert(experiment.id), "{} twice", experiment.id);
            let words = experiment.id.split('/').count();
            assert_eq!(words, 2, "{}", experiment.id);
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
            assert!(experiment.id.chars().all(legal), "{}", experiment.id);
            assert!(!experiment.title.is_empty() && !experiment.description.is_empty());
        }
    }

    #[test]
    fn patterns_select() {
        let select = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            select(&patterns).map(|found| found.iter().map(|experiment| experiment.id).collect::<Vec<_>>())
        };
        assert_eq!(select(&["peers/*", "peers/db_bench"]).unwrap(), ["peers/db_bench"]);
        assert_eq!(select(&["all"]).unwrap().len(), experiments().count());
        let parts = ["kvimr/fig2a", "kvimr/fig2b", "kvimr/fig2c"];
        assert_eq!(select(&["kvimr/fig2"]).unwrap(), parts);
        let error = select(&["peers/none"]).unwrap_err().to_string();
        assert!(error.contains("there is peers/db_bench"), "{error}");
        assert!(select(&["nothing"]).is_err());
    }

    #[test]
    fn several_at_once_give_what_each_gives_alone_and_in_order() {
        let chosen = super::select(&["smrdb/fig9", "smrdb/fig10", "smrdb/fig11"].map(str::to_owned)).unwrap();
        let settings = || Settings { scale: Some(Scale::one_in(512)), ..Settings::default() };
        let mut told = Vec::new();
        run_all(&chosen, &settings(), |experiment, report| told.push((experiment.id, report.unwrap().to_json())));
        let ids: Vec<&str> = chosen.iter().map(|experiment| experiment.id).collect();
        assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
        for (experiment, (_, report)) in chosen.iter().zip(&told) {
            assert_eq!(*report, run(experiment, &settings()).unwrap().to_json(), "{}", experiment.id);
        }
    }

    #[test]
    fn one_that_fails_leaves_the_others() {
        let chosen = super::select(&["kvimr/fig5".to_owned()]).unwrap();
        let settings = Settings { scale: Some(Scale::one_in(100_000)), ..Settings::default() };
        let mut failed = Vec::new();
        run_all(&chosen, &settings, |experiment, report| failed.push((experiment.id, report.is_err())));
        assert_eq!(failed.len(), chosen.len());
        assert!(failed.iter().all(|(_, has_failed)| *has_failed));
    }

    #[test]
    fn lists_name_every_experiment() {
        let list: serde_json::Value = serde_json::from_str(&list_json()).unwrap();
        assert_eq!(list.as_array().unwrap().len(), experiments().count());
        assert!(experiments().all(|experiment| list_text().contains(experiment.id)));
    }
}
