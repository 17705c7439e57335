//! Stores on emulated media, for the experiments that load and measure one.

use super::Scale;
use crate::error::LabError;
use crate::target::{Target, VarveTarget};
use std::sync::Arc;
use varve::env::Env;
use varve::media::Device;
use varve::stack::{Stack, StackBuilder};
use varve::{DatabaseBuilder, MediaImage, Options, Spec, Varve};

/// The disk of the experiments: 7200 rpm, 500 GB.
pub(super) const DISK: &str = "disk:500GB?model=st500dm002";

/// The solid-state drive of the experiments: SATA, 1 TB.
pub(super) const SSD: &str = "ssd:1TB?model=sata-ssd";

/// Opens a new database on the medium `spec`.
pub(super) fn open(env: &Env, spec: &str, options: &Options) -> Result<Arc<dyn Target>, LabError> {
    Ok(Arc::new(open_varve(env, spec, options)?))
}

/// The same, as what it is.
pub(super) fn open_varve(env: &Env, spec: &str, options: &Options) -> Result<VarveTarget, LabError> {
    open_with(Varve::builder().env(env).options(options.clone()), spec)
}

/// Opens the database that an image holds, on the medium `spec` it was taken of.
pub(super) fn reopen_varve(
    env: &Env,
    spec: &str,
    options: &Options,
    image: &MediaImage,
) -> Result<VarveTarget, LabError> {
    open_with(Varve::builder().env(env).options(options.clone()).begin_with(image), spec)
}

fn open_with(builder: DatabaseBuilder, spec: &str) -> Result<VarveTarget, LabError> {
    builder.open_spec(&parse(spec)?).map(VarveTarget::of).map_err(|error| LabError::Target {
        target: spec.to_owned(),
        operation: "open",
        error: error.into(),
    })
}

/// The first device of a spec, without a store.
///
/// # Errors
/// A spec that names no device.
pub(super) fn bare(env: &Env, spec: &str) -> Result<Device, LabError> {
    let invalid = |reason: String| LabError::invalid("medium", reason);
    let devices = StackBuilder::new(env).devices(&parse(spec)?).map_err(|error| invalid(error.to_string()))?;
    let first = devices.first().ok_or_else(|| invalid(format!("{spec} has no device")))?;
    Ok(first.device().clone())
}

/// The stores of a spec, without a database.
///
/// # Errors
/// A spec that nothing can be built from.
pub(super) fn stack(env: &Env, spec: &str) -> Result<Stack, LabError> {
    StackBuilder::new(env).build(&parse(spec)?).map_err(|error| LabError::invalid("medium", error.to_string()))
}

fn parse(spec: &str) -> Result<Spec, LabError> {
    Spec::parse_for_lab(spec).map_err(|error| LabError::invalid("medium", error.to_string()))
}

/// Default options with every size divided, so that a tree over less data has the shape of the full
/// one. Blocks keep their size, as sectors and pages do.
pub(super) fn scaled_options(scale: Scale) -> Options {
    let full = Options::default();
    let size = |bytes: u64, least: u64| scale.of(bytes).max(least.min(bytes));
    Options {
        write_buffer_size: size(full.write_buffer_size as u64, 64 << 10) as usize,
        max_bytes_for_level_base: size(full.max_bytes_for_level_base, 256 << 10),
        target_file_size_base: size(full.target_file_size_base, 64 << 10),
        max_compaction_bytes: size(full.max_compaction_bytes, 1 << 20),
        soft_pending_compaction_bytes_limit: size(full.soft_pending_compaction_bytes_limit, 1 << 20),
        hard_pending_compaction_bytes_limit: size(full.hard_pending_compaction_bytes_limit, 4 << 20),
        block_cache_capacity: size(full.block_cache_capacity as u64, 64 << 10) as usize,
        ..full
    }
}

/// What the medium of a run is: its spec, its constants, and the version of the processor costs.
pub(super) fn describe(report: &mut crate::report::Report, spec: &str, options: &Options) {
    report.condition("medium", spec);
    report.condition("processor cost constants", format!("version {}", varve::engine::cost::VERSION));
    report.condition("write_buffer_size", options.write_buffer_size);
    report.condition("max_bytes_for_level_base", options.max_bytes_for_level_base);
    report.condition("target_file_size_base", options.target_file_size_base);
    report.condition("block_cache_capacity", options.block_cache_capacity);
    report.condition("max_background_jobs", options.max_background_jobs);
}
