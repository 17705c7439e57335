//! preadv2 and pwritev2: the engine that is always there, and the end of what others leave undone.

use super::submission::{Submission, Vector};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

/// Repeats a call that a signal interrupted.
pub(super) fn repeat<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => continue,
            result => return result,
        }
    }
}

/// Does a submission to its end, wherever an earlier attempt left it. What lies behind the end of
/// the file reads as zeros. `unit_bytes` is the alignment direct I/O needs, 1 for none.
pub(super) fn complete(
    file: BorrowedFd<'_>,
    submission: &mut Submission<'_, '_>,
    unit_bytes: usize,
) -> rustix::io::Result<()> {
    let length = submission.length();
    let moved = match submission.attempt.take() {
        Some(Ok(moved)) => moved,
        None | Some(Err(Errno::INTR | Errno::AGAIN)) => repeat(|| attempt(file, submission))?,
        Some(Err(errno)) => return Err(errno),
    };
    if moved >= length {
        return Ok(());
    }
    let offset_bytes = submission.offset_bytes;
    match &mut submission.vector {
        Vector::Read(slices) => {
            let mut start = 0;
            let mut ended = !moved.is_multiple_of(unit_bytes);
            for slice in slices.iter_mut() {
                let from = moved.saturating_sub(start).min(slice.len());
                read_rest(file, &mut slice[from..], offset_bytes + (start + from) as u64, unit_bytes, &mut ended)?;
                start += slice.len();
            }
        }
        Vector::ReadInto(bytes) => {
            let mut ended = !moved.is_multiple_of(unit_bytes);
            read_rest(file, &mut bytes[moved..], offset_bytes + moved as u64, unit_bytes, &mut ended)?;
        }
        Vector::Write(slices) => {
            let mut start = 0;
            for slice in slices.iter() {
                let from = moved.saturating_sub(start).min(slice.len());
                write_rest(file, &slice[from..], offset_bytes + (start + from) as u64)?;
                start += slice.len();
            }
        }
        Vector::WriteFrom(bytes) => write_rest(file, &bytes[moved..], offset_bytes + moved as u64)?,
    }
    if submission.durable {
        repeat(|| rustix::fs::fdatasync(file))?;
    }
    Ok(())
}

/// One system call for the whole submission, which may move less.
fn attempt(file: BorrowedFd<'_>, submission: &mut Submission<'_, '_>) -> rustix::io::Result<usize> {
    let offset_bytes = submission.offset_bytes;
    let flags = if submission.durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    match &mut submission.vector {
        Vector::Read(slices) => rustix::io::preadv(file, slices, offset_bytes),
        Vector::ReadInto(bytes) => rustix::io::preadv(file, &mut [IoSliceMut::new(bytes)], offset_bytes),
        Vector::Write(slices) => rustix::io::pwritev2(file, slices, offset_bytes, flags),
        Vector::WriteFrom(bytes) => rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset_bytes, flags),
    }
}

/// Fills `data`; `ended` says that the end of the file was met.
fn read_rest(
    file: BorrowedFd<'_>,
    mut data: &mut [u8],
    mut offset_bytes: u64,
    unit_bytes: usize,
    ended: &mut bool,
) -> rustix::io::Result<()> {
    while !data.is_empty() && !*ended {
        let count = repeat(|| rustix::io::pread(file, &mut *data, offset_bytes))?;
        // A direct read off the alignment has met the end of the file as much as an empty one.
        *ended = count == 0 || !count.is_multiple_of(unit_bytes);
        data = &mut data[count..];
        offset_bytes += count as u64;
    }
    data.fill(0);
    Ok(())
}

fn write_rest(file: BorrowedFd<'_>, mut data: &[u8], mut offset_bytes: u64) -> rustix::io::Result<()> {
    while !data.is_empty() {
        let count = repeat(|| rustix::io::pwrite(file, data, offset_bytes))?;
        if count == 0 {
            return Err(Errno::IO);
        }
        data = &data[count..];
        offset_bytes += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A submission that got `moved` bytes far in an earlier attempt.
    fn moved<'b, 'a>(offset_bytes: u64, vector: Vector<'b, 'a>, moved: usize) -> Submission<'b, 'a> {
        Submission { offset_bytes, vector, durable: true, attempt: Some(Ok(moved)) }
    }

    #[test]
    fn what_an_attempt_left_undone_is_done() {
        let file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..=255).cycle().take(3000).collect();
        for done in [0, 1, 999, 1000, 1001, 2999, 3000] {
            rustix::fs::ftruncate(&file, 0).unwrap();
            // The earlier attempt.
            rustix::io::pwrite(&file, &data[..done], 100).unwrap();
            let slices: Vec<IoSlice<'_>> = [&data[..1000], &[], &data[1000..]].map(IoSlice::new).into();
            complete(file.as_fd(), &mut moved(100, Vector::Write(&slices), done), 1).unwrap();
            let mut found = vec![0; 3000];
            rustix::io::pread(&file, &mut found[..], 100).unwrap();
            assert!(found == data, "{done}");
            complete(file.as_fd(), &mut moved(5000, Vector::WriteFrom(&data), 0), 1).unwrap();

            let mut found = vec![0xEE; 3000];
            found[..done].copy_from_slice(&data[..done]);
            let (head, tail) = found.split_at_mut(1700);
            let mut slices = [IoSliceMut::new(head), IoSliceMut::new(tail)];
            complete(file.as_fd(), &mut moved(100, Vector::Read(&mut slices), done), 1).unwrap();
            assert!(found == data, "{done}");
            // Over the end of the file, which is at 8000.
            let mut found = vec![0xEE; 3000];
            let from = done.min(2000);
            found[..from].copy_from_slice(&data[1000..1000 + from]);
            complete(file.as_fd(), &mut moved(6000, Vector::ReadInto(&mut found), from), 1).unwrap();
            assert!(found[..2000] == data[1000..] && found[2000..] == [0; 1000], "{done}");
        }
    }

    #[test]
    fn passing_errors_are_tried_again_and_others_reported() {
        let file = tempfile::tempfile().unwrap();
        rustix::io::pwrite(&file, b"abc", 0).unwrap();
        for (errno, expected) in [
            (Errno::INTR, Ok(())),
            (Errno::AGAIN, Ok(())),
            (Errno::IO, Err(Errno::IO)),
            (Errno::NOSPC, Err(Errno::NOSPC)),
        ] {
            let mut found = [0; 3];
            let vector = Vector::ReadInto(&mut found);
            let mut submission = Submission { offset_bytes: 0, vector, durable: false, attempt: Some(Err(errno)) };
            assert_eq!(complete(file.as_fd(), &mut submission, 1), expected);
            assert_eq!(found == *b"abc", expected.is_ok());
        }
    }
}
