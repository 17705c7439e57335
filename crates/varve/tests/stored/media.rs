//! Media that are stored, and the manifest of what was.

use crate::history;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use varve::store::{Occupancy, OccupancyPiece, PieceUsage};
use varve::{Compression, Options, Spec, TreeKind};

/// Media, with `@` where the folder goes. Every kind that lasts, with every store that can lie on it.
pub(crate) const MEDIA: &[(&str, &str)] = &[
    ("directory", "file:@/db"),
    ("directory-logs-apart", "file:@/db?logs=file:@/logs"),
    ("disk", "disk:32MiB?backing=file:@/image"),
    ("disk-ext4", "disk:32MiB?layout=ext4,group-size=8MiB,journal-size=1MiB,backing=file:@/image"),
    ("disk-logs-apart", "disk:32MiB?backing=file:@/image,logs=(ssd:32MiB?backing=file:@/logs)"),
    ("ssd-next-fit", "ssd:32MiB?layout=next-fit,backing=file:@/image"),
    ("nvme", "nvme:32MiB?backing=file:@/image"),
    ("ram", "ram:32MiB?backing=file:@/image"),
    ("device", "dev:@/image?size=32MiB"),
    ("memory", "pmem:32MiB?backing=file:@/image"),
    ("imr", "imr:32MiB?track=64KiB,table-size=64KiB,small-files=4MiB,strict,backing=file:@/image"),
    (
        "imr-ratio",
        "imr:32MiB?track=64KiB,ratio=5/4,table-size=64KiB,small-files=4MiB,allocation=zigzag,backing=file:@/image",
    ),
    ("imr-map-inside", "imr:32MiB?track=64KiB,table-size=64KiB,small-files=4MiB,map=inside,backing=file:@/image"),
    ("imr-logs-inside", "imr:32MiB?track=128KiB,table-size=128KiB,small-files=4MiB,logs=inside,backing=file:@/image"),
    ("disk-as-imr", "disk:32MiB?store=imr,track-size=64KiB,table-size=64KiB,small-files=4MiB,backing=file:@/image"),
    ("smr", "smr:32MiB?band=256KiB,conventional=4MiB,backing=file:@/image"),
    ("smr-host-aware", "smr:32MiB?band=256KiB,conventional=4MiB,host-aware,backing=file:@/image"),
    ("hasmr", "hasmr:32MiB?zone=256KiB,cache=1MiB,extents=100,backing=file:@/image"),
    ("hasmr-device-managed", "hasmr:32MiB?zone=256KiB,cache=1MiB,extents=100,device-managed,backing=file:@/image"),
    (
        "smr-logs-apart",
        "smr:32MiB?band=256KiB,conventional=4MiB,backing=file:@/image,logs=(ssd:32MiB?backing=file:@/logs)",
    ),
    ("smr-variable", "smr:32MiB?band=16KiB,zoned-table-size=128KiB,conventional=4MiB,backing=file:@/image"),
    ("zns", "zns:40MiB?zone=256KiB,zone-capacity=192KiB,backing=file:@/image"),
    ("smr-device", "smr:32MiB?band=256KiB,conventional=4MiB,backing=(dev:@/image?size=32MiB)"),
    ("raid0", "raid0:(ssd:16MiB?backing=file:@/a+ssd:16MiB?backing=file:@/b)?chunk=16KiB"),
    ("raid1", "raid1:(ssd:16MiB?backing=file:@/a+ssd:16MiB?backing=file:@/b)"),
    ("raid4", "raid4:(ssd:16MiB?backing=file:@/a+ssd:16MiB?backing=file:@/b+ssd:16MiB?backing=file:@/c)?chunk=16KiB"),
    ("raid5", "raid5:(ssd:16MiB?backing=file:@/a+ssd:16MiB?backing=file:@/b+ssd:16MiB?backing=file:@/c)?chunk=16KiB"),
    (
        "raid6",
        "raid6:(ssd:16MiB?backing=file:@/a+ssd:16MiB?backing=file:@/b+ssd:16MiB?backing=file:@/c\
         +ssd:16MiB?backing=file:@/d)?chunk=16KiB",
    ),
    // Level 0 on the drive, which has zones for blocks of the disk as well.
    (
        "hybrid",
        "zns:1152KiB?zone=16KiB,store=hybrid,placement=basic-1,backing=file:@/drive\
         +smr:16MiB?band=32KiB,conventional=1MiB,backing=file:@/disk",
    ),
];

/// Kinds of media that carry no database by themselves yet. One that comes to do so needs a line above.
pub(crate) const WITHOUT: &[(&str, &str)] = &[];

/// Where all that was ever stored is kept: a folder for each time, numbered from 1.
pub(crate) fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stores")
}

/// Its name in the folder of each time.
pub(crate) const MANIFEST: &str = "manifest.toml";

/// What was stored at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Version of the package that wrote it.
    pub(crate) written_by: String,
    pub(crate) stores: Vec<Stored>,
}

