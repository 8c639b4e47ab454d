//! Which customer a transaction is about: by number, or by last name (clauses 2.5.1.2 and 2.6.1.2).

use super::random::{Name, Random, last_name};
use super::store::{Tables, Work};
use super::tables::{self, Table};
use super::{Error, Scale};

/// A customer of a district.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The one of this number.
    Number(u32),
    /// The one in the middle of those of this last name, in the order of their first names.
    LastName(Name),
}

impl Who {
    /// By name in 60 of a hundred cases.
    pub fn draw(random: &mut Random, scale: &Scale) -> Who {
        if random.percent(60) {
            Who::LastName(last_name(random.last_name(scale.last_names())))
        } else {
            Who::Number(random.customer(scale.customers()))
        }
    }

    /// The number of the customer.
    ///
    /// Errors: `Missing` if nobody has the name; those of the store.
    pub fn number<T: Tables>(
        &self,
        work: &mut Work<'_, T>,
        warehouse: u32,
        district: u8,
    ) -> Result<u32, Error> {
        let last = match self {
            Who::Number(number) => return Ok(*number),
            Who::LastName(last) => last,
        };
        let prefix = tables::last_name(warehouse, district, last);
        let mut numbers = Vec::new();
        work.scan(Table::CustomerByName, prefix, prefix, |key, _| {
            numbers.push(tables::last_number(Table::CustomerByName, key)?);
            Ok(true)
        })?;
        // The place is n / 2, rounded up, counted from 1.
        let middle = numbers.len().div_ceil(2).checked_sub(1);
        let number = middle.and_then(|at| numbers.get(at));
        number.copied().ok_or(Error::Missing(Table::CustomerByName, prefix))
    }
}
