//! Gets and walks over one read state.

use super::catalog::ReadState;
use super::level_iterator::{LevelIterator, Pinned, sources_of};
use super::parts::TreeParts;
use super::relief::ScanOfTree;
use crate::batch::check_key;
use crate::cost;
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind, Sequence};
use crate::merge::merge;
use crate::operation::ReadOptions;
use crate::scans::ScanTally;
use crate::shape::{FileMeta, Version};
use crate::table::{Found, KeyOrder, Lookup, ReadContext, Readahead, TableIteratorOptions};
use crate::unreadable::UnreadableRanges;
use crate::value::Value;
use arc_swap::Guard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_store::{IoClass, IoContext};

/// Keys up to this size are looked up without allocating.
const SHORT_KEY_BYTES: usize = 120;

fn read_context(parts: &TreeParts, options: &ReadOptions<'_>) -> ReadContext {
    ReadContext {
        fill_cache: options.fill_cache,
        verify_checksums: options.verify_checksums.unwrap_or(parts.files.options.verify_checksums),
        order: KeyOrder::Checked,
        io: IoContext {
            deadline: options.wanted_within.map(|time| parts.files.env.now() + time),
            ..IoContext::of(IoClass::UserRead)
        },
    }
}

/// See [`crate::tree::Tree::get`].
pub(super) fn get(parts: &TreeParts, user_key: &[u8], options: &ReadOptions<'_>) -> Result<Option<Value>, Error> {
    options.check_snapshot(&parts.snapshots)?;
    let (state, sequence) = parts.snapshots.view(&parts.catalog.read_state, options.snapshot);
    let found = get_at(parts, &state, user_key, sequence, &read_context(parts, options))?;
    parts.catalog.counters.note_gets(1, found.iter().count());
    Ok(found)
}

/// What reads of several keys see. Memtables of a pool may be written on when others of the same state were taken out: a newer sequence number
/// would show what came to the former and not what came to those in the place of the latter.
fn view_of_many(parts: &TreeParts, options: &ReadOptions<'_>) -> (Arc<ReadState>, Sequence) {
    loop {
        let (state, sequence) = parts.snapshots.view(&parts.catalog.read_state, options.snapshot);
        let is_newest = || Arc::ptr_eq(&state, &parts.catalog.read_state.load());
        if options.snapshot.is_some() || parts.pool.is_none() || is_newest() {
            return (Guard::into_inner(state), sequence);
        }
    }
}

/// See [`crate::tree::Tree::multi_get`].
pub(super) fn multi_get(
    parts: &TreeParts,
    keys: &[&[u8]],
    options: &ReadOptions<'_>,
) -> Vec<Result<Option<Value>, Error>> {
    if let Err(error) = options.check_snapshot(&parts.snapshots) {
        return keys.iter().map(|_| Err(error.clone())).collect();
    }
    let (state, sequence) = view_of_many(parts, options);
    let context = read_context(parts, options);
    parts.files.env.charge(cost::GET * keys.len() as u64);
    let mut results: Vec<Result<Option<Value>, Error>> = keys.iter().map(|_| Ok(None)).collect();
    // In key order, so that the keys of one table and of one block stand together.
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&position| keys[position]);
    let mut open: Vec<Sought<'_>> = Vec::with_capacity(keys.len());
    for position in order {
        let user_key = keys[position];
        if let Err(error) = check_key(user_key) {
            results[position] = Err(error);
            continue;
        }
        let lookup = key::lookup_key(user_key, sequence);
        match std::iter::once(&state.active).chain(&state.immutables).find_map(|table| table.get(&lookup)) {
            Some(found) => results[position] = Ok(Value::in_memory(&found)),
            None => open.push(Sought { position, user_key, hash: crate::table::key_hash(user_key), lookup }),
        }
    }
    let version = &state.version;
    if version.disjoint_from() > 1 {
        for Sought { position, user_key, hash, lookup } in open {
            results[position] = look_up_in_tables(parts, version, user_key, &lookup, hash, &context);
        }
        open = Vec::new();
    }
    for file in version.levels[0].iter() {
        let inside = |sought: &Sought<'_>| {
            file.smallest_user_key() <= sought.user_key && sought.user_key <= file.largest_user_key()
        };
        let (asked, rest) = open.into_iter().partition(inside);
        open = rest;
        open.extend(ask(parts, file, asked, &ReadContext { io: context.io.at_level(0), ..context }, &mut results));
        open.sort_by_key(|sought| sought.user_key);
    }
    for level in 1..version.levels.len() {
        let context = ReadContext { io: context.io.at_level(level as u8), ..context };
        let mut unanswered = Vec::with_capacity(open.len());
        let mut waiting = open.into_iter().peekable();
        while let Some(first) = waiting.next() {
            let table = version.find(level, first.user_key);
            let Some(file) = version.levels[level].get(table) else {
                unanswered.push(first);
                continue;
            };
            let mut asked = vec![first];
            while let Some(next) = waiting.next_if(|next| next.user_key <= file.largest_user_key()) {
                asked.push(next);
            }
            let (inside, outside): (Vec<_>, Vec<_>) =
                asked.into_iter().partition(|sought| file.smallest_user_key() <= sought.user_key);
            unanswered.extend(outside);
            unanswered.extend(ask(parts, file, inside, &context, &mut results));
        }
        open = unanswered;
    }
    parts.catalog.counters.note_gets(keys.len(), results.iter().flatten().flatten().count());
    results
}

