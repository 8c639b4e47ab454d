//! Runs the commands that the README and docs/cli.md show in `sh` blocks, as a reader would type them.

use crate::harness::Scratch;
use std::path::Path;
use std::process::Command;

/// The `sh` blocks of a document, in order.
fn shell_blocks(document: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if line == "```sh" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// Runs all blocks of a document in one shell, each line of which must succeed.
fn run_blocks(name: &str, path: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join(path)).unwrap();
    let blocks = shell_blocks(&document);
    assert!(!blocks.is_empty(), "{path} has no `sh` block");
    let scratch = Scratch::new(name);
    let tool = Path::new(env!("CARGO_BIN_EXE_hedgerow")).parent().unwrap();
    let path = format!("{}:{}", tool.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-euxc", &blocks.join("\n")])
        .current_dir(scratch.path(""))
        .env("PATH", path)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("robin"), "{shown}");
}

#[test]
fn the_commands_of_the_readme_work() {
    run_blocks("readme", "README.md");
}

#[test]
fn the_commands_of_the_tools_page_work() {
    run_blocks("cli-page", "docs/cli.md");
}
