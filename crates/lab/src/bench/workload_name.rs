//! Workloads by name.

use crate::error::LabError;
use crate::workload::{DbBenchKind, YcsbMix};
use std::fmt;
use std::str::FromStr;

/// A workload as it is named on the command line: db_bench's names, and `ycsb-load`, `ycsb-a`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadName {
    /// One of db_bench.
    DbBench(DbBenchKind),
    /// One of YCSB.
    Ycsb(YcsbMix),
}

impl WorkloadName {
    /// Every workload.
    pub fn all() -> Vec<WorkloadName> {
        let db_bench = DbBenchKind::ALL.into_iter().map(WorkloadName::DbBench);
        db_bench.chain(YcsbMix::ALL.into_iter().map(WorkloadName::Ycsb)).collect()
    }

    /// Whether it is one of YCSB.
    pub fn is_ycsb(self) -> bool {
        matches!(self, WorkloadName::Ycsb(_))
    }

    /// One line for help.
    pub fn summary(self) -> &'static str {
        match self {
            WorkloadName::DbBench(kind) => match kind {
                DbBenchKind::FillSeq => "write every key once, in order",
                DbBenchKind::FillRandom => "write as many keys as there are, drawn at random",
                DbBenchKind::FillUniqueRandom => "write every key once, in random order",
                DbBenchKind::FillSync => "write keys drawn at random, each synced",
                DbBenchKind::Overwrite => "overwrite keys drawn at random",
                DbBenchKind::ReadRandom => "read keys drawn at random",
                DbBenchKind::ReadMissing => "read keys that are not there",
                DbBenchKind::ReadSeq => "read everything forward",
                DbBenchKind::ReadReverse => "read everything backward",
                DbBenchKind::SeekRandom => "seek to keys drawn at random and read on",
                DbBenchKind::DeleteRandom => "delete keys drawn at random",
                DbBenchKind::DeleteSeq => "delete every key, in order",
                DbBenchKind::ReadWhileWriting => "read at random while one more thread overwrites",
            },
            WorkloadName::Ycsb(mix) => match mix {
                YcsbMix::Load => "insert every record once",
                YcsbMix::A => "50 % reads, 50 % updates, zipfian",
                YcsbMix::B => "95 % reads, 5 % updates, zipfian",
                YcsbMix::C => "reads, zipfian",
                YcsbMix::D => "95 % reads of the latest, 5 % inserts",
                YcsbMix::E => "95 % short scans, 5 % inserts",
                YcsbMix::F => "50 % reads, 50 % read-modify-writes, zipfian",
            },
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadName::DbBench(kind) => kind.fmt(f),
            WorkloadName::Ycsb(mix) => write!(f, "ycsb-{mix}"),
        }
    }
}

impl FromStr for WorkloadName {
    type Err = LabError;

    fn from_str(text: &str) -> Result<WorkloadName, LabError> {
        WorkloadName::all().into_iter().find(|name| name.to_string() == text).ok_or_else(|| {
            let names: Vec<String> = WorkloadName::all().iter().map(ToString::to_string).collect();
            let meant = varve::options::nearest_name(text, names.iter().map(String::as_str));
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
            LabError::invalid("workload", format!("'{text}' is none of {}{meant}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_have_summaries() {
        for name in WorkloadName::all() {
            assert_eq!(name.to_string().parse::<WorkloadName>().unwrap(), name);
            assert!(!name.summary().is_empty());
        }
        assert!("ycsb-z".parse::<WorkloadName>().unwrap_err().to_string().contains("fillseq"));
    }
}
