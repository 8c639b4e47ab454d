//! Writes a source file so that it has all of its mutants, of which a switch chooses one while it runs.
//!
//! An expression becomes a choice between what it would be and what it is; within what it would be nothing else is
//! changed, so that the text grows with the depth of an expression, not with a power of it. Where each piece has come
//! to stand is kept: what the compiler complains of is found by it. Without a mutant chosen the file means what it did. Plain functions.

use super::points::{Kind, Site};
use std::ops::Range;

/// A file with its mutants.
#[derive(Debug)]
pub struct Rewritten {
    /// What is written.
    pub text: String,
    /// Of each mutant that is there, what would stand instead.
    mutants: Vec<(u32, Range<usize>)>,
    /// Of each site, all that has come of it, and the function's body that it is in.
    sites: Vec<(Vec<u32>, Range<usize>, Range<usize>)>,
}

/// Writes a file. The mutants have numbers from `first` on, in the order of the sites; those that `has` says no to are left out.
/// The question whether a number is chosen is asked of the function `switch`.
pub fn rewrite(
    text: &str,
    sites: &[Site],
    first: u32,
    switch: &str,
    has: impl Fn(u32) -> bool,
) -> Rewritten {
    let mut left = first..;
    let numbered: Vec<Numbered<'_>> = sites
        .iter()
        .map(|site| (site, left.by_ref().take(site.variants.len()).collect()))
        .collect();
    let mut writer = Writer {
        source: text,
        switch,
        has: &has,
        out: Rewritten { text: String::new(), mutants: Vec::new(), sites: Vec::new() },
    };
    let mut rest = &numbered[..];
    writer.copy(0..text.len(), &mut rest);
    writer.out
}

/// A site, and the numbers of its variants.
type Numbered<'a> = (&'a Site, Vec<u32>);

struct Writer<'a, F> {
    source: &'a str,
    switch: &'a str,
    has: &'a F,
    out: Rewritten,
}

impl<'a, F: Fn(u32) -> bool> Writer<'a, F> {
    /// Copies a range, with the sites in it, which are taken from `rest`.
    fn copy(&mut self, range: Range<usize>, rest: &mut &[Numbered<'a>]) {
        let mut at = range.start;
        while let Some(((site, numbers), others)) = rest.split_first() {
            if site.range.start >= range.end && !(range.is_empty() && site.range == range) {
                break;
            }
            *rest = others;
            self.plain(at..site.range.start);
            at = site.range.end;
            self.site(site, numbers, rest);
        }
        self.plain(at..range.end);
    }

    fn plain(&mut self, range: Range<usize>) {
        self.out.text.push_str(self.source.get(range).unwrap_or_default());
    }

    fn site(&mut self, site: &'a Site, numbers: &[u32], rest: &mut &[Numbered<'a>]) {
        let there: Vec<(u32, &str)> = numbers
            .iter()
            .zip(&site.variants)
            .filter(|&(&number, _)| (self.has)(number))
            .map(|(&number, variant)| (number, &*variant.text))
            .collect();
        let begin = self.out.text.len();
        let index = self.out.sites.len();
        let kept = there.iter().map(|&(number, _)| number).collect();
        self.out.sites.push((kept, 0..0, site.body.clone()));
        let switch = self.switch;
        match site.kind {
            Kind::Expression if there.is_empty() => self.copy(site.range.clone(), rest),
            Kind::Expression => {
                self.push("(");
                for (number, text) in there {
                    self.push(&format!("if {switch}({number}) {{ "));
                    self.mutant(number, text);
                    self.push(" } else ");
                }
                self.push("{ ");
                self.copy(site.range.clone(), rest);
                self.push(" })");
            }
            Kind::Body => {
                for (number, text) in there {
                    self.push(&format!(" if {switch}({number}) {{ "));
                    self.mutant(number, &format!("return {text};"));
                    self.push(" }");
                }
            }
            Kind::Arm => {
                for (number, _) in there {
                    self.mutant(number, &format!(" if !{switch}({number})"));
                }
            }
        }
        self.out.sites[index].1 = begin..self.out.text.len();
    }

    fn push(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn mutant(&mut self, number: u32, text: &str) {
        let begin = self.out.text.len();
        self.push(text);
        self.out.mutants.push((number, begin..self.out.text.len()));
    }
}

impl Rewritten {
    /// Which mutants the compiler means when it complains of this line and column, counted from 1: the one whose text it
    /// is, else those of the innermost site round it, else those of all sites of the function; none if there is none.
    pub fn meant(&self, line: usize, column: usize) -> Vec<u32> {
        let Some(at) = self.offset(line, column) else { return Vec::new() };
        let own = self.mutants.iter().filter(|(_, range)| range.contains(&at));
        if let Some((number, _)) = own.min_by_key(|(_, range)| range.len()) {
            return vec![*number];
        }
        let there = || self.sites.iter().filter(|(numbers, ..)| !numbers.is_empty());
        let round = there().filter(|(_, range, _)| range.contains(&at));
        if let Some((numbers, ..)) = round.min_by_key(|(_, range, _)| range.len()) {
            return numbers.clone();
        }
        // The function is the one of the last site before the place, or of the first one behind it.
        let last = there().rfind(|(_, range, _)| range.start <= at).or_else(|| there().next());
        let Some((_, _, body)) = last else { return Vec::new() };
        there().filter(|(.., of)| of == body).flat_map(|(numbers, ..)| numbers.clone()).collect()
    }

