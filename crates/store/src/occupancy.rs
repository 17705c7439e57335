//! What a store says of itself in numbers, and what lies where on its devices.

/// One number a store counts since it was opened. Never decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMeasure {
    /// What was counted, in words: `rewrites`.
    pub name: &'static str,
    /// `1` for a count, `bytes`, or `nanos`.
    pub unit: &'static str,
    /// The number.
    pub value: u64,
}

impl StoreMeasure {
    /// A number of things.
    pub fn count(name: &'static str, value: u64) -> Self {
        StoreMeasure { name, unit: "1", value }
    }

    /// A number of bytes.
    pub fn bytes(name: &'static str, value: u64) -> Self {
        StoreMeasure { name, unit: "bytes", value }
    }

    /// A time in nanoseconds of the env.
    pub fn nanos(name: &'static str, value: u64) -> Self {
        StoreMeasure { name, unit: "nanos", value }
    }
}

/// What lies where on the devices of a store, at one moment; for drawing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Devices in the order of the pieces' [`device`](OccupancyPiece::device).
    pub devices: Vec<OccupancyDevice>,
    /// Files in the order of the pieces' [`file`](OccupancyPiece::file).
    pub files: Vec<OccupancyFile>,
    /// Pieces of the devices, ascending by device and offset. They do not overlap.
    pub pieces: Vec<OccupancyPiece>,
}

/// A device with pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccupancyDevice {
    /// Its name, as in [`FileStore::counters`](crate::FileStore::counters).
    pub name: String,
    /// Its bytes.
    pub capacity_bytes: u64,
}

/// A file that has pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccupancyFile {
    /// Its name; empty when it was removed.
    pub name: String,
    /// Level of the tree, where the store knows it.
    pub level: Option<u8>,
    /// When it was last written, in nanoseconds of the env; `None` when that was before the store was opened.
    pub written_nanos: Option<u64>,
}

/// A piece of a device: a track, an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupancyPiece {
    /// Index into [`Occupancy::devices`].
    pub device: u16,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes of the piece.
    pub length_bytes: u64,
    /// Bytes of it that count.
    pub used_bytes: u64,
    /// Part of the medium it belongs to: `bottom`, `top`; empty when the medium has no parts.
    pub part: &'static str,
    /// What it is used for.
    pub usage: PieceUsage,
    /// Index into [`Occupancy::files`].
    pub file: Option<u32>,
    /// Times its bytes were saved and restored since the store was opened, because a neighbour was written.
    pub rewrites: u32,
}

/// What a piece of a device is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PieceUsage {
    /// Nothing: a file may have it.
    Free,
    /// A table.
    Table,
    /// A file of any kind, in stores that do not tell kinds apart.
    File,
    /// A removed file: free once the removal is durable and its readers are gone.
    Removed,
    /// The store's own: superblocks, names, maps, logs of changes.
    Metadata,
    /// Where files that are not tables live, several to a piece.
    SmallFiles,
    /// Copies of what an unfinished rewrite endangers.
    Backup,
    /// Kept unused.
    Reserved,
    /// Copies of blocks that lie on a slower device.
    CachedBlocks,
    /// Given up: the device does not write it any more. What it holds may still be read.
    Retired,
}

impl PieceUsage {
    /// Lower case, as printed.
    pub fn name(self) -> &'static str {
        match self {
            PieceUsage::Free => "free",
            PieceUsage::Table => "table",
            PieceUsage::File => "file",
            PieceUsage::Removed => "removed",
            PieceUsage::Metadata => "metadata",
            PieceUsage::SmallFiles => "small files",
            PieceUsage::Backup => "backup",
            PieceUsage::Reserved => "reserved",
            PieceUsage::CachedBlocks => "cached blocks",
            PieceUsage::Retired => "retired",
        }
    }
}

impl Occupancy {
    /// Adds a device and says its index.
    pub(crate) fn add_device(&mut self, name: &str, capacity_bytes: u64) -> u16 {
        self.devices.push(OccupancyDevice { name: name.to_owned(), capacity_bytes });
        (self.devices.len() - 1) as u16
    }

    /// Adds a file and says its index.
    pub(crate) fn add_file(&mut self, name: &str, level: Option<u8>, written_nanos: Option<u64>) -> u32 {
        self.files.push(OccupancyFile { name: name.to_owned(), level, written_nanos });
        (self.files.len() - 1) as u32
    }

    /// Brings the pieces into their order.
    pub(crate) fn sort(&mut self) {
        self.pieces.sort_unstable_by_key(|piece| (piece.device, piece.offset_bytes));
    }
}
