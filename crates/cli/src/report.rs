//! Numbers for people and programs.

use serde_json::{Value, json};
use std::fmt;
use varve::media::{Counters, IoClass, MemoryCounters};
use varve::spec::ByteSize;
use varve::stack::{Stack, StackDevice};
use varve::store::StoreMeasure;

/// A size with one decimal: `1.5 GiB`.
pub(crate) fn human_bytes(size: ByteSize) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if size.0 < 1024 {
        return format!("{} B", size.0);
    }
    let exponent = (size.0.ilog2() / 10) as usize;
    let tenths = u128::from(size.0) * 10 / (1 << (10 * exponent));
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[exponent - 1])
}

/// A number of a store, for people.
pub(crate) fn measure(measure: &StoreMeasure) -> String {
    let value = measure.value;
    match measure.unit {
        "bytes" => human_bytes(ByteSize(value)),
        "nanos" => format!("{}.{:03} s", value / 1_000_000_000, value / 1_000_000 % 1000),
        _ => value.to_string(),
    }
}

/// What the store of `stack` counted, by name, with the unit.
pub(crate) fn store(stack: &Stack) -> Value {
    let measures = stack.files().statistics().into_iter();
    measures.map(|measure| (measure.name.to_owned(), json!({"unit": measure.unit, "value": measure.value}))).collect()
}

/// What a device of a stack counted.
pub(crate) struct DeviceCounters {
    role: &'static str,
    name: String,
    counters: Counters,
    /// Members that are not in use, and what the array counted, if it is one.
    array: Option<(usize, Vec<(&'static str, u64)>)>,
}

/// Counters of every device of `stack`, each array before its members.
pub(crate) fn devices(stack: &Stack) -> Vec<DeviceCounters> {
    let mut all = Vec::new();
    stack.devices().iter().for_each(|device| add_device(device, device.role().name(), &mut all));
    all
}

fn add_device(device: &StackDevice, role: &'static str, all: &mut Vec<DeviceCounters>) {
    all.push(DeviceCounters {
        role,
        name: device.description().name.clone(),
        counters: device.device().block.counters(),
        array: device.array().map(|array| (array.degraded_members(), array.statistics().measures())),
    });
    device.members().iter().for_each(|member| add_device(member, "member", all));
}

impl DeviceCounters {
    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let counters = &self.counters;
        let by_class = |bytes: &[u64]| -> Value {
            IoClass::ALL.iter().zip(bytes).map(|(class, bytes)| (class.name().to_owned(), json!(bytes))).collect()
        };
        json!({
            "role": self.role,
            "name": self.name,
            "reads": counters.reads,
            "writes": counters.writes,
            "syncs": counters.syncs,
            "discards": counters.discards,
            "read_bytes": counters.read_bytes,
            "written_bytes": counters.written_bytes,
            "media_read_bytes": counters.media_read_bytes,
            "media_written_bytes": counters.media_written_bytes,
            "seeks": counters.seeks,
            "cache_hits": counters.cache_hits,
            "errors": counters.errors,
            "reads_by_class": by_class(&counters.reads_by_class),
            "read_bytes_by_class": by_class(&counters.read_bytes_by_class),
            "written_bytes_by_class": by_class(&counters.written_bytes_by_class),
            "written_bytes_by_level": counters.written_bytes_by_level,
            "memory": (counters.memory != MemoryCounters::default()).then(|| json!({
                "loads": counters.memory.loads,
                "loaded_lines": counters.memory.loaded_lines,
                "loaded_bytes": counters.memory.loaded_bytes,
                "stores": counters.memory.stores,
                "stored_lines": counters.memory.stored_lines,
                "stored_bytes": counters.memory.stored_bytes,
                "flushed_lines": counters.memory.flushed_lines,
                "fences": counters.memory.fences,
            })),
            "array": self.array.as_ref().map(|(degraded_members, measures)| {
                let measures = measures.iter().map(|(name, value)| (name.replace(' ', "_"), json!(value)));
                let degraded = ("degraded_members".to_owned(), json!(degraded_members));
                measures.chain([degraded]).collect::<Value>()
            }),
            "time_nanos": {
                "seek": counters.time.seek_nanos,
                "rotation": counters.time.rotation_nanos,
                "transfer": counters.time.transfer_nanos,
                "overhead": counters.time.overhead_nanos,
                "flush": counters.time.flush_nanos,
                "idle": counters.time.idle_nanos,
            },
        })
    }
}

impl fmt::Display for DeviceCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        writeln!(f, "{} ({})", self.name, self.role)?;
        let (read, written) =
            (human_bytes(ByteSize(counters.read_bytes)), human_bytes(ByteSize(counters.written_bytes)));
        writeln!(
            f,
            "  {} reads, {read}; {} writes, {written}; {} syncs",
            counters.reads, counters.writes, counters.syncs
        )?;
        writeln!(
            f,
            "  {} seeks, {} reads from its cache, {} errors",
            counters.seeks, counters.cache_hits, counters.errors
        )?;
        let MemoryCounters { loaded_lines, stored_lines, flushed_lines, fences, .. } = counters.memory;
        if counters.memory != MemoryCounters::default() {
            writeln!(
                f,
                "  {loaded_lines} lines loaded, {stored_lines} stored, {flushed_lines} flushed; {fences} fences"
            )?;
        }
        let time = &counters.time;
        let parts = [
            ("seek", time.seek_nanos),
            ("rotation", time.rotation_nanos),
            ("transfer", time.transfer_nanos),
            ("overhead", time.overhead_nanos),
            ("flush", time.flush_nanos),
            ("idle", time.idle_nanos),
        ];
        if parts.iter().any(|(_, nanos)| *nanos > 0) {
            let shown = parts
                .map(|(name, nanos)| format!("{name} {}.{:03} s", nanos / 1_000_000_000, nanos / 1_000_000 % 1000));
            writeln!(f, "  time: {}", shown.join(", "))?;
        }
        if let Some((degraded_members, measures)) = &self.array {
            writeln!(f, "  members that are lost or being rebuilt: {degraded_members}")?;
            for (name, value) in measures.iter().filter(|(_, value)| *value > 0) {
                writeln!(f, "  {name}: {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(human_bytes(ByteSize(bytes)), text);
        }
    }
}
