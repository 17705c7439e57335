//! Boundaries between tiers: what a migration is told of the tier above one and of those behind it.
//!
//! Policies know two tiers. Of more than two each boundary is looked at by itself, that below the fastest first: above it is one
//! tier, behind it are all slower ones, and tables of faster tiers are in nobody's way. Which tables belong on the fastest is for
//! the placement to say; on the others lower levels come first, as under write-guided placement.

use super::core::Core;
use super::division::SlowCosts;
use super::file::HybridFile;
use super::level_counts::seen_from;
use super::levels::Tier;
use super::migration::{Migration, MigrationView, Move, SlowLoad, TableView};
use super::options::{HybridDriver, HybridTechnique};
use super::placement::{PlacementView, Tiering};
use parking_lot::Mutex as ShortMutex;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Reads the tiers behind must have got at their rate before that is believed: so many as the devices would do one after the
/// other.
const READS_OF_WINDOW: u64 = 16;

/// Reads of the tiers behind when they were last looked at.
#[derive(Debug, Default)]
struct SlowReads {
    reads: u64,
    nanos: u64,
    rate: u64,
}

/// The boundary below a tier.
#[derive(Debug)]
pub(super) struct Boundary {
    /// The tier above it.
    upper: usize,
    /// Above so many the tiers behind it are what reads wait for.
    slow_reads_per_second_max: u64,
    costs: SlowCosts,
    slow_reads: ShortMutex<SlowReads>,
}

impl Boundary {
    /// The one below a tier, behind which devices do so many random reads a second together, and write so many bytes.
    pub(super) fn new(upper: usize, slow_reads_per_second: u64, slow_bytes_per_second: u64) -> Boundary {
        Boundary {
            upper,
            slow_reads_per_second_max: slow_reads_per_second / 2,
            costs: SlowCosts::of(slow_reads_per_second, slow_bytes_per_second),
            slow_reads: ShortMutex::default(),
        }
    }
}

impl Core {
    /// Plans a move and makes it. True when something was done, and there may be more.
    pub(super) fn migrate(&self) -> bool {
        let Some(policy) = &self.migration else { return false };
        if self.boundaries.is_empty() || self.is_read_only || self.is_attempt() {
            return false;
        }
        self.divide();
        self.boundaries.iter().any(|boundary| self.migrate_over(&**policy, boundary))
    }

    /// Whether a table would move if nobody was in its way, and none moves else.
    pub(super) fn awaits_idleness(&self) -> bool {
        let waits = !self.boundaries.is_empty() && self.options.has(HybridTechnique::IdlePromotion);
        let Some(policy) = self.migration.as_ref().filter(|_| waits) else { return false };
        let view = self.view();
        let tiering = self.placement.tiering(&view);
        let moves = |load| policy.may_move(&view, tiering, load);
        !self.is_read_only && moves(SlowLoad::Idle) && !moves(SlowLoad::Some)
    }

