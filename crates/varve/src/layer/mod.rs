//! Layers over media, one file each. A new one is its file, its module and its place in the table.

mod buffer;
mod control;
mod fault;
mod media_cache;
mod relocate;
mod trace;

use crate::registry::LayerKind;
use crate::spec::Part;

/// Whether a layer of this part makes something of another shape of the medium.
pub(crate) fn changes_shape(part: &Part) -> bool {
    LAYERS.iter().any(|layer| layer.changes_shape && layer.is_asked_for(part))
}

/// Returns true if the part asks for the layer of this option.
pub(crate) fn asks_for(part: &Part, option: &str) -> bool {
    let mut layers = LAYERS.iter().filter(|layer| layer.is_asked_for(part));
    layers.any(|layer| layer.options.first().is_some_and(|first| first.name == option))
}

/// Every layer, from the medium upwards.
#[rustfmt::skip]
pub(crate) static LAYERS: &[LayerKind] = &[
    relocate::RELOCATE_LAYER,
    control::CONTROL_LAYER,
    buffer::BUFFER_LAYER,
    fault::FAULT,
    trace::TRACE,
];