/// A key of a `multi_get` that has no answer yet.
struct Sought<'a> {
    position: usize,
    user_key: &'a [u8],
    hash: u64,
    lookup: Vec<u8>,
}

/// Asks one table for many keys at once; returns those it knows nothing of. When the table cannot
/// be read, all of them end with its error.
fn ask<'a>(
    parts: &TreeParts,
    file: &FileMeta,
    asked: Vec<Sought<'a>>,
    context: &ReadContext,
    results: &mut [Result<Option<Value>, Error>],
) -> Vec<Sought<'a>> {
    if asked.is_empty() {
        return asked;
    }
    let mut lookups: Vec<Lookup<'_>> = asked
        .iter()
        .map(|sought| Lookup { internal_key: &sought.lookup, key_hash: sought.hash, found: None })
        .collect();
    let outcome = parts.files.tables.get(file).and_then(|table| table.get_many(&mut lookups, context));
    let answers: Vec<Option<Found>> = lookups.into_iter().map(|lookup| lookup.found).collect();
    let mut unanswered = Vec::new();
    for (sought, answer) in asked.into_iter().zip(answers) {
        match (answer, &outcome) {
            (Some(found), _) => results[sought.position] = Ok(value_in_table(found)),
            (None, Err(error)) => results[sought.position] = Err(error.clone()),
            (None, Ok(())) => unanswered.push(sought),
        }
    }
    unanswered
}

fn value_in_table(found: Found) -> Option<Value> {
    match found.kind {
        EntryKind::Put => Some(found.value),
        EntryKind::Delete => None,
    }
}

fn get_at(
    parts: &TreeParts,
    state: &ReadState,
    user_key: &[u8],
    sequence: Sequence,
    context: &ReadContext,
) -> Result<Option<Value>, Error> {
    check_key(user_key)?;
    parts.files.env.charge(cost::GET);
    if user_key.len() <= SHORT_KEY_BYTES {
        let mut buffer = [0u8; SHORT_KEY_BYTES + key::TRAILER_BYTES];
        let lookup = &mut buffer[..user_key.len() + key::TRAILER_BYTES];
        lookup[..user_key.len()].copy_from_slice(user_key);
        let trailer = key::pack_trailer(sequence, EntryKind::LARGEST).to_le_bytes();
        lookup[user_key.len()..].copy_from_slice(&trailer);
        look_up(parts, state, user_key, lookup, context)
    } else {
        look_up(parts, state, user_key, &key::lookup_key(user_key, sequence), context)
    }
}

fn look_up(
    parts: &TreeParts,
    state: &ReadState,
    user_key: &[u8],
    lookup: &[u8],
    context: &ReadContext,
) -> Result<Option<Value>, Error> {
    for memtable in std::iter::once(&state.active).chain(&state.immutables) {
        if let Some(found) = memtable.get(lookup) {
            return Ok(Value::in_memory(&found));
        }
    }
    look_up_in_tables(parts, &state.version, user_key, lookup, crate::table::key_hash(user_key), context)
}

