//! The New-Order transaction (clause 2.4).
//!
//! Order of writes: the district's next order, the stock of each line, the lines, the order, the order by its customer, the new order.
//! All that can fail comes before: the items are looked up first, so the one transaction of a hundred that asks for an item that does
//! not exist has written nothing when it is rolled back. An order that can be found has all of its lines; a new order has its order.

use super::random::{Random, is_original};
use super::records::{Customer, District, Item, Order, OrderLine, Stock, Warehouse};
use super::store::{Tables, Work};
use super::tables::{self, Table};
use super::{DISTRICTS, Error, Outcome, Scale};
use smallvec::SmallVec;

/// The most lines of an order.
pub const MOST_LINES: usize = 15;

/// What the terminal enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    warehouse: u32,
    district: u8,
    customer: u32,
    lines: SmallVec<[Line; MOST_LINES]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    item: u32,
    supplier: u32,
    quantity: u8,
}

impl Input {
    /// An order at `warehouse`. One line of a hundred comes from another one; one order of a hundred has an item that does not exist.
    pub fn draw(random: &mut Random, scale: &Scale, warehouse: u32) -> Input {
        let district = random.within(1..=DISTRICTS.into()) as u8;
        let customer = random.customer(scale.customers());
        let count = random.within(5..=MOST_LINES as u32);
        let is_wrong = random.percent(1);
        let line = |at| {
            let item = random.item(scale.items());
            let is_remote = random.percent(1);
            Line {
                item: if is_wrong && at == count { scale.items() + 1 } else { item },
                supplier: match is_remote {
                    true => random.other(warehouse, scale.warehouses),
                    false => warehouse,
                },
                quantity: random.within(1..=10) as u8,
            }
        };
        let lines = (1..=count).map(line).collect();
        Input { warehouse, district, customer, lines }
    }

    /// Enters the order. Its figure is what it costs, in cents.
    pub fn run<T: Tables>(&self, work: &mut Work<'_, T>) -> Result<Outcome, Error> {
        let &Input { warehouse, district, customer, .. } = self;
        let mut items: SmallVec<[(i64, bool); MOST_LINES]> = SmallVec::new();
        for line in &self.lines {
            let Some(item) = work.find::<Item>(Table::Item, tables::item(line.item))? else {
                return Ok(Outcome::RolledBack);
            };
            items.push((item.price, is_original(work.bytes())));
        }
        let of_warehouse: Warehouse = work.read(Table::Warehouse, tables::warehouse(warehouse))?;
        let customer_key = tables::customer(warehouse, district, customer);
        let of_customer: Customer = work.read(Table::Customer, customer_key)?;
        let district_key = tables::district(warehouse, district);
        let of_district: District =
            work.update(Table::District, district_key, |row: &mut District| row.next_order += 1)?;
        let number = of_district.next_order - 1;
        let order_key = tables::order(warehouse, district, number);
        let mut cents = 0;
        let mut lines: SmallVec<[OrderLine; MOST_LINES]> = SmallVec::new();
        for (line, &(price, _)) in self.lines.iter().zip(&items) {
            let info = take_from_stock(work, line, warehouse, district)?;
            let amount = price * i64::from(line.quantity);
            cents += amount;
            let &Line { item, supplier, quantity } = line;
            lines.push(OrderLine { item, supplier, delivered: 0, quantity, amount, info });
        }
        for (at, line) in (1..).zip(&lines) {
            work.insert_head(Table::OrderLine, tables::order_line(order_key, at), line)?;
        }
        let is_local = self.lines.iter().all(|line| line.supplier == warehouse);
        let order = Order {
            customer,
            date: work.date,
            carrier: 0,
            lines: lines.len() as u8,
            is_local: is_local.into(),
        };
        work.insert_head(Table::Order, order_key, &order)?;
        let by_customer = tables::order_by_customer(customer_key, number);
        work.insert(Table::OrderByCustomer, by_customer, &[])?;
        work.insert(Table::NewOrder, order_key, &[])?;
        let taxed = 10_000 + i64::from(of_warehouse.tax) + i64::from(of_district.tax);
        let discounted = 10_000 - i64::from(of_customer.discount);
        Ok(Outcome::Done(cents * discounted * taxed / 100_000_000))
    }
}

/// Returns what the stock says of the district.
fn take_from_stock<T: Tables>(
    work: &mut Work<'_, T>,
    line: &Line,
    warehouse: u32,
    district: u8,
) -> Result<[u8; 24], Error> {
    let key = tables::stock(line.supplier, line.item);
    let quantity = i32::from(line.quantity);
    work.update(Table::Stock, key, |stock: &mut Stock| {
        stock.quantity -= quantity;
        if stock.quantity < 10 {
            stock.quantity += 91;
        }
        stock.ordered += u64::from(line.quantity);
        stock.orders += 1;
        stock.remote_orders += u32::from(line.supplier != warehouse);
    })?;
    // A change of the head leaves the texts as they were.
    let texts = Stock::texts(work.bytes(), district);
    texts.map(|(info, _)| *info).ok_or(Error::Malformed(Table::Stock))
}
