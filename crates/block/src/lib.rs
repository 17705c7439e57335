//! Devices over devices.
