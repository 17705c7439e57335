//! Files of several devices.
