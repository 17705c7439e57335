//! What a store accepts as a file name.

use crate::error::StoreError;

/// Refuses what no store accepts, saying why.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("it is empty")
    } else if name.len() > 255 {
        Err("it has more than 255 bytes")
    } else if name.contains('\0') {
        Err("it contains NUL")
    } else {
        Ok(())
    }
}

/// The error for a name that is refused.
pub(crate) fn invalid(store: &str, name: &str, reason: &str) -> StoreError {
    StoreError::InvalidName {
        store: store.to_owned(),
        name: name.chars().take(64).collect(),
        reason: reason.to_owned(),
    }
}
