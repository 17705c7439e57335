//! The bytes of a stripe: new parity of a write, and lost data of a read. Pure.

use super::geometry::{ArrayGeometry, Column};
use super::parity;
use super::plan::{ColumnIo, ReadPlan, Recovery, WriteMethod, WritePlan};
use std::borrow::Cow;
use std::ops::Range;
use varve_media::AlignedBuffer;

/// New bytes of one data column.
pub(super) struct NewData {
    pub(super) place: usize,
    /// From the start of the chunk.
    pub(super) range: Range<u64>,
    pub(super) bytes: AlignedBuffer,
}

/// Bytes that a plan had read, in its order.
pub(super) type Found<'a> = (&'a ColumnIo, &'a [u8]);

/// The bytes of `part` in a buffer that begins at `start`.
fn within(start: u64, part: &Range<u64>) -> Range<usize> {
    (part.start - start) as usize..(part.end - start) as usize
}

fn bytes_of<'a>(found: &[Found<'a>], column: Column) -> Option<&'a [u8]> {
    found.iter().find(|(read, _)| read.column == column).map(|(_, bytes)| *bytes)
}

/// The parity that a plan writes, over its hull, in the order of its writes.
///
/// # Errors
/// `found` is not what the plan reads.
pub(super) fn new_parity(
    geometry: &ArrayGeometry,
    plan: &WritePlan,
    new: &[NewData],
    found: &[Found<'_>],
    alignment_bytes: usize,
) -> Result<Vec<(Column, AlignedBuffer)>, parity::Unsolvable> {
    let columns = plan.writes.iter().map(|write| write.column).filter(|column| matches!(column, Column::P | Column::Q));
    let length = (plan.hull.end - plan.hull.start) as usize;
    let mut written: Vec<(Column, AlignedBuffer)> =
        columns.map(|column| (column, AlignedBuffer::new(length, alignment_bytes))).collect();
    if written.is_empty() {
        return Ok(written);
    }
    if plan.method == WriteMethod::ReadModifyWrite {
        for (column, parity) in &mut written {
            parity.copy_from_slice(bytes_of(found, *column).ok_or(parity::Unsolvable)?);
        }
        for data in new {
            let mut delta = bytes_of(found, Column::Data(data.place)).ok_or(parity::Unsolvable)?.to_vec();
            parity::add(&mut delta, &data.bytes);
            let place = within(plan.hull.start, &data.range);
            for (column, parity) in &mut written {
                match column {
                    Column::Q => parity::add_weighted(&mut parity[place.clone()], &delta, data.place),
                    _ => parity::add(&mut parity[place.clone()], &delta),
                }
            }
        }
        return Ok(written);
    }
    let data = hull_of_data(geometry, plan, new, found, length)?;
    for (column, parity) in &mut written {
        let data = data.iter().map(|column| &column[..]);
        match column {
            Column::Q => parity::compute_q(data, parity),
            _ => parity::compute_p(data, parity),
        }
    }
    Ok(written)
}

/// Every data column over the hull of a plan, after the write.
fn hull_of_data<'a>(
    geometry: &ArrayGeometry,
    plan: &WritePlan,
    new: &'a [NewData],
    found: &[Found<'a>],
    length: usize,
) -> Result<Vec<Cow<'a, [u8]>>, parity::Unsolvable> {
    let old = |place: usize| found.iter().find(|(read, _)| read.column == Column::Data(place));
    let mut recovered = match plan.lost.is_empty() {
        true => Vec::new(),
        false => recover(geometry, &Recovery { hull: plan.hull.clone(), lost: plan.lost.clone() }, found)?,
    };
    (0..geometry.data_columns())
        .map(|place| {
            let new = new.iter().find(|data| data.place == place);
            if let Some(data) = new.filter(|data| data.range == plan.hull) {
                return Ok(Cow::Borrowed(&data.bytes[..]));
            }
            let mut column = match (recovered.iter_mut().find(|(lost, _)| *lost == place), old(place), new) {
                (Some((_, bytes)), _, _) => std::mem::take(bytes),
                (None, Some((read, bytes)), None) if read.range == plan.hull => return Ok(Cow::Borrowed(*bytes)),
                (None, Some((read, bytes)), _) => {
                    let mut column = vec![0; length];
                    column[within(plan.hull.start, &read.range)].copy_from_slice(bytes);
                    column
                }
                (None, None, _) => return Err(parity::Unsolvable),
            };
            if let Some(data) = new {
                column[within(plan.hull.start, &data.range)].copy_from_slice(&data.bytes);
            }
            Ok(Cow::Owned(column))
        })
        .collect()
}

