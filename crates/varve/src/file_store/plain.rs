//! `plain`: files of a directory.

use crate::error::Error;
use crate::registry::{FileStoreKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction, refused};
use std::sync::Arc;
use varve_store::{FileStore, PlainOptions, PlainStore};

pub(crate) const PLAIN: FileStoreKind = FileStoreKind {
    name: "plain",
    summary: "files of a directory; the file system places them",
    needs: "one directory",
    options: &[OptionDescription {
        name: "rotational",
        value: ValueForm::Flag,
        default: "not rotational",
        meaning: "the directory is on a disk: read ahead far",
    }],
    accepts: |base| matches!(base, Base::Directory(_)),
    is_preferred: |_| false,
    logs: None,
    open,
};

fn open(
    construction: &Construction<'_>,
    base: &Base,
    part: &Part,
    _logs: Option<&BuiltDevice>,
) -> Result<Arc<dyn FileStore>, Error> {
    let Base::Directory(directory) = base else {
        return Err(refused(part, &PLAIN, base));
    };
    let options = PlainOptions { rotational: part.has_flag("rotational"), ..PlainOptions::default() };
    Ok(Arc::new(PlainStore::open(construction.env, directory.clone(), options)))
}
