//! What somebody meant who wrote a name that is not there.

/// Of `known` the name nearest to `word`, if it is so near that it was surely meant: a slip or two of the keyboard.
pub fn nearest_name<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is longer than any name is not compared, which would take its length times theirs.
    if word.len() > 100 {
        return None;
    }
    let letters = |name: &str| -> String {
        name.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
    };
    let word = letters(word);
    let slips_max = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&word, &letters(name)), name))
        .filter(|(slips, name)| *slips <= slips_max && *slips < letters(name).chars().count())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_through_and_other_words_are_not() {
        let known = ["write_buffer_size", "block_size", "num_levels", "disk", "imr", "ssd", "zns"];
        for (word, meant) in [
            ("write_bufer_size", Some("write_buffer_size")),
            ("write-buffer-size", Some("write_buffer_size")),
            ("WriteBufferSize", Some("write_buffer_size")),
            ("blocksize", Some("block_size")),
            ("dsk", Some("disk")),
            ("IMR", Some("imr")),
            ("sdd", Some("ssd")),
            ("num_level", Some("num_levels")),
            ("colour", None),
            ("x", None),
            ("", None),
            (&"a".repeat(1 << 20), None),
        ] {
            assert_eq!(nearest_name(word, known), meant, "{:.20}", word);
        }
    }
}
