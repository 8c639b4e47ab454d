//! The public surface of the engine, a line for each thing that a program can name, and whether it is as listed.
//!
//! [`list`] reads the source: what the crate's root re-exports, and in the files of the module that it comes from the item of that name with
//! its public fields, variants, functions and implementations. The list is `docs/public-api.txt`; `cargo xtask tidy --list-surface`
//! writes it anew, and whoever commits that says so in the changelog.
//!
//! What a macro of the engine makes is read as well, if the macro has one rule, whose parameters are a plain list or one repeated one
//! ([`Macros`]).
//!
//! It does not see what other macros make, automatic traits, and which of two types of one name an implementation is of, if both are below
//! one module. Whether paths of the list are all that can be named is for
//! `.ci/package` to try: it builds programs against the packed crate. Plain functions.

use super::{Finding, Tree};
use proc_macro2::{Group, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Type, UseTree, Visibility};

/// The list.
pub const PATH: &str = "docs/public-api.txt";
const ENGINE: &str = "crates/hedgerow/src/";
/// A module that is public as a whole.
const OPEN_MODULE: &str = "anatomy";
/// The private modules of traits that keep others from implementing a public one.
const SEALED: &str = "sealed";

/// Reports what is public and not listed, and what is listed and not public.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(listed) = tree.text.get(PATH) else { return };
    let (listed, found): (BTreeSet<&str>, _) = (listed.lines().collect(), list(tree));
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    for (what, lines) in [
        ("is public, but not listed", found.difference(&listed)),
        ("is listed, but not public", listed.difference(&found)),
    ] {
        for line in lines {
            let what = format!("`{line}` {what}: cargo xtask tidy --list-surface");
            findings.push(Finding::file(PATH, "surface", what));
        }
    }
}

/// The surface, in order.
pub fn list(tree: &Tree) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let Some(root) = parsed(tree, &format!("{ENGINE}lib.rs")) else { return lines };
    let mut exports = Vec::new();
    for item in &root.items {
        if let Item::Use(item) = item
            && is_public(&item.vis)
            && is_for_all(&item.attrs)
        {
            leaves(&item.tree, &mut Vec::new(), &mut exports);
        }
    }
    // What is taken from each module below the root.
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in exports {
        if let (Some(first), Some(last)) = (path.first(), path.last()) {
            wanted.entry(first.clone()).or_default().insert(last.clone());
        }
    }
    follow(tree, &mut wanted);
    let macros = Macros::of(tree);
    for path in tree.rust.keys() {
        let Some(inside) = path.strip_prefix(ENGINE) else { continue };
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        let (Some(names), Some(file)) = (wanted.get(module), parsed(tree, path)) else { continue };
        if super::is_test_path(path) {
            continue;
        }
        let stem = inside.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        let is_open =
            stem == OPEN_MODULE && names.contains(OPEN_MODULE) && inside.matches('/').count() == 1;
        let of_file = match is_open {
            true => Named { prefix: "anatomy::", names: None },
            false => Named { prefix: "", names: Some(names) },
        };
        for item in &file.items {
            of_file.add(item, &mut lines);
            macros.made_by(item).iter().for_each(|item| of_file.add(item, &mut lines));
        }
    }
    lines
}

/// Adds the modules from which a module takes what the root takes from it.
fn follow(tree: &Tree, wanted: &mut BTreeMap<String, BTreeSet<String>>) {
    let mut taken = Vec::new();
    for path in tree.rust.keys() {
        let Some(inside) = path.strip_prefix(ENGINE) else { continue };
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        let (Some(names), Some(file)) = (wanted.get(module), parsed(tree, path)) else { continue };
        for item in &file.items {
            if let Item::Use(item) = item
                && is_public(&item.vis)
            {
                let mut paths = Vec::new();
                leaves(&item.tree, &mut Vec::new(), &mut paths);
                taken.extend(paths.into_iter().filter(|path| {
                    path.len() > 2 && path[0] == "crate" && names.contains(&path[path.len() - 1])
                }));
            }
        }
    }
    for mut path in taken {
        let name = path.pop().unwrap_or_default();
        wanted.entry(path.swap_remove(1)).or_default().insert(name);
    }
}

/// The macros of the engine by name: their parameters, whether these are one repeated one, and what they make.
struct Macros(BTreeMap<String, (Vec<String>, bool, TokenStream)>);

