//! Which columns a request on one stripe reads and writes. Pure: no I/O, no locks. The caller executes the plan.
//!
//! A write of a stripe that has parity changes parity over its *hull*: the bytes of a chunk from the first to the
//! last that it covers in any column. There are four ways to get the new parity (Zhang, section 5.3.2):
//!
//! - a *full-stripe write* covers the hull in every data column and reads nothing;
//! - a *read-modify-write* reads what it replaces and the old parity;
//! - a *reconstruct-write* reads the data that it does not replace: other columns only (*overwrite*), or also the
//!   rest of the hull in columns that it covers in part (*non-overwrite*);
//! - a *recovering write* reads everything that is left of the hull, and computes what is lost.
//!
//! The plan is the one with the fewest reads, then the fewest bytes, then the one that does not depend on the old
//! parity. The writes are the same for all.

use super::geometry::{ArrayGeometry, Column, RaidLevel};
use std::ops::Range;

/// A set of columns of one stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnSet(u128);

impl ColumnSet {
    fn bit(column: Column) -> u128 {
        match column {
            Column::Data(place) | Column::Copy(place) => 1 << (place % 64),
            Column::P => 1 << 64,
            Column::Q => 1 << 65,
        }
    }

    pub(super) fn insert(&mut self, column: Column) {
        self.0 |= ColumnSet::bit(column);
    }

    pub(super) fn contains(self, column: Column) -> bool {
        self.0 & ColumnSet::bit(column) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What of a stripe cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// Columns of lost members: neither read nor written.
    pub(super) absent: ColumnSet,
    /// Columns that could not be read. They are written.
    pub(super) unreadable: ColumnSet,
}

impl Damage {
    fn is_readable(self, column: Column) -> bool {
        !self.absent.contains(column) && !self.unreadable.contains(column)
    }
}

/// Bytes of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnIo {
    pub(super) column: Column,
    /// From the start of the chunk.
    pub(super) range: Range<u64>,
}

/// How a write gets the redundancy that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum WriteMethod {
    /// There is no redundancy, or none left.
    NoParity,
    /// The data are written to each copy.
    Mirror,
    FullStripe,
    ReconstructOverwrite,
    ReconstructNonOverwrite,
    ReadModifyWrite,
    Recover,
}

impl std::fmt::Display for WriteMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WriteMethod::NoParity => "no-parity",
            WriteMethod::Mirror => "mirror",
            WriteMethod::FullStripe => "full-stripe",
            WriteMethod::ReconstructOverwrite => "reconstruct-overwrite",
            WriteMethod::ReconstructNonOverwrite => "reconstruct-non-overwrite",
            WriteMethod::ReadModifyWrite => "read-modify-write",
            WriteMethod::Recover => "recover",
        })
    }
}

/// The I/Os of a write to one stripe. All reads come before all writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WritePlan {
    pub(super) method: WriteMethod,
    /// Bytes of the chunks over which parity changes.
    pub(super) hull: Range<u64>,
    pub(super) reads: Vec<ColumnIo>,
    /// Data columns to compute from the reads.
    pub(super) lost: Vec<usize>,
    pub(super) writes: Vec<ColumnIo>,
}

/// Data columns to compute, over a range of the chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    pub(super) hull: Range<u64>,
    pub(super) lost: Vec<usize>,
}

/// The I/Os of a read of one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// One for each column at most.
    pub(super) reads: Vec<ColumnIo>,
    pub(super) recovery: Option<Recovery>,
}

/// More columns cannot be used than the level tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyLost;

fn whole(range: &Range<u64>, hull: &Range<u64>) -> bool {
    range.start <= hull.start && hull.end <= range.end
}

/// The smallest range that has both in it.
fn union(left: &Range<u64>, right: &Range<u64>) -> Range<u64> {
    left.start.min(right.start)..left.end.max(right.end)
}

fn parity(geometry: &ArrayGeometry) -> impl Iterator<Item = Column> + use<> {
    [Column::P, Column::Q].into_iter().take(geometry.level.parity_columns())
}

/// All that can be read of a hull to compute the data columns that cannot: the other data, and as much parity.
fn recovering(
    geometry: &ArrayGeometry,
    hull: &Range<u64>,
    damage: Damage,
) -> Result<(Vec<ColumnIo>, Vec<usize>), TooManyLost> {
    let is_readable = |place: &usize| damage.is_readable(Column::Data(*place));
    let (left, lost): (Vec<usize>, Vec<usize>) = (0..geometry.data_columns()).partition(is_readable);
    let of_parity: Vec<Column> =
        parity(geometry).filter(|column| damage.is_readable(*column)).take(lost.len()).collect();
    if of_parity.len() < lost.len() {
        return Err(TooManyLost);
    }
    let columns = left.into_iter().map(Column::Data).chain(of_parity);
    Ok((columns.map(|column| ColumnIo { column, range: hull.clone() }).collect(), lost))
}

