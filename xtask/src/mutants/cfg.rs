//! Whether a build of the tests' library on this system has what stands under an attribute.
//!
//! Tests themselves and what only they use, models, sanitizers and fuzzing are not in it. What is not known is taken to be there: too many
//! mutants are found out to be reached by nothing, too few by nobody. Plain functions.

use syn::{Attribute, Meta, Token, punctuated::Punctuated};

/// Whether all of them let it be built.
pub fn is_built(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .all(|attribute| attribute.parse_args::<Meta>().map_or(true, |condition| holds(&condition)))
}

fn holds(condition: &Meta) -> bool {
    let name = condition.path().get_ident().map(ToString::to_string).unwrap_or_default();
    match condition {
        Meta::Path(_) => match name.as_str() {
            "test" | "loom" | "shuttle" | "fuzzing" | "hedgerow_tsan" | "hedgerow_internals" => {
                false
            }
            "windows" => cfg!(windows),
            "unix" => cfg!(unix),
            _ => true,
        },
        Meta::NameValue(pair) => {
            let is = match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value(),
                _ => return true,
            };
            match name.as_str() {
                "target_os" => is == std::env::consts::OS,
                "target_arch" => is == std::env::consts::ARCH,
                "target_family" => is == std::env::consts::FAMILY,
                _ => true,
            }
        }
        Meta::List(list) => {
            let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
            let Ok(of) = list.parse_args_with(parser) else { return true };
            match name.as_str() {
                "not" => !of.iter().all(holds),
                "any" => of.iter().any(holds),
                _ => of.iter().all(holds),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_tests_and_models_is_not_built() {
        for (attribute, is) in [
            ("#[cfg(test)]", false),
            ("#[cfg(all(test, not(any(loom, shuttle))))]", false),
            ("#[cfg(not(any(loom, shuttle)))]", true),
            ("#[cfg(any(loom, shuttle))]", false),
            ("#[cfg(fuzzing)]", false),
            ("#[cfg(not(hedgerow_tsan))]", true),
            ("#[cfg(target_os = \"none\")]", false),
            ("#[cfg(debug_assertions)]", true),
            ("#[inline]", true),
        ] {
            let item: syn::ItemFn = syn::parse_str(&format!("{attribute} fn f() {{}}")).unwrap();
            assert_eq!(is_built(&item.attrs), is, "{attribute}");
        }
    }
}
