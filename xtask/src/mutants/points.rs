//! Finds what can be changed in a source file: the operators, guards, arms and bodies that a mutant has differently.
//!
//! What a build for tests does not have is left out (`cfg(test)`, models, fuzzing, other systems), and so are attributes, patterns,
//! types, constants, macros (assertions among them), and words for people (`fmt`). Ranges are of bytes of the file, and of two
//! sites one lies within the other, or they are apart. Plain functions.

use super::cfg::is_built;
use std::ops::Range;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, ReturnType, Type, UnOp};

/// A place in a file, and what can stand there instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// What is replaced, or of no length where something is put in.
    pub range: Range<usize>,
    /// What sort of place it is.
    pub kind: Kind,
    /// What stands there instead, one mutant each.
    pub variants: Vec<Variant>,
    /// The body of the function that it is in, to which a complaint about the whole of it belongs.
    pub body: Range<usize>,
}

/// What sort of place a site is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An expression, which is replaced.
    Expression,
    /// The beginning of a body, which returns at once.
    Body,
    /// The end of the pattern of an arm, which is not taken.
    Arm,
}

/// One mutant of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    /// What stands there instead; of an arm nothing.
    pub text: String,
    /// Line and column where the change is, from 1.
    pub at: (usize, usize),
    /// What was changed, in words.
    pub words: String,
}

/// All sites of a file, the outer one before those within it.
///
/// Errors: it is not Rust.
pub fn find(text: &str) -> Result<Vec<Site>, String> {
    let file = syn::parse_file(text).map_err(|error| {
        let start = error.span().start();
        format!("{}:{}: {error}", start.line, start.column + 1)
    })?;
    let mut finder = Finder { text, names: Vec::new(), body: 0..text.len(), sites: Vec::new() };
    finder.visit_file(&file);
    let mut sites = finder.sites;
    // Stable: of two that are the same range, the one that was come to first is the outer one.
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    Ok(sites)
}

