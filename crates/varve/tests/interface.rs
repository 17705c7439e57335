//! What users call: paths and bytes of every type, one error, one close.

use std::error::Error as _;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use varve::{Error, ErrorKind, Key, ReadOptions, Value, Varve, WriteBatch, WriteOptions};

fn in_memory() -> Varve {
    Varve::open_spec(&"ram:64MiB".parse().unwrap()).unwrap()
}

#[test]
fn paths_of_every_type_and_any_bytes_open() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("db");
    Varve::open(path.as_path()).unwrap().close().unwrap();
    Varve::open(path.to_str().unwrap()).unwrap().close().unwrap();
    Varve::open(path.display().to_string()).unwrap().close().unwrap();
    Varve::open(path).unwrap().close().unwrap();
    // A text of a spec would need escapes for these.
    for name in [&b"a?b=c,d"[..], b"+disk:", b"%41", b"\xff\xfe", b"ram:64MiB"] {
        let path = place.path().join(OsStr::from_bytes(name));
        let db = Varve::open(&path).unwrap();
        db.put("name", name).unwrap();
        db.close().unwrap();
        assert!(path.join("CURRENT").is_file(), "{}", name.escape_ascii());
    }
}

/// A spec where a path is meant would make a directory of that name.
#[test]
fn a_path_that_begins_like_a_spec_is_refused_with_what_to_do() {
    for path in ["ram:64MiB", "disk:10GB?model=ST500DM002", "file:/nowhere/db"] {
        let error = Varve::open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("open_spec") && text.contains(&format!("./{path}")), "{text}");
        assert!(!std::path::Path::new(path).exists());
        let error = in_memory().checkpoint(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    // What only looks like one is a path.
    let error = Varve::builder().read_only(true).open("c:/nowhere").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for path in ["", "nul\0"] {
        assert!(Varve::open(path).is_err(), "{path:?}");
    }
}

#[test]
fn keys_and_values_are_whatever_is_bytes() {
    let db = in_memory();
    db.put("text", String::from("owned")).unwrap();
    db.put(b"array", [1, 2]).unwrap();
    db.put(vec![b'v'], &[3][..]).unwrap();
    db.put_with(String::from("synced"), "yes", &WriteOptions { sync: true }).unwrap();
    let (key, value) = db.iter().next().unwrap().unwrap();
    db.put(&key, &value).unwrap();
    db.delete(key).unwrap();
    let value: Value = db.get("text").unwrap().unwrap();
    assert_eq!(value, "owned");
    assert_eq!(db.get_with(Key::from(b"v".to_vec()), &ReadOptions::default()).unwrap(), Some(vec![3].into()));
    let found: Vec<Option<Value>> = db.multi_get(["text", "array"]).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [Some(b"owned".to_vec().into()), None]);
    let mut batch = WriteBatch::new();
    batch.put("text", b"another").unwrap();
    batch.delete([b'v']).unwrap();
    assert_eq!(batch.iter().count(), 2);
    db.write(batch).unwrap();
    assert_eq!(db.prefix([b't']).count() + db.prefix("v").count(), 1);
    db.compact_range("a".."u").unwrap();
    db.compact().unwrap();
    assert!(db.approximate_bytes("a", String::from("z")).unwrap() > 0);
    assert!(db.check().unwrap().is_empty());
}

#[test]
fn an_error_of_the_engine_is_its_own_text_once() {
    let db = in_memory();
    let long = vec![0; varve::KEY_BYTES_MAX + 1];
    for error in [db.put(&long, "").unwrap_err(), WriteBatch::new().put(&long, "").unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let Error::Engine(of_engine) = &error else { panic!("{error:?}") };
        assert!(matches!(of_engine, varve::engine::Error::KeyTooLong { .. }), "{error:?}");
        assert_eq!(error.to_string(), of_engine.to_string());
        assert!(error.source().is_none(), "{error:?} would be printed twice");
    }
}

#[test]
fn one_close_closes_every_handle_and_the_last_handle_closes() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("db");
    let db = Varve::open(&path).unwrap();
    db.put("key", "value").unwrap();
    assert_eq!(Varve::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    let (other, snapshot) = (db.clone(), db.snapshot());
    db.close().unwrap();
    assert_eq!(other.put("key", "late").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(other.get("key").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(snapshot.cursor(&ReadOptions::default()).unwrap_err().kind(), ErrorKind::Closed);
    drop((other, snapshot));

    let db = Varve::open(&path).unwrap();
    let snapshot = db.snapshot();
    drop(db);
    assert_eq!(snapshot.get("key").unwrap().as_deref(), Some(&b"value"[..]), "a snapshot is a handle");
    assert_eq!(Varve::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop(snapshot);
    Varve::open(&path).unwrap().close().unwrap();
}

#[test]
fn handles_go_to_other_threads() {
    fn goes<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Varve>();
    is_shared::<varve::Snapshot>();
    is_shared::<Error>();
    goes::<varve::Iter>();
    goes::<varve::Cursor>();
    goes::<Value>();
}
