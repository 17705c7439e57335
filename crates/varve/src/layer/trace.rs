//! `trace=` every call, one line each, into a file.

use crate::error::Error;
use crate::registry::{LayerKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction};
use std::sync::Arc;
use varve_media::{FileTrace, MediaError, Operation, TextTrace, TraceDevice, TraceDirectory, TraceSink};

pub(crate) const TRACE: LayerKind = LayerKind {
    options: &[OptionDescription {
        name: "trace",
        value: ValueForm::Path,
        default: "no trace",
        meaning: "file that gets one line per call of the medium",
    }],
    changes_shape: false,
    wrap,
};

fn wrap(construction: &Construction<'_>, base: Base, part: &Part) -> Result<Base, Error> {
    let Some(path) = part.path("trace")?.filter(|_| !construction.describe) else { return Ok(base) };
    let trace: Arc<FileTrace> = Arc::new(
        TextTrace::create(&path)
            .map_err(|error| MediaError::io(&path.display().to_string(), Operation::Open, 0, error))?,
    );
    construction.handles.borrow_mut().traces.push(trace.clone());
    let sink: Arc<dyn TraceSink> = trace;
    Ok(match base {
        Base::Directory(directory) => Base::Directory(Arc::new(TraceDirectory::new(construction.env, sink, directory))),
        Base::Devices(devices) => Base::Devices(
            devices
                .into_iter()
                .map(|built| BuiltDevice {
                    device: TraceDevice::device(construction.env, sink.clone(), &built.device),
                    ..built
                })
                .collect(),
        ),
    })
}
