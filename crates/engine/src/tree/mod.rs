//! How data is organised.

mod leveled;
