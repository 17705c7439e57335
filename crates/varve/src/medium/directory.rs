//! `file:` a directory of the machine.

use crate::error::Error;
use crate::registry::{ArgumentDescription, KindDescription, MediumKind, ValueForm, file_mode};
use crate::spec::{Part, SpecErrorKind};
use crate::stack::{Base, Construction, DEVICES_EXPECTED};
use std::path::Path;
use std::sync::Arc;
use varve_media::{MadePlace, MediaError, MediaErrorKind, OsDirectory};

pub(crate) const FILE: MediumKind = MediumKind {
    description: KindDescription {
        name: "file",
        summary: "a directory of this machine; a bare path means the same",
        argument: ArgumentDescription {
            value: ValueForm::Path,
            default: None,
            meaning: "the directory; made when it is not there",
        },
        options: &[],
        examples: &["file:/var/lib/varve", "file:data?logs=/mnt/nvme/logs"],
    },
    is_emulated: false,
    build,
};

fn build(construction: &Construction<'_>, part: &Part) -> Result<Base, Error> {
    let Some(path) = part.argument_path() else {
        return Err(part.argument_error(SpecErrorKind::Missing, "a path").into());
    };
    if construction.describe {
        return Err(part.kind_error(SpecErrorKind::Combination, DEVICES_EXPECTED).into());
    }
    let mode = file_mode(part)?;
    let opened = match construction.create {
        true => OsDirectory::create_with_mode(&path, mode),
        false => OsDirectory::open(&path).map(|directory| directory.with_mode(mode)),
    };
    match opened {
        Ok(directory) => {
            directory.made().iter().for_each(|path| construction.note_made(MadePlace::Directory(path.clone())));
            Ok(Base::Directory(Arc::new(directory)))
        }
        Err(error) if !construction.create && error.kind() == MediaErrorKind::NotFound => {
            Err(Error::missing(path.display().to_string()))
        }
        Err(MediaError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(not_a_directory(&path, "below what is".to_owned()))
        }
        Err(MediaError::Unsuitable { found, .. }) if !path.is_dir() => Err(not_a_directory(&path, format!("{found},"))),
        Err(error) => Err(error.into()),
    }
}

fn not_a_directory(path: &Path, found: String) -> Error {
    let name = path.display().to_string();
    let advice = match path.is_file() {
        true => format!("name a directory; dev:{name} uses a file or a disk as a device"),
        false => "name a directory".to_owned(),
    };
    Error::Foreign { name, found: format!("{found} not a directory"), advice }
}
