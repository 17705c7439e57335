//! Commands to a SCSI device past the kernel's drivers: the generic interface of Linux (`scsi/sg.h`), version 3.

use super::responses::{Malformed, Sense, sense};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater};
use std::ffi::c_void;
use std::os::fd::BorrowedFd;

const SG_IO: Opcode = 0x2285;
const INTERFACE: i32 = 'S' as i32;
const NO_DATA: i32 = -1;
const FROM_DEVICE: i32 = -3;
const SENSE_BYTES: usize = 252;
/// What a disk may take for a command; as long as it may be busy with something else before.
const TIMEOUT_MILLIS: u32 = 60_000;
/// How often a command is sent anew after the disk said first what happened to it meanwhile (a unit attention).
const ATTENTIONS_MAX: u32 = 4;

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
/// The driver's status that there is sense data; also in the lower bits of what comes with a suggestion.
const DRIVER_SENSE: u16 = 0x08;
const DRIVER_STATUS_MASK: u16 = 0x0F;
const RECOVERED_ERROR: u8 = 0x1;
const UNIT_ATTENTION: u8 = 0x6;

/// `struct sg_io_hdr`.
#[repr(C)]
struct Header {
    interface_id: i32,
    dxfer_direction: i32,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: u32,
    dxferp: *mut c_void,
    cmdp: *const u8,
    sbp: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: i32,
    usr_ptr: *mut c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: i32,
    duration: u32,
    info: u32,
}

impl Header {
    /// Of no command, without memory, and of no answer.
    fn empty() -> Self {
        Header {
            interface_id: INTERFACE,
            dxfer_direction: NO_DATA,
            cmd_len: 0,
            mx_sb_len: 0,
            iovec_count: 0,
            dxfer_len: 0,
            dxferp: std::ptr::null_mut(),
            cmdp: std::ptr::null(),
            sbp: std::ptr::null_mut(),
            timeout: 0,
            flags: 0,
            pack_id: 0,
            usr_ptr: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            msg_status: 0,
            sb_len_wr: 0,
            host_status: 0,
            driver_status: 0,
            resid: 0,
            duration: 0,
            info: 0,
        }
    }
}

/// A command descriptor block and what it is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) block: [u8; 16],
    /// Bytes of the block that are sent.
    pub(super) length: u8,
}

