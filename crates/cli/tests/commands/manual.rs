//! `completions` and `man`: what is made of the command line for shells and readers of manuals.

use crate::harness::run;

#[test]
fn each_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = run(&["completions", shell]).code(0).silent();
        for word in ["hedgerow", "keyspaces", "torture", "memory-limit"] {
            assert!(done.text().contains(word), "{shell}: {word}");
        }
    }
    run(&["completions", "abacus"]).code(2).stdout("");
}

#[cfg(unix)]
#[test]
fn bash_completes_commands_and_options() {
    let scratch = crate::harness::Scratch::new("completions");
    let file = scratch.file("completions.bash", run(&["completions", "bash"]).code(0).text());
    let complete = |words: &str| {
        let script = format!(
            "source '{file}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _hedgerow hedgerow \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output = std::process::Command::new("bash").args(["--norc", "-c", &script]).output();
        output.map(|output| String::from_utf8(output.stdout).unwrap())
    };
    match complete("hedgerow keysp") {
        Ok(completed) => assert_eq!(completed, "keyspaces\n"),
        Err(error) => return hedgerow_testing::not_run("completions of bash", &error.to_string()),
    }
    assert_eq!(complete("hedgerow scan --rev").unwrap(), "--reverse\n");
}

#[test]
fn the_manual_has_a_page_of_each_command() {
    let done = run(&["man"]).code(0).silent();
    for page in ["hedgerow", "hedgerow-load", "hedgerow-torture-kill"] {
        assert!(done.text().contains(&format!("\n.TH {page} 1 ")), "{page}");
    }
    for words in ["Exit codes:", "hedgerow torture sync", "memory\\-limit"] {
        assert!(done.text().contains(words), "{words:?}");
    }
    assert!(
        !done.text().contains("hedgerow-torture-writer") && !done.text().contains("hedgerow-help")
    );
}
