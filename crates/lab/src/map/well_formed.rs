//! Whether markup is whole: every element that begins ends, in order.

/// Checks a document of elements, attributes in double quotes, and text.
pub(super) fn check(markup: &str) -> Result<(), String> {
    let (mut open, mut rest): (Vec<&str>, &str) = (Vec::new(), markup);
    let entities = ["amp;", "lt;", "gt;", "quot;"];
    let is_text = |text: &str| {
        !text.contains('>')
            && text.split('&').skip(1).all(|after| entities.iter().any(|entity| after.starts_with(entity)))
    };
    while let Some((text, after)) = rest.split_once('<') {
        if !is_text(text) {
            return Err(format!("not text: {text}"));
        }
        let (tag, after) = after.split_once('>').ok_or("a tag does not end")?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let expected = open.pop();
            if expected != Some(name) {
                return Err(format!("</{name}> ends {expected:?}"));
            }
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut attributes) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!("<{name}> is no element"));
        }
        while !attributes.trim_start().is_empty() {
            let (_, after) = attributes.split_once("=\"").ok_or(format!("<{name} {attributes}>"))?;
            let (value, after) = after.split_once('"').ok_or(format!("<{name} {attributes}>"))?;
            if value.contains('<') || !is_text(value) {
                return Err(format!("{value} in <{name}>"));
            }
            attributes = after;
        }
        if !is_empty {
            open.push(name);
        }
    }
    match open.last() {
        None if is_text(rest) => Ok(()),
        last => Err(format!("{last:?} is open at the end, and {rest}")),
    }
}

#[test]
fn what_is_not_whole_is_told() {
    check("<a b=\"1\" c=\"&amp;\"><d/>text &lt;</a>\n").unwrap();
    for wrong in ["<a>", "</a>", "<a></b>", "<a b></a>", "<a b=\"<\"></a>", "a & b", "<a", "<a><b></a></b>", "a > b"] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}
