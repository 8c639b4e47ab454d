//! The consistency conditions of the specification (clause 3.3.2), all twelve, over a store that nobody changes meanwhile.
//!
//! Each table but items and stock is read once, district by district, so that what is in memory is what there is of one district. What holds when, and why, is told
//! in the head of the module above.
//!
//! Condition 11 is stated for a database that was just loaded: orders less new orders are those that were delivered before. Here they are those and the ones
//! that customers count as deliveries.

use super::records::{Customer, District, History, Order, OrderLine, Record, Warehouse};
use super::store::{Step, Tables};
use super::tables::{self, Key, Table};
use super::{DISTRICTS, Error, Scale};

/// A condition that does not hold, and the numbers that differ.
type Violation = (u8, String);

/// Checks them.
///
/// Errors: `Violated` for the first one that does not hold; those of the store; `Missing` and `Malformed` if warehouses or districts are
/// not those of `scale`.
pub fn check<T: Tables>(tables: &mut T, scale: &Scale) -> Result<(), Error> {
    let warehouses = warehouses(tables, scale)?;
    let mut heads = Vec::new();
    for (warehouse, district) in scale.districts() {
        heads.push(district_head(tables, tables::district(warehouse, district))?);
    }
    for ((warehouse, paid), districts) in (1..).zip(&warehouses).zip(heads.chunks(DISTRICTS.into()))
    {
        let sum: i64 = districts.iter().map(|district| district.paid).sum();
        if *paid != sum {
            let what = format!("it was paid {paid} cents, its districts {sum}");
            return Err(Error::Violated { condition: 1, warehouse, district: None, what });
        }
    }
    // What was paid in each district; customers of any district pay in any.
    let mut payments = vec![0_i64; heads.len()];
    for ((warehouse, district), head) in scale.districts().zip(&heads) {
        let seen = Seen::read(tables, tables::district(warehouse, district), scale, &mut payments)?;
        seen.check(head, scale).map_err(|(condition, what)| Error::Violated {
            condition,
            warehouse,
            district: Some(district),
            what,
        })?;
    }
    let per_warehouse = payments.chunks(DISTRICTS.into());
    for ((warehouse, paid), payments) in (1..).zip(&warehouses).zip(per_warehouse) {
        let sum: i64 = payments.iter().sum();
        if *paid != sum {
            let what = format!("it was paid {paid} cents, and its payments are {sum}");
            return Err(Error::Violated { condition: 8, warehouse, district: None, what });
        }
    }
    for (((warehouse, district), head), paid) in scale.districts().zip(&heads).zip(&payments) {
        if head.paid != *paid {
            let what = format!("it was paid {} cents, and its payments are {paid}", head.paid);
            let district = Some(district);
            return Err(Error::Violated { condition: 9, warehouse, district, what });
        }
    }
    Ok(())
}

