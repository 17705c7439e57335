//! Clauses about what is in files.

use super::{Outcome, Setting, content, ensure, text};
use crate::error::StoreErrorKind;
use crate::file_store::{CreateOptions, FileKind, Location, OpenOptions, ReadRange};
use crate::hint::{BlockOrigin, Hint, HintedFile};
use varve_media::{AlignedBuffer, IoClass, IoContext, JobId};

const KINDS: [FileKind; 6] =
    [FileKind::Table, FileKind::Log, FileKind::Manifest, FileKind::Pointer, FileKind::Temporary, FileKind::Other];

fn of_kind(kind: FileKind) -> CreateOptions {
    CreateOptions { kind, ..CreateOptions::default() }
}

pub(super) fn sizes_and_visibility(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::of(IoClass::Flush));
    for (number, kind) in KINDS.into_iter().enumerate() {
        let (name, file) = (format!("{kind:?}"), number as u64);
        let mut writer = store.create(&name, &of_kind(kind)).map_err(text)?;
        let reader = store.open(&name, &OpenOptions::default()).map_err(text)?;
        ensure!(writer.size_bytes() == 0 && reader.size_bytes() == 0, "{name}: a new file is not empty");
        let mut size = 0;
        for length in [1, 511, 1, 4095, 100, 70_000, 0, 3] {
            writer.append(&content(file, size, length), &context).map_err(text)?;
            size += length;
            ensure!(writer.size_bytes() == size, "{name}: the writer says {} of {size}", writer.size_bytes());
            ensure!(reader.size_bytes() <= size, "{name}: a reader sees {} of {size}", reader.size_bytes());
            writer.flush(&context).map_err(text)?;
            ensure!(reader.size_bytes() == size, "{name}: flushed {size}, a reader sees {}", reader.size_bytes());
            setting.expect(&name, file, size)?;
        }
        writer.sync(&context).map_err(text)?;
        writer.sync(&context).map_err(text)?;
        writer.finish(&context).map_err(text)?;
        setting.expect(&name, file, size)?;
        let listed = store.list().map_err(text)?.into_iter().find(|entry| entry.name == name);
        ensure!(listed.as_ref().is_some_and(|entry| entry.size_bytes == size), "{name}: listed as {listed:?}");
    }
    Ok(())
}

pub(super) fn every_alignment(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::of(IoClass::UserRead));
    let mut random = setting.env.random("conformance alignment");
    let size = 700_001;
    for direct in [false, true] {
        for kind in [FileKind::Table, FileKind::Log] {
            let name = format!("{kind:?} {direct}");
            let mut writer = store.create(&name, &CreateOptions { direct, ..of_kind(kind) }).map_err(text)?;
            let mut at = 0;
            while at < size {
                let length = (1 + random.below(20_000)).min(size - at);
                writer.append(&content(3, at, length), &context).map_err(text)?;
                at += length;
                if random.chance(1, 8) {
                    writer.flush(&context).map_err(text)?;
                }
            }
            writer.sync(&context).map_err(text)?;
            writer.finish(&context).map_err(text)?;
            setting.expect(&name, 3, size)?;
            let reader = store.open(&name, &OpenOptions { direct }).map_err(text)?;
            let alignment = u64::from(store.properties().read_alignment_bytes);
            for step in 0..60 {
                let mut offset = random.below(size);
                let mut length = random.below((size - offset).min(50_000) + 1);
                if step % 3 == 0 {
                    offset = offset / alignment * alignment;
                    length = length / alignment * alignment;
                }
                let mut buffer = AlignedBuffer::new(length as usize + 1, alignment as usize);
                let skew = usize::from(step % 4 == 1);
                let data = &mut buffer[skew..skew + length as usize];
                reader
                    .read_at(offset, data, &context)
                    .map_err(|error| format!("{name}: {length} at {offset}: {error}"))?;
                ensure!(*data == content(3, offset, length), "{name}: {length} bytes at {offset} are wrong");
            }
            reader.prefetch(0, size, &context);
            reader.prefetch(size, u64::MAX, &context);
            if let Some(mapping) = reader.map() {
                ensure!(mapping.size_bytes() == size, "{name}: {} of {size} bytes are mapped", mapping.size_bytes());
                let found = mapping.read(0..size, <[u8]>::to_vec);
                ensure!(found == Some(content(3, 0, size)), "{name}: the mapping has other bytes");
            }
        }
    }
    Ok(())
}

