//! A key-value store that knows what it is written on: a spec in, a stack out.
