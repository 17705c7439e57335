//! Just enough Rust to know which paths a file names: tokens, use trees, and what is only for tests.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

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

/// The tokens of `text` without comments, literals and lifetimes.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, NotRust> {
    let stream: TokenStream =
        text.parse().map_err(|error: proc_macro2::LexError| NotRust { line: error.span().start().line })?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    Ok(tokens)
}

/// Why a text has no tokens: no token begins on this line, or a bracket there has no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotRust {
    pub(crate) line: usize,
}

/// Appends the tokens of `stream`, brackets as tokens of their own. Documentation is the attribute it stands for.
fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let brackets = match group.delimiter() {
                    Delimiter::Parenthesis => Some(('(', ')')),
                    Delimiter::Bracket => Some(('[', ']')),
                    Delimiter::Brace => Some(('{', '}')),
                    Delimiter::None => None,
                };
                tokens.extend(brackets.map(|(opening, _)| Token { kind: Kind::Other(opening), line }));
                let line = group.span_close().start().line;
                flatten(group.stream(), tokens);
                tokens.extend(brackets.map(|(_, closing)| Token { kind: Kind::Other(closing), line }));
            }
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let name = name.strip_prefix("r#").unwrap_or(&name).to_owned();
                tokens.push(Token { kind: Kind::Name(name), line });
            }
            TokenTree::Literal(_) => {}
            TokenTree::Punct(mark) => match mark.as_char() {
                // The name of a lifetime follows.
                '\'' => drop(trees.next()),
                ':' if mark.spacing() == Spacing::Joint && is_colon(trees.peek()) => {
                    trees.next();
                    tokens.push(Token { kind: Kind::Mark("::"), line });
                }
                other => tokens.push(Token { kind: Kind::Other(other), line }),
            },
        }
    }
}

fn is_colon(tree: Option<&TokenTree>) -> bool {
    matches!(tree, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
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
        paths(&tokens(text).unwrap()).into_iter().map(|named| named.path).collect()
    }

    fn names(text: &str) -> Vec<String> {
        tokens(text).unwrap().iter().filter_map(|token| token.name().map(str::to_owned)).collect()
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
        let found =
            paths(&tokens("fn f() {\n  std::thread::sleep(x);\n  let y: Vec<std::fs::File> = g::<u8>();\n}").unwrap());
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
        let divided = without_tests(tokens(text).unwrap());
        let left: Vec<String> = paths(&divided.tokens).into_iter().map(|named| named.path).collect();
        assert_eq!(left, ["a::b", "h::i", "m::n", "w::x"]);
        assert_eq!(divided.test_modules, ["other"]);
    }

    #[test]
    fn a_line_is_told_for_every_token() {
        let text = "a\n{ /* b\n */ c(\n\"d\ne\"\n)\n}";
        let lines: Vec<usize> = tokens(text).unwrap().iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 3, 6, 7]);
    }

    #[test]
    fn documentation_is_passed_over() {
        let text = "//! std::fs\n#[cfg(test)]\n/// std::fs\nuse a::b;\n/** std::fs */ use c::d; fn e(x: ::f::G) -> u8 { x.0.ln() }";
        let divided = without_tests(tokens(text).unwrap());
        let left: Vec<String> = paths(&divided.tokens).into_iter().map(|named| named.path).collect();
        assert_eq!(left, ["c::d", "f::G"]);
        assert!(divided.tokens.windows(3).any(|three| three[0].is('.') && three[1].name() == Some("ln")));
    }

    #[test]
    fn what_is_no_rust_is_told() {
        for text in ["\"", "r#\"", "/*", "'", "use a::{", "#[", "use a::{{", "b'", "'\\", "\n)"] {
            assert!(tokens(text).is_err(), "{text}");
        }
        assert_eq!(tokens("a\n\nb )\n"), Err(NotRust { line: 3 }));
        for text in ["use", "#[cfg(test)]", "use a::", "r#", "::", "mod", "#[cfg(test)] mod", "fn f(", ""] {
            let divided = without_tests(tokens(text).unwrap_or_default());
            paths(&divided.tokens);
        }
    }
}