/// What came back in place of what was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScsiError {
    /// The kernel did not pass the command on.
    #[error("the kernel refused to send the SCSI command {command}: {errno}")]
    Kernel { command: &'static str, errno: Errno },
    /// The command did not reach the disk, or no answer came.
    #[error(
        "the SCSI command {command} was not answered: host status {host_status:02X}h, driver status \
         {driver_status:02X}h (linux scsi/scsi.h)"
    )]
    Transport { command: &'static str, host_status: u16, driver_status: u16 },
    /// The disk refused it, or failed.
    #[error("the SCSI command {command} was answered with status {status:02X}h{}", sense_text(.sense))]
    Status { command: &'static str, status: u8, sense: Option<Sense> },
    /// The disk answered what makes no sense.
    #[error("the answer to the SCSI command {command} is malformed: {malformed}")]
    Malformed { command: &'static str, malformed: Malformed },
}

fn sense_text(sense: &Option<Sense>) -> String {
    sense.map_or_else(|| ", without sense data".to_owned(), |sense| format!(", {sense}"))
}

impl ScsiError {
    /// As an error of the operating system that has this one inside.
    pub(super) fn into_io(self) -> std::io::Error {
        let kind = match &self {
            ScsiError::Kernel { errno, .. } => std::io::Error::from(*errno).kind(),
            ScsiError::Malformed { .. } => std::io::ErrorKind::InvalidData,
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, self)
    }

    /// ZBC: more zones would be open than the disk can have.
    pub(super) fn is_open_limit(&self) -> bool {
        matches!(self, ScsiError::Status { sense: Some(Sense { code: 0x55, qualifier: 0x0E, .. }), .. })
    }
}

/// Sends `command` and waits for its end; what the disk has to say is put into `data`. Returns how many bytes it said.
pub(super) fn execute(file: BorrowedFd<'_>, command: &Command, data: &mut [u8]) -> Result<usize, ScsiError> {
    let mut result = execute_once(file, command, data);
    for _ in 0..ATTENTIONS_MAX {
        match &result {
            Err(ScsiError::Status { sense: Some(sense), .. }) if sense.key == UNIT_ATTENTION => {
                result = execute_once(file, command, data);
            }
            _ => break,
        }
    }
    result
}

fn execute_once(file: BorrowedFd<'_>, command: &Command, data: &mut [u8]) -> Result<usize, ScsiError> {
    let Command { name, block, length } = *command;
    let mut sense_data = [0; SENSE_BYTES];
    let dxfer_len = u32::try_from(data.len()).map_err(|_| ScsiError::Kernel { command: name, errno: Errno::INVAL })?;
    let mut header = Header {
        dxfer_direction: if data.is_empty() { NO_DATA } else { FROM_DEVICE },
        cmd_len: length.min(block.len() as u8),
        mx_sb_len: SENSE_BYTES as u8,
        dxfer_len,
        dxferp: data.as_mut_ptr().cast(),
        cmdp: block.as_ptr(),
        sbp: sense_data.as_mut_ptr(),
        timeout: TIMEOUT_MILLIS,
        ..Header::empty()
    };
    send(file, &mut header).map_err(|errno| ScsiError::Kernel { command: name, errno })?;
    let said = sense(&sense_data[..usize::from(header.sb_len_wr).min(SENSE_BYTES)]);
    judge(name, &header, said)?;
    let missing = usize::try_from(header.resid).unwrap_or(0);
    Ok(data.len().saturating_sub(missing))
}

/// Hands the header to the kernel.
fn send(file: BorrowedFd<'_>, header: &mut Header) -> rustix::io::Result<()> {
    // SAFETY: SG_IO reads and stores one `struct sg_io_hdr`, which `Header` is, and returns when the command has ended. `execute_once`,
    // the only caller, made its pointers of slices that live until then: it stores at most `dxfer_len` bytes of data and
    // `mx_sb_len` of sense data, and reads `cmd_len` of the command, which is what these slices have.
    unsafe { rustix::ioctl::ioctl(file, Updater::<SG_IO, Header>::new(header)) }
}

/// Whether the command was done.
fn judge(command: &'static str, header: &Header, sense: Option<Sense>) -> Result<(), ScsiError> {
    let Header { status, host_status, driver_status, .. } = *header;
    // That there is sense data is no failure of the driver; older kernels say so there.
    let driver_failed = ![0, DRIVER_SENSE].contains(&(driver_status & DRIVER_STATUS_MASK));
    if host_status != 0 || driver_failed {
        return Err(ScsiError::Transport { command, host_status, driver_status });
    }
    match (status, sense) {
        (GOOD, _) => Ok(()),
        (CHECK_CONDITION, Some(Sense { key: RECOVERED_ERROR, is_deferred: false, .. })) => Ok(()),
        _ => Err(ScsiError::Status { command, status, sense }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn answer(status: u8, host_status: u16, driver_status: u16, sense: Option<Sense>) -> Result<(), String> {
        let header = Header { status, host_status, driver_status, ..Header::empty() };
        judge("REPORT ZONES", &header, sense).map_err(|error| error.to_string())
    }

    /// As the C compiler has it on machines of 64 bits.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_header_is_that_of_the_kernel() {
        use std::mem::offset_of;
        assert_eq!((size_of::<Header>(), align_of::<Header>()), (88, 8));
        let offsets = [offset_of!(Header, dxferp), offset_of!(Header, sbp), offset_of!(Header, timeout)];
        assert_eq!(offsets, [16, 32, 40]);
        let offsets = [offset_of!(Header, usr_ptr), offset_of!(Header, status), offset_of!(Header, host_status)];
        assert_eq!(offsets, [56, 64, 68]);
        assert_eq!((offset_of!(Header, resid), offset_of!(Header, info)), (72, 80));
    }

    #[test]
    fn only_what_was_done_counts_as_done() {
        let sense = |key| Some(Sense { key, code: 0x24, qualifier: 0, is_deferred: false });
        assert_eq!(answer(GOOD, 0, 0, None), Ok(()));
        assert_eq!(answer(CHECK_CONDITION, 0, DRIVER_SENSE, sense(RECOVERED_ERROR)), Ok(()));
        assert_eq!(
            answer(CHECK_CONDITION, 0, DRIVER_SENSE, sense(5)).unwrap_err(),
            "the SCSI command REPORT ZONES was answered with status 02h, illegal request (24h/00h: invalid field in the \
             command)"
        );
        let error = answer(0x18, 0, 0, None).unwrap_err();
        assert_eq!(error, "the SCSI command REPORT ZONES was answered with status 18h, without sense data");
        let error = answer(GOOD, 3, 6, None).unwrap_err();
        assert!(error.contains("not answered: host status 03h, driver status 06h"), "{error}");
        let deferred = Sense { key: RECOVERED_ERROR, code: 0, qualifier: 0, is_deferred: true };
        assert!(answer(CHECK_CONDITION, 0, 0, Some(deferred)).unwrap_err().contains("of an earlier command"));
        let full = Sense { key: 7, code: 0x55, qualifier: 0x0E, is_deferred: false };
        let status = |sense| ScsiError::Status { command: "OPEN ZONE", status: CHECK_CONDITION, sense };
        assert!(status(Some(full)).is_open_limit() && !status(None).is_open_limit());
    }

    #[test]
    fn a_file_takes_no_command() {
        let file = tempfile::tempfile().unwrap();
        let command = Command { name: "INQUIRY", block: [0; 16], length: 6 };
        let error = execute(file.as_fd(), &command, &mut [0; 36]).unwrap_err();
        assert!(matches!(error, ScsiError::Kernel { errno: Errno::NOTTY, .. }), "{error}");
        assert!(error.into_io().to_string().contains("refused to send the SCSI command INQUIRY"));
    }
}