    fn migrate_over(&self, policy: &dyn Migration, boundary: &Boundary) -> bool {
        let (upper, slow_reads_per_second_max) = (boundary.upper, boundary.slow_reads_per_second_max);
        let (view, tiering) = match upper {
            0 => {
                let view = self.view();
                let tiering = self.placement.tiering(&view);
                (view, tiering)
            }
            _ => {
                let view = self.view_from(upper);
                let tiering = Tiering::of(&view);
                (view, tiering)
            }
        };
        let slow_reads_per_second = self.slow_read_rate(boundary);
        let load = match slow_reads_per_second > slow_reads_per_second_max {
            true => SlowLoad::Reads,
            false if slow_reads_per_second < slow_reads_per_second_max / 8 && self.jobs.lock().are_none() => {
                match self.options.has(HybridTechnique::IdlePromotion) {
                    true => SlowLoad::Idle,
                    false => SlowLoad::Some,
                }
            }
            false => SlowLoad::Some,
        };
        // Most of the time the counts tell that nothing is to move; there are many tables.
        if !policy.may_move(&view, tiering, load) {
            return false;
        }
        // Of zones that tables share each is told as many.
        let places = self.places_of_zone();
        let next = policy.plan(&MigrationView {
            tables: &self.tables_from(upper),
            tiering: Tiering {
                zones: tiering.zones.saturating_mul(places),
                lower_demand: tiering.lower_demand.saturating_mul(places),
                ..tiering
            },
            empty_table_zones: view.empty_table_zones().saturating_mul(places),
            load,
            reads_of_zone: boundary.costs.reads_of(self.fast_zone_bytes() / places),
        });
        let moved = match next {
            None => return false,
            Some(Move::Down { file }) => self.move_table(file, upper, Tier::Slow),
            Some(Move::Up { file }) => self.move_table(file, upper, Tier::Fast),
            Some(Move::Swap { up, down }) => {
                self.move_table(down, upper, Tier::Slow).and_then(|is_down| match is_down {
                    true => self.move_table(up, upper, Tier::Fast),
                    false => Ok(false),
                })
            }
        };
        matches!(moved, Ok(true))
    }

    /// What policies are told of a tier behind the first, in zones of the first.
    fn view_from(&self, upper: usize) -> PlacementView {
        let levels = seen_from(&self.level_places(), upper, self.places_of_zone());
        let mut view = PlacementView { levels, ..PlacementView::default() };
        for member in self.members.iter().filter(|member| member.tier == upper) {
            let zones = member.files.zone_use();
            let as_fast = |zones: u32| u64::from(zones) * member.files.writable_zone_bytes() / self.fast_zone_bytes();
            view.fast_zones += as_fast(zones.total.saturating_sub(zones.logs));
            view.empty_zones += as_fast(zones.free.saturating_sub(member.promised.load(Ordering::Relaxed)));
        }
        view
    }

    /// The tables of a tier and of those behind it, with the places that each takes.
    fn tables_from(&self, upper: usize) -> Vec<TableView> {
        let now = self.env.now().as_nanos();
        let inputs: BTreeSet<u64> = self.jobs.lock().inputs.values().flatten().copied().collect();
        let tier = |file: &HybridFile| file.parts().first().map(|part| self.members[part.device].tier);
        let files = self.files.read();
        let tables = files.values().filter(|file| file.is_table && file.size_bytes() > 0);
        let seen = tables.filter_map(|file| Some((file, tier(file)?))).filter(|(_, tier)| *tier >= upper);
        seen.map(|(file, tier)| TableView {
            file: file.number(),
            level: file.row(),
            tier: if tier == upper { Tier::Fast } else { Tier::Slow },
            zones: self.places_of(file.size_bytes()),
            reads: file.state.reads.load(Ordering::Relaxed),
            age_nanos: now.saturating_sub(file.state.created_nanos),
            is_movable: self.is_movable(file) && !inputs.contains(&file.number()),
        })
        .collect()
    }

    /// Reads a second of tables behind a boundary, lately.
    fn slow_read_rate(&self, boundary: &Boundary) -> u64 {
        let mut slow = boundary.slow_reads.lock();
        let now = self.env.now().as_nanos();
        let behind = self.reads_of_tier.iter().skip(boundary.upper + 1);
        let reads: u64 = behind.map(|reads| reads.load(Ordering::Relaxed)).sum();
        let elapsed = now.saturating_sub(slow.nanos);
        let window = READS_OF_WINDOW * 1_000_000_000 / (2 * boundary.slow_reads_per_second_max).max(1);
        if elapsed >= window || self.options.driver == HybridDriver::Caller {
            let rate = u128::from(reads - slow.reads) * 1_000_000_000 / u128::from(elapsed.max(1));
            *slow = SlowReads { reads, nanos: now, rate: rate.min(u128::from(u64::MAX)) as u64 };
        }
        slow.rate
    }
}
