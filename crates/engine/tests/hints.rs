//! What a tree tells its store is so.

#[path = "suite/watched_store.rs"]
mod watched_store;

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_engine::{Compression, Db, Media, Options};
use varve_env::{Env, Random};
use varve_media::MemoryDirectory;
use varve_store::{BlockOrigin, FileStore, Hint, IoContext, OpenOptions, PlainOptions, PlainStore};
use watched_store::WatchedStore;

/// A block that a compaction wrote.
struct Rewritten {
    file: String,
    offset_bytes: u64,
    bytes: Vec<u8>,
    origins: Vec<BlockOrigin>,
}

#[derive(Default)]
struct Heard {
    inputs: BTreeSet<String>,
    rewritten: Vec<Rewritten>,
    /// Bytes of the blocks that reached a finished table.
    checked_bytes: u64,
    table_bytes: u64,
}

/// Blocks are told as they are on the medium, once each, with the blocks of inputs that they were made of.
#[test]
fn blocks_that_compactions_rewrite_are_told_as_they_are() {
    for compression in [Compression::None, Compression::Lz4] {
        let env = Env::sim(1);
        let plain = PlainStore::open(&env, Arc::new(MemoryDirectory::new("ram")), PlainOptions::default());
        let inner: Arc<dyn FileStore> = Arc::new(plain);
        let heard = Arc::new(Mutex::new(Heard::default()));
        let store = {
            let (heard, inner) = (heard.clone(), inner.clone());
            WatchedStore::of_hints(inner.clone(), move |hint| hear(&mut heard.lock(), &*inner, hint))
        };
        let options = Options {
            write_buffer_size: 64 << 10,
            target_file_size_base: 32 << 10,
            max_bytes_for_level_base: 128 << 10,
            compression,
            ..Options::default()
        };
        let db = Db::open(&env, Media::of_files(Arc::new(store)), options).expect("open");
        let mut random = Random::seeded(7);
        for _ in 0..3_000 {
            // Values below and above those that go to a file without a copy in between, half of which can be compressed.
            let mut value = vec![0; [20, 600, 1_000][random.index(3)]];
            let half = value.len() / 2;
            random.fill_bytes(&mut value[half..]);
            db.put(format!("{:06}", random.below(2_000)).as_bytes(), &value).expect("put");
        }
        db.flush().expect("flush");
        db.wait_idle().expect("wait");
        db.close().expect("close");
        let heard = heard.lock();
        let [checked, all] = [heard.checked_bytes, heard.table_bytes];
        assert!(checked > 512 << 10 && checked * 10 > all * 8, "{checked} of {all} bytes with {compression:?}");
    }
}

fn hear(heard: &mut Heard, store: &dyn FileStore, hint: &Hint<'_>) {
    match hint {
        Hint::CompactionBegin { inputs, .. } => heard.inputs.extend(inputs.iter().map(|input| input.name.clone())),
        Hint::BlockRewritten { file, offset_bytes, bytes, origins } => heard.rewritten.push(Rewritten {
            file: (*file).to_owned(),
            offset_bytes: *offset_bytes,
            bytes: bytes.to_vec(),
            origins: origins.to_vec(),
        }),
        Hint::CompactionOutput { output, .. } => {
            let table = store.open(&output.name, &OpenOptions::default()).expect("open a table");
            let (of_it, others): (Vec<_>, Vec<_>) =
                heard.rewritten.drain(..).partition(|rewritten| rewritten.file == output.name);
            heard.rewritten = others;
            let mut end_bytes = 0;
            for Rewritten { offset_bytes, bytes, origins, .. } in of_it {
                assert_eq!(offset_bytes, end_bytes, "blocks follow each other");
                end_bytes += bytes.len() as u64;
                let mut data = vec![0; bytes.len()];
                table.read_at(offset_bytes, &mut data, &IoContext::default()).expect("read");
                assert!(data == bytes, "block at {offset_bytes} of {}", output.name);
                assert!(!origins.is_empty() && origins.iter().all(|origin| heard.inputs.contains(&*origin.file)));
                let places: BTreeSet<_> = origins.iter().map(|origin| (&origin.file, origin.offset_bytes)).collect();
                assert_eq!(places.len(), origins.len(), "each origin once");
                assert!(origins.iter().all(|origin| origin.entries > 0));
                heard.checked_bytes += bytes.len() as u64;
            }
            heard.table_bytes += output.size_bytes;
        }
        _ => {}
    }
}
