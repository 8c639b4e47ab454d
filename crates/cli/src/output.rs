//! Standard output: buffered lines, and silence when nobody reads them any more.

use crate::failure::Failure;
use serde_json::Value as Json;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Buffered standard output. A closed pipe becomes [`Failure::PipeClosed`].
pub struct Out {
    writer: BufWriter<StdoutLock<'static>>,
}

impl Out {
    /// Locks standard output until dropped; call [`Out::finish`] at the end.
    pub fn new() -> Out {
        Out { writer: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Writes a line of text.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes an object on a line of its own.
    pub fn json(&mut self, object: &Json) -> Result<(), Failure> {
        self.line(&object.to_string())
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(output_failure)
    }

    /// Writes out what is buffered. Without it an error of the last write would be lost.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }

    /// Writes out what is buffered, so that it shows now.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(output_failure)
    }
}

fn output_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::Io("cannot write to standard output".to_owned(), error),
    }
}
