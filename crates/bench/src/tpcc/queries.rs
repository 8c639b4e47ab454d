//! The two transactions that only read: Order-Status and Stock-Level (clauses 2.6 and 2.8).

use super::customers::Who;
use super::random::Random;
use super::records::{Customer, District, Order, OrderLine, Record, Stock};
use super::store::{Tables, Work};
use super::tables::{self, Table};
use super::{DISTRICTS, Error, Outcome, Scale};

/// How many of the last orders of a district Stock-Level looks at.
const RECENT_ORDERS: u32 = 20;

/// What the terminal enters for Order-Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    warehouse: u32,
    district: u8,
    customer: Who,
}

impl OrderStatus {
    /// For a customer of `warehouse`.
    pub fn draw(random: &mut Random, scale: &Scale, warehouse: u32) -> OrderStatus {
        let district = random.within(1..=DISTRICTS.into()) as u8;
        OrderStatus { warehouse, district, customer: Who::draw(random, scale) }
    }

    /// Reads the last order of a customer with all of its lines. Its figure is the customer's balance and what the order costs, in cents.
    pub fn run<T: Tables>(&self, work: &mut Work<'_, T>) -> Result<Outcome, Error> {
        let number = self.customer.number(work, self.warehouse, self.district)?;
        let customer_key = tables::customer(self.warehouse, self.district, number);
        let customer: Customer = work.read(Table::Customer, customer_key)?;
        let mut last = None;
        work.scan(Table::OrderByCustomer, customer_key, customer_key, |key, _| {
            last = Some(!tables::last_number(Table::OrderByCustomer, key)?);
            Ok(false)
        })?;
        let last = last.ok_or(Error::Missing(Table::OrderByCustomer, customer_key))?;
        let order_key = tables::order(self.warehouse, self.district, last);
        let order: Order = work.read(Table::Order, order_key)?;
        let (mut lines, mut cents) = (0, 0);
        work.scan(Table::OrderLine, order_key, order_key, |_, value| {
            let line = OrderLine::read(value).ok_or(Error::Malformed(Table::OrderLine))?;
            lines += 1;
            cents += line.amount;
            Ok(true)
        })?;
        if lines != order.lines {
            return Err(Error::Missing(Table::OrderLine, order_key));
        }
        Ok(Outcome::Done(customer.balance + cents))
    }
}

/// What the terminal enters for Stock-Level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevel {
    warehouse: u32,
    district: u8,
    threshold: i32,
}

impl StockLevel {
    /// For a district of `warehouse`.
    pub fn draw(random: &mut Random, warehouse: u32) -> StockLevel {
        let district = random.within(1..=DISTRICTS.into()) as u8;
        StockLevel { warehouse, district, threshold: random.within(10..=20) as i32 }
    }

    /// Its figure is how many of the items in the last orders are few in stock.
    pub fn run<T: Tables>(&self, work: &mut Work<'_, T>) -> Result<Outcome, Error> {
        let district_key = tables::district(self.warehouse, self.district);
        let district: District = work.read(Table::District, district_key)?;
        let next = district.next_order;
        let first = next.saturating_sub(RECENT_ORDERS);
        let end = tables::order(self.warehouse, self.district, next);
        let from = tables::order(self.warehouse, self.district, first);
        let mut items = Vec::with_capacity(RECENT_ORDERS as usize * 10);
        work.scan(Table::OrderLine, district_key, from, |key, value| {
            if key >= end.as_ref() {
                return Ok(false);
            }
            let line = OrderLine::read(value).ok_or(Error::Malformed(Table::OrderLine))?;
            items.push(line.item);
            Ok(true)
        })?;
        items.sort_unstable();
        items.dedup();
        let mut few = 0;
        for item in items {
            let stock: Stock = work.read(Table::Stock, tables::stock(self.warehouse, item))?;
            few += i64::from(stock.quantity < self.threshold);
        }
        Ok(Outcome::Done(few))
    }
}
