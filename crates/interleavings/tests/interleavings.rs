//! Runs the models through their interleavings, and again with faults planted that they have to find.
//!
//! Bounded to a few preemptions, which finds most of what there is to find. `VARVE_SOAK_SECONDS` is shared out among the models,
//! with no bound but time then; `VARVE_SEED` is where seeds begin.

use std::cell::Cell;
use std::sync::Once;
use std::time::Duration;
use varve_interleavings::{Limits, MODELS, Model, Outcome, explore};

/// Preemptions of a run.
const PREEMPTIONS_MAX: usize = 2;

thread_local! {
    /// Panics of this thread are what is looked for, and nothing to tell of.
    static PANICS_ARE_WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Hooks are the whole process's: what runs interleavings has one that says nothing of how each of them ends, which is by a
/// panic, and that stays below ours. Once it was lost, and millions of panics were told.
fn hook_panics() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        if let Some(model) = models().next() {
            explore(model.run, 0, None, &Limits { preemptions_max: Some(0), duration_max: None });
        }
        let below = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !PANICS_ARE_WANTED.get() {
                below(panic);
            }
        }));
    });
}

fn models() -> impl Iterator<Item = &'static Model> {
    MODELS.iter().copied().flatten()
}

/// A number that the environment may give.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

fn limits() -> Limits {
    let explorations: u64 = models().map(|model| model.seeds).sum();
    match number("VARVE_SOAK_SECONDS") {
        Some(seconds) => {
            let duration = Duration::from_secs(seconds) / explorations as u32;
            Limits { preemptions_max: None, duration_max: Some(duration) }
        }
        None => Limits { preemptions_max: Some(PREEMPTIONS_MAX), duration_max: None },
    }
}

#[test]
fn models_hold_in_every_interleaving() {
    hook_panics();
    let first_seed = number("VARVE_SEED").unwrap_or_default();
    let mut reached = 0;
    for model in models() {
        let mut total = 0;
        for seed in first_seed..first_seed + model.seeds {
            match explore(model.run, seed, None, &limits()) {
                Outcome::Held { interleavings } => total += interleavings,
                Outcome::Failed { interleaving, message } => {
                    panic!("{}, seed {seed}, interleaving {interleaving}: {message}", model.name)
                }
            }
        }
        println!("{total:8} interleavings hold: {}", model.name);
        reached += total;
    }
    println!("reached: interleavings: {reached} interleavings");
}

#[test]
fn models_find_what_is_planted() {
    hook_panics();
    let limits = Limits { preemptions_max: Some(PREEMPTIONS_MAX), duration_max: None };
    let mut missed = Vec::new();
    // They are told by the lines printed here.
    PANICS_ARE_WANTED.set(true);
    for model in models() {
        for &fault in model.finds {
            let found = (0..model.seeds).find_map(|seed| match explore(model.run, seed, Some(fault), &limits) {
                Outcome::Failed { interleaving, message } => Some((interleaving, message)),
                Outcome::Held { .. } => None,
            });
            match found {
                Some((interleaving, message)) => {
                    let message = message.lines().next().unwrap_or_default();
                    println!("{fault:?} found in interleaving {interleaving} of '{}': {message}", model.name);
                }
                None => missed.push(format!("{fault:?} by '{}'", model.name)),
            }
        }
    }
    PANICS_ARE_WANTED.set(false);
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
