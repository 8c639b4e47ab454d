//! The records: a head of fixed fields in little-endian order, and texts of changing length behind it.
//!
//! Transactions read and write heads; the texts stay where they are. Money is in cents, rates are in hundredths of a percent, and a
//! date is the number of a transaction on its terminal, from 1 on, so that runs of the same seed make the same records. Plain data.

use super::random::Name;

/// A field of a head.
trait Field: Copy {
    /// The field in the first bytes of `bytes`, which are taken away.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
    /// Appends it.
    fn append(self, to: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn take(bytes: &mut &[u8]) -> Option<$number> {
                bytes.split_off(..size_of::<$number>())?.try_into().ok().map(<$number>::from_le_bytes)
            }

            fn append(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i32, i64);

impl<const N: usize> Field for [u8; N] {
    fn take(bytes: &mut &[u8]) -> Option<[u8; N]> {
        bytes.split_off(..N)?.try_into().ok()
    }

    fn append(self, to: &mut Vec<u8>) {
        to.extend(self);
    }
}

/// The head of a record.
pub trait Record: Copy {
    /// Its bytes.
    const BYTES: usize;

    /// The head in the first bytes of `bytes`; none if they are too few.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Appends it.
    fn append(&self, to: &mut Vec<u8>);

    /// The whole record, if it has no texts.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        self.append(&mut bytes);
        bytes
    }
}

macro_rules! record {
    ($(#[$words:meta])* $name:ident { $($(#[$field_words:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$words])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_words])* pub $field: $kind,)*
        }

        impl Record for $name {
            const BYTES: usize = 0 $(+ size_of::<$kind>())*;

            fn read(bytes: &[u8]) -> Option<$name> {
                let mut bytes = bytes;
                Some($name { $($field: <$kind>::take(&mut bytes)?,)* })
            }

            fn append(&self, to: &mut Vec<u8>) {
                $(self.$field.append(to);)*
            }
        }
    };
}

record! {
    /// A warehouse; its address follows.
    Warehouse {
        /// Tax, in hundredths of a percent.
        tax: u32,
        /// What customers have paid here, in cents.
        paid: i64,
        /// Name.
        name: [u8; 10],
    }
}

record! {
    /// A district; its address follows.
    District {
        /// Tax, in hundredths of a percent.
        tax: u32,
        /// What customers have paid here, in cents.
        paid: i64,
        /// Number of the next order.
        next_order: u32,
        /// Name.
        name: [u8; 10],
    }
}

record! {
    /// A customer; address and data follow.
    Customer {
        /// What the customer owes if it is negative, in cents.
        balance: i64,
        /// What was paid, in cents.
        paid: i64,
        /// Payments.
        payments: u32,
        /// Orders that were delivered.
        deliveries: u32,
        /// Discount, in hundredths of a percent.
        discount: u32,
        /// Limit of the credit, in cents.
        credit_limit: i64,
        /// Date of the first order.
        since: u64,
        /// `GC`, good credit, or `BC`.
        credit: [u8; 2],
        /// Middle of the name.
        middle: [u8; 2],
        /// First name.
        first: Name,
        /// Last name.
        last: Name,
        /// Number of the telephone.
        phone: [u8; 16],
        /// Bytes of the address, behind which there are data.
        address_bytes: u8,
    }
}

record! {
    /// A payment; its data follow.
    History {
        /// What was paid, in cents.
        amount: i64,
        /// When.
        date: u64,
        /// The warehouse where it was paid.
        warehouse: u32,
        /// The district where it was paid.
        district: u8,
    }
}

record! {
    /// An order.
    Order {
        /// The customer.
        customer: u32,
        /// When it was entered.
        date: u64,
        /// Who delivers it; zero as long as it is new.
        carrier: u8,
        /// Its lines.
        lines: u8,
        /// Whether all of it comes from the warehouse of the order: 1 or 0.
        is_local: u8,
    }
}

record! {
    /// A line of an order.
    OrderLine {
        /// The item.
        item: u32,
        /// The warehouse that it comes from.
        supplier: u32,
        /// When it was delivered; zero before.
        delivered: u64,
        /// How many.
        quantity: u8,
        /// What they cost together, in cents.
        amount: i64,
        /// What the stock says of the district.
        info: [u8; 24],
    }
}

record! {
    /// An item; name and data follow.
    Item {
        /// Number of a picture.
        picture: u32,
        /// Price, in cents.
        price: i64,
        /// Bytes of the name, behind which there are data.
        name_bytes: u8,
    }
}

record! {
    /// The stock of an item; 24 bytes for each district follow, and data.
    Stock {
        /// How many there are.
        quantity: i32,
        /// How many were ordered.
        ordered: u64,
        /// Lines of orders that they were in.
        orders: u32,
        /// Those of other warehouses among them.
        remote_orders: u32,
    }
}

record! {
    /// What a store was loaded with.
    Loaded {
        /// The version of keys and records.
        format: u32,
        /// Warehouses.
        warehouses: u32,
        /// The bits of the share of [`Scale`](super::Scale).
        share: u64,
    }
}

impl Stock {
    /// What the stock whose record is `bytes` says of a district, and its data.
    pub fn texts(bytes: &[u8], district: u8) -> Option<(&[u8; 24], &[u8])> {
        let texts = bytes.get(Stock::BYTES..)?;
        let (districts, data) = texts.split_at_checked(24 * usize::from(super::DISTRICTS))?;
        let at = 24 * usize::from(district.checked_sub(1)?);
        Some((districts.get(at..)?.first_chunk()?, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written_and_short_ones_are_none() {
        let line = OrderLine {
            item: 1,
            supplier: 2,
            delivered: u64::MAX,
            quantity: 4,
            amount: -5,
            info: [7; 24],
        };
        let mut bytes = line.to_bytes();
        assert_eq!(bytes.len(), OrderLine::BYTES);
        bytes.extend(b"and texts");
        assert_eq!(OrderLine::read(&bytes), Some(line));
        for length in 0..OrderLine::BYTES {
            assert_eq!(OrderLine::read(&bytes[..length]), None);
        }
    }

    #[test]
    fn texts_of_stock_are_those_of_the_district() {
        let mut bytes = Stock { quantity: 1, ordered: 2, orders: 3, remote_orders: 4 }.to_bytes();
        assert_eq!(Stock::texts(&bytes, 1), None);
        for district in 1..=10 {
            bytes.extend([district; 24]);
        }
        bytes.extend(b"data");
        for district in 1..=10 {
            assert_eq!(Stock::texts(&bytes, district), Some((&[district; 24], &b"data"[..])));
        }
        assert_eq!((Stock::texts(&bytes, 0), Stock::texts(&bytes, 11)), (None, None));
    }
}
