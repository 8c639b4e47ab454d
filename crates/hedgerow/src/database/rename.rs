//! Other names for keyspaces that are there: a rename, and the exchange of two names.
//!
//! What they do stands in `store/catalogue/rename.rs`. Any number of threads.

#[cfg(doc)]
use super::Keyspace;
use super::database::Database;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Database {
    /// Gives the keyspace `from` the name `to`, which no keyspace may have, in one step: whoever opens keyspaces finds it under one of
    /// the two names. Handles go on to work, and so do bulk loads; their [`Keyspace::name`] is still the old one. Waits as
    /// [`Database::create_keyspace`] does. It takes no more time for a large keyspace than for a small one.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](ErrorKind::KeyspaceNotFound); [`KeyspaceExists`](ErrorKind::KeyspaceExists);
    /// [`InvalidName`](ErrorKind::InvalidName); the [errors of changes](Keyspace#errors-of-changes), and with any durability
    /// [`DurabilityUnknown`](ErrorKind::DurabilityUnknown): the change of names is in effect.
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.rename_keyspace(from, to)
    }

    /// Lets two keyspaces exchange their names in one step: whoever opens them finds both as before or both exchanged, also after a
    /// crash. So a keyspace is replaced while it is in use: load beside it, swap, and drop what it was. Handles go on with the
    /// records that they had, under the other name. Costs and waits as [`Database::rename_keyspace`] does.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// let db = hedgerow::Options::new().in_memory()?;
    /// db.keyspace("birds")?.put(b"wren", b"old")?;
    /// db.keyspace("birds.new")?.put(b"wren", b"new")?;
    /// db.swap_keyspaces("birds", "birds.new")?;
    /// db.drop_keyspace("birds.new")?;
    /// assert_eq!(db.keyspace("birds")?.get(b"wren")?.as_deref(), Some(&b"new"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::rename_keyspace`] but for `KeyspaceExists`.
    pub fn swap_keyspaces(&self, a: &str, b: &str) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.swap_keyspaces(a, b)
    }
}
