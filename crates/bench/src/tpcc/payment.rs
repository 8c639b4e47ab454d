//! The Payment transaction (clause 2.5).
//!
//! Order of writes: the warehouse, the district, the customer, the history. The customer is looked up before the first write. The
//! number of the customer's payment makes the key of the history, so no two payments have the same.

use super::customers::Who;
use super::random::Random;
use super::records::{Customer, District, History, Record, Warehouse};
use super::store::{Tables, Work};
use super::tables::{self, Table};
use super::{DISTRICTS, Error, Outcome, Scale};
use std::io::Write;

/// The longest data of a customer, in bytes.
const MOST_DATA_BYTES: usize = 500;

/// What the terminal enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    warehouse: u32,
    district: u8,
    customer_warehouse: u32,
    customer_district: u8,
    customer: Who,
    amount: i64,
}

impl Input {
    /// A payment at `warehouse`. In 15 of a hundred cases the customer is one of another one.
    pub fn draw(random: &mut Random, scale: &Scale, warehouse: u32) -> Input {
        let any_district = |random: &mut Random| random.within(1..=DISTRICTS.into()) as u8;
        let district = any_district(random);
        let (customer_warehouse, customer_district) = match random.percent(15) {
            true => (random.other(warehouse, scale.warehouses), any_district(random)),
            false => (warehouse, district),
        };
        let customer = Who::draw(random, scale);
        let amount = random.within(100..=500_000).into();
        Input { warehouse, district, customer_warehouse, customer_district, customer, amount }
    }

    /// Books the payment. Its figure is the new balance of the customer, in cents.
    pub fn run<T: Tables>(&self, work: &mut Work<'_, T>) -> Result<Outcome, Error> {
        let number = self.customer.number(work, self.customer_warehouse, self.customer_district)?;
        let key = tables::customer(self.customer_warehouse, self.customer_district, number);
        work.read::<Customer>(Table::Customer, key)?;
        let of_warehouse: Warehouse = work.update(
            Table::Warehouse,
            tables::warehouse(self.warehouse),
            |row: &mut Warehouse| {
                row.paid += self.amount;
            },
        )?;
        let district_key = tables::district(self.warehouse, self.district);
        let of_district: District =
            work.update(Table::District, district_key, |row: &mut District| {
                row.paid += self.amount
            })?;
        let paid = work.change_all(Table::Customer, key, |old, new| {
            self.pay(number, old, new).map(Some).ok_or(Error::Malformed(Table::Customer))
        })?;
        let Customer { payments, balance, .. } = paid.expect("it is always changed");
        let head = History {
            amount: self.amount,
            date: work.date,
            warehouse: self.warehouse,
            district: self.district,
        };
        let mut history = head.to_bytes();
        history.extend(of_warehouse.name.iter().take_while(|byte| **byte != 0));
        history.extend(b"    ");
        history.extend(of_district.name.iter().take_while(|byte| **byte != 0));
        work.insert(Table::History, tables::history(key, payments), &history)?;
        Ok(Outcome::Done(balance))
    }

    /// Makes the new record of the customer. The data of one with bad credit begin with this payment.
    fn pay(&self, number: u32, old: &[u8], new: &mut Vec<u8>) -> Option<Customer> {
        let mut head = Customer::read(old)?;
        head.balance -= self.amount;
        head.paid += self.amount;
        head.payments += 1;
        head.append(new);
        let texts = old.get(Customer::BYTES..)?;
        if head.credit != *b"BC" {
            new.extend_from_slice(texts);
            return Some(head);
        }
        let (address, data) = texts.split_at_checked(head.address_bytes.into())?;
        new.extend_from_slice(address);
        let start = new.len();
        let Input { warehouse, district, customer_warehouse, customer_district, amount, .. } = self;
        write!(
            new,
            "{number} {customer_district} {customer_warehouse} {district} {warehouse} {amount} "
        )
        .ok()?;
        new.extend_from_slice(data);
        new.truncate(start + MOST_DATA_BYTES);
        Some(head)
    }
}
