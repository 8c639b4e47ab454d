//! The part of RocksDB's C API that the adapter needs, looked up when the program runs.
//!
//! The library is the distribution's (`librocksdb7.8` of Debian): nothing of RocksDB is compiled, and without it
//! the crate builds and the competitor says what to install. The functions and their types are those of
//! `rocksdb/c.h`, which only ever gained functions. All of the crate's calls into the library are in this file.
//!
//! [`Database`] is `Send + Sync`, as RocksDB documents for its handle; a [`Settings`] is plain data.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::{ptr, slice};

/// Names of the library, the one of Debian 12 first.
const LIBRARIES: [&str; 2] = ["librocksdb.so.7.8", "librocksdb.so"];

/// `rocksdb_lz4_compression`.
const LZ4: c_int = 4;

/// A pointer to something of RocksDB's.
type Handle = *mut c_void;
/// Where RocksDB puts a message, which is freed by `rocksdb_free`.
type Message = *mut *mut c_char;

/// Declares the functions of the table, and how it is filled.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, and the library that they are in, by their names there.
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            name: &'static str,
            _library: Library,
        }

        /// Looks everything up. Errors: what is missing.
        fn functions(library: Library, name: &'static str) -> Result<Functions, libloading::Error> {
            Ok(Functions {
                $(
                    // SAFETY: the name and the type are those of a function in `rocksdb/c.h`.
                    $name: *unsafe {
                        library.get(concat!("rocksdb_", stringify!($name), "\0").as_bytes())
                    }?,
                )*
                name,
                _library: library,
            })
        }
    };
}

functions! {
    options_create() -> Handle;
    options_destroy(Handle);
    options_set_create_if_missing(Handle, c_uchar);
    options_set_compression(Handle, c_int);
    options_set_write_buffer_size(Handle, usize);
    options_set_db_write_buffer_size(Handle, usize);
    options_set_max_background_jobs(Handle, c_int);
    options_set_bytes_per_sync(Handle, u64);
    options_set_level_compaction_dynamic_level_bytes(Handle, c_uchar);
    options_set_use_direct_reads(Handle, c_uchar);
    options_set_use_direct_io_for_flush_and_compaction(Handle, c_uchar);
    options_set_block_based_table_factory(Handle, Handle);
    block_based_options_create() -> Handle;
    block_based_options_destroy(Handle);
    block_based_options_set_block_size(Handle, usize);
    block_based_options_set_block_cache(Handle, Handle);
    block_based_options_set_filter_policy(Handle, Handle);
    block_based_options_set_cache_index_and_filter_blocks(Handle, c_uchar);
    block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(Handle, c_uchar);
    cache_create_lru(usize) -> Handle;
    cache_destroy(Handle);
    filterpolicy_create_bloom_full(f64) -> Handle;
    readoptions_create() -> Handle;
    readoptions_destroy(Handle);
    writeoptions_create() -> Handle;
    writeoptions_destroy(Handle);
    writeoptions_set_sync(Handle, c_uchar);
    writeoptions_disable_WAL(Handle, c_int);
    flushoptions_create() -> Handle;
    flushoptions_destroy(Handle);
    open(Handle, *const c_char, Message) -> Handle;
    close(Handle);
    put(Handle, Handle, *const c_char, usize, *const c_char, usize, Message);
    delete(Handle, Handle, *const c_char, usize, Message);
    write(Handle, Handle, Handle, Message);
    writebatch_create() -> Handle;
    writebatch_destroy(Handle);
    writebatch_put(Handle, *const c_char, usize, *const c_char, usize);
    writebatch_delete(Handle, *const c_char, usize);
    get_pinned(Handle, Handle, *const c_char, usize, Message) -> Handle;
    pinnableslice_value(Handle, *mut usize) -> *const c_char;
    pinnableslice_destroy(Handle);
    create_iterator(Handle, Handle) -> Handle;
    iter_destroy(Handle);
    iter_seek(Handle, *const c_char, usize);
    iter_next(Handle);
    iter_valid(Handle) -> c_uchar;
    iter_key(Handle, *mut usize) -> *const c_char;
    iter_value(Handle, *mut usize) -> *const c_char;
    iter_get_error(Handle, Message);
    flush(Handle, Handle, Message);
    compact_range(Handle, *const c_char, usize, *const c_char, usize);
    free(Handle);
}

