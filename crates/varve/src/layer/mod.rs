//! Layers over media, one file each. A new one is its file, its module and its place in the table.

mod buffer;
mod control;
mod fault;
mod relocate;
mod trace;

use crate::registry::LayerKind;
use crate::spec::Part;

/// Whether a layer of this part makes something of another shape of the medium.
pub(crate) fn changes_shape(part: &Part) -> bool {
    let is_asked_for =
        |layer: &LayerKind| layer.options.first().is_some_and(|option| part.option(option.name).is_some());
    LAYERS.iter().any(|layer| layer.changes_shape && is_asked_for(layer))
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
