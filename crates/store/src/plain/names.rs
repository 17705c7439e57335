//! File names as directories can hold them.
//!
//! A store's names are any UTF-8 without NUL; a directory's are path components. `%` and `/` are
//! written as `%25` and `%2F`, a leading dot of `.` and `..` as `%2E`; everything else stands for
//! itself. What begins with `%` and two upper-case hexadecimal digits is therefore an escape, and the
//! store's own temporary names, which begin with `%new-`, never collide with a name.

/// Longest name of a store, and longest name a directory can hold, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Beginning of the names of replacements that are being made.
pub(super) const TEMPORARY_PREFIX: &str = "%new-";

/// The name in the directory, or why there is none.
pub(super) fn escape(name: &str) -> Result<String, &'static str> {
    crate::name::check(name)?;
    let escaped = match name {
        "." => "%2E".to_owned(),
        ".." => "%2E.".to_owned(),
        _ if !name.contains(['%', '/']) => name.to_owned(),
        _ => name.replace('%', "%25").replace('/', "%2F"),
    };
    if escaped.len() > NAME_BYTES_MAX {
        return Err("it has more than 255 bytes once '/' and '%' are written as three bytes each");
    }
    Ok(escaped)
}

/// The name in the store, or `None` when no name of a store is written like this.
pub(super) fn unescape(escaped: &str) -> Option<String> {
    if !escaped.contains('%') {
        return (!escaped.is_empty()).then(|| escaped.to_owned());
    }
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find('%') {
        name.push_str(&rest[..at]);
        name.push(match rest.get(at..at + 3)? {
            "%25" => '%',
            "%2F" => '/',
            "%2E" => '.',
            _ => return None,
        });
        rest = &rest[at + 3..];
    }
    name.push_str(rest);
    // Only the one spelling that `escape` writes names a file.
    (escape(&name).as_deref() == Ok(escaped)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_and_is_a_path_component() {
        let long = "x".repeat(255);
        let slashes = "/".repeat(85);
        for name in [
            "a",
            ".",
            "..",
            "...",
            ".hidden",
            "a/b",
            "/",
            "%",
            "%2F",
            "100%",
            "%new-1",
            "\u{e4} \u{f6}\n\\",
            &long,
            &slashes,
        ] {
            let escaped = escape(name).unwrap();
            assert!(!escaped.contains('/') && escaped != "." && escaped != ".." && escaped.len() <= 255);
            assert!(!escaped.starts_with(TEMPORARY_PREFIX));
            assert_eq!(unescape(&escaped).as_deref(), Some(name));
        }
    }

    #[test]
    fn refuses_what_is_no_name() {
        for name in ["", "a\0b", &"x".repeat(256), &"/".repeat(86)] {
            assert!(escape(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn foreign_spellings_name_nothing() {
        for escaped in ["", "%", "%2", "%zz", "%2e", "%2Ea", "100%", "%new-7", "a%41"] {
            assert_eq!(unescape(escaped), None, "{escaped:?}");
        }
        assert_eq!(unescape("%2E").as_deref(), Some("."));
    }
}