/// Plans the write of `range`, bytes of the data of one stripe.
///
/// # Errors
/// Data would be lost, or the new parity cannot be computed.
pub(super) fn plan_write(
    geometry: &ArrayGeometry,
    range: &Range<u64>,
    damage: Damage,
) -> Result<WritePlan, TooManyLost> {
    let written = geometry.columns_of(range);
    let hull = written.iter().map(|(_, own)| own.clone()).reduce(|hull, own| union(&hull, &own)).unwrap_or(0..0);
    let io = |column: Column, range: &Range<u64>| ColumnIo { column, range: range.clone() };
    if geometry.level == RaidLevel::Raid1 {
        let copies = geometry.columns().filter(|copy| !damage.absent.contains(*copy));
        let writes: Vec<ColumnIo> = copies.map(|copy| io(copy, &hull)).collect();
        let method = WriteMethod::Mirror;
        return match writes.is_empty() {
            true => Err(TooManyLost),
            false => Ok(WritePlan { method, hull, reads: Vec::new(), lost: Vec::new(), writes }),
        };
    }
    let data = 0..geometry.data_columns();
    let absent_data = data.clone().filter(|place| damage.absent.contains(Column::Data(*place))).count();
    let live_parity: Vec<Column> = parity(geometry).filter(|column| !damage.absent.contains(*column)).collect();
    if absent_data > live_parity.len() {
        return Err(TooManyLost);
    }
    let present = written.iter().filter(|(place, _)| !damage.absent.contains(Column::Data(*place)));
    let mut writes: Vec<ColumnIo> = present.map(|(place, own)| io(Column::Data(*place), own)).collect();
    writes.extend(live_parity.iter().map(|&column| io(column, &hull)));
    let plan = |method, reads, lost| WritePlan { method, hull: hull.clone(), reads, lost, writes: writes.clone() };
    if live_parity.is_empty() {
        return Ok(plan(WriteMethod::NoParity, Vec::new(), Vec::new()));
    }

    let mut candidates = Vec::new();
    // Reconstruct: the rest of the hull in each data column.
    let own = |place: usize| written.iter().find(|(other, _)| *other == place).map(|(_, own)| own);
    let mut rest = Vec::new();
    let mut is_overwrite = true;
    for place in data {
        match own(place) {
            None => rest.push(io(Column::Data(place), &hull)),
            Some(own) if whole(own, &hull) => {}
            Some(own) => {
                is_overwrite = false;
                // It ends or begins inside the hull: a range that does both is the hull of its own write.
                let missing = if own.start > hull.start { hull.start..own.start } else { own.end..hull.end };
                rest.push(io(Column::Data(place), &missing));
            }
        }
    }
    if rest.iter().all(|read| damage.is_readable(read.column)) {
        let method = match (rest.is_empty(), is_overwrite) {
            (true, _) => WriteMethod::FullStripe,
            (false, true) => WriteMethod::ReconstructOverwrite,
            (false, false) => WriteMethod::ReconstructNonOverwrite,
        };
        candidates.push(plan(method, rest, Vec::new()));
    }
    let mut replaced: Vec<ColumnIo> = written.iter().map(|(place, own)| io(Column::Data(*place), own)).collect();
    replaced.extend(live_parity.iter().map(|&column| io(column, &hull)));
    if replaced.iter().all(|read| damage.is_readable(read.column)) {
        candidates.push(plan(WriteMethod::ReadModifyWrite, replaced, Vec::new()));
    }
    if let Ok((reads, lost)) = recovering(geometry, &hull, damage)
        && !lost.is_empty()
    {
        candidates.push(plan(WriteMethod::Recover, reads, lost));
    }
    let bytes = |plan: &WritePlan| plan.reads.iter().map(|read| read.range.end - read.range.start).sum::<u64>();
    candidates.into_iter().min_by_key(|plan| (plan.reads.len(), bytes(plan), plan.method)).ok_or(TooManyLost)
}

/// Plans the read of `range`, bytes of the data of a stripe. A mirror is read from one copy, another one from one
/// stripe to the next.
///
/// # Errors
/// Data are lost.
pub(super) fn plan_read(
    geometry: &ArrayGeometry,
    stripe: u64,
    range: &Range<u64>,
    damage: Damage,
) -> Result<ReadPlan, TooManyLost> {
    if geometry.level == RaidLevel::Raid1 {
        let copies: Vec<Column> = geometry.columns().filter(|copy| damage.is_readable(*copy)).collect();
        let column = *copies.get((stripe % copies.len().max(1) as u64) as usize).ok_or(TooManyLost)?;
        return Ok(ReadPlan { reads: vec![ColumnIo { column, range: range.clone() }], recovery: None });
    }
    let (direct, lost): (Vec<_>, Vec<_>) =
        geometry.columns_of(range).into_iter().partition(|(place, _)| damage.is_readable(Column::Data(*place)));
    let direct = direct.into_iter().map(|(place, range)| ColumnIo { column: Column::Data(place), range });
    let Some(hull) = lost.into_iter().map(|(_, own)| own).reduce(|hull, own| union(&hull, &own)) else {
        return Ok(ReadPlan { reads: direct.collect(), recovery: None });
    };
    let (mut reads, lost) = recovering(geometry, &hull, damage)?;
    for wanted in direct {
        match reads.iter_mut().find(|read| read.column == wanted.column) {
            Some(read) => read.range = union(&read.range, &wanted.range),
            None => reads.push(wanted),
        }
    }
    Ok(ReadPlan { reads, recovery: Some(Recovery { hull, lost }) })
}

#[cfg(test)]
mod tests;
