//! Standard output: buffered lines, and silence when nobody reads them any more. And files written like it.

use crate::failure::Failure;
use serde_json::Value as Json;
use std::io::{self, BufWriter, Write};

const BUFFER_BYTES: usize = 64 << 10;

/// Buffered standard output. A closed pipe becomes [`Failure::PipeClosed`].
pub struct Out {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
}

impl Out {
    /// Locks standard output until dropped; call [`Out::finish`] at the end.
    pub fn new() -> Out {
        Out::to(io::stdout().lock(), "standard output")
    }

    /// Writes to something else, of this name.
    pub fn to(writer: impl Write + 'static, name: &str) -> Out {
        let writer = BufWriter::with_capacity(BUFFER_BYTES, Box::new(writer) as Box<dyn Write>);
        Out { writer, name: name.to_owned() }
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
        self.writer.write_all(bytes).map_err(|error| output_failure(&self.name, error))
    }

    /// Writes out what is buffered. Without it an error of the last write would be lost.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }

    /// Writes out what is buffered, so that it shows now.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| output_failure(&self.name, error))
    }
}

fn output_failure(name: &str, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::Io(format!("cannot write to {name}"), error),
    }
}
