//! `cargo xtask scsi-debug [--kernel DIR]...`: real zone commands without a disk that has zones. A virtual machine boots a
//! distribution's kernel, whose `scsi_debug` makes SCSI disks of memory, host-aware and host-managed ones, and runs tests and
//! the command on them, built as cargo builds them here.
//!
//! QEMU interprets the machine: neither its processor nor a module of the kernel that runs here is needed.

mod archive;
mod kernel;

use crate::run::{self, cargo};
use archive::Archive;
use kernel::Kernel;
use std::path::{Path, PathBuf};
use std::process::Command;

const QEMU: &str = "qemu-system-x86_64";
const MEMORY_MEBIBYTES: u32 = 1536;
/// Loaded in this order with what they need; of the first two only older kernels have any need.
const MODULES: &[(&str, bool)] = &[
    ("crct10dif_generic", false),
    ("crc64_rocksoft_generic", false),
    ("sd_mod", true),
    ("sg", true),
    ("scsi_debug", true),
];
/// Where the kernel shows page B1h of the disk, and byte 8 of that of a host-aware one.
const PAGE_B1: &str = "/sys/block/sda/device/vpd_pgb1";
const HOST_AWARE: &str = "10";
/// What the block layer takes the disk for.
const BLOCK_LAYER: &str = "/sys/block/sda/queue/zoned";
/// The status of a step for which a disk is not what it needs.
const SKIPPED: &str = "skipped";
const WHY_SKIPPED: &str = "the disk does not say that it is host-aware (scsi_debug of Linux 6.12), or the kernel looks for no \
    partition on it (Linux 6.1.192), so that the block layer shows its zones all the same";

/// What `init` says behind the last step, and before the result of each.
const END: &str = "scsi-debug: end";
const RESULT: &str = "scsi-debug: step ";

/// A disk that `scsi_debug` makes.
struct Disk {
    name: &'static str,
    parameters: &'static str,
    /// Makes a partition first: kernels that know host-aware disks take those with partitions for ordinary ones.
    is_partitioned: bool,
    is_host_aware: bool,
    /// Two of them are made, for one store; else one.
    is_pair: bool,
}

const SIZES: &str = "dev_size_mb=512 zone_size_mb=8 zone_nr_conv=4 delay=0";

const DISKS: &[Disk] = &[
    Disk { name: "host-aware", parameters: "zbc=aware", is_partitioned: false, is_host_aware: true, is_pair: false },
    Disk {
        name: "host-aware with a partition",
        parameters: "zbc=aware",
        is_partitioned: true,
        is_host_aware: true,
        is_pair: false,
    },
    Disk {
        name: "host-aware in sectors of 4096 bytes",
        parameters: "zbc=aware sector_size=4096",
        is_partitioned: false,
        is_host_aware: true,
        is_pair: false,
    },
    Disk {
        name: "host-managed",
        parameters: "zbc=managed",
        is_partitioned: false,
        is_host_aware: false,
        is_pair: false,
    },
    Disk {
        name: "two host-managed",
        parameters: "zbc=managed num_tgts=2",
        is_partitioned: false,
        is_host_aware: false,
        is_pair: true,
    },
];

/// Steps on a pair of disks. `scsi_debug` says of both that they do not rotate, so their tiers must be given.
const PAIR_STEPS: &[&str] = &[
    "! varve media format dev:/dev/sda?store=hybrid+dev:/dev/sdb --overwrite",
    "varve media format dev:/dev/sda?store=hybrid,tiers=01+dev:/dev/sdb --overwrite",
    "varve bench dev:/dev/sda?store=hybrid,tiers=01,placement=basic-1,tiered-table-size=2MiB+dev:/dev/sdb fillrandom readrandom \
     --num 20000 --verify -o write_buffer_size=2MiB",
    "varve check dev:/dev/sda?store=hybrid,tiers=01+dev:/dev/sdb",
    "varve media format dev:/dev/sda?store=hybrid,random-reads=17000+dev:/dev/sdb?random-reads=115 --overwrite",
    "varve media describe dev:/dev/sda?store=hybrid,random-reads=17000+dev:/dev/sdb?random-reads=115",
];