/// What each warehouse was paid.
fn warehouses<T: Tables>(tables: &mut T, scale: &Scale) -> Result<Vec<i64>, Error> {
    let mut paid = Vec::new();
    each_of(tables, Table::Warehouse, &[], |key, row| {
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
    Ok(paid)
}

fn district_head<T: Tables>(tables: &mut T, key: Key) -> Result<District, Error> {
    let mut row = Vec::new();
    if !tables.get(Table::District, key.as_ref(), &mut row)? {
        return Err(Error::Missing(Table::District, key));
    }
    District::read(&row).ok_or(Error::Malformed(Table::District))
}

/// An order, and its lines.
struct SeenOrder {
    number: u32,
    customer: u32,
    is_delivered: bool,
    is_new: bool,
    expected_lines: u8,
    lines: u8,
    lines_delivered: u8,
    cents: i64,
}

/// A customer, and what payments and orders say.
#[derive(Clone, Default)]
struct SeenCustomer {
    balance: i64,
    paid: i64,
    deliveries: u64,
    payments: i64,
    delivered_cents: i64,
}

/// What the tables have of a district.
struct Seen {
    orders: Vec<SeenOrder>,
    customers: Vec<SeenCustomer>,
    lines: u64,
    /// A line, or a new order, of an order that there is not.
    stray: Option<(Table, u32)>,
    first_new: u32,
    last_new: u32,
    new_orders: u64,
}

impl Seen {
    fn read<T: Tables>(
        tables: &mut T,
        district: Key,
        scale: &Scale,
        payments: &mut [i64],
    ) -> Result<Seen, Error> {
        let prefix = district.as_ref();
        let mut seen = Seen {
            orders: Vec::new(),
            customers: vec![SeenCustomer::default(); scale.customers() as usize],
            lines: 0,
            stray: None,
            first_new: 0,
            last_new: 0,
            new_orders: 0,
        };
        each_of(tables, Table::Customer, prefix, |key, row| {
            let row = Customer::read(row).ok_or(Error::Malformed(Table::Customer))?;
            let number = tables::last_number(Table::Customer, key)?;
            let of = seen.customer(Table::Customer, number)?;
            (of.balance, of.paid, of.deliveries) = (row.balance, row.paid, row.deliveries.into());
            Ok(())
        })?;
        each_of(tables, Table::History, prefix, |key, row| {
            let row = History::read(row).ok_or(Error::Malformed(Table::History))?;
            let number = key.get(..key.len().saturating_sub(4)).unwrap_or_default();
            let number = tables::last_number(Table::History, number)?;
            seen.customer(Table::History, number)?.payments += row.amount;
            let at = place_of(row.warehouse, row.district);
            let paid = at.and_then(|at| payments.get_mut(at));
            *paid.ok_or(Error::Malformed(Table::History))? += row.amount;
            Ok(())
        })?;
        each_of(tables, Table::Order, prefix, |key, row| {
            let row = Order::read(row).ok_or(Error::Malformed(Table::Order))?;
            seen.orders.push(SeenOrder {
                number: tables::last_number(Table::Order, key)?,
                customer: row.customer,
                is_delivered: row.carrier != 0,
                is_new: false,
                expected_lines: row.lines,
                lines: 0,
                lines_delivered: 0,
                cents: 0,
            });
            Ok(())
        })?;
        each_of(tables, Table::OrderLine, prefix, |key, row| {
            let row = OrderLine::read(row).ok_or(Error::Malformed(Table::OrderLine))?;
            let number = key.get(..key.len().saturating_sub(1)).unwrap_or_default();
            let number = tables::last_number(Table::OrderLine, number)?;
            seen.lines += 1;
            match seen.order(number) {
                Some(order) => {
                    order.lines = order.lines.saturating_add(1);
                    order.lines_delivered += u8::from(row.delivered != 0);
                    order.cents += row.amount;
                }
                None => seen.stray = Some((Table::OrderLine, number)),
            }
            Ok(())
        })?;
        each_of(tables, Table::NewOrder, prefix, |key, _| {
            let number = tables::last_number(Table::NewOrder, key)?;
            if seen.new_orders == 0 {
                seen.first_new = number;
            }
            seen.last_new = number;
            seen.new_orders += 1;
            match seen.order(number) {
                Some(order) => order.is_new = true,
                None => seen.stray = Some((Table::NewOrder, number)),
            }
            Ok(())
        })?;
        for at in 0..seen.orders.len() {
            let SeenOrder { customer, is_delivered, cents, .. } = seen.orders[at];
            let of = seen.customer(Table::Order, customer)?;
            of.delivered_cents += if is_delivered { cents } else { 0 };
        }
        Ok(seen)
    }

    fn order(&mut self, number: u32) -> Option<&mut SeenOrder> {
        let at = self.orders.binary_search_by_key(&number, |order| order.number).ok()?;
        self.orders.get_mut(at)
    }

    fn customer(&mut self, table: Table, number: u32) -> Result<&mut SeenCustomer, Error> {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.customers.get_mut(at)).ok_or(Error::Malformed(table))
    }

    /// The conditions that are about a district, but for what was paid in it.
    fn check(&self, head: &District, scale: &Scale) -> Result<(), Violation> {
        let next_order = head.next_order;
        let last_order = self.orders.last().map_or(0, |order| order.number);
        let Seen { first_new, last_new, new_orders, .. } = *self;
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
        let expected: u64 = self.orders.iter().map(|order| u64::from(order.expected_lines)).sum();
        if expected != self.lines {
            let what =
                format!("its orders have {expected} lines together, and there are {}", self.lines);
            return Err((4, what));
        }
        match self.stray {
            Some((Table::NewOrder, order)) => {
                return Err((5, format!("new order {order} is no order")));
            }
            Some((_, order)) => return Err((6, format!("there are lines of {order}, no order"))),
            None => {}
        }
        self.orders.iter().try_for_each(SeenOrder::check)?;
        self.check_customers(scale)
    }

    fn check_customers(&self, scale: &Scale) -> Result<(), Violation> {
        for (number, of) in (1..).zip(&self.customers) {
            let SeenCustomer { balance, paid, payments, delivered_cents, .. } = *of;
            if balance != delivered_cents - payments {
                let what = format!(
                    "customer {number} has a balance of {balance} cents, what was delivered costs {delivered_cents}, and payments are {payments}"
                );
                return Err((10, what));
            }
            if balance + paid != delivered_cents {
                let what = format!(
                    "customer {number} has a balance of {balance} cents and has paid {paid}, what was delivered costs {delivered_cents}"
                );
                return Err((12, what));
            }
        }
        let deliveries: u64 = self.customers.iter().map(|of| of.deliveries).sum();
        let delivered = (self.orders.len() as u64).checked_sub(self.new_orders);
        let before = u64::from(scale.delivered());
        if delivered != Some(before + deliveries) {
            let what = format!(
                "{} orders, {} of them new; {before} were delivered at first, and customers have {deliveries} deliveries since",
                self.orders.len(),
                self.new_orders
            );
            return Err((11, what));
        }
        Ok(())
    }
}

impl SeenOrder {
    fn check(&self) -> Result<(), Violation> {
        let number = self.number;
        if self.is_new == self.is_delivered {
            let what = match self.is_new {
                true => format!("order {number} is new, and has a carrier"),
                false => format!("order {number} is not new, and has no carrier"),
            };
            return Err((5, what));
        }
        if self.lines != self.expected_lines {
            let what =
                format!("order {number} has {} lines of {}", self.lines, self.expected_lines);
            return Err((6, what));
        }
        let expected = if self.is_delivered { self.lines } else { 0 };
        if self.lines_delivered != expected {
            let what = format!(
                "of order {number} {} lines are delivered, and not {expected}",
                self.lines_delivered
            );
            return Err((7, what));
        }
        Ok(())
    }
}

/// The place of a district among all.
fn place_of(warehouse: u32, district: u8) -> Option<usize> {
    let before = (warehouse as usize).checked_sub(1)? * usize::from(DISTRICTS);
    Some(before + usize::from(district.checked_sub(1).filter(|at| *at < DISTRICTS)?))
}

/// Calls `each` with all records of a table whose keys begin with `prefix`, in order.
fn each_of<T: Tables>(
    tables: &mut T,
    table: Table,
    prefix: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    tables.scan(table, prefix, &mut |key, row| {
        if !key.starts_with(prefix) {
            return Step::Break(());
        }
        match each(key, row) {
            Ok(()) => Step::Continue(()),
            Err(error) => {
                outcome = Err(error);
                Step::Break(())
            }
        }
    })?;
    outcome
}
