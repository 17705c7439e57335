//! Processor time that an array charges in a simulation, in nanoseconds.
//!
//! Rounded from measurements of this code on one core of a server processor of 2023 with buffers of 64 KiB. A change of any of
//! them changes virtual times, so it changes [`VERSION`] too.

use varve_media::GuardKind;

/// Version of this list, printed with results that depend on it.
pub const VERSION: u32 = 1;

/// Planning one stripe of a request, and its locks.
pub const STRIPE: u64 = 1_000;

/// Building the I/O of one member, and its completion.
pub const MEMBER_IO: u64 = 800;

/// Copying 1 KiB between the buffers of a request and those of a member.
pub const COPY_KIB: u64 = 40;

/// CRC guards of 1 KiB, generated or verified.
pub const GUARD_CRC_KIB: u64 = 100;

/// Internet checksums of 1 KiB, generated or verified.
pub const GUARD_IP_KIB: u64 = 30;

/// Adding 1 KiB of a column to P.
pub const PARITY_P_KIB: u64 = 30;

/// Adding 1 KiB of a column to Q.
pub const PARITY_Q_KIB: u64 = 50;

/// Every cost with its name, for reports.
pub const ALL: &[(&str, u64)] = &[
    ("stripe", STRIPE),
    ("member_io", MEMBER_IO),
    ("copy_kib", COPY_KIB),
    ("guard_crc_kib", GUARD_CRC_KIB),
    ("guard_ip_kib", GUARD_IP_KIB),
    ("parity_p_kib", PARITY_P_KIB),
    ("parity_q_kib", PARITY_Q_KIB),
];

/// Cost of `bytes` at a cost per KiB.
pub(super) fn of_bytes(per_kib: u64, bytes: u64) -> u64 {
    (per_kib * bytes).div_ceil(1024)
}

/// Cost of the guards of `bytes`.
pub fn of_guards(kind: GuardKind, bytes: u64) -> u64 {
    match kind {
        GuardKind::Crc => of_bytes(GUARD_CRC_KIB, bytes),
        GuardKind::IpChecksum => of_bytes(GUARD_IP_KIB, bytes),
    }
}
