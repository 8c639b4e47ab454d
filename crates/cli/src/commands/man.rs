//! `hedgerow man`: the manual pages of the tool and of each command, one behind the other.

use crate::failure::Failure;
use crate::output::Out;
use clap::Command;
use clap_mangen::Man;
use std::io;

/// Prints the pages of `tool`.
pub fn run(mut tool: Command) -> Result<(), Failure> {
    // So that each command has the options of all, and its whole name.
    tool.build();
    let mut pages = Vec::new();
    let written = write_pages(&tool, &mut pages);
    written.map_err(|error| Failure::Io("cannot write the manual".to_owned(), error))?;
    let mut out = Out::new();
    out.bytes(&pages)?;
    out.finish()
}

fn write_pages(command: &Command, to: &mut Vec<u8>) -> io::Result<()> {
    Man::new(command.clone()).render(to)?;
    let mut shown = command.get_subcommands().filter(|command| {
        let is_help = command.get_name() == "help";
        !command.is_hide_set() && !is_help
    });
    shown.try_for_each(|command| write_pages(command, to))
}
