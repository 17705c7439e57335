//! The project's verbs.
fn main() {}