/// The lost data columns of a recovery, over its hull. `found` has every other column that it needs.
///
/// # Errors
/// `found` does not suffice.
pub(super) fn recover(
    geometry: &ArrayGeometry,
    recovery: &Recovery,
    found: &[Found<'_>],
) -> Result<Vec<(usize, Vec<u8>)>, parity::Unsolvable> {
    let length = (recovery.hull.end - recovery.hull.start) as usize;
    let over_hull = |column: Column| {
        let (read, bytes) = found.iter().find(|(read, _)| read.column == column)?;
        let covers = read.range.start <= recovery.hull.start && recovery.hull.end <= read.range.end;
        covers.then(|| &bytes[within(read.range.start, &recovery.hull)])
    };
    let mut data: Vec<Vec<u8>> = Vec::with_capacity(geometry.data_columns());
    for place in 0..geometry.data_columns() {
        data.push(match recovery.lost.contains(&place) {
            true => vec![0; length],
            false => over_hull(Column::Data(place)).ok_or(parity::Unsolvable)?.to_vec(),
        });
    }
    parity::recover(&mut data, &recovery.lost, over_hull(Column::P), over_hull(Column::Q))?;
    Ok(recovery.lost.iter().map(|&place| (place, std::mem::take(&mut data[place]))).collect())
}

/// The bytes that a read of `range` of a stripe asks for, in order: pieces of what its plan had read, and of what
/// was lost.
///
/// # Errors
/// `found` is not what the plan reads.
pub(super) fn answer(
    geometry: &ArrayGeometry,
    range: &Range<u64>,
    plan: &ReadPlan,
    found: &[Found<'_>],
) -> Result<Vec<u8>, parity::Unsolvable> {
    let mut answer = Vec::with_capacity((range.end - range.start) as usize);
    let recovered = plan.recovery.as_ref().map(|recovery| Ok((recovery, recover(geometry, recovery, found)?)));
    let recovered = recovered.transpose()?;
    if let [(read @ ColumnIo { column: Column::Copy(_), .. }, bytes)] = found {
        answer.extend_from_slice(bytes.get(within(read.range.start, range)).ok_or(parity::Unsolvable)?);
        return Ok(answer);
    }
    for (place, own) in geometry.columns_of(range) {
        let lost = recovered.as_ref().and_then(|(recovery, lost)| {
            let (_, bytes) = lost.iter().find(|(lost, _)| *lost == place)?;
            bytes.get(within(recovery.hull.start, &own))
        });
        let read = || {
            let (read, bytes) = found.iter().find(|(read, _)| read.column == Column::Data(place))?;
            bytes.get(within(read.range.start, &own))
        };
        answer.extend_from_slice(lost.or_else(read).ok_or(parity::Unsolvable)?);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::super::geometry::RaidLevel;
    use super::super::plan::{ColumnSet, Damage, plan_read, plan_write};
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use varve_env::Random;

    const CHUNK: u64 = 4;

    /// A stripe on its members, and what its data should be.
    #[derive(Clone)]
    struct Model {
        geometry: ArrayGeometry,
        columns: BTreeMap<Column, Vec<u8>>,
        data: Vec<u8>,
    }

    impl Model {
        fn new(level: RaidLevel, members: usize, random: &mut Random) -> Model {
            let geometry = ArrayGeometry { level, members, chunk_bytes: CHUNK, stripes: 1 };
            let columns = geometry.columns().map(|column| (column, vec![0; CHUNK as usize])).collect();
            let mut model = Model { data: vec![0; geometry.stripe_bytes() as usize], geometry, columns };
            random.fill_bytes(&mut model.data);
            model.columns = model.consistent();
            model
        }

        /// The columns as they must be.
        fn consistent(&self) -> BTreeMap<Column, Vec<u8>> {
            let data: Vec<&[u8]> = self.data.chunks(CHUNK as usize).collect();
            let column = |column: Column| {
                let mut bytes = vec![0; CHUNK as usize];
                match column {
                    Column::Data(place) => bytes.copy_from_slice(data[place]),
                    Column::Copy(_) => bytes.copy_from_slice(data[0]),
                    Column::P => parity::compute_p(data.iter().copied(), &mut bytes),
                    Column::Q => parity::compute_q(data.iter().copied(), &mut bytes),
                }
                bytes
            };
            self.geometry.columns().map(|name| (name, column(name))).collect()
        }

        fn found<'a>(&'a self, reads: &'a [ColumnIo], damage: Damage) -> Vec<Found<'a>> {
            let is_used = |column| damage.absent.contains(column) || damage.unreadable.contains(column);
            assert!(reads.iter().all(|read| !is_used(read.column)), "{reads:?} under {damage:?}");
            reads.iter().map(|read| (read, &self.columns[&read.column][within(0, &read.range)])).collect()
        }

        fn read(&self, range: &Range<u64>, damage: Damage) -> Option<Vec<u8>> {
            let plan = plan_read(&self.geometry, 1, range, damage).ok()?;
            let found = self.found(&plan.reads, damage);
            Some(answer(&self.geometry, range, &plan, &found).expect("what the plan reads suffices"))
        }

        fn write(&mut self, range: &Range<u64>, damage: Damage, random: &mut Random) -> bool {
            let Ok(plan) = plan_write(&self.geometry, range, damage) else { return false };
            random.fill_bytes(&mut self.data[within(0, range)]);
            let own = |place: usize, own: &Range<u64>| {
                let start = place as u64 * CHUNK;
                AlignedBuffer::copy_of(&self.data[within(0, &(start + own.start..start + own.end))], 1)
            };
            let columns = self.geometry.columns_of(range).into_iter();
            let new: Vec<NewData> =
                columns.map(|(place, range)| NewData { place, bytes: own(place, &range), range }).collect();
            let found = self.found(&plan.reads, damage);
            let parity = new_parity(&self.geometry, &plan, &new, &found, 1).expect("what the plan reads suffices");
            for write in &plan.writes {
                let bytes = match write.column {
                    Column::Copy(_) => &new[0].bytes,
                    Column::Data(place) => &new.iter().find(|data| data.place == place).unwrap().bytes,
                    column => &parity.iter().find(|(other, _)| *other == column).unwrap().1,
                };
                let column = self.columns.get_mut(&write.column).unwrap();
                column[within(0, &write.range)].copy_from_slice(bytes);
            }
            true
        }
    }

    fn set(columns: &[Column]) -> ColumnSet {
        let mut set = ColumnSet::default();
        columns.iter().for_each(|column| set.insert(*column));
        set
    }

    /// Each level with few members, each range of a stripe, each loss that the level tolerates, and one more column that
    /// cannot be read: what is written is read back, with that loss, and with every other one of as many columns.
    #[test]
    fn every_write_and_read_is_right_under_every_loss() {
        let mut random = Random::named(1, "stripes");
        let (mut writes, mut methods) = (0_u64, BTreeSet::new());
        for level in RaidLevel::ALL {
            for members in level.members_min()..=level.members_min() + 2 {
                let model = Model::new(level, members, &mut random);
                let columns: Vec<Column> = model.geometry.columns().collect();
                let mut losses = vec![Damage::default()];
                for (place, &first) in columns.iter().enumerate() {
                    losses.push(Damage { absent: set(&[first]), ..Damage::default() });
                    losses.push(Damage { unreadable: set(&[first]), ..Damage::default() });
                    for &second in &columns[place + 1..] {
                        losses.push(Damage { absent: set(&[first, second]), ..Damage::default() });
                        losses.push(Damage { absent: set(&[first]), unreadable: set(&[second]) });
                        losses.push(Damage { absent: set(&[second]), unreadable: set(&[first]) });
                        losses.push(Damage { unreadable: set(&[first, second]), ..Damage::default() });
                    }
                }
                let tolerated = level.tolerated(members);
                let count = |set: ColumnSet| columns.iter().filter(|column| set.contains(**column)).count();
                let length = model.geometry.stripe_bytes();
                for start in 0..length {
                    for end in start + 1..=length {
                        for &damage in &losses {
                            let (absent, unreadable) = (count(damage.absent), count(damage.unreadable));
                            let range = start..end;
                            let mut model = model.clone();
                            let is_written = model.write(&range, damage, &mut random);
                            if absent + unreadable <= tolerated {
                                assert!(is_written, "{level} of {members}, {range:?}, {damage:?}");
                            }
                            if !is_written {
                                continue;
                            }
                            writes += 1;
                            methods.insert(plan_write(&model.geometry, &range, damage).unwrap().method);
                            // Every column that is there is what it must be.
                            for (column, expected) in model.consistent() {
                                let is_there = !damage.absent.contains(column);
                                assert!(
                                    !is_there || model.columns[&column] == expected,
                                    "{level} {range:?} {damage:?}: {column}"
                                );
                            }
                            let after = Damage { unreadable: ColumnSet::default(), ..damage };
                            if absent <= tolerated {
                                assert_eq!(model.read(&(0..length), after).as_ref(), Some(&model.data));
                            }
                        }
                    }
                }
                for &damage in &losses {
                    for start in 0..length {
                        let range = start..length;
                        match model.read(&range, damage) {
                            Some(found) => assert_eq!(found, model.data[start as usize..]),
                            None => assert!(count(damage.absent) + count(damage.unreadable) > tolerated),
                        }
                    }
                }
            }
        }
        println!("reached: block raid/stripes: {writes} writes by {} methods", methods.len());
        assert_eq!(methods.len(), 7, "{methods:?}");
    }
}
