//! A number beside the paper's.

use crate::report::{Report, Row};

/// How far from the paper's value counts as the same.
const TOLERANCE: f64 = 0.10;

/// By what factor something must be ahead to count as "much" ahead.
pub(super) const MUCH: f64 = 1.5;

/// Adds a number that stands in the paper's text, and says whether ours is within a tenth of it.
pub(super) fn compare(report: &mut Report, scheme: &str, metric: &str, unit: &str, paper: f64, ours: f64) {
    let off = ours / paper - 1.0;
    let verdict = if off.abs() <= TOLERANCE { "within 10 %".to_owned() } else { format!("{:+.0} %", off * 100.0) };
    report.rows.push(Row::new(scheme, metric, unit, ours).with_paper(paper).with_note(verdict));
}

/// Adds a number the paper only draws.
pub(super) fn drawn(report: &mut Report, scheme: &str, metric: &str, unit: &str, ours: f64) {
    report.rows.push(Row::new(scheme, metric, unit, ours).with_note("drawing only"));
}

/// Adds a number of ours of which the paper says something in words, and whether it agrees.
pub(super) fn words(
    report: &mut Report,
    scheme: &str,
    metric: &str,
    (ours, unit): (f64, &str),
    paper: &str,
    agrees: bool,
) {
    let verdict = if agrees { "agrees" } else { "does not agree" };
    report.rows.push(Row::new(scheme, metric, unit, ours).with_note(format!("paper: \"{paper}\"; {verdict}")));
}

/// Adds a number of ours that the paper does not have.
pub(super) fn ours(report: &mut Report, scheme: &str, metric: &str, unit: &str, ours: f64) {
    report.rows.push(Row::new(scheme, metric, unit, ours));
}

/// Adds a number of ours that is to be something, and says whether it is.
pub(super) fn goal(report: &mut Report, scheme: &str, metric: &str, ours: f64, wanted: &str, reached: bool) {
    let verdict = if reached { "reached" } else { "not reached" };
    report.rows.push(Row::new(scheme, metric, "1", ours).with_note(format!("goal: {wanted}, {verdict}")));
}
