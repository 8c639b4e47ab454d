//! How many rows there are: warehouses and districts as in the specification, the rest by a share of it.
//!
//! Plain data.

use super::Error;
use serde::{Deserialize, Serialize};

/// Districts of a warehouse.
pub const DISTRICTS: u8 = 10;
/// The most warehouses.
pub const MOST_WAREHOUSES: u32 = 100_000;

/// Rows at scale 1 (clause 4.3.3.1 of the specification, and 1.2.1).
const ITEMS: f64 = 100_000.0;
const CUSTOMERS: f64 = 3_000.0;

/// The size of a database.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Warehouses, from 1 on.
    pub warehouses: u32,
    /// The share of the specification's customers of a district and items, above 0 and up to 1.
    pub share: f64,
}

impl Scale {
    /// Refuses what is out of range.
    ///
    /// Errors: `Refused`.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..=MOST_WAREHOUSES).contains(&self.warehouses) {
            let words = format!("{} warehouses: from 1 to {MOST_WAREHOUSES}", self.warehouses);
            return Err(Error::Refused(words));
        }
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(Error::Refused(format!("scale {}: above 0 and up to 1", self.share)));
        }
        Ok(())
    }

    fn of(self, rows: f64, least: u32) -> u32 {
        ((rows * self.share).round() as u32).max(least)
    }

    /// Items, and rows of stock in each warehouse; at least 100.
    pub fn items(&self) -> u32 {
        self.of(ITEMS, 100)
    }

    /// Customers of a district, and its orders after the load; at least 30.
    pub fn customers(&self) -> u32 {
        self.of(CUSTOMERS, 30)
    }

    /// Different last names. As in the specification three customers of a district share one on average.
    pub fn last_names(&self) -> u32 {
        self.customers() / 3
    }

    /// The last order of a district that was delivered before the load; those above it are new.
    pub fn delivered(&self) -> u32 {
        self.customers() * 7 / 10
    }

    /// All pairs of a warehouse and a district, in order.
    pub fn districts(&self) -> impl Iterator<Item = (u32, u8)> + use<> {
        (1..=self.warehouses).flat_map(|warehouse| (1..=DISTRICTS).map(move |at| (warehouse, at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_scale_is_that_of_the_specification() {
        let scale = Scale { warehouses: 2, share: 1.0 };
        assert_eq!((scale.items(), scale.customers()), (100_000, 3_000));
        assert_eq!((scale.last_names(), scale.delivered()), (1_000, 2_100));
        assert_eq!(scale.districts().count(), 20);
    }

    #[test]
    fn scales_out_of_range_are_refused() {
        let check = |warehouses, share| Scale { warehouses, share }.check();
        for share in [0.0, -0.5, 1.000_1, f64::NAN, f64::INFINITY] {
            assert!(matches!(check(1, share), Err(Error::Refused(_))), "{share}");
        }
        assert!(matches!(check(0, 1.0), Err(Error::Refused(_))));
        assert!(matches!(check(MOST_WAREHOUSES + 1, 1.0), Err(Error::Refused(_))));
        assert!(check(1, 1.0).is_ok() && check(MOST_WAREHOUSES, f64::MIN_POSITIVE).is_ok());
    }

    #[test]
    fn the_smallest_scale_has_customers_with_names_and_new_orders() {
        let scale = Scale { warehouses: 1, share: f64::MIN_POSITIVE };
        assert_eq!((scale.items(), scale.customers()), (100, 30));
        assert_eq!((scale.last_names(), scale.delivered()), (10, 21));
    }
}
