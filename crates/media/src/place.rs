//! Places of the machine where data shall be: what is there, and who may read what is made.

use crate::directory::{Directory, OsDirectory};
use crate::error::{MediaError, Operation};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a place has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Directory,
    File,
    FileOrBlockDevice,
}

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Wanted::Directory => "a directory",
            Wanted::File => "a regular file",
            Wanted::FileOrBlockDevice => "a regular file or a block device",
        }
    }

    fn is_met_by(self, found: &std::fs::FileType) -> bool {
        match self {
            Wanted::Directory => found.is_dir(),
            Wanted::File => found.is_file(),
            Wanted::FileOrBlockDevice => found.is_file() || found.is_block_device(),
        }
    }
}

/// File systems without data of anybody's, by the number statfs gives: writing to them tells the kernel to do something.
const OF_THE_KERNEL: &[(u32, &str)] = &[
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0x6165_676c, "pstore"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x1980_0202, "mqueue"),
    (0x0000_1cd1, "devpts"),
    (0x6e73_6673, "nsfs"),
    (0x6573_5543, "fusectl"),
];

/// An error when something is at `path` that cannot be what is wanted: another type of file, or anything of a file system
/// in which the kernel shows its state. Only asks; a pipe or a device is not so much as opened. Nothing there is no error,
/// nor is what cannot be asked about: opening it tells.
pub(crate) fn check(path: &Path, wanted: Wanted) -> Result<(), MediaError> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    let found = metadata.file_type();
    check_type(path, &found, wanted)?;
    if found.is_block_device() {
        return Ok(());
    }
    // The numbers have 32 bits in types of several widths.
    let kernel = rustix::fs::statfs(path).ok().and_then(|found| {
        let number = found.f_type as u32;
        OF_THE_KERNEL.iter().find(|(known, _)| *known == number)
    });
    match kernel {
        Some((_, name)) => Err(unsuitable(path, format!("part of {name}, where the kernel shows its state"), wanted)),
        None => Ok(()),
    }
}

/// The same about the type alone, for what was opened: it may have changed since.
pub(crate) fn check_type(path: &Path, found: &std::fs::FileType, wanted: Wanted) -> Result<(), MediaError> {
    if wanted.is_met_by(found) { Ok(()) } else { Err(unsuitable(path, name_of(found).to_owned(), wanted)) }
}

fn unsuitable(path: &Path, found: String, wanted: Wanted) -> MediaError {
    MediaError::Unsuitable {
        device: path.display().to_string(),
        operation: Operation::Open,
        found,
        expected: wanted.name().to_owned(),
    }
}

fn name_of(found: &std::fs::FileType) -> &'static str {
    match found {
        found if found.is_file() => "a regular file",
        found if found.is_dir() => "a directory",
        found if found.is_fifo() => "a named pipe",
        found if found.is_socket() => "a socket",
        found if found.is_char_device() => "a character device",
        found if found.is_block_device() => "a block device",
        _ => "a special file",
    }
}

/// Whether a file can be an image, see [`crate::FileBacking`], as far as can be told without opening it.
///
/// # Errors
/// [`MediaError::Unsuitable`] when it is there and no regular file, or one in which the kernel shows its state.
pub fn check_image_path(path: &Path) -> Result<(), MediaError> {
    check(path, Wanted::File)
}

/// Opens the regular file at `path` as `options` say; where it may be created, with these permissions. Whether it was.
pub(crate) fn open_file(
    path: &Path,
    options: &mut OpenOptions,
    create: Option<FileMode>,
) -> Result<(File, bool), MediaError> {
    check(path, Wanted::File)?;
    let name = || path.display().to_string();
    let failed = |error: Error| match error.kind() {
        ErrorKind::NotFound => MediaError::NotFound { device: name(), operation: Operation::Open, name: name() },
        _ => MediaError::io(&name(), Operation::Open, 0, error),
    };
    // NONBLOCK: a pipe that came there since must not hang the open; regular files ignore it.
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    // Who makes it is to be known.
    let made = create.map(|mode| options.mode(mode.of_files()).clone().create_new(true).open(path));
    let (file, was_made) = match made {
        Some(Ok(file)) => (file, true),
        Some(Err(error)) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        // It may be a link to what is not there yet.
        _ => (options.create(create.is_some()).open(path).map_err(failed)?, false),
    };
    check_type(path, &file.metadata().map_err(failed)?.file_type(), Wanted::File)?;
    Ok((file, was_made))
}

