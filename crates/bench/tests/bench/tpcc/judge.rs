//! The judge: a map for each table.

use hedgerow_bench::tpcc::{Error, Key, Load, Step, Table, Tables};
use std::collections::BTreeMap;

/// The tables of one terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judge {
    maps: [BTreeMap<Vec<u8>, Vec<u8>>; 11],
}

impl Judge {
    /// Removes a record and returns it.
    pub fn take(&mut self, table: Table, key: &[u8]) -> Option<Vec<u8>> {
        self.maps[table as usize].remove(key)
    }
}

impl Tables for Judge {
    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let found = self.maps[table as usize].get(key);
        value.clear();
        value.extend(found.into_iter().flatten());
        Ok(found.is_some())
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        let map = &mut self.maps[table as usize];
        let is_absent = !map.contains_key(key);
        if is_absent {
            map.insert(key.to_vec(), value.to_vec());
        }
        Ok(is_absent)
    }

    fn swap(
        &mut self,
        table: Table,
        key: &[u8],
        expected: &[u8],
        new: &[u8],
    ) -> Result<bool, Error> {
        match self.maps[table as usize].get_mut(key) {
            Some(value) if value == expected => {
                *value = new.to_vec();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, Error> {
        Ok(self.take(table, key).is_some())
    }

    fn scan(
        &mut self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<(), Error> {
        let mut records = self.maps[table as usize].range(from.to_vec()..);
        let _ = records.try_for_each(|(key, value)| each(key, value));
        Ok(())
    }
}

impl Load for Judge {
    fn load(
        &mut self,
        table: Table,
        records: &mut dyn Iterator<Item = (Key, Vec<u8>)>,
    ) -> Result<(), Error> {
        let mut last = None;
        for (key, value) in records {
            let key = key.as_ref().to_vec();
            assert!(last.as_ref() < Some(&key), "{table} is loaded in order");
            self.maps[table as usize].insert(key.clone(), value);
            last = Some(key);
        }
        Ok(())
    }
}