impl Macros {
    fn of(tree: &Tree) -> Macros {
        let engine = tree.rust.keys().filter(|path| path.starts_with(ENGINE));
        let files = engine.filter_map(|path| parsed(tree, path));
        let macros = files.flat_map(|file| file.items).filter_map(|item| match item {
            Item::Macro(item) => {
                Some((item.ident?.to_string(), Self::rule(item.mac.tokens.clone())?))
            }
            _ => None,
        });
        Macros(macros.collect())
    }

    /// `(parameters) => { body }`, once.
    fn rule(tokens: TokenStream) -> Option<(Vec<String>, bool, TokenStream)> {
        let groups = |tokens: TokenStream| tokens.into_iter().filter_map(group);
        let [parameters, body] = &groups(tokens).collect::<Vec<_>>()[..] else { return None };
        let repeated = groups(parameters.clone()).next();
        let is_repeated = repeated.is_some();
        let parameters = repeated.unwrap_or_else(|| parameters.clone()).into_iter().peekable();
        let mut names = Vec::new();
        let mut is_name = false;
        for token in parameters {
            if is_name {
                names.push(token.to_string());
            }
            is_name = token.to_string() == "$";
        }
        let body = if is_repeated { groups(body.clone()).next()? } else { body.clone() };
        Some((names, is_repeated, body))
    }

    /// The items of an invocation; none if it is of another macro.
    fn made_by(&self, item: &Item) -> Vec<Item> {
        let Item::Macro(invoked) = item else { return Vec::new() };
        let Some(name) = invoked.mac.path.segments.last() else { return Vec::new() };
        let Some((names, is_repeated, body)) = self.0.get(&name.ident.to_string()) else {
            return Vec::new();
        };
        let mut values = vec![TokenStream::new()];
        for token in invoked.mac.tokens.clone() {
            match (token.to_string() == ",", values.last_mut()) {
                (false, Some(last)) => last.extend([token]),
                _ => values.push(TokenStream::new()),
            }
        }
        values.retain(|value| !value.is_empty());
        let runs = if *is_repeated { 1 } else { values.len().max(1) };
        let made = values.chunks(runs).filter_map(|values| {
            let values: BTreeMap<&str, &TokenStream> =
                names.iter().map(String::as_str).zip(values).collect();
            syn::parse2::<syn::File>(filled(body.clone(), &values)).ok()
        });
        made.flat_map(|file| file.items).collect()
    }
}

fn group(token: TokenTree) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) => Some(group.stream()),
        _ => None,
    }
}

/// The body of a macro with its parameters filled in; a path in the crate is cut to what it ends in.
fn filled(body: TokenStream, values: &BTreeMap<&str, &TokenStream>) -> TokenStream {
    let mut filled = TokenStream::new();
    let mut tokens = body.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match (token.to_string() == "$", tokens.peek().map(ToString::to_string)) {
            (true, Some(name)) if name == "crate" => {
                tokens.next();
                // `::name` for as long as another one follows.
                let mut last = None;
                while tokens.next_if(|token| token.to_string() == ":").is_some() {
                    tokens.next();
                    last = tokens.next();
                }
                filled.extend(last);
            }
            (true, Some(name)) if values.contains_key(name.as_str()) => {
                tokens.next();
                filled.extend(values[name.as_str()].clone());
            }
            _ => filled.extend([match token {
                TokenTree::Group(group) => {
                    let inside = self::filled(group.stream(), values);
                    TokenTree::Group(Group::new(group.delimiter(), inside))
                }
                token => token,
            }]),
        }
    }
    filled
}

/// What of a file is public, and by which path.
struct Named<'n> {
    prefix: &'n str,
    /// `None`: all that has `pub`.
    names: Option<&'n BTreeSet<String>>,
}

