//! What the disk takes for the requests of a synced put alone, without a store.

use crate::error::LabError;
use crate::experiment::emulated::bare;
use crate::experiment::simulate;
use crate::media::probe::{Pattern, Probe};
use crate::media::{BlockDevice, BlockDeviceExt, IoContext, Request};
use crate::runner::Latencies;
use std::io::IoSlice;
use varve::env::Env;

/// The disk of the paper in full size, of which only the time is wanted.
pub(super) const DISK: &str = "disk:3TB?model=barracuda-3tb,backing=none";

/// Of a file system, and of what is written at least.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// Appends measured of each kind.
const APPENDS: u64 = 200;

/// Times of the disk in full size, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Floors {
    /// Two blocks behind those before and a flush: one put of 4 KiB in a log.
    pub(super) append: f64,
    /// One block appended to a file of ext4 and made durable, its journal in the middle of the disk.
    pub(super) journaled_append: f64,
    /// The same with the journal 128 MiB behind the file.
    pub(super) journaled_append_nearby: f64,
    /// The first one again on a disk to which no flush comes through.
    pub(super) unflushed_append: f64,
    /// The second one on such a disk.
    pub(super) unflushed_journaled_append: f64,
}

/// A disk of another model in full size, of which only the time is wanted.
pub(super) fn disk_of(model: &str) -> String {
    format!("disk:3TB?model={model},backing=none")
}

/// Measures them on this disk. The same numbers for every seed: nothing is random.
///
/// # Errors
/// What the device says.
pub(super) fn measure(disk: &str) -> Result<Floors, LabError> {
    let append = |is_flushed: bool| {
        let disk = disk.to_owned();
        simulate(1, move |env| {
            let device = bare(env, &disk)?.block;
            let probe = Probe {
                pattern: if is_flushed { Pattern::SyncedWrite } else { Pattern::SequentialWrite },
                request_bytes: 2 * BLOCK_BYTES,
                depth: 1,
                requests: APPENDS,
                region: 0..2 * BLOCK_BYTES * APPENDS,
                seed: 1,
            };
            Ok(probe.run(env, &device)?.mean_latency_nanos() as f64 / 1e6)
        })
    };
    let journaled = |journal_bytes: Option<u64>, is_flushed: bool| {
        let disk = disk.to_owned();
        simulate(1, move |env| {
            let device = bare(env, &disk)?.block;
            let middle = device.geometry().capacity_bytes / 2 / BLOCK_BYTES * BLOCK_BYTES;
            journaled_appends(env, &*device, journal_bytes.unwrap_or(middle), is_flushed)
        })
    };
    Ok(Floors {
        append: append(true)?,
        journaled_append: journaled(None, true)?,
        journaled_append_nearby: journaled(Some(128 << 20), true)?,
        unflushed_append: append(false)?,
        unflushed_journaled_append: journaled(None, false)?,
    })
}

/// What one of a thousand of so many appends of two blocks takes with its flush, or longer, in milliseconds: some of them go on from
/// one track to the next. The same number for every seed.
///
/// # Errors
/// What the device says.
pub(super) fn slowest_appends_millis(disk: &str, appends: u64) -> Result<f64, LabError> {
    let disk = disk.to_owned();
    simulate(1, move |env| {
        let device = bare(env, &disk)?.block;
        let (context, blocks) = (IoContext::default(), [0; 2 * BLOCK_BYTES as usize]);
        let mut latencies = Latencies::default();
        for number in 0..appends {
            let begin = env.now();
            device.write_at(number * 2 * BLOCK_BYTES, &blocks, &context)?;
            device.sync(&context)?;
            latencies.record((env.now() - begin).as_nanos() as u64);
        }
        Ok(latencies.summary().map_or(f64::NAN, |latency| latency.p999_nanos as f64 / 1e6))
    })
}

/// Mean milliseconds of an append as Linux makes it durable on ext4 with ordered data and barriers (`fs/ext4/fsync.c`,
/// `fs/jbd2/commit.c`). The file is longer than before, so its inode goes through the journal: the data is written,
/// then a descriptor and the image of the inode's block, then the disk is flushed, and the commit block follows with a
/// flush of its own (a disk without FUA, as Linux takes SATA disks to be).
fn journaled_appends(
    env: &Env,
    device: &dyn BlockDevice,
    journal_bytes: u64,
    is_flushed: bool,
) -> Result<f64, LabError> {
    let context = IoContext::default();
    let blocks = [0; 2 * BLOCK_BYTES as usize];
    let block = &blocks[..BLOCK_BYTES as usize];
    let begin = env.now();
    for number in 0..APPENDS {
        let transaction = journal_bytes + number * 3 * BLOCK_BYTES;
        device.write_at(number * BLOCK_BYTES, block, &context)?;
        device.write_at(transaction, &blocks, &context)?;
        let slices = [IoSlice::new(block)];
        let at = transaction + 2 * BLOCK_BYTES;
        let commit = match is_flushed {
            true => {
                device.sync(&context)?;
                Request::write_durable(at, &slices)
            }
            false => Request::write(at, &slices),
        };
        device.execute(&mut [commit], &context)?;
    }
    Ok((env.now() - begin).as_nanos() as f64 / 1e6 / APPENDS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_takes_a_turn_and_a_journaled_one_moves_the_arm_there_and_back() {
        let floors = measure(DISK).unwrap();
        // 7200 revolutions a minute.
        let revolution = 60_000.0 / 7_200.0;
        assert!(floors.append > revolution && floors.append < 1.1 * revolution, "{floors:?}");
        assert!(floors.journaled_append > 3.0 * revolution, "{floors:?}");
        assert!(
            floors.journaled_append_nearby > revolution && floors.journaled_append_nearby < floors.journaled_append
        );
        assert!(floors.unflushed_append < 1.0 && floors.unflushed_journaled_append < 2.0, "{floors:?}");
    }
}
