//! Time, threads, blocking and randomness: real, or simulated from a seed.
