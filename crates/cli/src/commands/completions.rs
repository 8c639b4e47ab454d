//! `hedgerow completions SHELL`: the script by which a shell completes the tool's command line.

use crate::failure::Failure;
use crate::output::Out;
use clap::{Args, Command};
use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to write for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for `tool`.
pub fn run(mut tool: Command, args: &CompletionsArgs) -> Result<(), Failure> {
    let name = tool.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut tool, name, &mut script);
    let mut out = Out::new();
    out.bytes(&script)?;
    out.finish()
}
