//! Opens the engine's modules to the tools of this project, and to nobody else: sets the cfg `hedgerow_internals` if the
//! environment says `HEDGEROW_INTERNALS`, as `.cargo/config.toml` has it for whatever is built inside of this checkout.
//!
//! Not a feature, which anyone below another crate could turn on for all, nor flags of the compiler, which `RUSTFLAGS` replaces. This
//! file is not in the package that is published, and who depends on the checkout by path or by git has another configuration.

fn main() {
    println!("cargo::rerun-if-env-changed=HEDGEROW_INTERNALS");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("HEDGEROW_INTERNALS").is_some() {
        println!("cargo::rustc-cfg=hedgerow_internals");
    }
}
