//! How well a device model agrees with a measured device.
//!
//! A DiskSim validation trace holds requests with the response times a real drive showed. Replayed
//! against a model, it gives the *demerit figure* of Ruemmler and Wilkes ("An introduction to disk
//! drive modeling", IEEE Computer 27(3), 1994): the root mean square horizontal distance between
//! the two cumulative distributions of response time.

use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::error::MediaError;
use std::time::Duration;
use varve_env::Env;

/// Sectors of the traces are 512 bytes, whatever the device has.
const TRACE_SECTOR_BYTES: u64 = 512;

/// Longest request a trace may hold; longer ones are taken for damage.
const REQUEST_SECTORS_MAX: u64 = 1 << 16;

/// One request of a validation trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredRequest {
    /// Write, or else read.
    pub write: bool,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Response time of the real device.
    pub measured_nanos: u64,
    /// Time from its completion to the next request.
    pub pause_nanos: u64,
}

/// Why a validation trace could not be read or replayed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ValidationError {
    /// A line that is not of the format.
    #[error(
        "line {line}: expected 'R|W Hit|Miss sector sectors measured_us pause_us', found '{found}'; \
         is this a DiskSim validation trace?"
    )]
    Line { line: usize, found: String },
    /// No requests.
    #[error("the trace holds no request")]
    Empty,
    /// The device failed.
    #[error(transparent)]
    Media(#[from] MediaError),
}

/// Agreement of a model with a measured device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demerit {
    /// Requests compared.
    pub requests: usize,
    /// Mean response time of the real device.
    pub measured_mean_nanos: f64,
    /// Mean response time of the model.
    pub modelled_mean_nanos: f64,
    /// Root mean square distance of the two distributions.
    pub demerit_nanos: f64,
}

impl Demerit {
    /// The demerit figure as a fraction of the measured mean.
    pub fn relative(&self) -> f64 {
        self.demerit_nanos / self.measured_mean_nanos
    }

    /// Compares two samples of response times of equal size.
    fn of(measured: &[u64], modelled: &[u64]) -> Self {
        let mut measured = measured.to_vec();
        let mut modelled = modelled.to_vec();
        measured.sort_unstable();
        modelled.sort_unstable();
        let count = measured.len() as f64;
        let mean = |sample: &[u64]| sample.iter().map(|&nanos| nanos as f64).sum::<f64>() / count;
        let squares = measured.iter().zip(&modelled).map(|(&a, &b)| {
            let distance = a.abs_diff(b) as f64;
            distance * distance
        });
        Demerit {
            requests: measured.len(),
            measured_mean_nanos: mean(&measured),
            modelled_mean_nanos: mean(&modelled),
            demerit_nanos: (squares.sum::<f64>() / count).sqrt(),
        }
    }
}

/// Reads a DiskSim validation trace: one request a line, `R|W Hit|Miss sector sectors measured_us
/// pause_us`, where the pause runs from the completion to the next request. Empty lines are skipped.
///
/// # Errors
/// [`ValidationError::Line`] names the first line that is not of this format.
pub fn parse_validation_trace(text: &str) -> Result<Vec<MeasuredRequest>, ValidationError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let bad = || ValidationError::Line { line: number + 1, found: line.chars().take(80).collect() };
            parse_line(line).ok_or_else(bad)
        })
        .collect()
}

fn parse_line(line: &str) -> Option<MeasuredRequest> {
    let mut fields = line.split_whitespace();
    let write = match fields.next()? {
        "R" => false,
        "W" => true,
        _ => return None,
    };
    // What the drive's cache did; the model must find out by itself.
    let _action = fields.next()?;
    let sector: u64 = fields.next()?.parse().ok()?;
    let sectors: u64 = fields.next()?.parse().ok()?;
    let mut micros = || {
        let micros: f64 = fields.next()?.parse().ok()?;
        (0.0..1e12).contains(&micros).then_some((micros * 1e3) as u64)
    };
    let (measured_nanos, pause_nanos) = (micros()?, micros()?);
    let valid = (1..=REQUEST_SECTORS_MAX).contains(&sectors) && fields.next().is_none();
    valid.then_some(MeasuredRequest {
        write,
        offset_bytes: sector.checked_mul(TRACE_SECTOR_BYTES)?,
        length_bytes: sectors * TRACE_SECTOR_BYTES,
        measured_nanos,
        pause_nanos,
    })
}

