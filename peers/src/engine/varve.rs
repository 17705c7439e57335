//! Varve.

use super::{BACKGROUND_THREADS, BLOCK_BYTES, Budget, WRITE_BUFFERS};
use std::path::Path;
use varve::env::Env;
use varve::{Compression, Options, Spec};
use varve_lab::target::{TargetError, VarveTarget};

pub(super) fn open(directory: &Path, budget: Budget) -> Result<VarveTarget, TargetError> {
    let options = Options {
        write_buffer_size: budget.write_buffer_bytes,
        max_write_buffer_number: WRITE_BUFFERS,
        max_background_jobs: BACKGROUND_THREADS,
        block_size: BLOCK_BYTES,
        bloom_bits_per_key: budget.filter_bits,
        compression: Compression::None,
        block_cache_capacity: budget.cache_bytes,
        use_direct_reads: budget.direct_reads,
        ..Options::default()
    };
    let spec: Spec = format!("file:{}", directory.display()).parse()?;
    Ok(VarveTarget::open(&Env::real(), &spec, options)?)
}
