//! Pieces of an arena belong to one thread each, and chunks to one arena each.

use super::Model;
use crate::arena::{Arena, ChunkPool};
use crate::exploration::Fault;
use loom::thread;
use std::sync::Arc;

pub(super) const MODELS: &[Model] = &[
    Model {
        name: "arena: threads that take pieces across the end of a chunk never get the same byte",
        run: |_| pieces_are_apart(),
        seeds: 1,
        finds: &[Fault::SplitExchanges, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
    Model {
        name: "arena: chunks that one arena leaves behind are used by one other",
        run: |_| chunks_change_hands(),
        seeds: 1,
        finds: &[Fault::SplitExchanges],
    },
];

const PIECE_BYTES: usize = 16;

/// Four pieces each.
const CHUNK_BYTES: usize = 64;

/// Takes pieces and marks them; their addresses.
fn take(arena: &Arena, count: usize, mark: u8) -> Vec<usize> {
    let pieces: Vec<_> = (0..count).map(|_| arena.take(PIECE_BYTES)).collect();
    for piece in &pieces {
        // SAFETY: a piece has these bytes and nobody else has it, or the addresses compared later tell.
        unsafe { piece.as_ptr().write_bytes(mark, PIECE_BYTES) };
    }
    pieces.into_iter().map(|piece| piece.as_ptr() as usize).collect()
}

fn assert_apart(mut pieces: Vec<usize>) {
    pieces.sort_unstable();
    assert!(pieces.windows(2).all(|pair| pair[1] - pair[0] >= PIECE_BYTES), "two pieces share bytes: {pieces:x?}");
}

fn pieces_are_apart() {
    let arena = Arc::new(Arena::new(&Arc::new(ChunkPool::new(CHUNK_BYTES, 0))));
    let mut pieces = take(&arena, 3, 0);
    let workers: Vec<_> = (1..3)
        .map(|mark| {
            let arena = arena.clone();
            thread::spawn(move || take(&arena, 2, mark))
        })
        .collect();
    let used_bytes = arena.used_bytes();
    assert!((3 * PIECE_BYTES..=2 * CHUNK_BYTES).contains(&used_bytes), "{used_bytes} bytes are used");
    for worker in workers {
        pieces.extend(worker.join().unwrap());
    }
    assert_eq!(pieces.len(), 7);
    assert_apart(pieces);
    assert_eq!(arena.used_bytes(), 7 * PIECE_BYTES);
}

fn chunks_change_hands() {
    let pool = Arc::new(ChunkPool::new(CHUNK_BYTES, 2 * CHUNK_BYTES));
    let left = Arena::new(&pool);
    take(&left, 5, 0);
    let taken = Arc::new(Arena::new(&pool));
    let worker = {
        let taken = taken.clone();
        thread::spawn(move || take(&taken, 3, 1))
    };
    drop(left);
    let mut pieces = take(&taken, 3, 2);
    pieces.extend(worker.join().unwrap());
    assert_apart(pieces);
    assert_eq!(taken.used_bytes(), 6 * PIECE_BYTES);
}
