//! TPC-C as index operations: nine tables and two indexes, five transactions, over a small trait of a store.
//!
//! Revision 5.11 of the specification, with these differences. Warehouses and districts are as it says; customers, orders and items of each are a
//! share of it ([`Scale`]). Terminals are threads without keying and think times, each transaction draws its warehouse,
//! and deliveries are not queued. So the figures are no tpmC.
//!
//! A transaction of the specification is one of the store, under [`Isolation`](isolated::Isolation) `serializable` or `snapshot`, which is run again after a conflict. Under `steps` each
//! step of it (a get, an insert, a removal, a compare-and-swap) is atomic alone: a read-modify-write is a compare-and-swap that is tried again until nobody else was
//! faster, and whoever looks while transactions run may see a part of one. That is how the simulated machine runs them, whose subject are latches. All twelve
//! consistency conditions (clause 3.3.2, [`conditions`]) are checked when all terminals have finished. In transactions they hold at any moment, also after a crash.
//! Under `steps` they hold when every transaction that has begun has finished without an error, by what each of them writes:
//!
//! | condition | | why it holds then |
//! |---|---|---|
//! | 1, 8, 9 | what warehouses and districts were paid is the sum of the payments | a Payment adds the same to both and makes one record of it, by swaps that lose nothing; nobody else writes them |
//! | 2 | the next order less 1 is the largest order and the largest new order | a New-Order raises the next order by a swap, so that each number is one transaction's, and that one makes its order and its new order; Deliveries take orders without gaps (see [`delivery`]), so what is left ends with the largest |
//! | 3 | new orders have no gaps | for the same reason; without the rule of [`delivery`] there would be gaps |
//! | 4, 6 | orders have as many lines as they say | a New-Order makes as many lines as its order says, and nobody removes one |
//! | 5, 7, 11 | an order has a carrier, and its lines a date, if it is not new | a Delivery does all of that to an order, which one swap makes its own |
//! | 10, 12 | what a customer owes is what was delivered less what was paid | Deliveries and Payments change the customer by one swap each |
//!
//! A run under `steps` that was killed or failed in the middle of a transaction leaves a part of it. An interrupted run (Ctrl-C) finishes its transactions first.
//!
//! | module | what |
//! |---|---|
//! | [`scale`], [`random`], [`load`] | how many rows, random numbers and words, the rows |
//! | [`tables`], [`records`], [`store`] | keys, records, what a store has to do |
//! | [`terminal`] | the mix, and one module for each transaction: [`new_order`], [`payment`], [`delivery`], [`queries`] |
//! | [`conditions`] | the consistency conditions |
//! | [`engine`], [`isolated`], [`run`] | Hedgerow as the store, and in its transactions; threads, clocks and figures |
//!
//! Only these know of threads, clocks and files: another store, also a simulated one, has the rest.

pub mod conditions;
pub mod customers;
pub mod delivery;
pub mod engine;
pub mod isolated;
pub mod load;
pub mod new_order;
pub mod payment;
pub mod queries;
pub mod random;
pub mod records;
pub mod run;
pub mod scale;
pub mod store;
pub mod tables;
pub mod terminal;

pub use scale::{DISTRICTS, Scale};
pub use store::{Load, Step, Tables, Work};
pub use tables::{Key, Table};
pub use terminal::{Kind, Terminal, Transaction};

/// What a transaction that ran has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did its work; with a figure that the terminal would show, by which two stores can be compared.
    Done(i64),
    /// It was rolled back, as one New-Order of a hundred has to be.
    RolledBack,
}

/// Why there are no figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error("{0}")]
    Store(String),
    /// A record that must be there is not.
    #[error("table {0} has no record of {1:?}")]
    Missing(Table, Key),
    /// A record is there already.
    #[error("table {0} has a record of {1:?} already")]
    Present(Table, Key),
    /// A record or key is not one of this benchmark.
    #[error("table {0} has a malformed record")]
    Malformed(Table),
    /// A consistency condition does not hold.
    #[error(
        "consistency condition {condition} does not hold in {}: {what}",
        place(*warehouse, *district)
    )]
    Violated {
        /// Its number in clause 3.3.2 of the specification.
        condition: u8,
        /// The warehouse.
        warehouse: u32,
        /// The district; none if the condition is about the warehouse.
        district: Option<u8>,
        /// The numbers that differ.
        what: String,
    },
    /// The arguments are out of range, or do not fit to the store.
    #[error("{0}")]
    Refused(String),
    /// The user has interrupted it.
    #[error("interrupted")]
    Interrupted,
}

fn place(warehouse: u32, district: Option<u8>) -> String {
    match district {
        Some(district) => format!("district {district} of warehouse {warehouse}"),
        None => format!("warehouse {warehouse}"),
    }
}
