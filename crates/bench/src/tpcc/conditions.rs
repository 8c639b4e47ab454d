//! The consistency conditions 1 to 4 of the specification (clause 3.3.2), over a store that nobody changes meanwhile.
//!
//! Five tables are read, each once. What holds when, and why, is told in the head of the module above.

use super::records::{District, Order, Record, Warehouse};
use super::store::{Step, Tables};
use super::tables::{self, Table};
use super::{DISTRICTS, Error, Scale};

/// What the tables say of a district.
#[derive(Clone, Copy, Default)]
struct Sums {
    paid: i64,
    next_order: u32,
    last_order: u32,
    lines_of_orders: u64,
    lines: u64,
    first_new: u32,
    last_new: u32,
    new_orders: u64,
}

/// Checks them.
///
/// Errors: `Violated` for the first one that does not hold; those of the store; `Missing` and `Malformed` if warehouses or districts are
/// not those of `scale`.
pub fn check<T: Tables>(tables: &mut T, scale: &Scale) -> Result<(), Error> {
    let (paid, districts) = sums(tables, scale)?;
    let per_warehouse = districts.chunks(DISTRICTS.into());
    for ((warehouse, paid), districts) in (1..).zip(paid).zip(per_warehouse) {
        let sum: i64 = districts.iter().map(|district| district.paid).sum();
        if paid != sum {
            let what = format!("it was paid {paid} cents, its districts {sum}");
            return Err(Error::Violated { condition: 1, warehouse, district: None, what });
        }
    }
    for ((warehouse, district), sums) in scale.districts().zip(&districts) {
        if let Err((condition, what)) = sums.check() {
            return Err(Error::Violated { condition, warehouse, district: Some(district), what });
        }
    }
    Ok(())
}

impl Sums {
    /// The conditions that are about a district.
    fn check(&self) -> Result<(), (u8, String)> {
        let Sums { next_order, last_order, first_new, last_new, new_orders, .. } = *self;
        if u64::from(next_order) != u64::from(last_order) + 1 {
            let what = format!("the next order is {next_order}, the last one {last_order}");
            return Err((2, what));
        }
        // If all orders are delivered there is no largest new order.
        if new_orders > 0 && last_new != last_order {
            let what = format!("the last order is {last_order}, the last new order {last_new}");
            return Err((2, what));
        }
        if new_orders > 0 && u64::from(last_new - first_new) + 1 != new_orders {
            let what = format!("{new_orders} new orders from {first_new} to {last_new}");
            return Err((3, what));
        }
        if self.lines_of_orders != self.lines {
            let what = format!(
                "its orders have {} lines together, and there are {}",
                self.lines_of_orders, self.lines
            );
            return Err((4, what));
        }
        Ok(())
    }
}

/// What each warehouse was paid, and the sums of all districts, in order.
fn sums<T: Tables>(tables: &mut T, scale: &Scale) -> Result<(Vec<i64>, Vec<Sums>), Error> {
    let mut paid = Vec::new();
    all(tables, Table::Warehouse, |key, row| {
        let row = Warehouse::read(row).ok_or(Error::Malformed(Table::Warehouse))?;
        paid.push(row.paid);
        let expected = tables::warehouse(paid.len() as u32);
        if key == expected.as_ref() {
            Ok(())
        } else {
            Err(Error::Missing(Table::Warehouse, expected))
        }
    })?;
    if paid.len() != scale.warehouses as usize {
        let warehouse = tables::warehouse(scale.warehouses);
        return Err(Error::Missing(Table::Warehouse, warehouse));
    }
    let mut sums = vec![Sums::default(); paid.len() * usize::from(DISTRICTS)];
    for (warehouse, district) in scale.districts() {
        let key = tables::district(warehouse, district);
        let mut row = Vec::new();
        if !tables.get(Table::District, key.as_ref(), &mut row)? {
            return Err(Error::Missing(Table::District, key));
        }
        let row = District::read(&row).ok_or(Error::Malformed(Table::District))?;
        let sums = at(&mut sums, Table::District, key.as_ref())?;
        (sums.paid, sums.next_order) = (row.paid, row.next_order);
    }
    all(tables, Table::Order, |key, row| {
        let order = Order::read(row).ok_or(Error::Malformed(Table::Order))?;
        let sums = at(&mut sums, Table::Order, key)?;
        sums.last_order = tables::last_number(Table::Order, key)?;
        sums.lines_of_orders += u64::from(order.lines);
        Ok(())
    })?;
    all(tables, Table::OrderLine, |key, _| {
        at(&mut sums, Table::OrderLine, key)?.lines += 1;
        Ok(())
    })?;
    all(tables, Table::NewOrder, |key, _| {
        let sums = at(&mut sums, Table::NewOrder, key)?;
        sums.last_new = tables::last_number(Table::NewOrder, key)?;
        if sums.new_orders == 0 {
            sums.first_new = sums.last_new;
        }
        sums.new_orders += 1;
        Ok(())
    })?;
    Ok((paid, sums))
}

/// The sums of the district that `key` begins with.
fn at<'a>(sums: &'a mut [Sums], table: Table, key: &[u8]) -> Result<&'a mut Sums, Error> {
    let (warehouse, district) = tables::district_of(table, key)?;
    let place = || {
        let before = (warehouse as usize).checked_sub(1)? * usize::from(DISTRICTS);
        Some(before + usize::from(district.checked_sub(1).filter(|at| *at < DISTRICTS)?))
    };
    place().and_then(|place| sums.get_mut(place)).ok_or(Error::Malformed(table))
}

/// Calls `each` with all records of a table, in order.
fn all<T: Tables>(
    tables: &mut T,
    table: Table,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    tables.scan(table, &[], &mut |key, row| match each(key, row) {
        Ok(()) => Step::Continue(()),
        Err(error) => {
            outcome = Err(error);
            Step::Break(())
        }
    })?;
    outcome
}
