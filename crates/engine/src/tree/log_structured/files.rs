//! What jobs and readers reach files by: the media, open tables, and numbers for new files.

use super::tables::Tables;
use crate::media::FileMedia;
use crate::numbers::Numbers;
use crate::options::{GrowingReadahead, Options};
use crate::table::TableBuildOptions;
use std::sync::Arc;
use varve_env::Env;

/// The files of one tree of tables. Thread-safe.
pub(super) struct TableFiles {
    pub(super) env: Env,
    pub(super) media: FileMedia,
    pub(super) options: Options,
    pub(super) tables: Arc<Tables>,
    pub(super) numbers: Numbers,
    pub(super) settings: TableSettings,
}

/// What follows from options, medium and compaction policy.
pub(super) struct TableSettings {
    /// Of a table's histogram.
    pub(super) histogram_bytes: usize,
    /// What compactions read at once.
    pub(super) compaction_readahead_bytes: usize,
    /// How iterators read ahead that do not say it themselves.
    pub(super) iterator_readahead: GrowingReadahead,
}

impl TableFiles {
    /// How tables of a level are built.
    pub(super) fn build_options(&self, level: usize) -> TableBuildOptions {
        TableBuildOptions {
            histogram_bytes: self.settings.histogram_bytes,
            ..TableBuildOptions::new(&self.options, level, self.numbers.random())
        }
    }
}
