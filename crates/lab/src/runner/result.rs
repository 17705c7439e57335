//! What a phase measured.

use super::latency::LatencySummary;
use super::phase::Phase;
use super::timeline::TimelinePoint;
use crate::error::LabError;
use crate::host::{self, Memory, ProcessIo};
use crate::media::{Counters, IoClass};
use crate::target::{Target, TargetStatistics};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_env::Env;

/// Everything that is read before and after.
pub(crate) struct Snapshot {
    is_virtual: bool,
    statistics: TargetStatistics,
    cpu_nanos: Option<u64>,
    memory: Option<Memory>,
    process_io: Option<ProcessIo>,
}

impl Snapshot {
    pub(crate) fn take(env: &Env, target: &Arc<dyn Target>) -> Result<Snapshot, LabError> {
        env.settle();
        let statistics = target.statistics().map_err(|error| LabError::Target {
            target: target.name().to_owned(),
            operation: "statistics",
            error,
        })?;
        Ok(Snapshot {
            is_virtual: env.is_virtual(),
            statistics,
            cpu_nanos: env.process_cpu_nanos(),
            memory: host::memory(),
            process_io: host::process_io(),
        })
    }
}

/// What one kind of operation did in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindResult {
    /// Kind, in lower case (`read`, `insert`, `scan`, ...).
    pub kind: String,
    /// Operations; of a full scan, pairs visited.
    pub operations: u64,
    /// Reads that found their key, scans that found anything.
    pub found: u64,
    /// Pairs scans visited.
    pub pairs: u64,
    /// Bytes of keys and values read.
    pub user_read_bytes: u64,
    /// Bytes of keys and values written.
    pub user_written_bytes: u64,
    /// Latencies; absent for full scans.
    pub latency: Option<LatencySummary>,
}

/// What one group of threads did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// Name of its workload.
    pub workload: String,
    /// Threads.
    pub threads: usize,
    /// Ran beside the groups the phase is named for.
    pub background: bool,
    /// Operations of all kinds.
    pub operations: u64,
    /// By kind; kinds that did not occur are left out.
    pub kinds: Vec<KindResult>,
    /// Fewest operations that ended in one whole second; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_second_operations: Option<u64>,
    /// What happened when.
    pub timeline: Vec<TimelinePoint>,
}

/// What a store did during a phase and until it was idle. Absent numbers are ones it does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct EngineActivity {
    pub log_bytes: Option<u64>,
    pub flush_bytes: Option<u64>,
    pub compaction_read_bytes: Option<u64>,
    pub compaction_written_bytes: Option<u64>,
    pub flushes: Option<u64>,
    pub compactions: Option<u64>,
    pub trivial_moves: Option<u64>,
    pub compaction_nanos: Option<u64>,
    pub stall_nanos: Option<u64>,
    pub cache_hits: Option<u64>,
    pub cache_misses: Option<u64>,
    /// Bytes occupied at the end.
    pub space_bytes: Option<u64>,
    /// The store's own numbers, as they were at the end.
    pub properties: BTreeMap<String, f64>,
}

impl EngineActivity {
    fn between(before: &TargetStatistics, after: &TargetStatistics) -> EngineActivity {
        let grown = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before.unwrap_or(0)));
        EngineActivity {
            log_bytes: grown(before.log_bytes, after.log_bytes),
            flush_bytes: grown(before.flush_bytes, after.flush_bytes),
            compaction_read_bytes: grown(before.compaction_read_bytes, after.compaction_read_bytes),
            compaction_written_bytes: grown(before.compaction_written_bytes, after.compaction_written_bytes),
            flushes: grown(before.flushes, after.flushes),
            compactions: grown(before.compactions, after.compactions),
            trivial_moves: grown(before.trivial_moves, after.trivial_moves),
            compaction_nanos: grown(before.compaction_nanos, after.compaction_nanos),
            stall_nanos: grown(before.stall_nanos, after.stall_nanos),
            cache_hits: grown(before.cache_hits, after.cache_hits),
            cache_misses: grown(before.cache_misses, after.cache_misses),
            space_bytes: after.space_bytes,
            properties: after.properties.clone(),
        }
    }

    /// Bytes the store says it wrote: log, flushes and compactions.
    fn written_bytes(&self) -> Option<u64> {
        Some(self.flush_bytes? + self.compaction_written_bytes? + self.log_bytes.unwrap_or(0))
    }
}

