//! A scratch directory, and the binary run in it with its output captured.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A directory of one test; removed on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty directory; `name` is unique among the tests.
    pub fn new(name: &str) -> Scratch {
        // Under Wine the directory's path was another system's.
        let root = std::path::absolute(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir = root.join(format!("cli-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// The store that most tests work on.
    pub fn store(&self) -> String {
        self.path("store.hrow")
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), bytes).unwrap();
        self.path(name)
    }

    /// A store loaded with this text.
    pub fn loaded(name: &str, text: impl AsRef<[u8]>) -> (Scratch, String) {
        let scratch = Scratch::new(name);
        let store = scratch.store();
        let file = scratch.file("input.txt", text);
        run(&["load", &store, &file]).code(0);
        (scratch, store)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a finished command left behind.
pub struct Done {
    args: Vec<String>,
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl Done {
    /// Asserts the exit code.
    #[track_caller]
    pub fn code(self, expected: i32) -> Done {
        assert_eq!(self.code, Some(expected), "{:?}: {}", self.args, self.stderr);
        self
    }

    /// Asserts all of standard output.
    #[track_caller]
    pub fn stdout(self, expected: impl AsRef<[u8]>) -> Done {
        let shown = String::from_utf8_lossy(&self.stdout);
        assert_eq!(shown, String::from_utf8_lossy(expected.as_ref()), "{:?}", self.args);
        assert_eq!(self.stdout, expected.as_ref(), "{:?}", self.args);
        self
    }

    /// Asserts that standard error has these words.
    #[track_caller]
    pub fn stderr_has(self, words: &str) -> Done {
        assert!(
            self.stderr.contains(words),
            "{:?}: {:?} not in: {}",
            self.args,
            words,
            self.stderr
        );
        self
    }

    /// Asserts that standard error is empty.
    #[track_caller]
    pub fn silent(self) -> Done {
        assert_eq!(self.stderr, "", "{:?}", self.args);
        self
    }

    /// The exit code; `None` after a signal.
    pub fn exit_code(&self) -> Option<i32> {
        self.code
    }

    /// Standard error.
    pub fn stderr(&self) -> &str {
        &self.stderr
    }

    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// The binary with these arguments, not started.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same for a test that sends it SIGINT: whoever runs the tests in the background of a shell has it ignored.
#[cfg(unix)]
pub fn interruptible(args: &[&str]) -> Command {
    let mut command = match cfg!(target_os = "linux") {
        true => {
            let mut command = Command::new("env");
            command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_hedgerow")]);
            command
        }
        false => Command::new(env!("CARGO_BIN_EXE_hedgerow")),
    };
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end with no input.
#[track_caller]
pub fn run(args: &[&str]) -> Done {
    wait(args, command(args).spawn().unwrap())
}

/// Runs to the end with `input` on standard input.
pub fn run_with_input(args: &[&str], input: &[u8]) -> Done {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // The command may have ended without reading all.
        let _ = stdin.write_all(&input);
    });
    let done = wait(args, child);
    writer.join().unwrap();
    done
}

/// Waits for a started command.
pub fn wait(args: &[&str], child: Child) -> Done {
    let output = child.wait_with_output().unwrap();
    Done {
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
