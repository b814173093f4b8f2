//! Rust sources as far as the checks need them: code without comments and literals.

/// The text with comments, strings and character literals replaced by spaces, lines kept.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => end_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => end_of_block_comment(bytes, at),
            b'"' => end_of_string(bytes, at),
            b'r' if !continues_a_word(bytes, at) => match end_of_raw_string(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => match end_of_character(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn end_of_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |length| start + length)
}

/// Block comments nest.
fn end_of_block_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#`; `None` when it is a name or a raw identifier.
fn end_of_raw_string(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// Whether the byte at `at` is inside a word, and not `b` or `c` before a literal.
fn continues_a_word(bytes: &[u8], at: usize) -> bool {
    let is_word = |index: usize| bytes[index].is_ascii_alphanumeric() || bytes[index] == b'_';
    match at.checked_sub(1) {
        Some(before) if matches!(bytes[before], b'b' | b'c') => {
            before.checked_sub(1).is_some_and(is_word)
        }
        Some(before) => is_word(before),
        None => false,
    }
}

/// The end of a character literal; `None` when the quote begins a lifetime.
fn end_of_character(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        let close = bytes.get(start + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(start + 3 + close + 1);
    }
    let rest = std::str::from_utf8(&bytes[start + 1..]).ok()?;
    let width = rest.chars().next()?.len_utf8();
    (bytes.get(start + 1 + width) == Some(&b'\'')).then_some(start + 2 + width)
}

/// Places of a whole word in code.
pub fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let bytes = code.as_bytes();
        !is_word(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && !is_word(bytes.get(at + word.len()))
    })
}

/// The number of the line (from 1) at a place in the text.
pub fn line_number(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_vanish() {
        let text = "a /* unsafe /* unsafe */ */ b // unsafe\nc \"unsafe \\\" unsafe\" d";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn raw_strings_and_characters_vanish_and_lifetimes_stay() {
        let text =
            "x r#\"unsafe \" unsafe\"# br\"unsafe\" '\"' '\\'' '\u{e9}' &'static r#type bar \"y\"";
        let words = code_only(text);
        let words: Vec<_> = words.split_whitespace().collect();
        assert_eq!(words, ["x", "b", "&'static", "r#type", "bar"]);
    }

    #[test]
    fn only_whole_words_are_found() {
        let found: Vec<_> = find_word("unsafe unsafe_code un unsafe{", "unsafe").collect();
        assert_eq!(found, [0, 22]);
        assert_eq!(line_number("a\nb\nc", 4), 3);
    }

    #[test]
    fn broken_sources_do_not_panic() {
        for text in ["\"", "'", "'\\", "r#\"", "/*", "/", "b'", "'\u{e9}", "\"\\"] {
            assert_eq!(code_only(text).len(), text.len(), "{text:?}");
        }
    }
}
