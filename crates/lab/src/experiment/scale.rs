//! How much smaller than full size an experiment runs.

use crate::error::LabError;
use std::fmt;
use std::str::FromStr;

/// A scale `1/N`. Scaling is a similarity: every size and every positioning time is divided by N,
/// rates and processor time per pair stay, so that the balance between moving and transferring is
/// that of the full size. Experiments of point reads shrink counts only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    denominator: u64,
}

impl Scale {
    /// Full size.
    pub const FULL: Scale = Scale { denominator: 1 };

    /// The scale `1/denominator`; a denominator of 0 is taken as 1.
    pub const fn one_in(denominator: u64) -> Scale {
        Scale { denominator: if denominator == 0 { 1 } else { denominator } }
    }

    /// N of `1/N`.
    pub fn denominator(self) -> u64 {
        self.denominator
    }

    /// Refuses a scale smaller than `smallest`, saying which that is.
    ///
    /// # Errors
    /// [`LabError::Invalid`].
    pub fn at_least(self, smallest: Scale) -> Result<Scale, LabError> {
        if self.denominator <= smallest.denominator {
            return Ok(self);
        }
        Err(LabError::invalid("scale", format!("{self} is too small to show anything; {smallest} is the smallest")))
    }

    /// A size or count at this scale, at least 1 unless it was 0.
    pub fn of(self, full: u64) -> u64 {
        (full / self.denominator).max(u64::from(full > 0))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => f.write_str("1"),
            denominator => write!(f, "1/{denominator}"),
        }
    }
}

impl FromStr for Scale {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Scale, LabError> {
        let denominator = if text == "1" { Some("1") } else { text.strip_prefix("1/") };
        match denominator.and_then(|digits| digits.parse::<u64>().ok()) {
            Some(denominator) if denominator > 0 => Ok(Scale { denominator }),
            _ => Err(LabError::invalid("scale", format!("'{text}' is not 1 or 1/N with a whole N above zero"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_parsed_and_divide() {
        let scale: Scale = "1/64".parse().unwrap();
        assert_eq!(scale.to_string(), "1/64");
        assert_eq!((scale.of(640), scale.of(3), scale.of(0)), (10, 1, 0));
        assert_eq!("1".parse::<Scale>().unwrap(), Scale::FULL);
        assert_eq!(scale.at_least(scale).unwrap(), scale);
        let error = scale.at_least(Scale::one_in(63)).unwrap_err().to_string();
        assert!(error.contains("1/64 is too small") && error.contains("1/63 is the smallest"), "{error}");
        for wrong in ["", "2", "1/0", "1/x", "1/-3", "0.5"] {
            assert!(wrong.parse::<Scale>().is_err(), "{wrong}");
        }
    }
}
