//! Other names for keyspaces: a rename, and the exchange of two names.
//!
//! Names are all that changes: trees, and handles to them, go on. Both lock out drops and creations, which look names up and
//! change them, and checkpoints, so that no checkpoint falls between the two records of the catalogue. Whoever looks a
//! name up meanwhile waits, and so sees both names as before, or both as they are now.
//!
//! The log says it once, behind both changes: whoever is to find a keyspace by its new name finds it after that. If only the first
//! of the two changes can be made, it is taken back. If that fails, too, the store takes no more changes, and its next opening has the
//! old names.

use super::{Catalogue, Record, Room, State};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{Lsn, TreeId};
use crate::wal::{Promised, RECORD_HEADER_BYTES, Record as LogRecord};
use hedgerow_sync::primitive::atomic::Ordering::Release;

impl Catalogue {
    /// The keyspace `from` is called `to` from now on.
    ///
    /// Errors: `KeyspaceNotFound`; `KeyspaceExists` if one is called `to`; `InvalidName`.
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        let room = self.promise_rename(from, to)?;
        let _dropping = self.dropping.lock();
        let record = self.expect(from)?;
        self.vacate(to)?;
        self.move_names(from, record, to, None, room)
    }

    /// The keyspaces `a` and `b` exchange their names.
    ///
    /// Errors: `KeyspaceNotFound`; `InvalidName`.
    pub fn swap_keyspaces(&self, a: &str, b: &str) -> Result<()> {
        let room = self.promise_rename(a, b)?;
        let _dropping = self.dropping.lock();
        let (record, other) = (self.expect(a)?, self.expect(b)?);
        if a == b { Ok(()) } else { self.move_names(a, record, b, Some(other), room) }
    }

    /// Does again what a record of the log says that ends at `end`, unless the tree has ended since. The log's last one may have been
    /// done before: the tree has its new name then.
    pub fn rename_again(&self, tree: TreeId, from: &str, to: &str, end: Lsn) -> Result<()> {
        let _dropping = self.dropping.lock();
        self.move_again(tree, from, to)?;
        // After the change: a checkpoint that says that it has it does have it.
        self.renames_end.store(end.0, Release);
        Ok(())
    }

    fn move_again(&self, tree: TreeId, from: &str, to: &str) -> Result<()> {
        let is_live = |record: &Record| record.state != State::Dropping;
        let (found, other) = (self.find(from)?, self.find(to)?);
        let Some(record) = found.filter(|record| record.tree == tree && is_live(record)) else {
            return Ok(());
        };
        if let Some(ends) = other.filter(|other| !is_live(other)) {
            self.make_way(to, ends)?;
        }
        self.move_names(from, record, to, other.filter(is_live), None)
    }

    fn expect(&self, name: &str) -> Result<Record> {
        let record = self.find(name)?.filter(|record| record.state != State::Dropping);
        record.ok_or_else(|| {
            let what = format!("there is no keyspace `{}`", name.escape_debug());
            Error::new(ErrorKind::KeyspaceNotFound, what)
        })
    }

    /// The record of a tree that is not being dropped, and its name: `name`, or what it was called since.
    pub(super) fn find_tree(&self, tree: TreeId, name: &str) -> Result<Option<(String, Record)>> {
        let is_it = |record: &Record| record.tree == tree && record.state != State::Dropping;
        if let Some(record) = self.find(name)?.filter(is_it) {
            return Ok(Some((name.to_owned(), record)));
        }
        Ok(self.records()?.into_iter().find(|(_, record)| is_it(record)))
    }

    /// The caller holds the lock of drops; there is nothing of the name `to` but `other`.
    fn move_names(
        &self,
        from: &str,
        record: Record,
        to: &str,
        other: Option<Record>,
        room: Option<Room<'_>>,
    ) -> Result<()> {
        let _creating = self.creating.lock();
        let _hindered = self.pool.slots().map(|slots| slots.checkpoints().hinder());
        let _ahead = self.pool.go_ahead();
        let mut names = self.names.write();
        let put =
            |name: &str, record: Record| self.tree.put_to_free(name.as_bytes(), &record.encode());
        self.tree.put(to.as_bytes(), &record.encode())?;
        let second = match other {
            Some(other) => put(from, other).map(drop),
            None => self.tree.remove(from.as_bytes()).map(drop),
        };
        if let Err(error) = second {
            let undone = match other {
                Some(other) => put(to, other).map(drop),
                None => self.tree.remove(to.as_bytes()).map(drop),
            };
            if undone.is_err() {
                self.pool.set_poisoned(&error);
            }
            return Err(error);
        }
        let lsn = match room {
            Some(room) => {
                let (from, to) = (from.as_bytes(), to.as_bytes());
                room.append(&LogRecord::Rename { tree: record.tree, from, to })
            }
            None => self.pool.own_lsn(),
        };
        names.note(&self.pool, lsn, from, Some(record));
        names.note(&self.pool, lsn, to, other);
        Ok(())
    }

    /// Room in the log for the record of a rename; the caller holds nothing.
    fn promise_rename(&self, from: &str, to: &str) -> Result<Option<Room<'_>>> {
        self.check_name(from)?;
        self.check_name(to)?;
        let Some(log) = self.pool.log() else { return Ok(None) };
        let bytes = (RECORD_HEADER_BYTES + from.len() + to.len()) as u64;
        self.pool.make_log_room(log, bytes, Promised::Freely)?;
        Ok(Some(Room { log, bytes }))
    }
}
