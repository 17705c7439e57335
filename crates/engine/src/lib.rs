//! One ordered key-value database, many trees.
