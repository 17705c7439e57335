//! LevelDB's C interface, found when the program runs: the packaged library, or one built elsewhere
//! and named by the environment variable `VARVE_LEVELDB_LIBRARY`.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use varve_lab::target::TargetError;

/// Names the packages give the library.
const PACKAGED: [&str; 3] = ["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"];

/// Environment variable that names another library.
const VARIABLE: &str = "VARVE_LEVELDB_LIBRARY";

/// Pointer to any of LevelDB's opaque types.
pub(super) type Opaque = *mut c_void;

/// LevelDB's error slot: a string to be freed, or null.
pub(super) type ErrorSlot = *mut *mut c_char;

macro_rules! library {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of LevelDB's `c.h` that are used here, under their names without the prefix.
        pub(super) struct Library {
            /// What it is, with version and origin.
            pub(super) description: String,
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the functions loaded.
            _library: libloading::Library,
        }

        impl Library {
            fn load(path: PathBuf, origin: &str) -> Result<Library, TargetError> {
                // SAFETY: loading runs the initialisers of LevelDB and of what it links; they have no
                // preconditions.
                let library = unsafe { libloading::Library::new(&path) }?;
                $(
                    // SAFETY: the signature is that of leveldb/c.h, which has kept its functions
                    // unchanged through all of version 1.
                    let $name = unsafe {
                        *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            concat!("leveldb_", stringify!($name), "\0").as_bytes(),
                        )?
                    };
                )*
                let mut loaded = Library { description: String::new(), $($name,)* _library: library };
                // SAFETY: both functions take nothing and return a number.
                let (major, minor) = unsafe { ((loaded.major_version)(), (loaded.minor_version)()) };
                loaded.description = format!("leveldb {major}.{minor} ({origin})");
                Ok(loaded)
            }
        }
    };
}

library! {
    major_version: fn() -> c_int;
    minor_version: fn() -> c_int;
    open: fn(Opaque, *const c_char, ErrorSlot) -> Opaque;
    close: fn(Opaque);
    put: fn(Opaque, Opaque, *const c_char, usize, *const c_char, usize, ErrorSlot);
    delete: fn(Opaque, Opaque, *const c_char, usize, ErrorSlot);
    write: fn(Opaque, Opaque, Opaque, ErrorSlot);
    get: fn(Opaque, Opaque, *const c_char, usize, *mut usize, ErrorSlot) -> *mut c_char;
    create_iterator: fn(Opaque, Opaque) -> Opaque;
    property_value: fn(Opaque, *const c_char) -> *mut c_char;
    compact_range: fn(Opaque, *const c_char, usize, *const c_char, usize);
    free: fn(*mut c_void);
    iter_destroy: fn(Opaque);
    iter_valid: fn(Opaque) -> c_uchar;
    iter_seek_to_first: fn(Opaque);
    iter_seek_to_last: fn(Opaque);
    iter_seek: fn(Opaque, *const c_char, usize);
    iter_next: fn(Opaque);
    iter_prev: fn(Opaque);
    iter_key: fn(Opaque, *mut usize) -> *const c_char;
    iter_value: fn(Opaque, *mut usize) -> *const c_char;
    iter_get_error: fn(Opaque, ErrorSlot);
    writebatch_create: fn() -> Opaque;
    writebatch_destroy: fn(Opaque);
    writebatch_put: fn(Opaque, *const c_char, usize, *const c_char, usize);
    writebatch_delete: fn(Opaque, *const c_char, usize);
    options_create: fn() -> Opaque;
    options_destroy: fn(Opaque);
    options_set_create_if_missing: fn(Opaque, c_uchar);
    options_set_write_buffer_size: fn(Opaque, usize);
    options_set_block_size: fn(Opaque, usize);
    options_set_paranoid_checks: fn(Opaque, c_uchar);
    options_set_compression: fn(Opaque, c_int);
    options_set_cache: fn(Opaque, Opaque);
    options_set_filter_policy: fn(Opaque, Opaque);
    cache_create_lru: fn(usize) -> Opaque;
    cache_destroy: fn(Opaque);
    filterpolicy_create_bloom: fn(c_int) -> Opaque;
    filterpolicy_destroy: fn(Opaque);
    readoptions_create: fn() -> Opaque;
    readoptions_destroy: fn(Opaque);
    readoptions_set_verify_checksums: fn(Opaque, c_uchar);
    writeoptions_create: fn() -> Opaque;
    writeoptions_destroy: fn(Opaque);
    writeoptions_set_sync: fn(Opaque, c_uchar);
}

impl Library {
    /// The library, loaded once.
    pub(super) fn get() -> Result<&'static Library, TargetError> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY
            .get_or_init(|| {
                let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
                Library::find(named.map(PathBuf::from)).map_err(|error| error.to_string())
            })
            .as_ref()
            .map_err(|error| error.as_str().into())
    }

    /// The library at `named`, or else the packaged one.
    fn find(named: Option<PathBuf>) -> Result<Library, TargetError> {
        if let Some(path) = named {
            let origin = format!("built elsewhere, {}", path.display());
            return Library::load(path, &origin).map_err(|error| format!("{VARIABLE}: {error}").into());
        }
        PACKAGED.iter().find_map(|name| Library::load(name.into(), "as packaged").ok()).ok_or_else(|| {
            format!("LevelDB is not installed (`apt-get install libleveldb1d`, or name a library in {VARIABLE})").into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let named = PathBuf::from("no-such-folder/libleveldb.so");
        let reason = Library::find(Some(named)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(reason.starts_with(VARIABLE) && reason.contains("no-such-folder"), "{reason}");
    }
}
