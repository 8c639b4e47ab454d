//! A light lexer for Rust: tells code, comments and literals apart, line by line.
//!
//! Invariants: `code`, `comment` and `raw` of a [`Source`] have the same number of lines; in `code`
//! every comment and the inside of every literal is blanked by spaces, so that braces balance and a
//! word found there is a word of the program. It never fails: what it cannot make sense of stays
//! code. Plain values, no shared state.

/// One Rust file, split into what the compiler reads and what people read.
pub struct Source {
    /// The lines as they are.
    pub raw: Vec<String>,
    /// The lines with comments and the inside of literals blanked.
    pub code: Vec<String>,
    /// The text of the comments of each line, with their markers (`//`, `///`, `//!`, `/*`).
    pub comment: Vec<String>,
    /// Whether the line lies in an item under `#[cfg(test)]` (or the like).
    pub in_test: Vec<bool>,
}

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Str,
    RawStr { hashes: usize },
}

impl Source {
    /// Splits a file. `whole_file_is_test` marks every line as test code.
    pub fn new(text: &str, whole_file_is_test: bool) -> Source {
        let (code, comment) = split(text);
        let raw: Vec<String> = text.lines().map(str::to_owned).collect();
        let in_test = if whole_file_is_test { vec![true; raw.len()] } else { test_lines(&code) };
        Source { raw, code, comment, in_test }
    }

    /// The code as one text, lines joined by newlines.
    pub fn code_text(&self) -> String {
        self.code.join("\n")
    }
}

fn split(text: &str) -> (Vec<String>, Vec<String>) {
    let mut code = Vec::new();
    let mut comment = Vec::new();
    let mut state = State::Code;
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        let mut code_line = String::with_capacity(line.len());
        let mut comment_line = String::new();
        let mut at = 0;
        while at < chars.len() {
            let (taken, is_code, is_comment, next) = step(&chars, at, state);
            for &c in &chars[at..at + taken] {
                code_line.push(if is_code { c } else { ' ' });
                if is_comment {
                    comment_line.push(c);
                }
            }
            at += taken;
            state = next;
        }
        if let State::LineComment = state {
            state = State::Code;
        }
        code.push(code_line);
        comment.push(comment_line);
    }
    (code, comment)
}

/// How many characters to take at `at`, whether they are code, whether comment, and what follows.
fn step(chars: &[char], at: usize, state: State) -> (usize, bool, bool, State) {
    let c = chars[at];
    let next = chars.get(at + 1).copied();
    match state {
        State::Code => match (c, next) {
            ('/', Some('/')) => (chars.len() - at, false, true, State::LineComment),
            ('/', Some('*')) => (2, false, true, State::BlockComment { depth: 1 }),
            ('"', _) => (1, true, false, State::Str),
            ('r' | 'b' | 'c', _) if !continues_word(chars, at) => match raw_start(chars, at) {
                Some((taken, hashes)) => (taken, true, false, State::RawStr { hashes }),
                None => (1, true, false, state),
            },
            ('\'', _) => (char_literal_len(chars, at), char_is_lifetime(chars, at), false, state),
            _ => (1, true, false, state),
        },
        State::LineComment => (chars.len() - at, false, true, state),
        State::BlockComment { depth } => match (c, next) {
            ('/', Some('*')) => (2, false, true, State::BlockComment { depth: depth + 1 }),
            ('*', Some('/')) if depth == 1 => (2, false, true, State::Code),
            ('*', Some('/')) => (2, false, true, State::BlockComment { depth: depth - 1 }),
            _ => (1, false, true, state),
        },
        State::Str => match c {
            '\\' if next.is_some() => (2, false, false, state),
            '"' => (1, true, false, State::Code),
            _ => (1, false, false, state),
        },
        State::RawStr { hashes } => {
            let closes = c == '"' && (1..=hashes).all(|i| chars.get(at + i) == Some(&'#'));
            if closes { (1 + hashes, true, false, State::Code) } else { (1, false, false, state) }
        }
    }
}

fn continues_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

/// `r"`, `r#"`, `br##"` and so on at `at`: characters up to and with the quote, and the hashes.
fn raw_start(chars: &[char], at: usize) -> Option<(usize, usize)> {
    let mut end = at;
    if matches!(chars[end], 'b' | 'c') {
        end += 1;
    }
    if chars.get(end) != Some(&'r') {
        return None;
    }
    end += 1;
    let first_hash = end;
    while chars.get(end) == Some(&'#') {
        end += 1;
    }
    (chars.get(end) == Some(&'"')).then_some((end + 1 - at, end - first_hash))
}

fn char_is_lifetime(chars: &[char], at: usize) -> bool {
    char_literal_len(chars, at) == 1
}

/// Length of the character literal at `at`; 1 if the quote opens a lifetime or a label.
fn char_literal_len(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars.iter().skip(at + 3).position(|&c| c == '\'');
        return close.map_or(1, |offset| offset + 4);
    }
    if chars.get(at + 2) == Some(&'\'') { 3 } else { 1 }
}

/// Marks the lines of items under an attribute that names `test`: from the attribute to the end of
/// the braces or to the semicolon.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut marks = vec![false; code.len()];
    let mut line = 0;
    while line < code.len() {
        let text = code[line].trim_start();
        if !(text.starts_with("#[cfg(test)]") || text.starts_with("#[cfg(all(test")) {
            line += 1;
            continue;
        }
        let end = item_end(code, line);
        marks[line..=end].fill(true);
        line = end + 1;
    }
    marks
}

/// The last line of the item that starts at `line`: where its braces close, or its semicolon.
pub fn item_end(code: &[String], line: usize) -> usize {
    let mut braces = 0usize;
    let mut brackets = 0usize;
    for (number, text) in code.iter().enumerate().skip(line) {
        for c in text.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 {
                        return number;
                    }
                }
                ';' if braces == 0 && brackets == 0 => return number,
                _ => {}
            }
        }
    }
    code.len() - 1
}
