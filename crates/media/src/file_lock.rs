//! Files of the machine that are locked while they are open.

use rustix::fd::AsFd;
use rustix::fs::{FlockOperation, flock};
use std::ops::Deref;

/// A file and its lock (flock), which belongs to the open file: who opens it once more is refused, in this process too. Dropping it
/// releases.
#[derive(Debug)]
pub(crate) struct LockedFile<F: AsFd> {
    file: F,
}

impl<F: AsFd> LockedFile<F> {
    /// Does not wait: `AGAIN` where somebody has a lock that excludes this one.
    pub(crate) fn new(file: F, is_shared: bool) -> rustix::io::Result<Self> {
        let operation = match is_shared {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        rustix::io::retry_on_intr(|| flock(&file, operation))?;
        Ok(LockedFile { file })
    }
}

impl<F: AsFd> Deref for LockedFile<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.file
    }
}

impl<F: AsFd> Drop for LockedFile<F> {
    /// Closing is not enough: a process that this one is just starting has a copy of the open file for a moment, and with it
    /// the lock.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Once a test that started processes had another one's database locked after it was closed.
    #[test]
    fn a_copy_of_the_open_file_does_not_keep_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).unwrap();
        let file = open();
        let copy = file.try_clone().unwrap();
        let locked = LockedFile::new(file, false).unwrap();
        assert_eq!(LockedFile::new(open(), true).err(), Some(rustix::io::Errno::AGAIN));
        drop(locked);
        let readers = [(); 2].map(|()| LockedFile::new(open(), true).unwrap());
        assert_eq!(LockedFile::new(open(), false).err(), Some(rustix::io::Errno::AGAIN));
        drop(readers);
        LockedFile::new(open(), false).unwrap();
        drop(copy);
    }
}
