//! Layers over media, one file each. A new one is its file, its module and its place in the table.

mod buffer;
mod control;
mod fault;
mod trace;

use crate::registry::LayerKind;

/// Every layer, from the medium upwards.
#[rustfmt::skip]
pub(crate) static LAYERS: &[LayerKind] = &[
    control::CONTROL_LAYER,
    buffer::BUFFER_LAYER,
    fault::FAULT,
    trace::TRACE,
];