/// What a device did during a phase and until the store was idle. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DeviceActivity {
    pub name: String,
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    pub discards: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub media_read_bytes: u64,
    pub media_written_bytes: u64,
    pub seeks: u64,
    pub cache_hits: u64,
    pub errors: u64,
    pub read_bytes_by_class: BTreeMap<String, u64>,
    pub written_bytes_by_class: BTreeMap<String, u64>,
    pub seek_nanos: u64,
    pub rotation_nanos: u64,
    pub transfer_nanos: u64,
    pub overhead_nanos: u64,
    pub flush_nanos: u64,
    pub idle_nanos: u64,
}

/// Hardware does not say what it writes of its own.
fn tells_of_its_medium(device: &DeviceActivity) -> bool {
    device.media_written_bytes > 0 || device.written_bytes == 0
}

impl DeviceActivity {
    fn between(name: &str, before: &Counters, after: &Counters) -> DeviceActivity {
        let by_class = |before: &[u64], after: &[u64]| {
            IoClass::ALL
                .iter()
                .zip(before.iter().zip(after))
                .filter(|(_, (before, after))| after > before)
                .map(|(class, (before, after))| (class.name().to_owned(), after - before))
                .collect()
        };
        DeviceActivity {
            name: name.to_owned(),
            reads: after.reads - before.reads,
            writes: after.writes - before.writes,
            syncs: after.syncs - before.syncs,
            discards: after.discards - before.discards,
            read_bytes: after.read_bytes - before.read_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
            media_read_bytes: after.media_read_bytes - before.media_read_bytes,
            media_written_bytes: after.media_written_bytes - before.media_written_bytes,
            seeks: after.seeks - before.seeks,
            cache_hits: after.cache_hits - before.cache_hits,
            errors: after.errors - before.errors,
            read_bytes_by_class: by_class(&before.read_bytes_by_class, &after.read_bytes_by_class),
            written_bytes_by_class: by_class(&before.written_bytes_by_class, &after.written_bytes_by_class),
            seek_nanos: after.time.seek_nanos - before.time.seek_nanos,
            rotation_nanos: after.time.rotation_nanos - before.time.rotation_nanos,
            transfer_nanos: after.time.transfer_nanos - before.time.transfer_nanos,
            overhead_nanos: after.time.overhead_nanos - before.time.overhead_nanos,
            flush_nanos: after.time.flush_nanos - before.time.flush_nanos,
            idle_nanos: after.time.idle_nanos - before.time.idle_nanos,
        }
    }
}

/// How much more than asked was moved or kept. Absent where something needed is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amplification {
    /// Bytes the store says it wrote (log included), by user bytes written.
    pub write_engine: Option<f64>,
    /// Bytes the media wrote, device-internal copies included, by user bytes written.
    pub write_medium: Option<f64>,
    /// Bytes this process wrote according to the kernel, by user bytes written. Real media only.
    pub write_process: Option<f64>,
    /// Bytes read from the devices, by user bytes read.
    pub read_device: Option<f64>,
    /// Bytes occupied, by bytes of live keys and values.
    pub space: Option<f64>,
}

/// Where virtual time went: devices' time summed over the devices, and processor time charged.
/// In nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualTime {
    /// The phase and its way to idleness.
    pub total_nanos: u64,
    /// Moving arms.
    pub seek_nanos: u64,
    /// Waiting for sectors to come round.
    pub rotation_nanos: u64,
    /// Moving bytes.
    pub transfer_nanos: u64,
    /// Command overhead and host links.
    pub overhead_nanos: u64,
    /// Writing device caches back for syncs or because they were full.
    pub flush_nanos: u64,
    /// Devices without work.
    pub idle_nanos: u64,
    /// Processor time charged, over all threads; it overlaps the devices' time.
    pub cpu_nanos: u64,
}

