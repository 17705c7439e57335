//! `amplification/curve` on real stores in a real directory.

#[cfg(feature = "rocksdb")]
use crate::engine::rocksdb::{RocksDbTarget, Style};
use std::path::Path;
use std::sync::Arc;
use varve::Spec;
use varve::env::Env;
use varve_lab::LabError;
use varve_lab::experiment::{AmplificationSizes, Scale, measure_amplification};
use varve_lab::host;
use varve_lab::report::Report;
use varve_lab::target::{Target, TargetError, VarveTarget};

/// How a store is opened.
type Open = Box<dyn Fn(&Path, &AmplificationSizes) -> Result<Arc<dyn Target>, TargetError>>;

fn varve(percent: u64) -> Open {
    Box::new(move |directory, sizes| {
        let spec: Spec = format!("file:{}", directory.display()).parse()?;
        Ok(Arc::new(VarveTarget::open(&Env::real(), &spec, sizes.options(percent))?))
    })
}

#[cfg(feature = "rocksdb")]
fn rocksdb(style: Style) -> Open {
    Box::new(move |directory, sizes| Ok(Arc::new(RocksDbTarget::open_counting(directory, sizes, style)?)))
}

/// The stores, and what they are called.
fn schemes() -> Vec<(&'static str, Open)> {
    #[allow(unused_mut)]
    let mut schemes = vec![
        ("varve, fixed ratio", varve(0)),
        ("varve, 12 %", varve(12)),
        ("varve, 16 %", varve(16)),
        // What the smaller sizes come to where they keep as much as others do.
        ("varve, 40 %", varve(40)),
        ("varve, 80 %", varve(80)),
        ("varve, 125 %", varve(125)),
        ("varve, 250 %", varve(250)),
    ];
    #[cfg(feature = "rocksdb")]
    schemes.extend([
        ("rocksdb leveled", rocksdb(Style::Leveled)),
        ("rocksdb universal", rocksdb(Style::Universal(200))),
        ("rocksdb universal, 25 %", rocksdb(Style::Universal(25))),
    ]);
    schemes
}

/// Runs the load on one store after the other. Calls `say` with a line for each.
pub(crate) fn run(directory: &Path, scale: Scale, seed: u64, say: &mut dyn FnMut(&str)) -> Result<Report, LabError> {
    let title = "write amplification against space amplification, of 256 MiB to 16 GiB";
    let mut report = Report::new("peers/amplification", title, scale, seed);
    report.condition("machine", host::description());
    report.condition("directory", directory.display());
    let sizes = AmplificationSizes::of(scale);
    report.condition("write buffer", sizes.write_buffer);
    report.condition("level base", sizes.level_base);
    let place = directory.join("amplification");
    for (scheme, open_scheme) in schemes() {
        say(scheme);
        let mut open = || {
            host::remove_directory(&place)?;
            std::fs::create_dir_all(&place).map_err(|error| LabError::file(place.display().to_string(), error))?;
            open_scheme(&place, &sizes).map_err(|error| LabError::Target {
                target: scheme.to_owned(),
                operation: "open",
                error,
            })
        };
        let rows = measure_amplification(scheme, scale, seed, &mut open);
        host::remove_directory(&place)?;
        report.rows.extend(rows?);
    }
    // Fails when it is not empty, which is as it should be.
    let _ = std::fs::remove_dir(directory);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_tells_what_it_wrote() {
        let place = tempfile::tempdir().unwrap();
        let report = run(&place.path().join("stores"), Scale::one_in(8192), 1, &mut |_| {}).unwrap();
        assert_eq!(report.rows.len(), schemes().len() * 7 * 7);
        assert!(report.rows.iter().all(|row| row.ours.is_some_and(|value| value >= 0.9)), "{}", report.to_text());
    }
}