/// The steps of a disk or of a pair.
fn steps_of(disk: &Disk) -> Vec<&'static str> {
    match disk.is_pair {
        true => PAIR_STEPS.to_vec(),
        false => STEPS.iter().filter(|step| disk.is_host_aware || !step.1).map(|step| step.0).collect(),
    }
}

/// Steps on each disk: what is run, and whether only a host-aware disk can. The command knows such a disk by what it says of
/// itself, and the tests that are told of it do not need that.
const STEPS: &[(&str, bool)] = &[
    ("VARVE_ZONED_DEVICE=/dev/sda media zoned_block_device --nocapture", false),
    ("VARVE_HOST_AWARE_DEVICE=/dev/sda media host_aware_disk --nocapture", true),
    ("varve media describe dev:/dev/sda", false),
    ("varve media describe dev:/dev/sg0", true),
    ("varve media format dev:/dev/sda?store=band --overwrite", false),
    ("varve bench dev:/dev/sda?store=band fillrandom readrandom --num 20000 --verify -o write_buffer_size=4MiB", false),
    ("varve check dev:/dev/sda?store=band", false),
    ("varve media format dev:/dev/sda?store=extent --overwrite", true),
    (
        "varve bench dev:/dev/sda?store=extent fillrandom readrandom --num 20000 --verify -o write_buffer_size=4MiB",
        true,
    ),
    ("varve put dev:/dev/sda?store=extent key value", true),
    ("varve get dev:/dev/sda?store=extent key", true),
    ("varve check dev:/dev/sda?store=extent", true),
    (
        "varve bench dev:/dev/sda?store=extent,control=idler,control-cache=64MiB,control-extents=1000 overwrite --num 20000 \
         --verify --use-existing -o write_buffer_size=4MiB",
        true,
    ),
    (
        "varve media format dev:/dev/sda?store=extent,relocate=anew,relocate-cache=64MiB,relocate-extents=1000 --overwrite",
        true,
    ),
    (
        "varve bench dev:/dev/sda?store=extent,relocate=on,relocate-cache=64MiB,relocate-extents=1000 fillrandom readrandom \
         --num 20000 --verify -o write_buffer_size=4MiB",
        true,
    ),
];

/// See the module.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut directories: Vec<PathBuf> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match (argument.as_str(), rest.next()) {
            ("--kernel", Some(directory)) => directories.push(directory.into()),
            _ => return Err(format!("cargo xtask scsi-debug [--kernel DIR]..., found '{argument}'")),
        }
    }
    if !run::works(QEMU, &["--version"]) && !run::install(&["qemu-system-x86"]) {
        return Err(format!(
            "scsi-debug: there is no {QEMU} (Debian: apt-get install qemu-system-x86); nothing was tried"
        ));
    }
    let place = run::target().join("scsi-debug");
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let shell = kernel::shell(&place)?;
    if directories.is_empty() {
        directories.push(kernel::of_this_distribution(&place)?);
    }
    let programs =
        [("media", test_program("varve-media")?), ("store", test_program("varve-store")?), ("varve", command()?)];
    let mut failed = 0;
    for directory in &directories {
        let kernel = Kernel::at(directory)?;
        let image = place.join(format!("initramfs-{}", kernel.release));
        archive_of(&kernel, &shell, &programs)?.write(&image)?;
        failed += boot(&kernel, &image)?;
    }
    if failed == 0 { Ok(()) } else { Err(format!("scsi-debug: {failed} steps failed")) }
}

/// Builds the unit tests of a package; the program that they are.
fn test_program(package: &str) -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["test", "--package", package, "--lib", "--no-run", "--message-format", "json"]);
    executable(&format!("build the tests of {package}"), build)
}