/// What a phase measured. Field names are stable; `docs/lab.md` describes the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Name of the phase.
    pub name: String,
    /// Store it ran on.
    pub target: String,
    /// Whether times are virtual.
    pub is_virtual: bool,
    /// From the start to the end of the last operation of a leading group.
    pub elapsed_nanos: u64,
    /// From then until the store was idle.
    pub idle_nanos: u64,
    /// Operations of the leading groups.
    pub operations: u64,
    /// Those, by elapsed time.
    pub operations_per_second: f64,
    /// Bytes of keys and values read, by all groups.
    pub user_read_bytes: u64,
    /// Bytes of keys and values written, by all groups.
    pub user_written_bytes: u64,
    /// Processor time, user and system, of the whole process until the last operation ended;
    /// charged time in a simulation.
    pub cpu_nanos: Option<u64>,
    /// Processor time from then until the store was idle.
    pub idle_cpu_nanos: Option<u64>,
    /// All processor time by operations of the leading groups.
    pub cpu_nanos_per_operation: Option<f64>,
    /// What each group did.
    pub groups: Vec<GroupResult>,
    /// What the store did.
    pub engine: EngineActivity,
    /// What its devices did.
    pub devices: Vec<DeviceActivity>,
    /// Moved or kept beyond what was asked.
    pub amplification: Amplification,
    /// Where virtual time went; absent in real time.
    pub virtual_time: Option<VirtualTime>,
    /// Memory of the process at the end, and its peak during the phase.
    pub memory: Option<Memory>,
    /// I/O of the process as the kernel counts it; absent in virtual time.
    pub process_io: Option<ProcessIo>,
}