    fn offset(&self, line: usize, column: usize) -> Option<usize> {
        let text = self.text.split_inclusive('\n').nth(line.checked_sub(1)?)?;
        let before: usize = self.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let within = text.char_indices().nth(column.checked_sub(1)?).map(|(at, _)| at);
        Some(before + within.unwrap_or(text.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::points::find;
    use super::*;

    fn all(source: &str) -> Rewritten {
        rewrite(source, &find(source).unwrap(), 0, "m", |_| true)
    }

    #[test]
    fn an_operator_within_another_is_changed_alone() {
        let rewritten = all("fn f(a: u8) -> X { a + 1 == 2 }");
        let expected = "fn f(a: u8) -> X { (if m(0) { (a + 1) != (2) } else { \
                        (if m(1) { (a) - (1) } else if m(2) { (a) * (1) } else { a + 1 }) == 2 }) }";
        assert_eq!(rewritten.text, expected);
    }

    #[test]
    fn a_body_returns_what_its_type_has() {
        let body = |source: &str| {
            let text = all(source).text;
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            text
        };
        assert_eq!(
            body("fn f() -> bool { g() }"),
            "fn f() -> bool { if m(0) { return true; } if m(1) { return false; } g() }"
        );
        assert_eq!(body("fn f() { g(); }"), "fn f() { if m(0) { return (); } g(); }");
        assert_eq!(body("fn f() {}"), "fn f() {}");
        assert_eq!(
            body("fn f() -> bool { true }"),
            "fn f() -> bool { if m(0) { return false; } true }"
        );
        assert_eq!(
            body("fn f() -> Result<Option<u8>, E> { g() }"),
            "fn f() -> Result<Option<u8>, E> { if m(0) { return Ok(None); } \
             if m(1) { return Ok(Some(0)); } if m(2) { return Ok(Some(1)); } g() }"
        );
        assert_eq!(body("fn f() -> &u8 { g() }"), "fn f() -> &u8 { g() }");
    }

    #[test]
    fn guards_and_arms_are_taken_or_not() {
        let text = all("fn f() -> X { match a { 1 => b, 2 if c(d) => e, _ => h } }").text;
        let expected = "fn f() -> X { match a { 1 if !m(0) => b, \
                        2 if (if m(1) { true } else if m(2) { false } else { c(d) }) => e, _ => h } }";
        assert_eq!(text, expected);
        let same = "fn f() -> X { match a { A => b, B => c } }";
        assert_eq!(all(same).text, same);
    }

    #[test]
    fn what_is_no_code_of_the_product_is_left_alone() {
        for same in [
            "#[cfg(test)] mod tests { fn f() -> bool { a == b } }",
            "#[cfg(loom)] fn f() -> bool { a == b }",
            "const A: u8 = 1 + 2; static B: [u8; 1 + 1] = [0; 1 + 1];",
            "fn f() -> X { const A: u8 = 1 + 2; let x: [u8; 1 + 1] = [0; 1 + 1]; x }",
            "fn f() -> X { assert!(a == b); g() }",
            "impl fmt::Display for A { fn fmt(&self) -> bool { a == b } }",
            "#[allow(a = 1 + 1)] fn f() -> X { g() }",
            "fn f() -> X { if let Some(a) = b && c { d } else { e } }",
            "fn f() -> X { #[cfg(shuttle)] { g(a + b); } h }",
        ] {
            assert_eq!(all(same).text, same);
        }
    }

    #[test]
    fn what_the_compiler_complains_of_is_found() {
        let source = "fn f(a: u8) -> X {\n    é(a + 1)\n}\nfn g() -> bool { h }\n";
        let rewritten = all(source);
        let column = |line: usize, words: &str| {
            let line = rewritten.text.lines().nth(line - 1).unwrap();
            line[..line.find(words).unwrap()].chars().count() + 1
        };
        assert_eq!(rewritten.meant(2, column(2, "- (1)")), [0]);
        assert_eq!(rewritten.meant(2, column(2, "* (1)")), [1]);
        assert_eq!(
            rewritten.meant(2, column(2, "a + 1")),
            [0, 1],
            "the site, if it is what was there"
        );
        assert_eq!(rewritten.meant(2, 5), [0, 1], "the function, if it is none of its sites");
        assert_eq!(rewritten.meant(4, column(4, "false")), [3]);
        assert_eq!(rewritten.meant(900, 1), [0; 0]);
    }

    #[test]
    fn what_does_not_compile_is_left_out() {
        let source = "fn f() -> bool { a + b }";
        let without = |left_out: &[u32]| {
            let sites = find(source).unwrap();
            rewrite(source, &sites, 10, "m", |number| !left_out.contains(&number)).text
        };
        assert_eq!(
            without(&[10, 12]),
            "fn f() -> bool { if m(11) { return false; } (if m(13) { (a) * (b) } else { a + b }) }"
        );
        assert_eq!(without(&[10, 11, 12, 13]), source);
    }
}