impl Named<'_> {
    fn has(&self, name: &str) -> bool {
        self.names.is_none_or(|names| names.contains(name))
    }

    fn add(&self, item: &Item, lines: &mut BTreeSet<String>) {
        let mut line = |name: &str, text: String| {
            lines.insert(format!("{}{name}: {text}", self.prefix));
        };
        match item {
            Item::Struct(item) if self.shows(&item.vis, &item.attrs, &item.ident) => {
                let name = item.ident.to_string();
                line(&name, format!("{}struct{}", marks(&item.attrs), text(&item.generics)));
                fields(&item.fields, false, &mut |field| line(&name, field));
            }
            Item::Enum(item) if self.shows(&item.vis, &item.attrs, &item.ident) => {
                let name = item.ident.to_string();
                line(&name, format!("{}enum{}", marks(&item.attrs), text(&item.generics)));
                for variant in item.variants.iter().filter(|variant| is_for_all(&variant.attrs)) {
                    line(&name, format!("variant {}", variant.ident));
                    let of = format!("{name}::{}", variant.ident);
                    fields(&variant.fields, true, &mut |field| line(&of, field));
                }
            }
            Item::Fn(item) if self.shows(&item.vis, &item.attrs, &item.sig.ident) => {
                line(&item.sig.ident.to_string(), text(&item.sig));
            }
            Item::Const(item) if self.shows(&item.vis, &item.attrs, &item.ident) => {
                line(&item.ident.to_string(), format!("const {}", text(&item.ty)));
            }
            Item::Type(item) if self.shows(&item.vis, &item.attrs, &item.ident) => {
                line(
                    &item.ident.to_string(),
                    format!("type{} = {}", text(&item.generics), text(&item.ty)),
                );
            }
            Item::Trait(item) if self.shows(&item.vis, &item.attrs, &item.ident) => {
                let name = item.ident.to_string();
                line(&name, "trait".to_owned());
                for item in &item.items {
                    if let TraitItem::Fn(item) = item {
                        line(&name, text(&item.sig));
                    }
                }
            }
            Item::Impl(item) if is_for_all(&item.attrs) => {
                let Some(name) = name_of(&item.self_ty).filter(|name| self.has(name)) else {
                    return;
                };
                if let Some((of, _)) = &item.trait_ {
                    if of.segments.first().is_some_and(|first| first.ident == SEALED) {
                        return;
                    }
                    line(&name, format!("impl {} for {}", text(of), text(&item.self_ty)));
                    return;
                }
                for item in &item.items {
                    match item {
                        ImplItem::Fn(item) if is_public(&item.vis) && is_for_all(&item.attrs) => {
                            line(&name, text(&item.sig));
                        }
                        ImplItem::Const(item)
                            if is_public(&item.vis) && is_for_all(&item.attrs) =>
                        {
                            line(&name, format!("const {}: {}", item.ident, text(&item.ty)));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn shows(&self, vis: &Visibility, attributes: &[Attribute], name: &syn::Ident) -> bool {
        is_public(vis) && is_for_all(attributes) && self.has(&name.to_string())
    }
}

fn parsed(tree: &Tree, path: &str) -> Option<syn::File> {
    syn::parse_file(tree.text.get(path)?).ok()
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

/// Whether an item is there for whoever depends on the crate.
fn is_for_all(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        let words = text(&attribute.meta);
        words.starts_with("cfg(")
            && (words.contains("hedgerow_internals") || words.contains("test"))
    })
}

/// The attributes that bind whoever uses a type.
fn marks(attributes: &[Attribute]) -> String {
    let words = attributes.iter().map(|attribute| text(&attribute.meta));
    let binding = words.filter(|words| words.starts_with("derive(") || words == "non_exhaustive");
    binding.map(|words| format!("#[{words}] ")).collect()
}

/// The public fields; those of a variant are public without saying so.
fn fields(fields: &Fields, is_variant: bool, line: &mut dyn FnMut(String)) {
    for (number, field) in fields.iter().enumerate() {
        if is_for_all(&field.attrs) && (is_variant || is_public(&field.vis)) {
            let name = field.ident.as_ref().map_or_else(|| number.to_string(), ToString::to_string);
            line(format!("field {name}: {}", text(&field.ty)));
        }
    }
}

/// The paths of a `use`.
fn leaves(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            leaves(&inner.tree, path, found);
            path.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, path, found)),
        UseTree::Name(name) => {
            found.push(path.iter().cloned().chain([name.ident.to_string()]).collect());
        }
        UseTree::Rename(_) | UseTree::Glob(_) => {}
    }
}

fn name_of(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Type::Reference(reference) => name_of(&reference.elem),
        _ => None,
    }
}

/// Tokens as rustfmt would have them, but for lines.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (spaced, tight) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        (" :", ":"),
        (" ;", ";"),
        ("[ ", "["),
        (" ]", "]"),
        (",)", ")"),
        ("->(", "-> ("),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}
