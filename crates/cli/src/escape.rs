//! Bytes as text and back, without loss.
//!
//! Printable ASCII and valid UTF-8 stand for themselves, but for the backslash (`\\`); tab, newline
//! and carriage return are `\t`, `\n`, `\r`; every other byte is `\xNN`; `\e` stands for nothing. So each record is one line
//! with one tab between key and value, whatever the bytes are, and `parse(escape(x)) == x`.

/// The text of no bytes at all, where nothing would be overlooked.
pub const EMPTY: &str = "\\e";

/// Bytes given as an argument, unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// Appends the text of `bytes` to `text`.
pub fn escape_into(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    push_hex(c.encode_utf8(&mut buffer).as_bytes(), text);
                }
                c => text.push(c),
            }
        }
        push_hex(chunk.invalid(), text);
    }
}

/// The text of `bytes`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    escape_into(bytes, &mut text);
    text
}

/// Bytes that come in pieces, which may cut a character in two: their text is that of all of them at once.
#[derive(Default)]
pub struct Pieces {
    /// The beginning of a character whose end has not come.
    begun: Vec<u8>,
}

impl Pieces {
    /// Appends the text of the next piece.
    pub fn escape_into(&mut self, piece: &[u8], is_last: bool, text: &mut String) {
        let joined;
        let bytes = match self.begun.is_empty() {
            true => piece,
            false => {
                joined = [&self.begun, piece].concat();
                &joined
            }
        };
        let begun_bytes = if is_last { 0 } else { begun_bytes(bytes) };
        let (whole, begun) = bytes.split_at(bytes.len() - begun_bytes);
        escape_into(whole, text);
        self.begun = begun.to_vec();
    }
}

/// How many bytes at the end begin a character and do not end it.
fn begun_bytes(bytes: &[u8]) -> usize {
    let begins = |count: &usize| {
        let end = &bytes[bytes.len() - count..];
        str::from_utf8(end)
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    // A character has at most four bytes.
    (1..=bytes.len().min(3)).find(begins).unwrap_or(0)
}

fn push_hex(bytes: &[u8], text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        text.push_str("\\x");
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// The bytes that an argument stands for.
pub fn parse(text: &str) -> Result<Bytes, String> {
    unescape(text.as_bytes()).map(Bytes)
}

/// The name of a keyspace that an argument stands for.
pub fn parse_name(text: &str) -> Result<String, String> {
    let name = String::from_utf8(unescape(text.as_bytes())?);
    name.map_err(|_| "the name of a keyspace must be UTF-8".to_owned())
}

/// [`parse`] for keys and values that stand by themselves, and may begin with a hyphen. With two hyphens it is taken for an
/// option that there is not, unless `--` stands before it.
pub fn parse_operand(text: &str) -> Result<Bytes, String> {
    if text.starts_with("--") && !has_argument(|argument| argument == "--") {
        return Err("unknown option; write -- before a key or value that begins with two hyphens"
            .to_owned());
    }
    parse(text)
}

/// [`parse`] for the value of an option, which may begin with a hyphen. With two hyphens it is taken for the next option, unless it
/// follows `=`.
pub fn parse_of_option(text: &str) -> Result<Bytes, String> {
    let joined = format!("={text}");
    if text.starts_with("--") && !has_argument(|argument| argument.ends_with(&joined)) {
        let words = "the option lacks a value; one that begins with two hyphens follows =, as in --prefix=--x";
        return Err(words.to_owned());
    }
    parse(text)
}

fn has_argument(is_so: impl Fn(&str) -> bool) -> bool {
    std::env::args_os().any(|argument| is_so(&argument.to_string_lossy()))
}

/// The bytes that escaped text stands for; bytes that are no escape stand for themselves.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let kind = text.get(at).copied();
        at += 1;
        bytes.push(match kind {
            Some(b'e') => continue,
            Some(b'\\') => b'\\',
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'x') => {
                let digits = text.get(at..at + 2).and_then(hex_byte);
                at += 2;
                digits.ok_or("`\\x` needs two hexadecimal digits")?
            }
            Some(other) => {
                let shown = escape(&[other]);
                return Err(format!("unknown escape `\\{shown}`; a backslash is written `\\\\`"));
            }
            None => return Err("a single backslash at the end; write `\\\\`".to_owned()),
        });
    }
    Ok(bytes)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = value(digits[0])? * 16 + value(digits[1])?;
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_pair_of_bytes_survives() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let bytes = [first, second];
                let text = escape(&bytes);
                assert!(!text.contains(['\t', '\n', '\r', '\0']), "{text:?}");
                assert_eq!(unescape(text.as_bytes()).unwrap(), bytes, "{text}");
            }
        }
    }

    #[test]
    fn text_stays_readable() {
        assert_eq!(escape("a b/J\u{f6}rg".as_bytes()), "a b/J\u{f6}rg");
        assert_eq!(escape(b"a\\\t\n\r\0\x7f\xff"), "a\\\\\\t\\n\\r\\x00\\x7f\\xff");
        assert_eq!(escape("\u{85}".as_bytes()), "\\xc2\\x85");
    }

    #[test]
    fn pieces_have_the_text_of_the_whole() {
        let whole = "a\u{f6}\u{20ac}\u{1f426}\\\t".as_bytes();
        let broken = [whole, b"\xf0\x9f", whole, b"\xe2\x82", b"\xc3\xff", whole, b"\xf0\x9f\x90"];
        for bytes in [whole.to_vec(), broken.concat()] {
            for len in 1..=bytes.len() {
                let (mut pieces, mut text) = (Pieces::default(), String::new());
                let count = bytes.len().div_ceil(len);
                for (number, piece) in bytes.chunks(len).enumerate() {
                    pieces.escape_into(piece, number + 1 == count, &mut text);
                }
                assert_eq!(text, escape(&bytes), "pieces of {len} bytes");
            }
        }
    }

    #[test]
    fn nothing_has_an_escape() {
        assert_eq!(unescape(EMPTY.as_bytes()).unwrap(), b"");
        assert_eq!(escape(b"\\e"), "\\\\e");
    }

    #[test]
    fn broken_escapes_are_named() {
        for broken in ["\\", "a\\", "\\q", "\\x", "\\x1", "\\xg0", "\\x+1"] {
            assert!(unescape(broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(unescape(b"\\q").unwrap_err().contains("`\\q`"));
    }
}