/// Makes the directory at `path` and its parents with these permissions, durably; those that were not there, the deepest
/// last.
pub(crate) fn make_directories(path: &Path, mode: u32) -> std::io::Result<Vec<PathBuf>> {
    use std::os::unix::fs::DirBuilderExt;
    let mut missing: Vec<PathBuf> =
        path.ancestors().take_while(|ancestor| !ancestor.exists()).map(Path::to_path_buf).collect();
    missing.reverse();
    let mut made = Vec::new();
    for directory in missing {
        match std::fs::DirBuilder::new().mode(mode).create(&directory) {
            Ok(()) => made.push(directory.clone()),
            // Somebody else was quicker: it is theirs.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(error),
        }
        // The name of a new directory lives in its parent and is durable when that is synced.
        if let Some(parent) = directory.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
    }
    Ok(made)
}

/// A place that was made for something, and can be taken away again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadePlace {
    /// A file.
    File(PathBuf),
    /// A directory.
    Directory(PathBuf),
}

impl MadePlace {
    /// Takes it away; a directory only when nothing is in it but the file that is locked while it is open, `lock`.
    ///
    /// # Errors
    /// [`MediaError::Locked`] when somebody else has it open by now; what the operating system says.
    pub fn remove(&self, lock: &str) -> Result<(), MediaError> {
        let (MadePlace::File(path) | MadePlace::Directory(path)) = self;
        let failed = |error| MediaError::io(&path.display().to_string(), Operation::Remove, 0, error);
        if matches!(self, MadePlace::File(_)) {
            return std::fs::remove_file(path).map_err(failed);
        }
        let directory = OsDirectory::open(path)?;
        if directory.list()?.iter().map(|entry| entry.name.as_str()).eq([lock]) {
            // Who waits for the lock finds the directory gone.
            let _held = directory.lock(lock)?;
            directory.remove(lock)?;
        }
        std::fs::remove_dir(path).map_err(failed)
    }
}

/// Permissions of files that are made, less what the umask takes. Directories can be searched by whoever may read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    /// For the owner only, 0600: data is for whoever wrote it.
    pub const OWNER: FileMode = FileMode(0o600);

    /// The mode of these octal digits, as in `640`. `None` unless the owner may read and write (the databases could not be
    /// used), and nobody execute.
    pub fn parse(digits: &str) -> Option<FileMode> {
        let is_octal = (3..=4).contains(&digits.len()) && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let bits = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal)?;
        (bits & 0o600 == 0o600 && bits & !0o666 == 0).then_some(FileMode(bits))
    }

    /// Of files.
    pub(crate) fn of_files(self) -> u32 {
        self.0
    }

    /// Of directories: 0700 for 0600, 0750 for 0640.
    pub(crate) fn of_directories(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }
}

impl Default for FileMode {
    fn default() -> Self {
        FileMode::OWNER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_leave_the_owner_what_he_needs() {
        for (digits, files, directories) in
            [("600", 0o600, 0o700), ("0640", 0o640, 0o750), ("664", 0o664, 0o775), ("666", 0o666, 0o777)]
        {
            let mode = FileMode::parse(digits).expect(digits);
            assert_eq!((mode.of_files(), mode.of_directories()), (files, directories));
        }
        for digits in ["", "6", "60", "06000", "0o640", "+640", "400", "755", "1666", "68x", "648"] {
            assert_eq!(FileMode::parse(digits), None, "{digits}");
        }
    }

    #[test]
    fn what_is_there_is_named_and_not_opened() {
        let place = tempfile::tempdir().expect("a directory");
        let at = |name: &str| place.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), 0o600.into()).expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        std::fs::write(at("file"), b"").expect("a file");
        std::os::unix::fs::symlink(at("pipe"), at("link")).expect("a link");
        let cases = [
            (at("pipe"), Wanted::File, Some("a named pipe")),
            (at("link"), Wanted::FileOrBlockDevice, Some("a named pipe")),
            (at("socket"), Wanted::File, Some("a socket")),
            (place.path().to_path_buf(), Wanted::File, Some("a directory")),
            (at("file"), Wanted::Directory, Some("a regular file")),
            ("/dev/null".into(), Wanted::FileOrBlockDevice, Some("a character device")),
            ("/proc".into(), Wanted::Directory, Some("part of proc")),
            ("/proc/version".into(), Wanted::File, Some("part of proc")),
            ("/sys/kernel".into(), Wanted::Directory, Some("part of sysfs")),
            (at("file"), Wanted::File, None),
            (at("nothing"), Wanted::File, None),
            (place.path().to_path_buf(), Wanted::Directory, None),
        ];
        for (path, wanted, found) in cases {
            // Where a container has no such file systems there is nothing to refuse.
            if found.is_some() && !path.exists() {
                continue;
            }
            match (check(&path, wanted), found) {
                (Ok(()), None) => {}
                (Err(error), Some(found)) => assert!(error.to_string().contains(found), "{error}"),
                (result, _) => panic!("{}: {result:?}", path.display()),
            }
        }
    }
}
