//! The Delivery transaction (clause 2.7): the oldest new order of each district of a warehouse.
//!
//! Order of writes, for each district: the order gets its carrier, its lines their date, the customer what they cost, and the new order is
//! removed. Setting the carrier is what makes an order this transaction's: it is set once, by one swap.
//!
//! An order is only taken if the one before it has a carrier. A New-Order that has its number may not have made its order yet, while the next one
//! has; without this rule the next one would be delivered first, and the new orders of a district would have a gap for good
//! (conditions 2 and 3). Then the district is skipped, as if it had no new order; skipped districts are counted.

use super::random::Random;
use super::records::{Customer, Order, OrderLine};
use super::store::{Tables, Work};
use super::tables::{self, Table};
use super::{DISTRICTS, Error, Outcome};

/// What the terminal enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    warehouse: u32,
    carrier: u8,
}

impl Input {
    /// A delivery for `warehouse`.
    pub fn draw(random: &mut Random, warehouse: u32) -> Input {
        Input { warehouse, carrier: random.within(1..=10) as u8 }
    }

    /// Delivers. Its figure is the number of districts that had an order to deliver.
    pub fn run<T: Tables>(&self, work: &mut Work<'_, T>) -> Result<Outcome, Error> {
        let mut delivered = 0;
        for district in 1..=DISTRICTS {
            if let Some((number, order)) = self.take(work, district)? {
                self.deliver(work, district, number, order)?;
                delivered += 1;
            }
        }
        Ok(Outcome::Done(delivered))
    }

    /// Makes the oldest new order that nobody delivers this transaction's.
    fn take<T: Tables>(
        &self,
        work: &mut Work<'_, T>,
        district: u8,
    ) -> Result<Option<(u32, Order)>, Error> {
        let prefix = tables::district(self.warehouse, district);
        let mut from = 0;
        loop {
            let mut oldest = None;
            let start = tables::order(self.warehouse, district, from);
            work.scan(Table::NewOrder, prefix, start, |key, _| {
                oldest = Some(tables::last_number(Table::NewOrder, key)?);
                Ok(false)
            })?;
            let Some(number) = oldest else { return Ok(None) };
            if !self.is_next(work, district, number)? {
                return Ok(None);
            }
            let key = tables::order(self.warehouse, district, number);
            let taken = work.change(Table::Order, key, |order: &mut Order| {
                let is_new = order.carrier == 0;
                order.carrier = self.carrier;
                is_new
            })?;
            match taken {
                Some(order) => return Ok(Some((number, order))),
                None => from = number.saturating_add(1),
            }
        }
    }

    /// Whether the order before has a carrier.
    fn is_next<T: Tables>(
        &self,
        work: &mut Work<'_, T>,
        district: u8,
        number: u32,
    ) -> Result<bool, Error> {
        if number <= 1 {
            return Ok(true);
        }
        let before = tables::order(self.warehouse, district, number - 1);
        let before = work.find::<Order>(Table::Order, before)?;
        Ok(before.is_some_and(|order| order.carrier != 0))
    }

    fn deliver<T: Tables>(
        &self,
        work: &mut Work<'_, T>,
        district: u8,
        number: u32,
        order: Order,
    ) -> Result<(), Error> {
        let key = tables::order(self.warehouse, district, number);
        let date = work.date;
        let mut cents = 0;
        for line in 1..=order.lines {
            let line_key = tables::order_line(key, line);
            let line = work
                .update(Table::OrderLine, line_key, |line: &mut OrderLine| line.delivered = date)?;
            cents += line.amount;
        }
        let customer_key = tables::customer(self.warehouse, district, order.customer);
        work.update(Table::Customer, customer_key, |customer: &mut Customer| {
            customer.balance += cents;
            customer.deliveries += 1;
        })?;
        work.remove(Table::NewOrder, key)
    }
}
