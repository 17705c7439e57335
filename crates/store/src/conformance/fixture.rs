//! Media for the tests of what stands on stores. Each store says which there are of it: how they are made, and how it is
//! opened on them.

use crate::error::StoreError;
use crate::file_store::FileStore;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, Directory};

/// A medium with a store on it.
#[derive(Clone, Copy)]
pub struct Fixture {
    /// Name, as what was reached on it is told.
    pub name: &'static str,
    /// What it is made of.
    pub ground: Ground,
    /// Files and logs are on two such media, each with a store of its own.
    pub logs_apart: bool,
    /// In which ways the store can be set up, where these are many: each is drawn as rarely as all of another fixture.
    pub policies: Option<FixturePolicies>,
    /// How many shares it has of what is drawn among those without policies.
    pub share: usize,
    /// Space for files that it takes, where what is usual for others is too little.
    pub space_bytes: Option<u64>,
    /// What files are placed in: a band or a track; 0 where it is any number of bytes.
    pub unit_bytes: u64,
}

/// Ways to set up a store.
#[derive(Clone, Copy)]
pub struct FixturePolicies {
    /// How many there are.
    pub count: usize,
    /// What one is, for messages.
    pub text: fn(usize) -> String,
}

/// What a store stands on. What makes devices takes their name, the number of a policy, and the space for files they are
/// to have; an empty store is on them then. They take no time.
#[derive(Clone, Copy)]
pub enum Ground {
    /// A directory; an empty one is an empty store.
    Directory {
        /// Opens the store in it.
        open: fn(&Env, Arc<dyn Directory>) -> Result<Arc<dyn FileStore>, StoreError>,
    },
    /// A device.
    Device {
        /// Makes it.
        make: fn(&Env, &str, usize, u64) -> Device,
        /// Opens the store on it.
        open: fn(&Env, Device) -> Result<Arc<dyn FileStore>, StoreError>,
    },
    /// A device and one for what the same store keeps apart.
    Pair {
        /// Makes both.
        make: fn(&Env, &str, usize, u64) -> [Device; 2],
        /// Opens the store on both.
        open: fn(&Env, [Device; 2]) -> Result<Arc<dyn FileStore>, StoreError>,
    },
    /// Devices of which one is made.
    Members {
        /// Makes them.
        make: fn(&Env, &str, usize, u64) -> Vec<Device>,
        /// Opens the store on the device that is made of them.
        open: fn(&Env, Vec<Device>) -> Result<Arc<dyn FileStore>, StoreError>,
    },
}

impl Fixture {
    /// One medium of this name, with the usual space, as often drawn as any.
    pub const fn new(name: &'static str, ground: Ground) -> Fixture {
        Fixture { name, ground, logs_apart: false, policies: None, share: 1, space_bytes: None, unit_bytes: 0 }
    }
}
