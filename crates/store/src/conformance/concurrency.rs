//! Clauses about several threads at once. Under a simulated env the threads are actors.

use super::{Outcome, Setting, content, ensure, expect_file, text};
use crate::error::StoreErrorKind;
use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions};
use std::sync::Arc;
use varve_env::{Env, JoinHandle};
use varve_media::{IoClass, IoContext};

/// Waits for all and returns the first failure.
fn join(handles: Vec<JoinHandle<Outcome>>) -> Outcome {
    let outcomes: Vec<Outcome> = handles
        .into_iter()
        .map(|handle| handle.join().unwrap_or_else(|_| Err("an actor panicked".to_owned())))
        .collect();
    outcomes.into_iter().collect()
}

pub(super) fn writers_and_readers(setting: &Setting<'_>) -> Outcome {
    let mut handles = Vec::new();
    for number in 0..3u64 {
        let (env, store) = (setting.env.clone(), setting.store.clone());
        handles.push(setting.env.spawn(&format!("writer {number}"), move || write_a_log(&env, &*store, number)));
        let (env, store) = (setting.env.clone(), setting.store.clone());
        handles.push(setting.env.spawn(&format!("tables {number}"), move || write_tables(&env, &*store, number)));
        let (env, store) = (setting.env.clone(), setting.store.clone());
        handles.push(setting.env.spawn(&format!("reader {number}"), move || read_a_log(&env, &store, number)));
    }
    join(handles)?;
    for number in 0..3 {
        setting.expect(&format!("log {number}"), number, LOG_STEPS * LOG_STEP_BYTES)?;
    }
    Ok(())
}

const LOG_STEPS: u64 = 60;
const LOG_STEP_BYTES: u64 = 777;

fn write_a_log(env: &Env, store: &dyn FileStore, number: u64) -> Outcome {
    let context = IoContext::of(IoClass::Log);
    let options = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let mut random = env.random(&format!("writer {number}"));
    let mut log = store.create(&format!("log {number}"), &options).map_err(text)?;
    for step in 0..LOG_STEPS {
        log.append(&content(number, step * LOG_STEP_BYTES, LOG_STEP_BYTES), &context).map_err(text)?;
        if random.chance(1, 2) {
            log.flush(&context).map_err(text)?;
        } else {
            log.sync(&context).map_err(text)?;
        }
        env.yield_now();
    }
    log.finish(&context).map_err(text)
}

fn write_tables(env: &Env, store: &dyn FileStore, number: u64) -> Outcome {
    let context = IoContext::of(IoClass::Flush);
    for step in 0..8u64 {
        let file = 100 + number * 10 + step;
        let (temporary, name) = (format!("temporary {number}"), format!("table {number}"));
        let mut table = store.create(&temporary, &CreateOptions::default()).map_err(text)?;
        for part in 0..5u64 {
            table.append(&content(file, part * 10_000, 10_000), &context).map_err(text)?;
            env.yield_now();
        }
        table.sync(&context).map_err(text)?;
        table.finish(&context).map_err(text)?;
        store.rename(&temporary, &name).map_err(text)?;
        expect_file(store, &name, file, 50_000)?;
        if step % 3 == 2 {
            store.remove(&name).map_err(text)?;
        }
    }
    Ok(())
}

fn read_a_log(env: &Env, store: &Arc<dyn FileStore>, number: u64) -> Outcome {
    let context = IoContext::of(IoClass::UserRead);
    let name = format!("log {number}");
    let reader = loop {
        match store.open(&name, &OpenOptions::default()) {
            Ok(reader) => break reader,
            Err(error) if error.kind() == StoreErrorKind::NotFound => env.yield_now(),
            Err(error) => return Err(text(error)),
        }
    };
    let mut last = 0;
    while last < LOG_STEPS * LOG_STEP_BYTES {
        let size = reader.size_bytes();
        ensure!(size >= last, "{name} shrank from {last} to {size}");
        let start = last.saturating_sub(1000);
        let mut data = vec![0; (size - start) as usize];
        reader.read_at(start, &mut data, &context).map_err(text)?;
        ensure!(data == content(number, start, size - start), "{name}: wrong bytes from {start} to {size}");
        last = size;
        env.yield_now();
    }
    Ok(())
}

pub(super) fn names_at_once(setting: &Setting<'_>) -> Outcome {
    // All replace the same name; whoever reads it sees one of them, whole.
    let length = 20_000;
    setting.write("shared", 0, length)?;
    let mut handles = Vec::new();
    for number in 1..4u64 {
        let (env, store) = (setting.env.clone(), setting.store.clone());
        handles.push(setting.env.spawn(&format!("replacer {number}"), move || {
            let context = IoContext::default();
            for round in 0..6 {
                let temporary = format!("temporary {number}");
                let mut writer = store.create(&temporary, &CreateOptions::default()).map_err(text)?;
                writer.append(&content(number * 10 + round, 0, length), &context).map_err(text)?;
                writer.finish(&context).map_err(text)?;
                store.rename(&temporary, "shared").map_err(text)?;
                env.yield_now();
            }
            Ok(())
        }));
        let (env, store) = (setting.env.clone(), setting.store.clone());
        handles.push(setting.env.spawn(&format!("looker {number}"), move || {
            for _ in 0..20 {
                let reader = store.open("shared", &OpenOptions::default()).map_err(text)?;
                let mut data = vec![0; reader.size_bytes() as usize];
                reader.read_at(0, &mut data, &IoContext::default()).map_err(text)?;
                let file = (0..40).find(|file| content(*file, 0, 16) == data[..data.len().min(16)]);
                ensure!(
                    file.is_some_and(|file| data == content(file, 0, length)),
                    "'shared' is not one whole file but {} bytes beginning like {file:?}",
                    data.len()
                );
                let listed = store.list().map_err(text)?;
                ensure!(listed.iter().any(|entry| entry.name == "shared"), "'shared' is not listed");
                env.yield_now();
            }
            Ok(())
        }));
    }
    join(handles)
}
