//! A target without a store: the floor for costs.

use super::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};
use varve_env::Env;

/// Does nothing and finds nothing: what is measured on it is the cost of the harness itself. Every
/// operation is charged 1 us in a simulation, so that time passes.
pub struct NullTarget {
    env: Env,
}

impl NullTarget {
    /// A target that does nothing.
    pub fn new(env: &Env) -> NullTarget {
        NullTarget { env: env.clone() }
    }
}

impl Target for NullTarget {
    fn name(&self) -> &str {
        "null"
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(NullSession { env: self.env.clone() }))
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
        Ok(TargetStatistics::default())
    }
}

struct NullSession {
    env: Env,
}

impl Session for NullSession {
    fn put(&mut self, _key: &[u8], _value: &[u8], _durability: Durability) -> Result<(), TargetError> {
        self.env.charge(1_000);
        Ok(())
    }

    fn get(&mut self, _key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.env.charge(1_000);
        value.clear();
        Ok(false)
    }

    fn delete(&mut self, _key: &[u8], _durability: Durability) -> Result<(), TargetError> {
        self.env.charge(1_000);
        Ok(())
    }

    fn write(&mut self, _changes: &[Change], _durability: Durability) -> Result<(), TargetError> {
        self.env.charge(1_000);
        Ok(())
    }

    fn scan(
        &mut self,
        _start: Option<&[u8]>,
        _direction: Direction,
        _limit: u64,
        _visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        self.env.charge(1_000);
        Ok(0)
    }
}
