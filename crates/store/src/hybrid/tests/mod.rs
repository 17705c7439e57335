//! Files of several devices.

mod cached;