impl PhaseResult {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        phase: &Phase,
        target: &str,
        groups: Vec<GroupResult>,
        elapsed_nanos: u64,
        idle_nanos: u64,
        before: &Snapshot,
        work_end: &Snapshot,
        after: &Snapshot,
    ) -> PhaseResult {
        let sum =
            |field: fn(&KindResult) -> u64| -> u64 { groups.iter().flat_map(|group| &group.kinds).map(field).sum() };
        let user_read_bytes = sum(|kind| kind.user_read_bytes);
        let user_written_bytes = sum(|kind| kind.user_written_bytes);
        let operations: u64 = groups.iter().filter(|group| !group.background).map(|group| group.operations).sum();
        let engine = EngineActivity::between(&before.statistics, &after.statistics);
        let nothing = Counters::default();
        let devices: Vec<DeviceActivity> = after
            .statistics
            .devices
            .iter()
            .map(|(name, counters)| {
                let earlier = before.statistics.devices.iter().find(|(other, _)| other == name);
                DeviceActivity::between(name, earlier.map_or(&nothing, |(_, counters)| counters), counters)
            })
            .collect();
        let cpu_between = |from: &Snapshot, to: &Snapshot| Some(to.cpu_nanos?.saturating_sub(from.cpu_nanos?));
        let cpu_nanos = cpu_between(before, work_end);
        let idle_cpu_nanos = cpu_between(work_end, after);
        let cpu_total = cpu_between(before, after);
        let is_virtual = after.is_virtual;
        let process_io = if is_virtual { None } else { process_io_between(before, after) };
        let media =
            |field: fn(&DeviceActivity) -> u64| (!devices.is_empty()).then(|| devices.iter().map(field).sum::<u64>());
        let amplification = Amplification {
            write_engine: ratio(engine.written_bytes(), user_written_bytes),
            write_medium: ratio(
                media(|device| device.media_written_bytes).filter(|_| devices.iter().all(tells_of_its_medium)),
                user_written_bytes,
            ),
            write_process: ratio(process_io.map(|io| io.written_bytes), user_written_bytes),
            read_device: ratio(media(|device| device.read_bytes), user_read_bytes),
            space: ratio(engine.space_bytes, phase.live_bytes.unwrap_or(0)),
        };
        let device_time = |field: fn(&DeviceActivity) -> u64| devices.iter().map(field).sum();
        let virtual_time = is_virtual.then(|| VirtualTime {
            total_nanos: elapsed_nanos + idle_nanos,
            seek_nanos: device_time(|device| device.seek_nanos),
            rotation_nanos: device_time(|device| device.rotation_nanos),
            transfer_nanos: device_time(|device| device.transfer_nanos),
            overhead_nanos: device_time(|device| device.overhead_nanos),
            flush_nanos: device_time(|device| device.flush_nanos),
            idle_nanos: device_time(|device| device.idle_nanos),
            cpu_nanos: cpu_total.unwrap_or(0),
        });
        PhaseResult {
            name: phase.name.clone(),
            target: target.to_owned(),
            is_virtual,
            elapsed_nanos,
            idle_nanos,
            operations,
            operations_per_second: if elapsed_nanos == 0 {
                0.0
            } else {
                operations as f64 * 1e9 / elapsed_nanos as f64
            },
            user_read_bytes,
            user_written_bytes,
            cpu_nanos,
            idle_cpu_nanos,
            cpu_nanos_per_operation: ratio(cpu_total, operations),
            groups,
            engine,
            devices,
            amplification,
            virtual_time,
            memory: after.memory,
            process_io,
        }
    }

    /// Result of one kind of operation of the leading groups, when there is exactly one such group.
    pub fn kind(&self, kind: &str) -> Option<&KindResult> {
        self.groups.iter().find(|group| !group.background)?.kinds.iter().find(|result| result.kind == kind)
    }

    /// Latencies of the kind the leading group did most.
    pub fn main_latency(&self) -> Option<LatencySummary> {
        let group = self.groups.iter().find(|group| !group.background)?;
        group.kinds.iter().max_by_key(|kind| kind.operations)?.latency
    }
}

fn ratio(part: Option<u64>, whole: u64) -> Option<f64> {
    (whole > 0).then_some(part? as f64 / whole as f64)
}

fn process_io_between(before: &Snapshot, after: &Snapshot) -> Option<ProcessIo> {
    let (before, after) = (before.process_io?, after.process_io?);
    Some(ProcessIo {
        read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        cancelled_bytes: after.cancelled_bytes.saturating_sub(before.cancelled_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::TimeSpent;

    #[test]
    fn activity_is_the_difference_and_absent_stays_absent() {
        let before = TargetStatistics { flush_bytes: Some(10), cache_hits: Some(5), ..Default::default() };
        let after = TargetStatistics {
            flush_bytes: Some(110),
            compaction_written_bytes: Some(50),
            cache_hits: Some(5),
            space_bytes: Some(7),
            ..Default::default()
        };
        let activity = EngineActivity::between(&before, &after);
        assert_eq!(activity.flush_bytes, Some(100));
        assert_eq!(activity.cache_hits, Some(0));
        assert_eq!(activity.stall_nanos, None);
        assert_eq!(activity.written_bytes(), Some(150));
        assert_eq!(activity.space_bytes, Some(7));
        assert_eq!(ratio(activity.written_bytes(), 0), None);
    }

    #[test]
    fn device_activity_names_classes() {
        let mut after =
            Counters { reads: 3, time: TimeSpent { seek_nanos: 9, ..Default::default() }, ..Default::default() };
        after.written_bytes_by_class[IoClass::Log.index()] = 42;
        let activity = DeviceActivity::between("d", &Counters::default(), &after);
        assert_eq!((activity.reads, activity.seek_nanos), (3, 9));
        assert_eq!(activity.written_bytes_by_class, BTreeMap::from([("log".to_owned(), 42)]));
    }
}