pub(super) fn past_the_end(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    for (number, kind) in KINDS.into_iter().enumerate() {
        let (name, file) = (format!("{kind:?}"), number as u64);
        let mut writer = store.create(&name, &of_kind(kind)).map_err(text)?;
        writer.append(&content(file, 0, 5000), &context).map_err(text)?;
        writer.sync(&context).map_err(text)?;
        writer.finish(&context).map_err(text)?;
        for direct in [false, true] {
            let reader = store.open(&name, &OpenOptions { direct }).map_err(text)?;
            reader.read_at(5000, &mut [], &context).map_err(|error| format!("nothing at the end: {error}"))?;
            for (offset, length) in [(5000, 1), (0, 5001), (4999, 2), (4096, 4096), (u64::MAX, 1), (u64::MAX - 4, 4)] {
                let mut data = vec![0; length];
                let outcome = reader.read_at(offset, &mut data, &context);
                let kind = outcome.as_ref().err().map(|error| error.kind());
                ensure!(
                    kind == Some(StoreErrorKind::InvalidRequest),
                    "{name}: {length} bytes at {offset} of 5000 gave {outcome:?}"
                );
            }
            let mut data = vec![0; 5000];
            reader.read_at(0, &mut data, &context).map_err(text)?;
            ensure!(data == content(file, 0, 5000), "{name}: reads past the end changed something");
        }
    }
    Ok(())
}

pub(super) fn read_many(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::of(IoClass::UserRead));
    for (name, kind) in [("table", FileKind::Table), ("log", FileKind::Log)] {
        let mut writer = store.create(name, &of_kind(kind)).map_err(text)?;
        writer.append(&content(4, 0, 50_000), &context).map_err(text)?;
        writer.sync(&context).map_err(text)?;
        writer.finish(&context).map_err(text)?;
        let reader = store.open(name, &OpenOptions::default()).map_err(text)?;
        let places = [(0, 10), (4096, 4096), (49_000, 1000), (12_345, 6789), (0, 0), (49_999, 1), (0, 50_000)];
        let mut buffers: Vec<Vec<u8>> = places.iter().map(|(_, length)| vec![0; *length as usize]).collect();
        let range = |(place, data)| {
            let &(offset_bytes, _): &(u64, u64) = place;
            ReadRange { offset_bytes, data, outcome: Ok(()) }
        };
        let mut ranges: Vec<ReadRange<'_>> =
            places.iter().zip(buffers.iter_mut().map(|buffer| &mut buffer[..])).map(range).collect();
        reader.read_many(&mut ranges, &context).map_err(text)?;
        for ((offset, length), buffer) in places.iter().zip(&buffers) {
            ensure!(*buffer == content(4, *offset, *length), "{name}: {length} bytes at {offset} are wrong");
        }
        // One bad range fails alone, and is the result.
        let (mut good, mut bad, mut last) = (vec![0; 100], vec![0; 100], vec![0; 50]);
        let mut ranges = [(7, &mut good), (49_950, &mut bad), (49_950, &mut last)]
            .map(|(offset_bytes, data)| ReadRange { offset_bytes, data, outcome: Ok(()) });
        let result = reader.read_many(&mut ranges, &context);
        ensure!(result.is_err(), "{name}: a range past the end is no error");
        let outcomes = ranges.each_ref().map(|range| range.outcome.is_ok());
        ensure!(outcomes == [true, false, true], "{name}: outcomes are {outcomes:?}");
        ensure!(good == content(4, 7, 100) && last == content(4, 49_950, 50), "{name}: good ranges are wrong");
        reader.read_many(&mut [], &context).map_err(text)?;
    }
    Ok(())
}

