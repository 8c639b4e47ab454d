//! A terminal: draws transactions by the mix of the specification (clause 5.2.3), from a seed of its own.
//!
//! What is entered is drawn before the transaction runs, so it does not depend on what the store answers. Plain data.

use super::random::Random;
use super::store::{Tables, Work};
use super::{Error, Outcome, Scale, delivery, new_order, payment, queries};
use serde::{Deserialize, Serialize};

/// The kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Enters an order.
    NewOrder,
    /// Books a payment.
    Payment,
    /// Reads the last order of a customer.
    OrderStatus,
    /// Delivers an order of each district.
    Delivery,
    /// Counts items that are few in stock.
    StockLevel,
}

impl Kind {
    /// All of them, each at the place of its number.
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Its name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "New-Order",
            Kind::Payment => "Payment",
            Kind::OrderStatus => "Order-Status",
            Kind::Delivery => "Delivery",
            Kind::StockLevel => "Stock-Level",
        }
    }

    /// How many of a hundred transactions are of this kind.
    pub fn percent(self) -> u32 {
        match self {
            Kind::NewOrder => 45,
            Kind::Payment => 43,
            Kind::OrderStatus | Kind::Delivery | Kind::StockLevel => 4,
        }
    }
}

/// A transaction, as it was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// See [`Kind::NewOrder`].
    NewOrder(new_order::Input),
    /// See [`Kind::Payment`].
    Payment(payment::Input),
    /// See [`Kind::OrderStatus`].
    OrderStatus(queries::OrderStatus),
    /// See [`Kind::Delivery`].
    Delivery(delivery::Input),
    /// See [`Kind::StockLevel`].
    StockLevel(queries::StockLevel),
}

impl Transaction {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Transaction::NewOrder(_) => Kind::NewOrder,
            Transaction::Payment(_) => Kind::Payment,
            Transaction::OrderStatus(_) => Kind::OrderStatus,
            Transaction::Delivery(_) => Kind::Delivery,
            Transaction::StockLevel(_) => Kind::StockLevel,
        }
    }

    /// Runs it. Each of its steps is atomic, it is not.
    ///
    /// Errors: those of the store; `Missing`, `Present`, `Malformed` if the records are not those of the specification. It may have
    /// written a part of what it writes then.
    pub fn run<T: Tables>(&self, work: &mut Work<'_, T>) -> Result<Outcome, Error> {
        work.date += 1;
        match self {
            Transaction::NewOrder(input) => input.run(work),
            Transaction::Payment(input) => input.run(work),
            Transaction::OrderStatus(input) => input.run(work),
            Transaction::Delivery(input) => input.run(work),
            Transaction::StockLevel(input) => input.run(work),
        }
    }
}

/// Somebody who enters transactions. It is not bound to a warehouse: each transaction draws its own.
#[derive(Clone, Debug)]
pub struct Terminal {
    scale: Scale,
    random: Random,
}

impl Terminal {
    /// The terminal of a number.
    pub fn new(scale: Scale, seed: u64, number: u32) -> Terminal {
        Terminal { scale, random: Random::new(seed, [0, 0, number.into()]) }
    }

    /// The next transaction, of a kind by the mix.
    pub fn draw(&mut self) -> Transaction {
        let mut left = self.random.within(1..=100);
        let kind = Kind::ALL.into_iter().find(|kind| match left.checked_sub(kind.percent()) {
            Some(0) | None => true,
            Some(rest) => {
                left = rest;
                false
            }
        });
        self.draw_kind(kind.expect("the percents are a hundred"))
    }

    /// The next transaction, of this kind.
    pub fn draw_kind(&mut self, kind: Kind) -> Transaction {
        let Terminal { scale, random } = self;
        let warehouse = random.within(1..=scale.warehouses);
        match kind {
            Kind::NewOrder => {
                Transaction::NewOrder(new_order::Input::draw(random, scale, warehouse))
            }
            Kind::Payment => Transaction::Payment(payment::Input::draw(random, scale, warehouse)),
            Kind::OrderStatus => {
                Transaction::OrderStatus(queries::OrderStatus::draw(random, scale, warehouse))
            }
            Kind::Delivery => Transaction::Delivery(delivery::Input::draw(random, warehouse)),
            Kind::StockLevel => {
                Transaction::StockLevel(queries::StockLevel::draw(random, warehouse))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_the_specification() {
        assert_eq!(Kind::ALL.map(Kind::percent).iter().sum::<u32>(), 100);
        let mut terminal = Terminal::new(Scale { warehouses: 3, share: 0.01 }, 1, 0);
        let mut counts = [0_i32; 5];
        for _ in 0..100_000 {
            counts[terminal.draw().kind() as usize] += 1;
        }
        for (kind, count) in Kind::ALL.into_iter().zip(counts) {
            let expected = 1_000 * kind.percent() as i32;
            assert!((count - expected).abs() < 600, "{}: {count}", kind.name());
        }
    }

    #[test]
    fn terminals_of_a_seed_enter_the_same_and_of_other_numbers_something_else() {
        let scale = Scale { warehouses: 3, share: 0.01 };
        let draws = |seed, number| {
            let mut terminal = Terminal::new(scale, seed, number);
            (0..20).map(|_| terminal.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
        assert_ne!(draws(1, 0), draws(2, 0));
    }
}
