//! The trees that suites run over: one line for each kind. A kind without a line does not compile, and a kind with one
//! is in every suite that draws trees or goes through them.

use varve_engine::TreeKind;
use varve_env::Random;

/// A kind of tree, as the suites see it.
pub(crate) struct TreeFixture {
    pub(crate) tree: TreeKind,
    /// Share of the histories that seeds draw.
    share: usize,
    /// Keeps data in tables: has flushes and compactions that read tables, and jobs at a limited rate.
    pub(crate) has_tables: bool,
    /// Takes `flush_key_ranges` and `compact_in_pieces`.
    pub(crate) has_ranges_and_pieces: bool,
}

const TREES: [TreeFixture; TreeKind::ALL.len()] = [
    TreeFixture { tree: TreeKind::Leveled, share: 4, has_tables: true, has_ranges_and_pieces: false },
    TreeFixture { tree: TreeKind::TwoLevel, share: 4, has_tables: true, has_ranges_and_pieces: true },
    TreeFixture { tree: TreeKind::Memory, share: 1, has_tables: false, has_ranges_and_pieces: false },
];

/// The line of a tree.
pub(crate) fn fixture(tree: TreeKind) -> &'static TreeFixture {
    TREES.iter().find(|fixture| fixture.tree == tree).expect("every kind of tree has a line in the table")
}

/// The trees that keep data in tables.
pub(crate) fn with_tables() -> impl Iterator<Item = TreeKind> {
    TREES.iter().filter(|fixture| fixture.has_tables).map(|fixture| fixture.tree)
}

/// The trees with tables besides `leveled`, which most suites run at greater length.
pub(crate) fn others_with_tables() -> impl Iterator<Item = TreeKind> {
    with_tables().filter(|tree| *tree != TreeKind::Leveled)
}

/// The trees that keep no data in tables.
pub(crate) fn without_tables() -> impl Iterator<Item = TreeKind> {
    TREES.iter().filter(|fixture| !fixture.has_tables).map(|fixture| fixture.tree)
}

/// The trees with tables, each with a seed of its own, `step` apart.
pub(crate) fn with_tables_and_seeds(first: u64, step: usize) -> impl Iterator<Item = (TreeKind, u64)> {
    with_tables().zip((first..).step_by(step))
}

/// Each of `kinds` with each of the trees.
pub(crate) fn on<K: Copy>(kinds: &[K], trees: impl Iterator<Item = TreeKind>) -> Vec<(K, TreeKind)> {
    let trees: Vec<TreeKind> = trees.collect();
    kinds.iter().flat_map(|&kind| trees.iter().map(move |&tree| (kind, tree))).collect()
}

/// A tree, drawn by the shares of the table.
pub(crate) fn draw(random: &mut Random) -> TreeKind {
    let mut place = random.index(TREES.iter().map(|fixture| fixture.share).sum());
    for fixture in &TREES {
        match place.checked_sub(fixture.share) {
            Some(rest) => place = rest,
            None => return fixture.tree,
        }
    }
    unreachable!("the shares add up")
}