pub(super) fn tail_of_a_log(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::of(IoClass::Log));
    for (expected_size_bytes, direct) in [(None, false), (Some(60_000), false), (Some(1 << 20), true)] {
        let options = CreateOptions { expected_size_bytes, direct, ..of_kind(FileKind::Log) };
        let mut writer = store.create("log", &options).map_err(text)?;
        let reader = store.open("log", &OpenOptions { direct }).map_err(text)?;
        let (mut size, mut seen) = (0, 0);
        let mut random = setting.env.random("conformance tail");
        for step in 0..200 {
            let length = 1 + random.below(if step % 20 == 0 { 30_000 } else { 900 });
            writer.append(&content(5, size, length), &context).map_err(text)?;
            size += length;
            match step % 3 {
                0 => writer.flush(&context).map_err(text)?,
                1 => writer.sync(&context).map_err(text)?,
                _ => continue,
            }
            ensure!(reader.size_bytes() == size, "flushed {size}, a reader sees {}", reader.size_bytes());
            let mut data = vec![0; (size - seen) as usize];
            reader.read_at(seen, &mut data, &context).map_err(text)?;
            ensure!(data == content(5, seen, size - seen), "the tail from {seen} to {size} is wrong");
            seen = size;
        }
        writer.finish(&context).map_err(text)?;
        setting.expect("log", 5, size)?;
    }
    Ok(())
}

pub(super) fn dropped_writer(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    for (number, kind) in KINDS.into_iter().enumerate() {
        let (name, file) = (format!("{kind:?}"), number as u64);
        let options = CreateOptions { expected_size_bytes: Some(1 << 20), ..of_kind(kind) };
        let mut writer = store.create(&name, &options).map_err(text)?;
        writer.append(&content(file, 0, 6000), &context).map_err(text)?;
        writer.flush(&context).map_err(text)?;
        writer.append(&content(file, 6000, 100), &context).map_err(text)?;
        drop(writer);
        let size = store.open(&name, &OpenOptions::default()).map_err(text)?.size_bytes();
        ensure!(size == 6000 || size == 6100, "{name}: 6000 bytes were flushed, {size} are there");
        setting.expect(&name, file, size)?;
    }
    Ok(())
}

pub(super) fn large_and_empty(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    for (name, kind) in [("table", FileKind::Table), ("log", FileKind::Log)] {
        let mut writer = store.create(name, &of_kind(kind)).map_err(text)?;
        writer.append(&content(6, 0, 3), &context).map_err(text)?;
        writer.append(&content(6, 3, 2_500_000), &context).map_err(text)?;
        writer.append(&[], &context).map_err(text)?;
        writer.append(&content(6, 2_500_003, 7), &context).map_err(text)?;
        writer.finish(&context).map_err(text)?;
        setting.expect(name, 6, 2_500_010)?;
        store.remove(name).map_err(text)?;
        let writer = store.create(name, &of_kind(kind)).map_err(text)?;
        writer.finish(&context).map_err(text)?;
        setting.expect(name, 6, 0)?;
        let mut writer = store.create(name, &of_kind(kind)).map_err(text)?;
        writer.sync(&context).map_err(text)?;
        drop(writer);
        setting.expect(name, 6, 0)?;
    }
    Ok(())
}

