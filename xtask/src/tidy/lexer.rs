//! Just enough Rust to know which paths a file names: tokens, use trees, and what is only for tests.

/// A token that matters, and the line it is on, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Name(String),
    /// Any other character of the code. `::` is one token.
    Mark(&'static str),
    Other(char),
}

impl Token {
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Name(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn is(&self, text: char) -> bool {
        self.kind == Kind::Other(text)
    }

    fn is_path_separator(&self) -> bool {
        self.kind == Kind::Mark("::")
    }
}

/// The tokens of `text` without comments, literals and lifetimes. Text that is not Rust gives some
/// tokens or other.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let characters: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { characters, position: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next() {
        tokens.push(token);
    }
    tokens
}

struct Lexer {
    characters: Vec<char>,
    position: usize,
    line: usize,
}

fn continues_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn advance(&mut self) -> Option<char> {
        let character = self.peek(0)?;
        self.position += 1;
        if character == '\n' {
            self.line += 1;
        }
        Some(character)
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.advance();
        }
    }

    fn next(&mut self) -> Option<Token> {
        loop {
            let line = self.line;
            let first = self.peek(0)?;
            let second = self.peek(1);
            match (first, second) {
                ('/', Some('/')) => while self.advance().is_some_and(|character| character != '\n') {},
                ('/', Some('*')) => self.skip_block_comment(),
                ('"', _) => self.skip_string(),
                ('\'', _) => self.skip_character_or_lifetime(),
                (':', Some(':')) => {
                    self.skip(2);
                    return Some(Token { kind: Kind::Mark("::"), line });
                }
                _ if first.is_whitespace() => self.skip(1),
                _ if first.is_ascii_digit() => self.skip_number(),
                _ if continues_name(first) => {
                    let name = self.take_name();
                    if !self.skip_prefixed_literal(&name) {
                        return Some(Token { kind: Kind::Name(name), line });
                    }
                }
                _ => {
                    self.skip(1);
                    return Some(Token { kind: Kind::Other(first), line });
                }
            }
        }
    }

    fn take_name(&mut self) -> String {
        let mut name = String::new();
        while let Some(character) = self.peek(0).filter(|&character| continues_name(character)) {
            name.push(character);
            self.advance();
        }
        // r#name is the name; r#"..."# is not one.
        if name == "r" && self.peek(0) == Some('#') && self.peek(1).is_some_and(continues_name) {
            self.advance();
            return self.take_name();
        }
        name
    }

    /// After `r`, `b`, `br`, `c` or `cr`: skips the literal it begins, if it does.
    fn skip_prefixed_literal(&mut self, prefix: &str) -> bool {
        match prefix {
            "b" | "c" if self.peek(0) == Some('"') => self.skip_string(),
            "b" if self.peek(0) == Some('\'') => self.skip_character_or_lifetime(),
            "r" | "br" | "cr" => {
                let hashes = (0..).take_while(|&ahead| self.peek(ahead) == Some('#')).count();
                if self.peek(hashes) != Some('"') {
                    return false;
                }
                self.skip(hashes + 1);
                while let Some(character) = self.advance() {
                    if character == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                        self.skip(hashes);
                        break;
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while let Some(character) = self.peek(0) {
            match (character, self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.skip(2);
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.skip(2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.skip(1),
            }
        }
    }

    fn skip_string(&mut self) {
        self.skip(1);
        while let Some(character) = self.advance() {
            match character {
                '\\' => self.skip(1),
                '"' => return,
                _ => {}
            }
        }
    }

    fn skip_character_or_lifetime(&mut self) {
        self.skip(1);
        if self.peek(0) == Some('\\') {
            self.skip(2);
            while self.advance().is_some_and(|character| character != '\'') {}
        } else if self.peek(1) == Some('\'') {
            self.skip(2);
        } else {
            while self.peek(0).is_some_and(continues_name) {
                self.skip(1);
            }
        }
    }

    fn skip_number(&mut self) {
        while self.peek(0).is_some_and(continues_name) {
            self.skip(1);
        }
        // A fraction, but neither a range nor a method of the number.
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|character| character.is_ascii_digit()) {
            self.skip(1);
            self.skip_number();
        }
    }
}

/// A file's code, divided into what is built always and the modules built for tests only.
pub(crate) struct Divided {
    pub(crate) tokens: Vec<Token>,
    /// Modules declared for tests whose text is another file.
    pub(crate) test_modules: Vec<String>,
}

/// Takes out every item under `#[cfg(test)]`.
pub(crate) fn without_tests(tokens: Vec<Token>) -> Divided {
    let mut divided = Divided { tokens: Vec::new(), test_modules: Vec::new() };
    let mut position = 0;
    while position < tokens.len() {
        match attribute_end(&tokens, position) {
            Some(end) if is_for_tests(&tokens[position..end]) => {
                // More attributes may stand before the item.
                let mut item = end;
                while let Some(end) = attribute_end(&tokens, item) {
                    item = end;
                }
                let end = item_end(&tokens, item);
                let item = &tokens[item..end];
                if let Some(at) = item.iter().position(|token| token.name() == Some("mod"))
                    && item.get(at + 2).is_some_and(|token| token.is(';'))
                    && let Some(name) = item[at + 1].name()
                {
                    divided.test_modules.push(name.to_owned());
                }
                position = end;
            }
            _ => {
                divided.tokens.push(tokens[position].clone());
                position += 1;
            }
        }
    }
    divided
}

/// Where the attribute that begins at `position` ends.
fn attribute_end(tokens: &[Token], position: usize) -> Option<usize> {
    let opening = position + 1;
    if !tokens.get(position)?.is('#') || !tokens.get(opening)?.is('[') {
        return None;
    }
    Some(closing(tokens, opening) + 1)
}

/// Whether an attribute is `cfg(test)`, alone or among others, and not negated.
fn is_for_tests(attribute: &[Token]) -> bool {
    let names: Vec<&str> = attribute.iter().filter_map(Token::name).collect();
    names.first() == Some(&"cfg") && names.contains(&"test") && !names.contains(&"not") && !names.contains(&"any")
}

/// The index of the bracket that closes the one at `opening`, or the last token.
fn closing(tokens: &[Token], opening: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(opening) {
        match token.kind {
            Kind::Other('(' | '[' | '{') => depth += 1,
            Kind::Other(')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index;
                }
            }
            _ => {}
        }
    }
    tokens.len() - 1
}

/// Where the item that begins at `position` ends: after its `;` or its braces.
fn item_end(tokens: &[Token], mut position: usize) -> usize {
    // The braces of a use tree are not its end.
    let head = tokens[position..].iter().take_while(|token| !token.is('{') && !token.is(';'));
    let is_use = head.into_iter().any(|token| token.name() == Some("use"));
    while position < tokens.len() {
        match tokens[position].kind {
            Kind::Other(';') => return position + 1,
            Kind::Other('{') if !is_use => return closing(tokens, position) + 1,
            Kind::Other('(' | '[' | '{') => position = closing(tokens, position) + 1,
            _ => position += 1,
        }
    }
    tokens.len()
}

/// A path a file names, with the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Segments joined by `::`; a glob ends with `*`.
    pub(crate) path: String,
    pub(crate) line: usize,
}

