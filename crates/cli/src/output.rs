//! Standard output: buffered lines, and silence when nobody reads them any more. And files written like it.

use crate::args::{Common, Format};
use crate::failure::Failure;
use serde_json::Value as Json;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const STDOUT: &str = "standard output";
const BUFFER_BYTES: usize = 64 << 10;

/// Buffered standard output. A closed pipe becomes [`Failure::PipeClosed`].
pub struct Out {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
}

impl Out {
    /// Locks standard output until dropped; call [`Out::finish`] at the end.
    pub fn new() -> Out {
        match was_closed() {
            true => Out::to(Closed, STDOUT),
            false => Out::to(io::stdout().lock(), STDOUT),
        }
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

/// What a command did that prints nothing to people: an object in JSON.
pub fn done(common: &Common, object: &Json) -> Result<(), Failure> {
    if common.format == Format::Human {
        return Ok(());
    }
    let mut out = Out::new();
    out.json(object)?;
    out.finish()
}

/// Prints help that was asked for.
pub fn show_help(help: &clap::Error) -> Result<(), Failure> {
    let printed = match was_closed() {
        true => Err(closed()),
        false => help.print().and_then(|()| io::stdout().flush()),
    };
    printed.map_err(|error| output_failure(STDOUT, error))
}

/// Standard output that is closed.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(closed())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn closed() -> io::Error {
    io::Error::other("it is closed")
}

/// Whether standard output was closed when the program began. The standard library opens /dev/null in its place, so that whatever
/// is written gets lost without an error.
fn was_closed() -> bool {
    #[cfg(target_os = "linux")]
    return at_start::WAS_CLOSED.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(target_os = "linux"))]
    false
}

#[cfg(target_os = "linux")]
mod at_start {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    pub(super) static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

    extern "C" fn look() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        WAS_CLOSED.store(is_closed, Relaxed);
    }

    // SAFETY: the section is an array of functions that the C library calls, one after the other, before `main`. This one makes a
    // system call and stores to an atomic, and needs nothing that is set up later.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;
}

/// The directory that has the name of a file.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

/// Whether both lead to one file, or would: a store that was closed has no log.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    if let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) {
        use std::os::unix::fs::MetadataExt;
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let place = |path: &Path| {
        path.canonicalize()
            .ok()
            .or_else(|| Some(directory_of(path).canonicalize().ok()?.join(path.file_name()?)))
    };
    place(one).is_some_and(|one| Some(one) == place(other))
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses standard output in the place of a store that is to be made, which is read and written anywhere in its file.
///
/// Errors: `Usage`.
pub fn refuse_standard(new: &Path) -> Result<(), Failure> {
    match is_standard(new) {
        true => Err(Failure::Usage(
            "a store cannot be written to standard output; give the name of a file (./- for one of the name -)".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Makes a new file, which others may read as little as the store of whose records it is made.
///
/// Errors: something has the name; those of the system.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a new file durable: one whose name is lost is as lost as its bytes.
pub fn sync_new(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    #[cfg(unix)]
    match File::open(directory_of(path))?.sync_all() {
        // The file system has no such notion: its directories need no sync.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
        synced => synced?,
    }
    Ok(())
}

fn output_failure(name: &str, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::Io(format!("cannot write to {name}"), error),
    }
}
