//! Entry points for fuzzing: any bytes, no panic.

use crate::spec::{ByteSize, Spec};

/// Parses a spec; what parses is written and parses to the same.
pub fn spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    match Spec::parse_unchecked(text) {
        Ok(spec) => {
            let canonical = spec.to_string();
            assert_eq!(Spec::parse_unchecked(&canonical).as_ref(), Ok(&spec), "{text:?} is written {canonical:?}");
            if let Err(error) = text.parse::<Spec>() {
                assert!(error.position() <= error.spec().len());
                let _ = (error.to_string(), error.pointer());
            }
        }
        Err(error) => {
            assert!(error.position() <= text.len());
            let _ = (error.to_string(), error.pointer());
        }
    }
}

/// Parses a configuration.
pub fn configuration(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = crate::Configuration::from_toml(text);
    }
}
