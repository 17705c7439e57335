//! An ordered map in memory, for tests: the reference for answers.

use super::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use varve_env::Env;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An ordered map in memory: what every store has to answer like. In a simulation each operation is
/// charged 1 us.
pub(crate) struct MemoryTarget {
    env: Env,
    pairs: Arc<RwLock<Pairs>>,
}

impl MemoryTarget {
    /// An empty one.
    pub(crate) fn new(env: &Env) -> MemoryTarget {
        MemoryTarget { env: env.clone(), pairs: Arc::new(RwLock::new(BTreeMap::new())) }
    }
}

impl Target for MemoryTarget {
    fn name(&self) -> &str {
        "memory"
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(MemorySession { env: self.env.clone(), pairs: Arc::clone(&self.pairs) }))
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(())
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        let pairs = self.pairs.read();
        let space_bytes = pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        Ok(TargetStatistics { space_bytes: Some(space_bytes), ..TargetStatistics::default() })
    }
}

struct MemorySession {
    env: Env,
    pairs: Arc<RwLock<Pairs>>,
}

impl MemorySession {
    fn charge(&self) {
        self.env.charge(1_000);
        self.env.settle();
    }
}

impl Session for MemorySession {
    fn put(&mut self, key: &[u8], value: &[u8], _durability: Durability) -> Result<(), TargetError> {
        self.charge();
        self.pairs.write().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.charge();
        value.clear();
        let pairs = self.pairs.read();
        let found = pairs.get(key);
        if let Some(bytes) = found {
            value.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8], _durability: Durability) -> Result<(), TargetError> {
        self.charge();
        self.pairs.write().remove(key);
        Ok(())
    }

    fn write(&mut self, changes: &[Change], _durability: Durability) -> Result<(), TargetError> {
        self.charge();
        let mut pairs = self.pairs.write();
        for change in changes {
            match change {
                Change::Put { key, value } => pairs.insert(key.clone(), value.clone()),
                Change::Delete { key } => pairs.remove(key),
            };
        }
        Ok(())
    }

    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        self.charge();
        let pairs = self.pairs.read();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut visited = 0;
        let mut visit = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            visit(key, value);
            visited += 1;
        };
        match direction {
            Direction::Forward => {
                let low = start.map_or(Bound::Unbounded, Bound::Included);
                pairs.range::<[u8], _>((low, Bound::Unbounded)).take(limit).for_each(&mut visit);
            }
            Direction::Reverse => {
                let high = start.map_or(Bound::Unbounded, Bound::Included);
                pairs.range::<[u8], _>((Bound::Unbounded, high)).rev().take(limit).for_each(&mut visit);
            }
        }
        Ok(visited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_scans_both_ways_and_applies_batches() {
        let target = MemoryTarget::new(&Env::sim(1));
        let mut session = target.session().unwrap();
        let put = |key: &str| Change::Put { key: key.into(), value: b"v".to_vec() };
        session
            .write(&[put("a"), put("c"), put("e"), Change::Delete { key: b"c".to_vec() }], Durability::Buffered)
            .unwrap();
        let mut seen = |start: Option<&[u8]>, direction, limit| {
            let mut keys = String::new();
            let visited = session
                .scan(start, direction, limit, &mut |key, _| keys.push_str(std::str::from_utf8(key).unwrap()))
                .unwrap();
            assert_eq!(visited as usize, keys.len());
            keys
        };
        assert_eq!(seen(None, Direction::Forward, 9), "ae");
        assert_eq!(seen(Some(b"b"), Direction::Forward, 9), "e");
        assert_eq!(seen(Some(b"b"), Direction::Reverse, 9), "a");
        assert_eq!(seen(None, Direction::Reverse, 1), "e");
        let mut value = vec![1];
        assert!(!session.get(b"c", &mut value).unwrap() && value.is_empty());
        assert!(session.get(b"a", &mut value).unwrap() && value == b"v");
    }
}
