//! A distribution's kernel in a directory, with its modules, and where to have it and a shell from.

use crate::run;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How the files of modules end, and what makes them plain.
const COMPRESSIONS: &[(&str, &[&str])] =
    &[("ko", &["cat"]), ("ko.xz", &["xz", "-dc"]), ("ko.zst", &["zstd", "-dc"]), ("ko.gz", &["gzip", "-dc"])];

/// A kernel.
pub(super) struct Kernel {
    pub(super) release: String,
    pub(super) image: PathBuf,
    modules: Vec<PathBuf>,
}

impl Kernel {
    /// The kernel of a package that was unpacked into `directory`, or of a system whose root it is: of several the last by name.
    pub(super) fn at(directory: &Path) -> Result<Kernel, String> {
        let boot = directory.join("boot");
        let images = entries(&boot)?.into_iter().filter_map(|path| {
            let release = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            Some((release, path))
        });
        let (release, image) = images.max().ok_or_else(|| format!("{}: there is no vmlinuz-*", boot.display()))?;
        // Where a distribution has merged /lib and /usr/lib, either may be in the package.
        let roots = ["lib/modules", "usr/lib/modules"].map(|root| directory.join(root).join(&release));
        let root = roots.iter().find(|root| root.is_dir());
        let root = root.ok_or_else(|| format!("{}: there are no modules of {release}", directory.display()))?;
        let mut modules = Vec::new();
        let mut folders = vec![root.join("kernel")];
        while let Some(folder) = folders.pop() {
            let (directories, files): (Vec<_>, Vec<_>) = entries(&folder)?.into_iter().partition(|path| path.is_dir());
            folders.extend(directories);
            modules.extend(files);
        }
        Ok(Kernel { release, image, modules })
    }

    /// The file of a module, whose name has `_` where the file's may have `-`.
    fn file(&self, name: &str) -> Option<(&Path, &'static [&'static str])> {
        self.modules.iter().find_map(|path| {
            let (stem, end) = path.file_name()?.to_str()?.split_once('.')?;
            let (_, plain) = COMPRESSIONS.iter().find(|(known, _)| *known == end)?;
            (stem.replace('-', "_") == name.replace('-', "_")).then_some((path.as_path(), *plain))
        })
    }

    /// What is in the file of a module, plain.
    pub(super) fn module(&self, name: &str) -> Result<Vec<u8>, String> {
        let missing = || format!("Linux {} has no module {name}", self.release);
        let (path, plain) = self.file(name).ok_or_else(missing)?;
        let (program, arguments) = plain.split_first().ok_or_else(missing)?;
        let output = Command::new(program).args(arguments).arg(path).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() { Ok(output.stdout) } else { Err(format!("{program} {}: failed", path.display())) }
    }

    /// Adds a module to `modules`, behind those it needs.
    pub(super) fn add(&self, name: &str, modules: &mut Vec<String>) -> Result<(), String> {
        if modules.iter().any(|known| known == name) {
            return Ok(());
        }
        for needed in needs(&self.module(name)?) {
            self.add(&needed, modules)?;
        }
        modules.push(name.to_owned());
        Ok(())
    }
}

/// Names of the modules that a module says it needs: in its section `.modinfo`, which is texts that end with a zero.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let text = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(text);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", directory.display());
    std::fs::read_dir(directory).map_err(said)?.map(|entry| entry.map(|entry| entry.path()).map_err(said)).collect()
}

/// A kernel of this distribution, Debian: unpacked below `place`, and not installed.
pub(super) fn of_this_distribution(place: &Path) -> Result<PathBuf, String> {
    let missing = "scsi-debug: no kernel: unpack a distribution's kernel package (dpkg-deb -x PACKAGE DIR) and name it with \
        --kernel DIR; nothing was tried";
    let output = Command::new("apt-cache").args(["depends", "linux-image-amd64"]).output();
    let listed = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let package = listed.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    unpack(package.ok_or(missing)?, place, "boot").map_err(|error| format!("{missing} ({error})"))
}

/// A shell that needs no library: this machine's, if it has one, or that of a Debian package.
pub(super) fn shell(place: &Path) -> Result<PathBuf, String> {
    let here = Path::new("/bin/busybox");
    // One that is linked to libraries would not start.
    let is_static = |path: &Path| run::works("ldd", &[&path.display().to_string()]);
    if here.exists() && !is_static(here) {
        return Ok(here.to_path_buf());
    }
    let missing = "scsi-debug: there is no busybox that needs no library (Debian: apt-get install busybox-static); \
        nothing was tried";
    let unpacked = unpack("busybox-static", place, "bin/busybox").map_err(|error| format!("{missing} ({error})"))?;
    Ok(unpacked.join("bin/busybox"))
}

/// Downloads a Debian package and unpacks it below `place`, unless `wanted` of it is there already.
fn unpack(package: &str, place: &Path, wanted: &str) -> Result<PathBuf, String> {
    let directory = place.join(package);
    if directory.join(wanted).exists() {
        return Ok(directory);
    }
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let download = Command::new("apt-get").args(["download", package]).current_dir(&directory).status();
    if !download.is_ok_and(|status| status.success()) {
        return Err(format!("apt-get download {package} failed"));
    }
    let archives = entries(&directory)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "deb"));
    for archive in archives {
        let unpacked = Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&directory).status();
        if !unpacked.is_ok_and(|status| status.success()) {
            return Err(format!("dpkg-deb -x {} failed", archive.display()));
        }
    }
    if directory.join(wanted).exists() { Ok(directory) } else { Err(format!("{package} has no {wanted}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_read() {
        assert_eq!(needs(b"x\0license=GPL\0depends=scsi_mod,t10-pi\0retpoline=Y\0"), ["scsi_mod", "t10-pi"]);
        assert!(needs(b"\0depends=\0").is_empty() && needs(b"no module").is_empty());
    }

    #[test]
    fn modules_are_loaded_behind_what_they_need() {
        let place = std::env::temp_dir().join(format!("varve-scsi-debug-{}", std::process::id()));
        let modules = place.join("lib/modules/6.1/kernel/drivers");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::create_dir_all(place.join("boot")).unwrap();
        let none = Kernel::at(&place).err().unwrap();
        std::fs::write(place.join("boot/vmlinuz-6.1"), "").unwrap();
        for (name, content) in [("sd_mod.ko", "\0depends=t10-pi\0"), ("t10-pi.ko", "\0depends=\0")] {
            std::fs::write(modules.join(name), content).unwrap();
        }
        let kernel = Kernel::at(&place);
        let mut found = Vec::new();
        let added = kernel.as_ref().map(|kernel| (kernel.add("sd_mod", &mut found), kernel.add("sg", &mut Vec::new())));
        std::fs::remove_dir_all(&place).unwrap();
        assert!(none.contains("vmlinuz"), "{none}");
        let (added, missing) = added.unwrap();
        assert_eq!((added, missing), (Ok(()), Err("Linux 6.1 has no module sg".to_owned())));
        assert_eq!(found, ["t10-pi", "sd_mod"]);
    }
}