/// Every path of at least two segments, with `use` trees written out.
pub(crate) fn paths(tokens: &[Token]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut position = 0;
    while position < tokens.len() {
        if tokens[position].name() == Some("use") {
            position = use_tree(tokens, position + 1, &[], &mut found);
        } else if tokens[position].name().is_some() {
            let line = tokens[position].line;
            let mut segments = vec![];
            while let Some(name) = tokens.get(position).and_then(Token::name) {
                segments.push(name);
                position += 1;
                if !tokens.get(position).is_some_and(Token::is_path_separator) {
                    break;
                }
                position += 1;
            }
            if segments.len() > 1 {
                found.push(Named { path: segments.join("::"), line });
            }
        } else {
            position += 1;
        }
    }
    found
}

/// Writes out the tree that begins at `position`; returns where it ends.
fn use_tree(tokens: &[Token], mut position: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let mut segments = prefix.to_vec();
    let mut line = tokens.get(position).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(position) {
        match &token.kind {
            Kind::Name(name) if name == "as" => position += 2,
            Kind::Name(name) => {
                line = token.line;
                if name != "self" {
                    segments.push(name.clone());
                }
                position += 1;
            }
            Kind::Mark(_) => position += 1,
            Kind::Other('*') => {
                segments.push("*".to_owned());
                position += 1;
            }
            Kind::Other('{') => {
                position += 1;
                while position < tokens.len() && !tokens[position].is('}') {
                    if tokens[position].is(',') {
                        position += 1;
                    } else {
                        position = use_tree(tokens, position, &segments, found).max(position + 1);
                    }
                }
                return position + 1;
            }
            Kind::Other(_) => break,
        }
    }
    found.push(Named { path: segments.join("::"), line });
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_list(text: &str) -> Vec<String> {
        paths(&tokens(text)).into_iter().map(|named| named.path).collect()
    }

    fn names(text: &str) -> Vec<String> {
        tokens(text).iter().filter_map(|token| token.name().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text = r####"
            // std::fs in a line comment
            /* std::fs /* nested */ still */
            let a = "std::fs \" std::fs"; let b = r#"std::"fs"#; let c = b"std::fs"; let d = br##"x"#y"##;
            let e = 'x'; let f = '\''; let g = '\u{41}'; let h = b'"'; fn i<'a>(j: &'a str) {} let r#k = 1.5e3..2;
        "####;
        assert_eq!(
            names(text),
            ["let", "a", "let", "b", "let", "c", "let", "d", "let", "e", "let", "f", "let", "g", "let", "h", "fn", "i"]
                .into_iter()
                .chain(["j", "str", "let", "k"])
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn use_trees_are_written_out() {
        assert_eq!(
            path_list("use std::{fs::{self, File as F}, io, time::*}; pub(crate) use a::b as c; use ::std::thread;"),
            ["std::fs", "std::fs::File", "std::io", "std::time::*", "a::b", "std::thread"]
        );
    }

    #[test]
    fn paths_in_expressions_are_found_with_their_line() {
        let found = paths(&tokens("fn f() {\n  std::thread::sleep(x);\n  let y: Vec<std::fs::File> = g::<u8>();\n}"));
        assert_eq!(
            found,
            [Named { path: "std::thread::sleep".into(), line: 2 }, Named { path: "std::fs::File".into(), line: 3 },]
        );
    }

    #[test]
    fn tests_are_taken_out() {
        let text = "use a::b; #[cfg(test)] mod tests { use c::d; fn e() { f::g(); } } use h::i;
            #[cfg(test)] #[allow(x)] use j::{k, l}; #[cfg(test)] pub(crate) mod other; #[cfg(not(test))] use m::n;
            #[cfg(test)] fn o(p: [u8; 3]) -> q::r { s::t() } #[derive(Debug)] struct U { v: w::x }";
        let divided = without_tests(tokens(text));
        let left: Vec<String> = paths(&divided.tokens).into_iter().map(|named| named.path).collect();
        assert_eq!(left, ["a::b", "h::i", "m::n", "w::x"]);
        assert_eq!(divided.test_modules, ["other"]);
    }

    #[test]
    fn broken_text_ends() {
        for text in ["\"", "r#\"", "/*", "'", "use a::{", "use", "#[cfg(test)]", "#[", "use a::{{", "b'", "r#", "'\\"] {
            let divided = without_tests(tokens(text));
            paths(&divided.tokens);
        }
    }
}