/// The functions; loaded once and never unloaded, because threads of the library may outlive a database.
///
/// Errors: a sentence that says what to install.
fn library() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || {
        let mut words = String::new();
        for name in LIBRARIES {
            // SAFETY: what runs when RocksDB is loaded is the set-up of its own constants.
            let library = unsafe { Library::new(name) };
            match library.and_then(|library| functions(library, name)) {
                Ok(functions) => return Ok(functions),
                Err(error) if words.is_empty() => words = error.to_string(),
                Err(_) => {}
            }
        }
        Err(format!(
            "RocksDB's library is not here ({words}); on Debian: apt-get install librocksdb7.8"
        ))
    };
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Calls `f` with a place for a message; what stands there is the error.
fn checked<R>(c: &Functions, f: impl FnOnce(Message) -> R) -> Result<R, String> {
    let mut message: *mut c_char = ptr::null_mut();
    let result = f(&mut message);
    if message.is_null() {
        return Ok(result);
    }
    // SAFETY: RocksDB put a string that ends in a zero there.
    let words = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: it is ours to free, by this function, and nobody has it any more.
    unsafe { (c.free)(message.cast()) };
    Err(words)
}

/// How a database is set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of the cache of blocks.
    pub block_cache_bytes: usize,
    /// Bytes of a block before it is compressed.
    pub block_bytes: usize,
    /// Bytes of a memtable.
    pub memtable_bytes: usize,
    /// Bytes of all memtables together; none is no limit.
    pub memtables_bytes: Option<usize>,
    /// Bits a key of the bloom filters.
    pub bloom_bits: f64,
    /// Whether indexes and filters count with the cache of blocks.
    pub is_limited: bool,
    /// Threads that flush and compact.
    pub background_jobs: i32,
    /// Whether files are read and written past the page cache.
    pub is_direct: bool,
    /// Whether there is a log.
    pub has_log: bool,
}

/// An open database.
pub struct Database {
    c: &'static Functions,
    handle: Handle,
    read: Handle,
    write: Handle,
    write_synced: Handle,
}

