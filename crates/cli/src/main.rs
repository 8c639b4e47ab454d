//! The command-line tool `hedgerow`.
//!
//! `main` parses, installs the handler of Ctrl-C, runs one command and turns its outcome into the
//! exit code. Data goes to standard output, words go to standard error. The commands are one file
//! each under [`commands`]; what they share stands beside it. All calls of the engine that more than
//! one command makes are in [`store`].

// First: its macro is for all that follow.
#[macro_use]
mod tell;

mod args;
mod command_line;
mod commands;
mod dump_format;
mod escape;
mod events;
mod failure;
mod interrupt;
mod layouts;
mod output;
mod progress;
mod records;
mod signals;
mod size;
mod store;

use clap::{CommandFactory, Parser};
use command_line::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => interrupt::install().and_then(|()| run(&cli)),
        // Help that was asked for, or the version.
        Err(shown) if !shown.use_stderr() => output::show_help(&shown),
        Err(wrong) => wrong.exit(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(words) = failure.words() {
                tell!("hedgerow: {words}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let common = &cli.common;
    if let Some(command) = cli.command.of_whole_stores()
        && common.keyspace.is_some()
    {
        let words = format!("{command} works on whole stores and does not take --keyspace");
        return Err(Failure::Usage(words));
    }
    if common.quiet {
        progress::hide();
    }
    if common.verbose {
        events::show();
    }
    if cli.command.looks() {
        interrupt::look();
    }
    match &cli.command {
        Command::Tour(args) => commands::tour::run(common, args),
        Command::Load(args) => commands::load::run(common, args),
        Command::Get(args) => commands::get::run(common, args),
        Command::Hot(args) => commands::hot::run(common, args),
        Command::Put(args) => commands::put::run(common, args),
        Command::Del(args) => commands::del::run(common, args),
        Command::Drop(args) => commands::drop::run(common, args),
        Command::Scan(args) => commands::scan::run(common, args),
        Command::Keyspaces(args) => commands::keyspaces::run(common, args),
        Command::Count(args) => commands::count::run(common, args),
        Command::Stat(args) => commands::stat::run(common, args),
        Command::Dump(args) => commands::dump::run(common, args),
        Command::Pages(args) => commands::pages::run(common, args),
        Command::Verify(args) => commands::verify::run(common, args),
        Command::Compact(args) => commands::compact::run(common, args),
        Command::Recover(args) => commands::recover::run(common, args),
        Command::Rename(args) => commands::rename::run(common, args),
        Command::Backup(args) => commands::backup::run(common, args),
        Command::Repair(args) => commands::repair::run(common, args),
        Command::Restore(args) => commands::restore::run(common, args),
        Command::Torture(args) => commands::torture::run(common, args),
        Command::Completions(args) => commands::completions::run(Cli::command(), args),
        Command::Man => commands::man::run(Cli::command()),
    }
}