fn look_up_in_tables(
    parts: &TreeParts,
    version: &Version,
    user_key: &[u8],
    lookup: &[u8],
    hash: u64,
    context: &ReadContext,
) -> Result<Option<Value>, Error> {
    let ask = |level: usize, file: &FileMeta| {
        let context = ReadContext { io: context.io.at_level(level as u8), ..*context };
        parts.files.tables.get(file)?.get(lookup, hash, &context)
    };
    // In a level 0 that is the only one to overlap, tables are ordered by age.
    if version.disjoint_from() == 1 {
        for file in version.levels[0].iter() {
            if file.smallest_user_key() <= user_key
                && user_key <= file.largest_user_key()
                && let Some(found) = ask(0, file)?
            {
                return Ok(value_in_table(found));
            }
        }
    }
    // Else none hides another: the newest version of any counts, and a table is asked only while it may hold
    // a newer one than was found.
    let mut newest: Option<Found> = None;
    for (level, file) in version.overlapping_with(user_key) {
        if newest.as_ref().is_some_and(|found| found.sequence >= file.newest_sequence) {
            break;
        }
        if let Some(found) = ask(level, file)?
            && newest.as_ref().is_none_or(|newest| newest.sequence < found.sequence)
        {
            newest = Some(found);
        }
    }
    if let Some(found) = newest {
        return Ok(value_in_table(found));
    }
    // Where they do not, at most one table of a level can hold the key.
    for level in version.disjoint_from()..version.levels.len() {
        let Some(file) = version.levels[level].get(version.find(level, user_key)) else { continue };
        if file.smallest_user_key() <= user_key
            && let Some(found) = ask(level, file)?
        {
            return Ok(value_in_table(found));
        }
    }
    Ok(None)
}

/// See [`crate::tree::Tree::iterator`].
pub(super) fn iterator(parts: &TreeParts, options: &ReadOptions<'_>) -> Result<DbIterator, Error> {
    options.check_snapshot(&parts.snapshots)?;
    parts.catalog.counters.iterators.fetch_add(1, Ordering::Relaxed);
    parts.files.env.charge(cost::ITERATOR);
    let (state, sequence) = view_of_many(parts, options);
    let context = read_context(parts, options);
    let mut readahead = parts.files.settings.iterator_readahead;
    if options.readahead_size > 0 {
        readahead.max_bytes = options.readahead_size;
    }
    let read = |level: usize| TableIteratorOptions {
        fill_cache: context.fill_cache,
        verify_checksums: context.verify_checksums,
        readahead: Readahead::Growing(readahead),
        order: context.order,
        io: context.io.at_level(level as u8),
    };
    let (lower, upper) = (options.lower_bound.as_deref(), options.upper_bound.as_deref());
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    for memtables in std::iter::once(&state.active).chain(&state.immutables) {
        if !memtables.is_empty() {
            sources.push(memtables.iterator());
        }
    }
    let pinned = Arc::new(Pinned { state, tables: parts.files.tables.clone() });
    let version = &pinned.state.version;
    let lost = parts.files.tables.lost();
    let unreadable = lost.map(|lost| UnreadableRanges::of(version, lost)).unwrap_or_default();
    for level in 0..version.levels.len() {
        if let Some(lost) = lost {
            let files = version.overlapping_bounds(level, lower, upper);
            let there: Vec<_> = files.into_iter().filter(|file| !lost.contains_key(&file.number)).collect();
            sources.extend(sources_of(&parts.files.tables, version, level, &there, &read(level))?);
            continue;
        }
        if level >= version.disjoint_from() {
            let range = version.disjoint_within(level, lower, upper);
            if !range.is_empty() {
                sources.push(Box::new(LevelIterator::of_level(pinned.clone(), level, range, read(level))));
            }
            continue;
        }
        let files = version.overlapping_bounds(level, lower, upper);
        sources.extend(sources_of(&parts.files.tables, version, level, &files, &read(level))?);
    }
    let source = merge(sources);
    let tally = Some(ScanTally::new(Arc::new(ScanOfTree(pinned.clone()))));
    let (lower, upper) = (options.lower_bound.clone(), options.upper_bound.clone());
    let walk = DbIterator::new(source, sequence, lower, upper, Box::new(pinned));
    Ok(walk.without(unreadable).of_tree(parts.board.closed().clone(), tally))
}