/// One database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    /// Of the archive, without its ending.
    pub(crate) name: String,
    /// With `@` where the folder goes.
    pub(crate) spec: String,
    pub(crate) tree: TreeKind,
    pub(crate) compression: Compression,
    /// It was closed before it was stored, or else it was open.
    pub(crate) is_closed: bool,
    /// Of its [history](history::steps).
    pub(crate) seed: u64,
    pub(crate) pairs: usize,
    /// The [checksum](history::checksum) of all pairs.
    pub(crate) checksum: u32,
    /// Number of the last change.
    pub(crate) last_sequence: u64,
    /// Tables of each level, from level 0.
    pub(crate) tables: Vec<usize>,
    /// Where it is on several devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tiers: Option<OnTiers>,
}

/// What a store of several devices holds, in each of the ways that have a format of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnTiers {
    /// Files on each device that have zones of their own.
    pub(crate) files: Vec<usize>,
    /// Files of which parts lie on several devices.
    pub(crate) files_of_parts: usize,
    /// Zones of cached blocks.
    pub(crate) cached_zones: usize,
}

impl OnTiers {
    /// What this one holds.
    pub(crate) fn of(occupancy: &Occupancy) -> OnTiers {
        let devices = occupancy.devices.len();
        let is_cache = |piece: &&OccupancyPiece| piece.usage == PieceUsage::CachedBlocks;
        let mut devices_of: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for piece in occupancy.pieces.iter().filter(|piece| piece.usage == PieceUsage::Table) {
            let Some(file) = piece.file.and_then(|file| occupancy.files.get(file as usize)) else { continue };
            devices_of.entry(&file.name).or_default().insert(usize::from(piece.device));
        }
        let on = |device: usize| devices_of.values().filter(|devices| devices.contains(&device)).count();
        OnTiers {
            files: (0..devices).map(on).collect(),
            files_of_parts: devices_of.values().filter(|devices| devices.len() > 1).count(),
            cached_zones: occupancy.pieces.iter().filter(is_cache).count(),
        }
    }
}

impl Stored {
    /// What is to be stored of every medium: each with every tree, and compressed and not, and closed and not.
    pub(crate) fn all() -> Vec<Stored> {
        let mut all: Vec<Stored> = Vec::new();
        for (number, (medium, spec)) in MEDIA.iter().enumerate() {
            for (turn, tree) in TreeKind::ALL.into_iter().enumerate() {
                let turn = number + turn;
                let compression = [Compression::None, Compression::Lz4, Compression::None, Compression::Zstd][turn % 4];
                // By turns, and not in step with compression.
                let is_closed = turn / 2 % 2 == 0;
                let tree_name = match tree {
                    TreeKind::TwoLevel => "two-level",
                    TreeKind::Memory => "memory",
                    _ => "leveled",
                };
                let compression_name = format!("{compression:?}").to_lowercase();
                let end = if is_closed { "closed" } else { "open" };
                all.push(Stored {
                    name: format!("{medium}-{tree_name}-{compression_name}-{end}"),
                    spec: (*spec).to_owned(),
                    tree,
                    compression,
                    is_closed,
                    seed: all.len() as u64 + 1,
                    pairs: 0,
                    checksum: 0,
                    last_sequence: 0,
                    tables: Vec::new(),
                    tiers: None,
                });
            }
        }
        all
    }

    /// Whether files lie on devices of different speed.
    pub(crate) fn is_tiered(&self) -> bool {
        self.spec.contains("store=hybrid")
    }

    /// The same of what nobody has stored yet.
    pub(crate) fn missing() -> Vec<Stored> {
        let stored: Vec<Stored> = times().into_iter().flat_map(|(_, manifest)| manifest.stores).collect();
        let is_stored = |one: &Stored| stored.iter().any(|other| (&one.spec, one.tree) == (&other.spec, other.tree));
        Stored::all().into_iter().filter(|one| !is_stored(one)).collect()
    }

    /// The medium in `folder`.
    pub(crate) fn spec_in(&self, folder: &Path) -> Spec {
        spec_in(&self.spec, folder)
    }

    /// Options it is opened with. Sizes are small, so that there are tables in several levels.
    pub(crate) fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            tree: Some(self.tree),
            compression: self.compression,
            write_buffer_size: 64 << 10,
            target_file_size_base: 8 << 10,
            max_bytes_for_level_base: 8 << 10,
            level_compaction_dynamic_level_bytes: false,
            // What a small one gives up is what a store of several devices caches.
            block_cache_capacity: if self.is_tiered() { 4 << 10 } else { usual.block_cache_capacity },
            ..usual
        }
    }

    /// What it must hold.
    pub(crate) fn model(&self) -> history::Model {
        let mut model = history::Model::new();
        history::apply(&history::steps(self.seed), &mut model);
        model
    }
}

pub(crate) fn spec_in(spec: &str, folder: &Path) -> Spec {
    let text = spec.replace('@', &folder.display().to_string());
    Spec::parse_for_lab(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// All times at which something was stored, with their folders, from the first on.
pub(crate) fn times() -> Vec<(PathBuf, Manifest)> {
    (1..)
        .map(|number: u64| place().join(number.to_string()))
        .take_while(|folder| folder.is_dir())
        .map(|folder| {
            let path = folder.join(MANIFEST);
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let manifest = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (folder, manifest)
        })
        .collect()
}
