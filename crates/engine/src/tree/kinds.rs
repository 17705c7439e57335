//! What a kind of tree is, from which everything that depends on the kind is taken.

use super::log_structured::{self, LogStructuredTree, ReadOnlyTree};
use super::{KINDS, Tree};
use crate::error::Error;
use crate::media::Media;
use crate::options::{Options, TreeKind};
use crate::repair::{Originals, RepairPlan, RepairReport};
use crate::shape::CompactionPolicy;
use varve_env::Env;

/// A kind of tree. What it is given was checked with [`Kind::check_options`]; which parts of media it needs it says itself.
pub(crate) struct Kind {
    pub(crate) tree: TreeKind,
    /// What this kind wants of options beside what every kind does.
    pub(crate) check_options: fn(&Options) -> Result<(), Error>,
    pub(crate) open: fn(&Env, Media, Options) -> Result<Box<dyn Tree>, Error>,
    pub(crate) open_read_only: fn(&Env, Media, Options) -> Result<Box<dyn Tree>, Error>,
    pub(crate) plan_repair: fn(&Env, &Media, &Options) -> Result<RepairPlan, Error>,
    pub(crate) repair: fn(&Env, Media, Options, Originals) -> Result<RepairReport, Error>,
}

/// The kind that options ask for, which suit it.
///
/// Errors: [`Error::InvalidArgument`] names an option, its value and the limit.
pub(crate) fn kind_of(options: &Options) -> Result<&'static Kind, Error> {
    let kind = &KINDS[options.tree_kind() as usize];
    debug_assert_eq!(kind.tree, options.tree_kind());
    options.validate()?;
    (kind.check_options)(options)?;
    Ok(kind)
}

/// A log-structured tree of tables with a compaction policy.
pub(super) const fn of_tables<P: CompactionPolicy + 'static>(tree: TreeKind) -> Kind {
    Kind {
        tree,
        check_options: log_structured::check_options,
        open: |env, media, options| {
            let policy = policy_of::<P>(&options);
            Ok(Box::new(LogStructuredTree::open(env, media.file_media(&options)?, options, policy)?))
        },
        open_read_only: |env, media, options| {
            Ok(Box::new(ReadOnlyTree::open(env, media.file_media(&options)?, options, policy_of::<P>)?))
        },
        plan_repair: |env, media, options| {
            log_structured::plan_repair(env, &media.file_media(options)?, options, policy_of::<P>)
        },
        repair: |env, media, options, originals| {
            log_structured::repair(env, media.file_media(&options)?, options, originals, policy_of::<P>)
        },
    }
}

fn policy_of<P: CompactionPolicy + 'static>(options: &Options) -> Box<dyn CompactionPolicy> {
    Box::new(P::new(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_where_it_is_looked_up() {
        for tree in TreeKind::ALL {
            assert_eq!(kind_of(&Options { tree: Some(tree), ..Options::default() }).unwrap().tree, tree);
        }
    }

    #[test]
    fn options_are_judged_by_the_kind_that_uses_them() {
        for tree in TreeKind::ALL {
            let refused = |options: Options| kind_of(&options).err().map(|error| error.to_string());
            let levels = refused(Options { tree: Some(tree), num_levels: 1, ..Options::default() });
            assert_eq!(levels.is_some_and(|text| text.contains("num_levels")), tree != TreeKind::Memory, "{tree:?}");
            assert!(
                refused(Options { tree: Some(tree), write_buffer_size: 1, ..Options::default() }).is_some(),
                "{tree:?}"
            );
        }
    }

    #[test]
    fn media_without_what_a_kind_needs_are_refused_by_name() {
        let env = Env::sim(1);
        for tree in TreeKind::ALL {
            let options = Options { tree: Some(tree), ..Options::default() };
            let kind = kind_of(&options).unwrap();
            let none = Media::default;
            let refused = [
                (kind.open)(&env, none(), options.clone()).err(),
                (kind.open_read_only)(&env, none(), options.clone()).err(),
                (kind.plan_repair)(&env, &none(), &options).err(),
                (kind.repair)(&env, none(), options.clone(), Originals::SetAside).err(),
            ];
            for error in refused {
                let error = error.expect("files are needed");
                assert!(matches!(&error, Error::MissingPart { part: "files", tree: name } if *name == tree.name()));
            }
        }
    }
}
