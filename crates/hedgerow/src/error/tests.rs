//! Tests of errors: kinds, codes, texts, and what is small about them.

use super::*;
use std::error::Error as _;

/// Bindings and logs of users have these. A row may be added and never changed.
#[test]
fn codes_and_names_of_kinds_stay_what_they_are() {
    let table = [
        (ErrorKind::Io, "io"),
        (ErrorKind::Corrupted { page: None, offset_bytes: None }, "corrupted"),
        (ErrorKind::NotAStore, "not_a_store"),
        (ErrorKind::UpgradeRequired { found: 1 }, "upgrade_required"),
        (ErrorKind::Locked { holder_pid: None }, "locked"),
        (ErrorKind::FileNotFound, "file_not_found"),
        (ErrorKind::DirectoryNotFound, "directory_not_found"),
        (ErrorKind::FileExists, "file_exists"),
        (ErrorKind::KeyspaceNotFound, "keyspace_not_found"),
        (ErrorKind::KeyspaceExists, "keyspace_exists"),
        (ErrorKind::KeyspaceNotEmpty, "keyspace_not_empty"),
        (ErrorKind::KeyspaceDropped, "keyspace_dropped"),
        (ErrorKind::ForeignKeyspace, "foreign_keyspace"),
        (ErrorKind::TooManyKeyspaces, "too_many_keyspaces"),
        (ErrorKind::LogMissing, "log_missing"),
        (ErrorKind::ForeignLog, "foreign_log"),
        (ErrorKind::NotClosed, "not_closed"),
        (ErrorKind::KeyTooLong { len_bytes: 2, max_bytes: 1 }, "key_too_long"),
        (ErrorKind::RecordTooLarge { len_bytes: 2, max_bytes: 1 }, "record_too_large"),
        (ErrorKind::BatchTooLarge { len_bytes: 2, max_bytes: 1 }, "batch_too_large"),
        (ErrorKind::NotSorted, "not_sorted"),
        (ErrorKind::LengthMismatch, "length_mismatch"),
        (ErrorKind::WriterFailed, "writer_failed"),
        (ErrorKind::InvalidOption, "invalid_option"),
        (ErrorKind::InvalidArgument, "invalid_argument"),
        (ErrorKind::InvalidName, "invalid_name"),
        (ErrorKind::ReadOnly, "read_only"),
        (ErrorKind::InMemory, "in_memory"),
        (ErrorKind::MemoryLimit, "memory_limit"),
        (ErrorKind::DiskFull, "disk_full"),
        (ErrorKind::Poisoned, "poisoned"),
        (ErrorKind::DurabilityUnknown, "durability_unknown"),
        (ErrorKind::BatchUnfinished, "batch_unfinished"),
        (ErrorKind::Timeout, "timeout"),
        (ErrorKind::Cancelled, "cancelled"),
        (ErrorKind::Closed, "closed"),
        (ErrorKind::ForkedProcess, "forked_process"),
        (ErrorKind::WouldBlock, "would_block"),
        (ErrorKind::NotYetDurable, "not_yet_durable"),
        (ErrorKind::SnapshotTooOld, "snapshot_too_old"),
        (ErrorKind::Conflict, "conflict"),
        (ErrorKind::TransactionEnded, "transaction_ended"),
        (ErrorKind::TransactionTooLarge { len_bytes: 1, max_bytes: 0 }, "transaction_too_large"),
    ];
    for (at, (kind, name)) in table.iter().enumerate() {
        assert_eq!((kind.code(), kind.name()), (at as u32 + 1, *name));
        assert_eq!(kind.to_string(), *name);
        let is_retried = [5, 30, 34, 38, 40, 41].contains(&kind.code());
        assert_eq!(kind.is_retryable(), is_retried, "{name}");
    }
    let documented: Vec<String> = include_str!("../error.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("/// | "))
        .filter(|row| row.starts_with(|first: char| first.is_ascii_digit()))
        .map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let expected: Vec<String> =
        table.iter().map(|(kind, name)| format!("{} `{name}`", kind.code())).collect();
    assert_eq!(documented, expected, "the table in the documentation");
}

#[test]
fn a_chain_of_errors_has_each_once_and_the_system_s_can_be_had() {
    let error = Error::io("cannot read the file", io::Error::from_raw_os_error(5));
    assert!(error.to_string().starts_with("cannot read the file: "), "{error}");
    assert!(error.to_string().ends_with("(os error 5)"), "{error}");
    assert!(error.source().is_none(), "it has been said");
    assert_eq!(error.io_error().and_then(io::Error::raw_os_error), Some(5));
    assert_eq!(error.os_error(), Some(5));
    let behind = io::Error::other(Error::new(ErrorKind::Closed, "closed"));
    assert!(Error::io("cannot read", behind).source().is_none());
}

#[test]
fn the_place_of_damage_is_said_in_one_bracket() {
    let at = |page, offset_bytes| {
        let kind = ErrorKind::Corrupted { page, offset_bytes };
        Error::new(kind, "its checksum is wrong").to_string()
    };
    let page = Some(PageId(27));
    assert_eq!(at(page, Some(4096)), "its checksum is wrong (page 27, at byte 4096)");
    assert_eq!(at(page, None), "its checksum is wrong (page 27)");
    assert_eq!(at(None, Some(4096)), "its checksum is wrong (at byte 4096)");
    assert_eq!(at(None, None), "its checksum is wrong");
}

#[test]
fn as_an_error_of_the_system_it_keeps_its_kind_and_its_words() {
    for (kind, expected) in [
        (ErrorKind::FileNotFound, io::ErrorKind::NotFound),
        (ErrorKind::KeyspaceExists, io::ErrorKind::AlreadyExists),
        (ErrorKind::InvalidName, io::ErrorKind::InvalidInput),
        (
            ErrorKind::TransactionTooLarge { len_bytes: 2, max_bytes: 1 },
            io::ErrorKind::InvalidInput,
        ),
        (ErrorKind::Locked { holder_pid: None }, io::ErrorKind::ResourceBusy),
        (ErrorKind::MemoryLimit, io::ErrorKind::OutOfMemory),
        (ErrorKind::InMemory, io::ErrorKind::Unsupported),
        (ErrorKind::DiskFull, io::ErrorKind::StorageFull),
        (ErrorKind::NotAStore, io::ErrorKind::InvalidData),
        (ErrorKind::Closed, io::ErrorKind::Other),
        (ErrorKind::Timeout, io::ErrorKind::TimedOut),
        (ErrorKind::WouldBlock, io::ErrorKind::WouldBlock),
        // Not a kind by which callers of `std::io` try again: the change would be made twice.
        (ErrorKind::NotYetDurable, io::ErrorKind::Other),
    ] {
        let error = io::Error::from(Error::new(kind, "what was said"));
        assert_eq!((error.kind(), error.to_string()), (expected, "what was said".to_owned()));
    }
    for (system, expected) in [
        (io::ErrorKind::PermissionDenied, io::ErrorKind::PermissionDenied),
        (io::ErrorKind::QuotaExceeded, io::ErrorKind::QuotaExceeded),
        (io::ErrorKind::Interrupted, io::ErrorKind::Other),
    ] {
        assert_eq!(io::Error::from(Error::io("cannot write", system.into())).kind(), expected);
    }
}