pub(super) fn every_kind_and_option(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::of(IoClass::Compaction).at_level(3).for_job(JobId(7)));
    let mut number = 0;
    for kind in KINDS {
        for level in [None, Some(0), Some(255)] {
            for expected_size_bytes in [None, Some(0), Some(1), Some(5000), Some(u64::MAX)] {
                for direct in [false, true] {
                    number += 1;
                    let name = format!("{number}");
                    let options = CreateOptions {
                        kind,
                        level,
                        job: Some(JobId(number)),
                        expected_size_bytes,
                        direct,
                        map: number.is_multiple_of(2),
                    };
                    let mut writer = store.create(&name, &options).map_err(|error| format!("{options:?}: {error}"))?;
                    writer.set_level(2);
                    // More than was expected is no error.
                    writer.append(&content(number, 0, 9000), &context).map_err(text)?;
                    writer.flush(&context).map_err(text)?;
                    writer.set_level(4);
                    writer.append(&content(number, 9000, 10), &context).map_err(text)?;
                    writer.sync(&context).map_err(text)?;
                    writer.finish(&context).map_err(|error| format!("{options:?}: {error}"))?;
                    setting.expect(&name, number, 9010).map_err(|message| format!("{options:?}: {message}"))?;
                    if number % 3 != 0 {
                        store.remove(&name).map_err(text)?;
                    }
                }
            }
        }
    }
    Ok(())
}

pub(super) fn hints(setting: &Setting<'_>) -> Outcome {
    setting.write("table", 1, 10_000)?;
    for level in [None, Some(0), Some(6), Some(255)] {
        let file = HintedFile { name: "table".to_owned(), level, size_bytes: 10_000 };
        let gone = HintedFile { name: "no such file".to_owned(), level, size_bytes: u64::MAX };
        let files = [file.clone(), gone.clone()];
        let bytes = content(1, 100, 50);
        let origin = |file: &str, entries| BlockOrigin { file: file.into(), offset_bytes: 100, entries };
        let origins = [origin("table", 0), origin("no such file", u32::MAX)];
        for job in [JobId(1), JobId(u64::MAX)] {
            for succeeded in [true, false] {
                let all = [
                    Hint::FlushBegin { job, expected_bytes: u64::MAX },
                    Hint::FlushEnd { job, outputs: &files, succeeded },
                    Hint::CompactionBegin { job, inputs: &files, output_level: level },
                    Hint::CompactionOutput { job, output: &gone },
                    Hint::CompactionEnd { job, outputs: &[], succeeded },
                    Hint::LevelChanged { file: &file },
                    Hint::LevelChanged { file: &gone },
                    Hint::BlockRewritten { file: "table", offset_bytes: 100, bytes: &bytes, origins: &origins },
                    Hint::BlockRewritten { file: "no such file", offset_bytes: 0, bytes: &[], origins: &[] },
                    Hint::BlockRewritten { file: "table", offset_bytes: u64::MAX, bytes: &bytes, origins: &[] },
                    Hint::CacheEvicted { file: "table", offset_bytes: 100, bytes: &bytes },
                    Hint::CacheEvicted { file: "no such file", offset_bytes: u64::MAX, bytes: &[] },
                ];
                for hint in &all {
                    setting.store.hint(hint);
                }
                // Also an end without a beginning, in the wrong order.
                for hint in all.iter().rev() {
                    setting.store.hint(hint);
                }
            }
        }
    }
    setting.expect("table", 1, 10_000)?;
    setting.write("another", 2, 10_000)?;
    setting.expect("another", 2, 10_000)
}

pub(super) fn reopen(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    setting.write("a", 1, 123_456)?;
    setting.write("b", 2, 1)?;
    setting.write("c", 3, 77)?;
    store.rename("b", "renamed").map_err(text)?;
    store.remove("c").map_err(text)?;
    store.sync_names().map_err(text)?;
    let mut log = store.create("log", &of_kind(FileKind::Log)).map_err(text)?;
    log.append(&content(4, 0, 10_000), &context).map_err(text)?;
    log.sync(&context).map_err(text)?;
    log.append(&content(4, 10_000, 1000), &context).map_err(text)?;
    log.flush(&context).map_err(text)?;
    drop(log);
    let store = setting.end_process(setting.store.clone())?;
    let names: Vec<String> = store.list().map_err(text)?.into_iter().map(|entry| entry.name).collect();
    ensure!(names == ["a", "log", "renamed"], "after a reopen: {names:?}");
    super::expect_file(&*store, "a", 1, 123_456)?;
    super::expect_file(&*store, "renamed", 2, 1)?;
    super::expect_file(&*store, "log", 4, 11_000)?;
    super::write_file(&*store, "d", 5, 4096)?;
    super::check_is_clean(&*store)?;
    let store = setting.end_process(store)?;
    super::expect_file(&*store, "a", 1, 123_456)?;
    super::expect_file(&*store, "d", 5, 4096)?;
    super::check_is_clean(&*store)
}

