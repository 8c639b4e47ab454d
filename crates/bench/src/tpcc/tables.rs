//! The nine tables and two indexes, and their keys.
//!
//! Keys are numbers in big-endian order behind each other, so that records are sorted by the first number, then by the second, and so
//! on. Plain data.

use super::Error;
use super::random::Name;
use std::fmt;

/// A table or an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Warehouses: warehouse.
    Warehouse,
    /// Districts: warehouse, district.
    District,
    /// Customers: warehouse, district, customer.
    Customer,
    /// What was paid: the customer's key, number of the customer's payment.
    History,
    /// Orders that are not delivered: warehouse, district, order. The record is empty.
    NewOrder,
    /// Orders: warehouse, district, order.
    Order,
    /// Lines of orders: warehouse, district, order, line.
    OrderLine,
    /// Items: item.
    Item,
    /// Stock: warehouse, item.
    Stock,
    /// Customers by name: warehouse, district, last name, first name, customer. The record is empty.
    CustomerByName,
    /// Orders of a customer, the last one first: warehouse, district, customer, complement of the order. The record is empty.
    OrderByCustomer,
}

impl Table {
    /// All of them, each at the place of its number.
    pub const ALL: [Table; 11] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::History,
        Table::NewOrder,
        Table::Order,
        Table::OrderLine,
        Table::Item,
        Table::Stock,
        Table::CustomerByName,
        Table::OrderByCustomer,
    ];

    /// The name of its keyspace.
    pub fn name(self) -> &'static str {
        match self {
            Table::Warehouse => "warehouse",
            Table::District => "district",
            Table::Customer => "customer",
            Table::History => "history",
            Table::NewOrder => "new_order",
            Table::Order => "order",
            Table::OrderLine => "order_line",
            Table::Item => "item",
            Table::Stock => "stock",
            Table::CustomerByName => "customer_by_name",
            Table::OrderByCustomer => "order_by_customer",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of the longest key: one of [`Table::CustomerByName`].
const MOST_KEY_BYTES: usize = 4 + 1 + 2 * size_of::<Name>() + 4;

/// A key, or the beginning of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; MOST_KEY_BYTES],
    length: u8,
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.as_ref().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Key {
    const EMPTY: Key = Key { bytes: [0; MOST_KEY_BYTES], length: 0 };

    fn then(mut self, part: &[u8]) -> Key {
        let start = usize::from(self.length);
        self.bytes[start..start + part.len()].copy_from_slice(part);
        self.length += part.len() as u8;
        self
    }

    fn number(self, number: u32) -> Key {
        self.then(&number.to_be_bytes())
    }
}

/// Key of a warehouse.
pub fn warehouse(warehouse: u32) -> Key {
    Key::EMPTY.number(warehouse)
}

/// Key of a district.
pub fn district(warehouse: u32, district: u8) -> Key {
    Key::EMPTY.number(warehouse).then(&[district])
}

/// Key of a customer.
pub fn customer(warehouse: u32, district: u8, customer: u32) -> Key {
    self::district(warehouse, district).number(customer)
}

/// Key of a payment of a customer.
pub fn history(customer: Key, payment: u32) -> Key {
    customer.number(payment)
}

/// Key of an order, also of one that is new.
pub fn order(warehouse: u32, district: u8, order: u32) -> Key {
    self::district(warehouse, district).number(order)
}

/// Key of a line of an order.
pub fn order_line(order: Key, line: u8) -> Key {
    order.then(&[line])
}

/// Key of an item.
pub fn item(item: u32) -> Key {
    Key::EMPTY.number(item)
}

/// Key of the stock of an item.
pub fn stock(warehouse: u32, item: u32) -> Key {
    Key::EMPTY.number(warehouse).number(item)
}

/// What the keys of all customers of a last name begin with.
pub fn last_name(warehouse: u32, district: u8, last: &Name) -> Key {
    self::district(warehouse, district).then(last)
}

/// Key of a customer by name.
pub fn customer_by_name(last_name: Key, first: &Name, customer: u32) -> Key {
    last_name.then(first).number(customer)
}

/// Key of an order by its customer. The last order of a customer comes first.
pub fn order_by_customer(customer: Key, order: u32) -> Key {
    customer.number(!order)
}

/// The number in the last four bytes of `key`.
///
/// Errors: `Malformed` if it is shorter.
pub fn last_number(table: Table, key: &[u8]) -> Result<u32, Error> {
    key.last_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(Error::Malformed(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_at_the_place_of_its_number() {
        for (place, table) in Table::ALL.into_iter().enumerate() {
            assert_eq!(table as usize, place);
        }
    }

    #[test]
    fn keys_are_ordered_by_their_numbers() {
        let keys = [order(1, 2, 255), order(1, 2, 256), order(1, 10, 1), order(2, 1, 1)];
        assert!(keys.is_sorted_by(|a, b| a.as_ref() < b.as_ref()));
        assert!(order_line(keys[0], 15).as_ref() < keys[1].as_ref());
        let by_customer = |number| order_by_customer(customer(1, 2, 3), number);
        assert!(by_customer(7).as_ref() < by_customer(6).as_ref(), "the last order comes first");
    }

    #[test]
    fn numbers_are_found_again_in_keys() {
        let key = order(70_000, 9, 3_001);
        assert_eq!(last_number(Table::Order, key.as_ref()).unwrap(), 3_001);
        assert!(matches!(last_number(Table::Order, b"abc"), Err(Error::Malformed(Table::Order))));
    }

    #[test]
    fn the_longest_key_has_room() {
        let name = crate::tpcc::random::padded(b"BARBARBAR");
        let key = customer_by_name(last_name(u32::MAX, 10, &name), &name, u32::MAX);
        assert_eq!(key.as_ref().len(), MOST_KEY_BYTES);
        assert_eq!(last_number(Table::CustomerByName, key.as_ref()).unwrap(), u32::MAX);
    }
}