// SAFETY: RocksDB's handle may be used by any number of threads at once without a lock; options are only read.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Opens or creates the database in the directory `path`.
    ///
    /// Errors: RocksDB's words, or what to install.
    pub fn open(path: &Path, settings: &Settings) -> Result<Database, String> {
        let c = library()?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: handles go to functions that take handles of their kind. The table's options keep the filter,
        // which is theirs, and references to what is destroyed here: the cache, and themselves in `options`.
        unsafe {
            let options = (c.options_create)();
            (c.options_set_create_if_missing)(options, 1);
            (c.options_set_compression)(options, LZ4);
            (c.options_set_write_buffer_size)(options, settings.memtable_bytes);
            (c.options_set_db_write_buffer_size)(options, settings.memtables_bytes.unwrap_or(0));
            (c.options_set_max_background_jobs)(options, settings.background_jobs);
            (c.options_set_bytes_per_sync)(options, 1 << 20);
            (c.options_set_level_compaction_dynamic_level_bytes)(options, 1);
            let direct = c_uchar::from(settings.is_direct);
            (c.options_set_use_direct_reads)(options, direct);
            (c.options_set_use_direct_io_for_flush_and_compaction)(options, direct);
            let table = (c.block_based_options_create)();
            let cache = (c.cache_create_lru)(settings.block_cache_bytes);
            (c.block_based_options_set_block_cache)(table, cache);
            (c.block_based_options_set_block_size)(table, settings.block_bytes);
            let filter = (c.filterpolicy_create_bloom_full)(settings.bloom_bits);
            (c.block_based_options_set_filter_policy)(table, filter);
            // Where memory is no limit they stay in memory beside the cache, as by default: a look-up each is saved.
            let are_cached = c_uchar::from(settings.is_limited);
            (c.block_based_options_set_cache_index_and_filter_blocks)(table, are_cached);
            (c.block_based_options_set_pin_l0_filter_and_index_blocks_in_cache)(table, are_cached);
            (c.options_set_block_based_table_factory)(options, table);
            let opened = checked(c, |message| (c.open)(options, path.as_ptr(), message));
            (c.cache_destroy)(cache);
            (c.block_based_options_destroy)(table);
            (c.options_destroy)(options);
            let handle = opened?;
            let no_log = c_int::from(!settings.has_log);
            let (write, write_synced) = ((c.writeoptions_create)(), (c.writeoptions_create)());
            (c.writeoptions_disable_WAL)(write, no_log);
            (c.writeoptions_set_sync)(write_synced, 1);
            Ok(Database { c, handle, read: (c.readoptions_create)(), write, write_synced })
        }
    }

    /// Name of the library.
    pub fn library_name(&self) -> &'static str {
        self.c.name
    }

    fn write_options(&self, is_synced: bool) -> Handle {
        if is_synced { self.write_synced } else { self.write }
    }

    /// Puts a record; if `is_synced`, it is on the disk then.
    pub fn put(&self, key: &[u8], value: &[u8], is_synced: bool) -> Result<(), String> {
        let (key, value) = (as_chars(key), as_chars(value));
        let options = self.write_options(is_synced);
        // SAFETY: database and options are open; key and value are as long as is said, and copied.
        checked(self.c, |message| unsafe {
            (self.c.put)(self.handle, options, key.0, key.1, value.0, value.1, message)
        })
    }

    /// Removes a record.
    pub fn delete(&self, key: &[u8], is_synced: bool) -> Result<(), String> {
        let (key, options) = (as_chars(key), self.write_options(is_synced));
        // SAFETY: as in `put`.
        checked(self.c, |message| unsafe {
            (self.c.delete)(self.handle, options, key.0, key.1, message)
        })
    }

    /// Makes changes at once: keys, each with its value unless it is removed.
    pub fn write<'c>(
        &self,
        changes: impl Iterator<Item = (&'c [u8], Option<&'c [u8]>)>,
        is_synced: bool,
    ) -> Result<(), String> {
        let options = self.write_options(is_synced);
        // SAFETY: the batch is made here, used by nobody else, and destroyed once; keys and values are copied.
        unsafe {
            let batch = (self.c.writebatch_create)();
            for (key, value) in changes {
                let key = as_chars(key);
                match value.map(as_chars) {
                    Some(value) => {
                        (self.c.writebatch_put)(batch, key.0, key.1, value.0, value.1);
                    }
                    None => (self.c.writebatch_delete)(batch, key.0, key.1),
                }
            }
            let written =
                checked(self.c, |message| (self.c.write)(self.handle, options, batch, message));
            (self.c.writebatch_destroy)(batch);
            written
        }
    }

    /// Calls `found` with the value of `key`, if there is one.
    #[inline]
    pub fn get(&self, key: &[u8], found: impl FnOnce(&[u8])) -> Result<(), String> {
        let key = as_chars(key);
        // SAFETY: as in `put`.
        let pinned = checked(self.c, |message| unsafe {
            (self.c.get_pinned)(self.handle, self.read, key.0, key.1, message)
        })?;
        if !pinned.is_null() {
            let mut len = 0;
            // SAFETY: the value is pinned until it is destroyed below, `len` bytes of it.
            found(unsafe { as_bytes((self.c.pinnableslice_value)(pinned, &mut len), len) });
            // SAFETY: it is ours, and nobody has it any more.
            unsafe { (self.c.pinnableslice_destroy)(pinned) };
        }
        Ok(())
    }

    /// Calls `found` with up to `records` records in ascending order, from `from` on.
    #[inline]
    pub fn scan(
        &self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        let c = self.c;
        let from = as_chars(from);
        // SAFETY: the iterator is made and destroyed here; key and value are valid until its next step.
        unsafe {
            let iterator = (c.create_iterator)(self.handle, self.read);
            (c.iter_seek)(iterator, from.0, from.1);
            for _ in 0..records {
                if (c.iter_valid)(iterator) == 0 {
                    break;
                }
                let (mut key_len, mut value_len) = (0, 0);
                let key = (c.iter_key)(iterator, &mut key_len);
                let value = (c.iter_value)(iterator, &mut value_len);
                found(as_bytes(key, key_len), as_bytes(value, value_len));
                (c.iter_next)(iterator);
            }
            let outcome = checked(c, |message| (c.iter_get_error)(iterator, message));
            (c.iter_destroy)(iterator);
            outcome
        }
    }

    /// Writes all memtables to files and compacts everything.
    pub fn compact(&self) -> Result<(), String> {
        let c = self.c;
        // SAFETY: options are made and destroyed here; no bounds is the whole.
        unsafe {
            let options = (c.flushoptions_create)();
            let flushed = checked(c, |message| (c.flush)(self.handle, options, message));
            (c.flushoptions_destroy)(options);
            flushed?;
            (c.compact_range)(self.handle, ptr::null(), 0, ptr::null(), 0);
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: each is destroyed once, and no call is under way, because all of them borrow the database.
        unsafe {
            (self.c.close)(self.handle);
            (self.c.readoptions_destroy)(self.read);
            (self.c.writeoptions_destroy)(self.write);
            (self.c.writeoptions_destroy)(self.write_synced);
        }
    }
}

/// A slice as C has it.
fn as_chars(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// A slice as Rust has it.
///
/// # Safety
///
/// `len` bytes at `start` must be there for `'b`; of none `start` may be anything.
unsafe fn as_bytes<'b>(start: *const c_char, len: usize) -> &'b [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(start.cast(), len) }
}
