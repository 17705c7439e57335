//! The marks of layers on the devices below them.
//!
//! A layer writes its mark; an ordinary opening of the device, which may know nothing of the layer, finds it and refuses
//! by name. So the bytes are here, below both.

/// First bytes of the superblock of a write buffer: at the start of its device, and where what it reserves at the end of
/// the disk begins.
pub const WRITE_BUFFER_MARK: &[u8; 8] = b"VARVEBUF";

/// Bytes that a write buffer reserves at the end of a disk without zones.
pub const WRITE_BUFFER_RESERVED_BYTES: u64 = 1 << 20;

/// First bytes of every record of the journal of a layer.
pub const LAYER_JOURNAL_MARK: &[u8; 8] = b"VARVEJNL";

/// Name of relocation in the records of its journal, at [`LAYER_NAME_OFFSET`]. A disk under relocation has a record at
/// the start of one of its last two zones.
pub const RELOCATION_LAYER: &[u8; 4] = b"RELO";

/// Offset of the layer's name in a record, in bytes.
pub const LAYER_NAME_OFFSET: usize = 12;

/// Alignment of the records of relocation, in bytes.
pub const RELOCATION_UNIT_BYTES: u64 = 4096;

/// First bytes of the journal of relocation in version 1, in the same two zones.
pub const RELOCATION_MARK_VERSION_1: &[u8; 8] = b"VARVEMAP";

/// First bytes of the superblock of a member of an array, at the start of the member and 4 KiB behind it.
pub const ARRAY_MEMBER_MARK: &[u8; 8] = b"VARVERAI";
