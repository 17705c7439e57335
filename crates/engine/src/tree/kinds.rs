//! The kinds of trees there are: one table, from which everything that depends on the kind is taken.

use super::Tree;
use super::log_structured::{self, LogStructuredTree, ReadOnlyTree};
use super::memory;
use crate::error::Error;
use crate::media::Media;
use crate::options::{Options, TreeKind};
use crate::policy::{Leveled, TwoLevel};
use crate::repair::{Originals, RepairPlan, RepairReport};
use crate::shape::CompactionPolicy;
use varve_env::Env;

/// A kind of tree. The options it gets were checked.
pub(crate) struct Kind {
    pub(crate) tree: TreeKind,
    pub(crate) open: fn(&Env, Media, Options) -> Result<Box<dyn Tree>, Error>,
    pub(crate) open_read_only: fn(&Env, Media, Options) -> Result<Box<dyn Tree>, Error>,
    pub(crate) plan_repair: fn(&Env, &Media, &Options) -> Result<RepairPlan, Error>,
    pub(crate) repair: fn(&Env, Media, Options, Originals) -> Result<RepairReport, Error>,
}

/// In the order of [`TreeKind`]. A new one is a line here.
static KINDS: [Kind; 3] =
    [of_tables::<Leveled>(TreeKind::Leveled), of_tables::<TwoLevel>(TreeKind::TwoLevel), memory::KIND];

/// The kind that options ask for.
pub(crate) fn kind_of(options: &Options) -> &'static Kind {
    let kind = &KINDS[options.tree as usize];
    debug_assert_eq!(kind.tree, options.tree);
    kind
}

/// A log-structured tree of tables with a compaction policy.
const fn of_tables<P: CompactionPolicy + 'static>(tree: TreeKind) -> Kind {
    Kind {
        tree,
        open: |env, media, options| {
            let policy = policy_of::<P>(&options);
            Ok(Box::new(LogStructuredTree::open(env, media, options, policy)?))
        },
        open_read_only: |env, media, options| Ok(Box::new(ReadOnlyTree::open(env, media, options, policy_of::<P>)?)),
        plan_repair: |env, media, options| log_structured::plan_repair(env, media, options, policy_of::<P>),
        repair: |env, media, options, originals| log_structured::repair(env, media, options, originals, policy_of::<P>),
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
            assert_eq!(kind_of(&Options { tree, ..Options::default() }).tree, tree);
        }
        assert_eq!(KINDS.len(), TreeKind::ALL.len());
    }
}
