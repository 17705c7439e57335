//! What a fence buys.

use std::fmt;

/// Instruction of x86 that writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineInstruction {
    /// CLWB: the line may stay in the cache.
    Clwb,
    /// CLFLUSHOPT: the line leaves the cache, unordered with others.
    Clflushopt,
    /// CLFLUSH: the line leaves the cache, one after the other.
    Clflush,
}

/// What memory does when stored lines are flushed and fenced, and which failures they survive then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// Emulated: the crash layer treats flushed and fenced lines as durable. They are gone with the
    /// process.
    Emulated,
    /// A flush writes lines back with this instruction and a fence waits for it (SFENCE). They
    /// survive a power cut: the file system granted MAP_SYNC.
    LineWriteBack(LineInstruction),
    /// A fence alone suffices: the processor's caches are saved when the power fails
    /// (`persistence_domain` is `cpu_cache`).
    PersistentCaches,
    /// A fence syncs the pages of the flushed lines (msync). They survive a power cut as far as the
    /// disk below keeps what it acknowledged.
    PageSync,
    /// A fence does nothing: the bytes survive the end of the process, and never that of the
    /// machine (tmpfs, ramfs).
    ProcessOnly,
}

impl Persistence {
    /// True if flushed and fenced lines survive a power cut of the machine.
    pub fn survives_power_cut(self) -> bool {
        match self {
            Persistence::LineWriteBack(_) | Persistence::PersistentCaches | Persistence::PageSync => true,
            Persistence::Emulated | Persistence::ProcessOnly => false,
        }
    }
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = |instruction: &LineInstruction| match instruction {
            LineInstruction::Clwb => "clwb",
            LineInstruction::Clflushopt => "clflushopt",
            LineInstruction::Clflush => "clflush",
        };
        match self {
            Persistence::Emulated => {
                f.write_str("emulated: flushed and fenced lines survive emulated power cuts, nothing survives the process")
            }
            Persistence::LineWriteBack(with) => write!(
                f,
                "lines are written back with {} and fenced; they survive a power cut (MAP_SYNC was granted)",
                instruction(with)
            ),
            Persistence::PersistentCaches => f.write_str(
                "a fence alone; processor caches survive a power cut (persistence_domain is cpu_cache, MAP_SYNC was granted)",
            ),
            Persistence::PageSync => f.write_str(
                "touched pages are synced with msync; they survive a power cut as files do (MAP_SYNC was not granted)",
            ),
            Persistence::ProcessOnly => {
                f.write_str("nothing; bytes survive the process but not the machine (the file is in its memory)")
            }
        }
    }
}