/// Builds the command.
fn command() -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--package", "varve-cli", "--bin", "varve", "--message-format", "json"]);
    executable("build the command", build)
}

/// The last program that cargo says it built.
fn executable(what: &str, mut build: Command) -> Result<PathBuf, String> {
    eprintln!("== {what}");
    let output = build.stderr(std::process::Stdio::inherit()).output().map_err(|error| format!("{what}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{what}: failed ({})", output.status));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let found = messages.filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?))).next_back();
    found.ok_or_else(|| format!("{what}: cargo named no program"))
}

/// The first file system of the machine: shell, modules, programs with the libraries they are linked to, and `init`.
fn archive_of(kernel: &Kernel, shell: &Path, programs: &[(&str, PathBuf)]) -> Result<Archive, String> {
    let mut archive = Archive::default();
    for directory in ["proc", "sys", "dev", "tmp"] {
        archive.directory(Path::new(directory));
    }
    archive.file(Path::new("bin/busybox"), &read(shell)?);
    for (name, program) in programs {
        archive.file(&Path::new("bin").join(name), &read(program)?);
        for library in libraries(program)? {
            archive.file(library.strip_prefix("/").unwrap_or(&library), &read(&library)?);
        }
    }
    let mut modules = Vec::new();
    for (name, is_needed) in MODULES {
        match kernel.add(name, &mut modules) {
            Err(error) if *is_needed => return Err(error),
            _ => {}
        }
    }
    for name in &modules {
        archive.file(&Path::new("modules").join(name), &kernel.module(name)?);
    }
    archive.file(Path::new("init"), init(&modules).as_bytes());
    Ok(archive)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Shared libraries of a program, by absolute path.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// The script that is the machine's first process.
fn init(modules: &[String]) -> String {
    let mut script = "#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\nmount -t proc p /proc\n\
        mount -t sysfs s /sys\nmount -t devtmpfs d /dev\nmount -t tmpfs t /tmp\n"
        .to_owned();
    for module in modules.iter().filter(|name| *name != "scsi_debug") {
        script += &format!("insmod /modules/{module}\n");
    }
    for disk in DISKS {
        let Disk { name, parameters, is_partitioned, is_host_aware, is_pair } = disk;
        let last = if *is_pair { "/dev/sdb" } else { "/dev/sda" };
        // A disk is there some time behind its module.
        script += &format!(
            "insmod /modules/scsi_debug {SIZES} {parameters}\n\
            for i in 1 2 3 4 5 6 7 8 9; do [ -b {last} ] && [ -f {PAGE_B1} ] && break; sleep 1; done\nsleep 1\n"
        );
        if *is_partitioned {
            // One of 16 MiB, in the table as of old; the kernel looks at the disk anew, once nobody else does.
            script += &format!(
                "printf '\\0\\0\\0\\0\\203\\0\\0\\0\\0\\200\\0\\0\\0\\200\\0\\0' | dd of=/dev/sda bs=1 seek=446\n\
                printf '\\125\\252' | dd of=/dev/sda bs=1 seek=510\nsync\n\
                for i in 1 2 3; do blockdev --rereadpt /dev/sda; echo 1 > /sys/block/sda/device/rescan\n\
                [ -b /dev/sda1 ] && [ $(cat {BLOCK_LAYER}) = none ] && break; sleep 1; done\n\
                [ $(cat {BLOCK_LAYER}) = none ] && status=0 || status={SKIPPED}\n\
                echo \"{RESULT}$status {name}: it is an ordinary disk to the block layer\"\n"
            );
        }
        // ZONED of page B1h, as the kernel read it when it found the disk.
        script += &format!(
            "zoned=$(dd if={PAGE_B1} bs=1 skip=8 count=1 | od -An -tx1 | tr -d ' ')\n\
            echo \"== $(uname -r), {name}: block layer: $(cat {BLOCK_LAYER}), page B1h: $zoned\"\n"
        );
        for step in steps_of(disk) {
            let run = format!(
                "echo '$ {step}'\n{step} > /tmp/said 2>&1\nstatus=$?\ncat /tmp/said; echo\n\
                echo \"{RESULT}$status {name}: {step}\"\n"
            );
            script += &match step.starts_with("varve ") && *is_host_aware {
                true => format!(
                    "if [ \"$zoned\" = {HOST_AWARE} ]; then\n{run}else\necho '{RESULT}{SKIPPED} {name}: {step}'\nfi\n"
                ),
                false => run,
            };
        }
        script += "rmmod scsi_debug\n";
    }
    script + &format!("echo '{END}'\npoweroff -f\n")
}

/// Boots the machine, prints what it says; the number of steps that failed.
fn boot(kernel: &Kernel, image: &Path) -> Result<usize, String> {
    let what = format!("Linux {} in {QEMU}", kernel.release);
    eprintln!("\n== {what}");
    let mut machine = Command::new(QEMU);
    machine
        .args(["-accel", "tcg", "-cpu", "Nehalem", "-nographic", "-no-reboot", "-nic", "none"])
        .args(["-m", &MEMORY_MEBIBYTES.to_string(), "-append", "console=ttyS0 panic=-1 quiet", "-kernel"])
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(image)
        .stdin(std::process::Stdio::null());
    let mut said = String::new();
    let end = run::follow(&what, machine, |_, line| {
        // What the firmware says before has codes for a screen in it.
        if line.starts_with("== ") || !said.is_empty() {
            println!("{line}");
            said += line;
            said.push('\n');
        }
    })?;
    let results = results(&said).ok_or_else(|| format!("{what}: it stopped before its end"))?;
    println!();
    let count = |wanted: &str| results.iter().filter(|(status, _)| *status == wanted).count();
    let (passed, skipped) = (count("0"), count(SKIPPED));
    let failed = results.len() - passed - skipped;
    for (status, step) in &results {
        let outcome = match *status {
            "0" => "passed",
            SKIPPED => SKIPPED,
            _ => "FAILED",
        };
        println!("{outcome} {}: {step}", kernel.release);
    }
    if skipped > 0 {
        println!("skipped: {WHY_SKIPPED}");
    }
    let seconds = end.elapsed.as_secs();
    println!("Linux {}: {passed} steps passed, {failed} failed, {skipped} skipped, {seconds} s", kernel.release);
    Ok(failed)
}

/// Status and name of each step, of a machine that came to its end.
fn results(said: &str) -> Option<Vec<(&str, &str)>> {
    let mut lines = said.lines().map(str::trim_end);
    let results = lines.clone().filter_map(|line| line.strip_prefix(RESULT)?.split_once(' ')).collect();
    lines.any(|line| line == END).then_some(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_a_machine_that_came_to_its_end() {
        let said = "noise\r\nscsi-debug: step 0 a: b c\r\nscsi-debug: step 101 a: d\r\nscsi-debug: end\r\n";
        assert_eq!(results(said), Some(vec![("0", "a: b c"), ("101", "a: d")]));
        assert_eq!(results("scsi-debug: step 0 a: b c\r\n"), None);
    }

    #[test]
    fn each_disk_gets_the_steps_it_can() {
        let script = init(&["sd_mod".to_owned(), "scsi_debug".to_owned()]);
        let lines = |start: &str| script.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("insmod /modules/scsi_debug "), DISKS.len());
        assert_eq!(lines("insmod /modules/sd_mod"), 1);
        let steps: usize = DISKS.iter().map(|disk| steps_of(disk).len()).sum();
        let partitioned = DISKS.iter().filter(|disk| disk.is_partitioned).count();
        assert_eq!(script.matches(&format!("{RESULT}$status")).count(), steps + partitioned);
        assert_eq!(lines("VARVE_HOST_AWARE_DEVICE"), DISKS.iter().filter(|disk| disk.is_host_aware).count());
    }
}
