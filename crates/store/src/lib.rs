//! Files over devices: where the files of a log-structured store live.
