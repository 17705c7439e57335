//! Random writes and commands against a model.

use super::super::subject::{context, pattern};
use super::super::{Clause, Violation};
use super::Zones;
use crate::zones::{ZoneCondition, ZoneId};
use varve_env::Random;

/// What is known of a zone in the random walk.
#[derive(Clone, Default)]
struct Model {
    data: Vec<u8>,
    is_full: bool,
    is_closed: bool,
}

/// Random commands and writes against vectors that grow.
pub(super) fn random_walk(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("behaves like growing vectors");
    let mut random = Random::named(zones.seed, "zones");
    let sector = zones.sector;
    let capacity = zones.geometry.zone_capacity_bytes;
    // As many as can be active, so that limits are met elsewhere only.
    let limits = [zones.geometry.active_zones_max, zones.geometry.open_zones_max];
    let most = limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(u32::MAX) as usize;
    let used: Vec<ZoneId> = zones.required.iter().copied().take(most).collect();
    let mut models = vec![Model::default(); used.len()];
    let told = |step: u32, broken: Violation| Violation {
        detail: format!("seed {} step {step}: {}", zones.seed, broken.detail),
        ..broken
    };
    for step in 0..if used.is_empty() { 0 } else { zones.steps } {
        let index = random.index(used.len());
        let (zone, model) = (used[index], &mut models[index]);
        let start = zones.start(zone);
        let pointer = start + model.data.len() as u64;
        let data = pattern(u64::from(step), ((1 + random.below(12)) * sector) as usize);
        let fits = !model.is_full && model.data.len() + data.len() <= capacity as usize;
        let outcome = match random.below(12) {
            0 => {
                *model = Model::default();
                zones.command(clause, "reset", zone)
            }
            1 => {
                model.is_full = true;
                zones.command(clause, "finish", zone)
            }
            2 if !model.is_full && !model.data.is_empty() => {
                model.is_closed = true;
                zones.command(clause, "close", zone)
            }
            3 => zones.refuse(clause, pointer + sector, 1),
            4 if !fits => zones.refuse(clause, pointer, data.len() as u64 / sector),
            5 if fits => {
                let at = clause.succeed("an append", zones.control.append(zone, &zones.buffer(&data), &context()));
                model.data.extend_from_slice(&data);
                model.is_closed = false;
                at.and_then(|at| clause.require(at == pointer, || format!("an append at {pointer} went to {at}")))
            }
            _ if fits => {
                model.data.extend_from_slice(&data);
                model.is_closed = false;
                zones.write(clause, pointer, &data)
            }
            _ => clause.succeed("a sync", zones.block().sync(&context())),
        };
        outcome.map_err(|broken| told(step, broken))?;
        let (zone, model) = (used[index], &mut models[index]);
        model.is_full |= model.data.len() as u64 == capacity;
        let found = zones.describe(clause, zone)?;
        let condition_fits = match found.condition {
            ZoneCondition::Full => model.is_full,
            ZoneCondition::Empty => !model.is_full && model.data.is_empty(),
            ZoneCondition::Closed => model.is_closed && !model.is_full,
            ZoneCondition::ImplicitlyOpened => !model.is_closed && !model.is_full && !model.data.is_empty(),
            _ => false,
        };
        let pointer_fits = model.is_full || found.write_pointer_bytes == start + model.data.len() as u64;
        clause
            .require(condition_fits && pointer_fits, || format!("zone {zone} is {found:?}"))
            .map_err(|broken| told(step, broken))?;
        let mut expected = model.data.clone();
        expected.resize((model.data.len() + 2 * sector as usize).min(capacity as usize), 0);
        let from = random.below(expected.len() as u64 / sector) * sector;
        zones.expect(clause, start + from, &expected[from as usize..]).map_err(|broken| told(step, broken))?;
    }
    Ok(())
}