struct Finder<'t> {
    text: &'t str,
    /// Of the types and functions that we are in.
    names: Vec<String>,
    body: Range<usize>,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn add(&mut self, range: Range<usize>, kind: Kind, variants: Vec<Variant>) {
        if !variants.is_empty() {
            self.sites.push(Site { range, kind, variants, body: self.body.clone() });
        }
    }

    /// What was changed, in words, with the function that it is in.
    fn words(&self, change: &str) -> String {
        match self.names.is_empty() {
            true => change.to_owned(),
            false => format!("{change} in {}", self.names.join("::")),
        }
    }

    fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// What is there of an expression, in parentheses, so that it binds as it did.
    fn operand(&self, expression: &Expr) -> String {
        format!("({})", self.slice(range_of(expression)))
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        let instead = instead_of(&binary.op);
        // A condition with `let` has no other meaning than with `&&`.
        if instead.is_empty() || has_let(&binary.left) || has_let(&binary.right) {
            return;
        }
        let (left, right) = (self.operand(&binary.left), self.operand(&binary.right));
        let operator = self.slice(binary.op.span().byte_range()).to_owned();
        let at = position(binary.op.span());
        let variants = instead.iter().map(|other| Variant {
            text: format!("{left} {other} {right}"),
            at,
            words: self.words(&format!("replace {operator} with {other}")),
        });
        let variants = variants.collect();
        let range = range_of(&binary.left).start..range_of(&binary.right).end;
        self.add(range, Kind::Expression, variants);
    }

    fn unary(&mut self, unary: &syn::ExprUnary) {
        let operator = match unary.op {
            UnOp::Not(_) => "!",
            UnOp::Neg(_) => "-",
            _ => return,
        };
        let text = self.operand(&unary.expr);
        let words = self.words(&format!("delete {operator}"));
        let start = unary.op.span().byte_range().start;
        let variant = Variant { text, at: position(unary.op.span()), words };
        self.add(start..range_of(&unary.expr).end, Kind::Expression, vec![variant]);
    }

    /// Guards that are always or never true; arms that are left to the one that takes everything.
    fn arms(&mut self, arms: &[syn::Arm]) {
        let takes_all = arms.iter().position(|arm| matches!(arm.pat, syn::Pat::Wild(_)));
        for (index, arm) in arms.iter().enumerate().filter(|(_, arm)| is_built(&arm.attrs)) {
            if let syn::Pat::Guard(guarded) = &arm.pat {
                let guard = &*guarded.guard;
                if has_let(guard) {
                    continue;
                }
                let at = position(guard.span());
                let variant = |text: &str| Variant {
                    text: text.into(),
                    at,
                    words: self.words(&format!("replace match guard with {text}")),
                };
                let variants = vec![variant("true"), variant("false")];
                self.add(range_of(guard), Kind::Expression, variants);
            } else if takes_all.is_some_and(|all| index < all) {
                let span = arm.pat.span();
                let pattern = one_line(self.slice(span.byte_range()));
                let words = self.words(&format!("delete match arm {pattern}"));
                let variant = Variant { text: String::new(), at: position(span), words };
                let end = span.byte_range().end;
                self.add(end..end, Kind::Arm, vec![variant]);
            }
        }
    }

    /// A function with a body: what it could return at once, and what is within.
    fn function(
        &mut self,
        attributes: &[Attribute],
        signature: &syn::Signature,
        block: &syn::Block,
    ) {
        if !is_built(attributes) || signature.ident == "fmt" {
            return;
        }
        self.names.push(signature.ident.to_string());
        let open = block.brace_token.span.open().byte_range().end;
        let body = open..block.brace_token.span.close().byte_range().start;
        let outer = std::mem::replace(&mut self.body, body.clone());
        let is_now = one_line(self.slice(body));
        let at = block
            .stmts
            .first()
            .map_or(position(block.brace_token.span.open()), |first| position(first.span()));
        let variants = defaults(&signature.output).into_iter().filter(|text| *text != is_now);
        let variants = variants.filter(|text| *text != "()" || !block.stmts.is_empty());
        let variants: Vec<Variant> = variants
            .map(|text| {
                let words = self.words(&format!("return {text} at once"));
                Variant { text, at, words }
            })
            .collect();
        self.add(open..open, Kind::Body, variants);
        visit::visit_block(self, block);
        self.body = outer;
        self.names.pop();
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    // Nothing in these is changed.
    fn visit_attribute(&mut self, _: &'a Attribute) {}
    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_item_enum(&mut self, _: &'a syn::ItemEnum) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}
    fn visit_macro(&mut self, _: &'a syn::Macro) {}
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
    fn visit_path(&mut self, _: &'a syn::Path) {}
    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'a Type) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if is_built(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let last = |path: &syn::Path| path.segments.last().map(|last| last.ident.to_string());
        let of_trait = item.trait_.as_ref().and_then(|(path, _)| last(path));
        if !is_built(&item.attrs) || matches!(of_trait.as_deref(), Some("Debug" | "Display")) {
            return;
        }
        let name = match &*item.self_ty {
            Type::Path(path) => last(&path.path),
            _ => None,
        };
        self.names.push(name.unwrap_or_else(|| "_".into()));
        visit::visit_item_impl(self, item);
        self.names.pop();
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        if is_built(&item.attrs) {
            self.names.push(item.ident.to_string());
            visit::visit_item_trait(self, item);
            self.names.pop();
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if is_built(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        if !is_built(&arm.attrs) {
            return;
        }
        if let syn::Pat::Guard(guarded) = &arm.pat {
            self.visit_expr(&guarded.guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if !is_built(attributes_of(expression)) {
            return;
        }
        match expression {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Unary(unary) => self.unary(unary),
            Expr::Match(of) => self.arms(&of.arms),
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}

fn range_of(expression: &Expr) -> Range<usize> {
    expression.span().byte_range()
}

fn position(span: proc_macro2::Span) -> (usize, usize) {
    let start = span.start();
    (start.line, start.column + 1)
}

/// Text without the ends of its lines, and not too much of it.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}

/// Of those that may stand alone as statements, which is where a `cfg` may be.
fn attributes_of(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(of) => &of.attrs,
        Expr::Binary(of) => &of.attrs,
        Expr::Block(of) => &of.attrs,
        Expr::Call(of) => &of.attrs,
        Expr::ForLoop(of) => &of.attrs,
        Expr::If(of) => &of.attrs,
        Expr::Loop(of) => &of.attrs,
        Expr::Match(of) => &of.attrs,
        Expr::MethodCall(of) => &of.attrs,
        Expr::Path(of) => &of.attrs,
        Expr::Return(of) => &of.attrs,
        Expr::Unsafe(of) => &of.attrs,
        Expr::While(of) => &of.attrs,
        _ => &[],
    }
}

/// Whether it is a condition that binds names, or has one at its top.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(of) => has_let(&of.left) || has_let(&of.right),
        Expr::Paren(of) => has_let(&of.expr),
        _ => false,
    }
}

/// What can stand instead of an operator.
fn instead_of(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">"],
        BinOp::Ge(_) => &["<"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

/// What a function of this type could return without doing anything.
fn defaults(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".into()],
        ReturnType::Type(_, of) => values(of),
    }
}

/// Plain values of a type; none if nothing is known of it.
fn values(of: &Type) -> Vec<String> {
    let path = match of {
        Type::Tuple(tuple) if tuple.elems.is_empty() => return vec!["()".into()],
        Type::Path(path) => &path.path,
        _ => return Vec::new(),
    };
    let Some(last) = path.segments.last() else { return Vec::new() };
    let wrapped = || match &last.arguments {
        syn::PathArguments::AngleBracketed(of) => match of.args.first() {
            Some(syn::GenericArgument::Type(first)) => values(first),
            _ => Vec::new(),
        },
        _ => vec!["()".into()],
    };
    let each = |name: &str| wrapped().iter().map(|value| format!("{name}({value})")).collect();
    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64"
        | "isize" => {
            vec!["0".into(), "1".into()]
        }
        "Result" => each("Ok"),
        "Option" => {
            let mut some: Vec<String> = each("Some");
            some.insert(0, "None".into());
            some
        }
        "Vec" => vec!["Vec::new()".into()],
        "String" => vec!["String::new()".into()],
        _ => Vec::new(),
    }
}