/// Replays `trace` against `device`, one request at a time with the pauses of the trace, and compares
/// the response times. `env` is the device's. Overwrites the device.
///
/// # Errors
/// [`ValidationError::Empty`], or what the device reports (a trace beyond its end, for example).
pub fn replay_validation_trace(
    env: &Env,
    device: &dyn BlockDevice,
    trace: &[MeasuredRequest],
) -> Result<Demerit, ValidationError> {
    if trace.is_empty() {
        return Err(ValidationError::Empty);
    }
    let context = IoContext::default();
    let mut buffer = Vec::new();
    let mut modelled = Vec::with_capacity(trace.len());
    for request in trace {
        buffer.resize(request.length_bytes as usize, 0);
        let begin = env.now();
        if request.write {
            device.write_at(request.offset_bytes, &buffer, &context)?;
        } else {
            device.read_at(request.offset_bytes, &mut buffer, &context)?;
        }
        modelled.push((env.now() - begin).as_nanos() as u64);
        env.sleep(Duration::from_nanos(request.pause_nanos));
    }
    let measured: Vec<u64> = trace.iter().map(|request| request.measured_nanos).collect();
    Ok(Demerit::of(&measured, &modelled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated::Emulated;

    #[test]
    fn demerit_is_the_distance_of_the_distributions_not_of_the_requests() {
        let same = Demerit::of(&[1_000, 3_000, 2_000], &[3_000, 2_000, 1_000]);
        assert_eq!((same.demerit_nanos, same.relative()), (0.0, 0.0));
        let shifted = Demerit::of(&[1_000, 3_000], &[1_300, 3_400]);
        assert_eq!((shifted.measured_mean_nanos, shifted.modelled_mean_nanos), (2_000.0, 2_350.0));
        assert_eq!(shifted.demerit_nanos, 125_000f64.sqrt());
    }

    #[test]
    fn trace_is_read_and_replayed() {
        let text = "R Hit    100   4  2000.50000  56074.00000\n\nW Miss 104 8 1000 10\n";
        let trace = parse_validation_trace(text).unwrap();
        let second = MeasuredRequest {
            write: true,
            offset_bytes: 53_248,
            length_bytes: 4096,
            measured_nanos: 1_000_000,
            pause_nanos: 10_000,
        };
        assert_eq!((trace.len(), trace[0].measured_nanos, trace[1]), (2, 2_000_500, second));
        let env = Env::sim(1);
        let device = Emulated::immediate(&env, "disk", 1 << 20);
        let demerit = replay_validation_trace(&env, &device, &trace).unwrap();
        assert_eq!((demerit.requests, demerit.modelled_mean_nanos), (2, 0.0));
        assert_eq!(env.now().as_nanos(), 56_084_000);
    }

    #[test]
    fn bad_lines_are_named() {
        for bad in
            ["X Hit 1 4 1 1", "R Hit 1 4 1", "R Hit 1 0 1 1", "R Hit -1 4 1 1", "R Hit 1 4 nan 1", "R Hit 1 4 1 1 1"]
        {
            let error = parse_validation_trace(&format!("R Hit 1 4 1 1\n{bad}\n")).unwrap_err();
            assert!(matches!(error, ValidationError::Line { line: 2, .. }), "{bad}: {error}");
        }
        assert!(parse_validation_trace("R Hit 18446744073709551615 4 1 1").is_err());
    }
}
