//! `file:` a directory of the machine.

use crate::error::Error;
use crate::registry::{ArgumentDescription, KindDescription, MediumKind, ValueForm};
use crate::spec::{Part, SpecErrorKind};
use crate::stack::{Base, Construction, DEVICES_EXPECTED};
use std::sync::Arc;
use varve_media::{MediaError, MediaErrorKind, OsDirectory};

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
    let opened = if construction.create { OsDirectory::create(&path) } else { OsDirectory::open(&path) };
    match opened {
        Ok(directory) => Ok(Base::Directory(Arc::new(directory))),
        Err(error) if !construction.create && error.kind() == MediaErrorKind::NotFound => {
            Err(Error::missing(path.display().to_string()))
        }
        Err(MediaError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotADirectory => {
            let advice = format!("name a directory; dev:{} uses a file or a disk as a device", path.display());
            Err(Error::Foreign { name: path.display().to_string(), found: "not a directory".to_owned(), advice })
        }
        Err(error) => Err(error.into()),
    }
}
