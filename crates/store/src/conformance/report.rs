//! Clauses about what a store says of itself.

use super::{Outcome, Setting, ensure, text};
use crate::occupancy::{Occupancy, PieceUsage};
use std::collections::BTreeSet;

pub(super) fn statistics(setting: &Setting<'_>) -> Outcome {
    let store = &setting.store;
    let before = store.statistics();
    let names: BTreeSet<&str> = before.iter().map(|measure| measure.name).collect();
    ensure!(names.len() == before.len(), "two numbers have one name: {before:?}");
    for number in 0..4 {
        setting.write(&number.to_string(), number, 50_000)?;
    }
    store.remove("1").map_err(text)?;
    store.sync_names().map_err(text)?;
    let after = store.statistics();
    ensure!(after.len() == before.len(), "{} numbers became {}", before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        let same = (before.name, before.unit) == (after.name, after.unit);
        ensure!(same && ["1", "bytes", "nanos"].contains(&after.unit), "{before:?} became {after:?}");
        ensure!(after.value >= before.value, "{} fell from {} to {}", before.name, before.value, after.value);
    }
    Ok(())
}

pub(super) fn occupancy(setting: &Setting<'_>) -> Outcome {
    let store = &setting.store;
    tiles(&store.occupancy())?;
    for number in 0..6 {
        setting.write(&format!("table {number}"), number, 30_000 + number)?;
    }
    let held = store.open("table 2", &Default::default()).map_err(text)?;
    store.remove("table 2").map_err(text)?;
    store.sync_names().map_err(text)?;
    let found = store.occupancy();
    tiles(&found)?;
    if found.devices.is_empty() {
        return Ok(());
    }
    for number in [0, 1, 3, 4, 5u64] {
        let name = format!("table {number}");
        let index = found.files.iter().position(|file| file.name == name);
        let index = index.ok_or_else(|| format!("'{name}' is not told"))? as u32;
        let used: u64 =
            found.pieces.iter().filter(|piece| piece.file == Some(index)).map(|piece| piece.used_bytes).sum();
        ensure!(used >= 30_000 + number, "'{name}' uses {used} bytes");
        ensure!(found.files[index as usize].written_nanos.is_some(), "'{name}' was never written");
    }
    let removed = |occupancy: &Occupancy| occupancy.pieces.iter().any(|piece| piece.usage == PieceUsage::Removed);
    ensure!(removed(&found), "the space of a removed file that is being read is told as free");
    drop(held);
    // Any commit gives it back.
    setting.write("another", 9, 1)?;
    ensure!(!removed(&store.occupancy()), "the space of a removed file is not told as free");
    Ok(())
}

/// Pieces follow each other and cover their devices but for less than a mebibyte.
fn tiles(occupancy: &Occupancy) -> Outcome {
    let mut at = 0;
    for (number, device) in occupancy.devices.iter().enumerate() {
        at = 0;
        for piece in occupancy.pieces.iter().filter(|piece| usize::from(piece.device) == number) {
            ensure!(piece.offset_bytes == at, "{piece:?} is not at {at}");
            ensure!(piece.length_bytes > 0 && piece.used_bytes <= piece.length_bytes, "{piece:?}");
            let file = piece.file.map(|file| occupancy.files.get(file as usize));
            ensure!(file.is_none_or(|file| file.is_some()), "{piece:?} has no such file");
            at += piece.length_bytes;
        }
        let rest = device.capacity_bytes.checked_sub(at);
        ensure!(rest.is_some_and(|rest| rest < 1 << 20), "{at} of {} bytes of {}", device.capacity_bytes, device.name);
    }
    ensure!(occupancy.pieces.is_empty() || at > 0, "pieces of no device");
    Ok(())
}
