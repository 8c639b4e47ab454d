//! `hedgerow restore BACKUP STORE`: checks a backup wholly, and makes a store of it where there is none.

use crate::args::Common;
use crate::commands::backup;
use crate::failure::Failure;
use crate::{output, progress, store};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// File made by `backup`, or any store that was closed
    backup: PathBuf,
    /// Store file to create; neither it nor its log may exist
    store: PathBuf,
}

/// Restores the store and says how much that was.
pub fn run(common: &Common, args: &RestoreArgs) -> Result<(), Failure> {
    output::refuse_standard(&args.store)?;
    let bar = progress::counter("restoring");
    let options = store::options(common);
    let restored = store::when_free(common, store::copying("restore", &args.backup), || {
        options.restore(&args.backup, &args.store, |pages| {
            bar.set_position(pages);
            backup::go_on()
        })
    });
    bar.finish_and_clear();
    backup::print(common, "restored", &args.store, &restored?)
}