pub(super) fn end_of_process(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::of(IoClass::Log));
    for kind in [FileKind::Log, FileKind::Manifest] {
        let mut writer = store.create(&format!("{kind:?}"), &of_kind(kind)).map_err(text)?;
        for step in 0..40u64 {
            writer.append(&content(1, step * 700, 700), &context).map_err(text)?;
            writer.flush(&context).map_err(text)?;
        }
        // The process ends with the file open.
        std::mem::forget(writer);
    }
    let store = setting.end_process(setting.store.clone())?;
    for kind in [FileKind::Log, FileKind::Manifest] {
        super::expect_file(&*store, &format!("{kind:?}"), 1, 28_000)?;
    }
    super::check_is_clean(&*store)
}

pub(super) fn space(setting: &Setting<'_>) -> Outcome {
    let store = &setting.store;
    let empty = store.space().map_err(text)?;
    ensure!(empty.available_bytes <= empty.total_bytes, "{empty:?}");
    setting.write("a", 1, 1 << 20)?;
    let used = store.space().map_err(text)?;
    ensure!(used.total_bytes == empty.total_bytes, "the total changed: {empty:?}, {used:?}");
    let taken = empty.available_bytes.saturating_sub(used.available_bytes);
    ensure!(taken >= 1 << 20, "a file of 1 MiB took {taken} bytes");
    // In a file system of the machine others come and go.
    let is_alone = store.properties().location == Location::Private;
    let is_told = used.block_bytes > 0 && (!is_alone || taken < (1 << 20) + used.block_bytes);
    ensure!(is_told, "a file of 1 MiB took {taken} bytes, in blocks of {}", used.block_bytes);
    store.remove("a").map_err(text)?;
    store.sync_names().map_err(text)?;
    let freed = store.space().map_err(text)?;
    ensure!(freed.available_bytes > used.available_bytes, "a removed file gave nothing back: {used:?}, {freed:?}");
    Ok(())
}

pub(super) fn no_space(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    let total = store.space().map_err(text)?.total_bytes;
    ensure!(total < 1 << 30, "this check needs a small medium, not one of {total} bytes");
    setting.write("kept", 1, 300_000)?;
    let mut names = Vec::new();
    let mut refused = None;
    while refused.is_none() {
        let number = names.len() as u64 + 10;
        let name = number.to_string();
        ensure!(number * 400_000 < 3 * total, "more was written than there is");
        let options = CreateOptions { expected_size_bytes: Some(400_000), ..of_kind(FileKind::Table) };
        let outcome = store.create(&name, &options).and_then(|mut writer| {
            names.push(name);
            writer.append(&content(number, 0, 400_000), &context)?;
            writer.sync(&context)?;
            writer.finish(&context)
        });
        refused = outcome.err();
    }
    let kind = refused.as_ref().map(|error| error.kind());
    ensure!(kind == Some(StoreErrorKind::NoSpace), "a full medium says {refused:?}");
    setting.expect("kept", 1, 300_000)?;
    for (number, name) in names.iter().enumerate().take(names.len() - 1) {
        setting.expect(name, number as u64 + 10, 400_000)?;
    }
    // Reading and removing need no space, and removing gives it back.
    for name in names.iter().rev().take(3) {
        store.remove(name).map_err(text)?;
    }
    store.sync_names().map_err(text)?;
    setting.write("again", 2, 400_000)?;
    setting.expect("again", 2, 400_000)?;
    setting.expect("kept", 1, 300_000)?;
    let store = setting.end_process(setting.store.clone())?;
    super::expect_file(&*store, "again", 2, 400_000)
}
