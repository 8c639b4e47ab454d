//! The rows that a database begins with (clause 4.3.3.1), in the order of their keys.
//!
//! Each table of each district has a generator of its own, so that rows which are needed twice, such as names and orders, are the same
//! both times. One thread.

use super::random::{Name, Random, last_name};
use super::records::{
    Customer, District, History, Item, Order, OrderLine, Record, Stock, Warehouse,
};
use super::store::Load;
use super::tables::{self, Key, Table};
use super::{DISTRICTS, Error, Scale};

/// The date of everything that is loaded.
const DATE: u64 = 1;
/// What each customer has paid before, in cents.
const FIRST_PAYMENT: i64 = 1_000;

/// Loads all tables, which are empty. `is_over` is asked for each row.
///
/// Errors: those of the store; `Interrupted` if `is_over` says so.
pub fn load<T: Load>(
    tables: &mut T,
    scale: &Scale,
    seed: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let rows = Rows { scale: *scale, seed };
    for table in Table::ALL {
        tables.load(table, &mut rows.of(table).take_while(|_| !is_over()))?;
        if is_over() {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

type Row = (Key, Vec<u8>);

/// The rows of a scale and a seed.
#[derive(Clone, Copy)]
struct Rows {
    scale: Scale,
    seed: u64,
}

/// An order as it is loaded.
struct FirstOrder {
    number: u32,
    customer: u32,
    lines: u8,
}

impl Rows {
    fn of(self, table: Table) -> Box<dyn Iterator<Item = Row>> {
        match table {
            Table::Warehouse => self.in_warehouses(table, Rows::warehouse),
            Table::District => self.in_districts(Rows::district),
            Table::Customer => self.in_districts(Rows::customers),
            Table::History => self.in_districts(Rows::history),
            Table::NewOrder => self.in_districts(Rows::new_orders),
            Table::Order => self.in_districts(Rows::orders),
            Table::OrderLine => self.in_districts(Rows::order_lines),
            Table::Item => {
                let mut random = self.random(table, 0, 0);
                Box::new((1..=self.scale.items()).map(move |number| item(&mut random, number)))
            }
            Table::Stock => {
                let of_warehouse = move |warehouse| {
                    let mut random = self.random(table, warehouse, 0);
                    let items = 1..=self.scale.items();
                    items.map(move |number| stock(&mut random, warehouse, number))
                };
                Box::new((1..=self.scale.warehouses).flat_map(of_warehouse))
            }
            Table::CustomerByName => self.in_districts(Rows::customers_by_name),
            Table::OrderByCustomer => self.in_districts(Rows::orders_by_customer),
        }
    }

    fn random(self, table: Table, warehouse: u32, district: u8) -> Random {
        Random::new(self.seed, [1 + table as u64, warehouse.into(), district.into()])
    }

    fn in_warehouses(
        self,
        table: Table,
        row: fn(Rows, &mut Random, u32) -> Row,
    ) -> Box<dyn Iterator<Item = Row>> {
        let rows = (1..=self.scale.warehouses)
            .map(move |warehouse| row(self, &mut self.random(table, warehouse, 0), warehouse));
        Box::new(rows)
    }

    /// The rows of each district, which are in memory together.
    fn in_districts(self, rows: fn(Rows, u32, u8) -> Vec<Row>) -> Box<dyn Iterator<Item = Row>> {
        Box::new(self.scale.districts().flat_map(move |(warehouse, at)| rows(self, warehouse, at)))
    }

    /// Each customer has paid once.
    fn district_paid(self) -> i64 {
        FIRST_PAYMENT * i64::from(self.scale.customers())
    }

    fn warehouse(self, random: &mut Random, warehouse: u32) -> Row {
        let head = Warehouse {
            tax: random.within(0..=2_000),
            paid: self.district_paid() * i64::from(DISTRICTS),
            name: random.letters(6..=10),
        };
        let mut row = head.to_bytes();
        random.append_address(&mut row);
        (tables::warehouse(warehouse), row)
    }

    fn district(self, warehouse: u32, district: u8) -> Vec<Row> {
        let random = &mut self.random(Table::District, warehouse, district);
        let head = District {
            tax: random.within(0..=2_000),
            paid: self.district_paid(),
            next_order: self.scale.customers() + 1,
            name: random.letters(6..=10),
        };
        let mut row = head.to_bytes();
        random.append_address(&mut row);
        vec![(tables::district(warehouse, district), row)]
    }

    /// Last and first names of the customers of a district. The first ones have each last name once.
    fn names(self, warehouse: u32, district: u8) -> Vec<(Name, Name)> {
        let mut random = self.random(Table::CustomerByName, warehouse, district);
        let count = self.scale.last_names();
        let name = |at| {
            let last = if at < count { at } else { random.last_name_to_load(count) };
            (last_name(last), random.letters(8..=16))
        };
        (0..self.scale.customers()).map(name).collect()
    }

    fn customers(self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut random = self.random(Table::Customer, warehouse, district);
        let names = self.names(warehouse, district);
        let row = |(number, (last, first))| {
            let mut address = Vec::new();
            random.append_address(&mut address);
            let head = Customer {
                balance: -FIRST_PAYMENT,
                paid: FIRST_PAYMENT,
                payments: 1,
                deliveries: 0,
                discount: random.within(0..=5_000),
                credit_limit: 5_000_000,
                since: DATE,
                credit: if random.percent(10) { *b"BC" } else { *b"GC" },
                middle: *b"OE",
                first,
                last,
                phone: random.digits(),
                address_bytes: address.len() as u8,
            };
            let mut row = head.to_bytes();
            row.extend(address);
            random.append_letters(300..=500, &mut row);
            (tables::customer(warehouse, district, number), row)
        };
        (1..).zip(names).map(row).collect()
    }

    fn customers_by_name(self, warehouse: u32, district: u8) -> Vec<Row> {
        let names = self.names(warehouse, district);
        let mut keys: Vec<Key> = (1..)
            .zip(&names)
            .map(|(number, (last, first))| {
                let prefix = tables::last_name(warehouse, district, last);
                tables::customer_by_name(prefix, first, number)
            })
            .collect();
        keys.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        keys.into_iter().map(|key| (key, Vec::new())).collect()
    }

    fn history(self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut random = self.random(Table::History, warehouse, district);
        let row = |customer| {
            let mut row =
                History { amount: FIRST_PAYMENT, date: DATE, warehouse, district }.to_bytes();
            random.append_letters(12..=24, &mut row);
            (tables::history(tables::customer(warehouse, district, customer), 1), row)
        };
        (1..=self.scale.customers()).map(row).collect()
    }

    /// Each customer has one.
    fn first_orders(self, warehouse: u32, district: u8) -> impl Iterator<Item = FirstOrder> {
        let mut random = self.random(Table::Order, warehouse, district);
        let customers = random.permutation(self.scale.customers());
        (1..).zip(customers).map(move |(number, customer)| FirstOrder {
            number,
            customer,
            lines: random.within(5..=15) as u8,
        })
    }

    fn orders(self, warehouse: u32, district: u8) -> Vec<Row> {
        let orders = self.first_orders(warehouse, district);
        let row = |FirstOrder { number, customer, lines }| {
            let carrier =
                if number <= self.scale.delivered() { 1 + (number % 10) as u8 } else { 0 };
            let order = Order { customer, date: DATE, carrier, lines, is_local: 1 };
            (tables::order(warehouse, district, number), order.to_bytes())
        };
        orders.map(row).collect()
    }

    fn orders_by_customer(self, warehouse: u32, district: u8) -> Vec<Row> {
        let orders = self.first_orders(warehouse, district);
        let mut rows: Vec<(u32, u32)> =
            orders.map(|order| (order.customer, order.number)).collect();
        rows.sort_unstable();
        let row = |(customer, number)| {
            let customer = tables::customer(warehouse, district, customer);
            (tables::order_by_customer(customer, number), Vec::new())
        };
        rows.into_iter().map(row).collect()
    }

    fn new_orders(self, warehouse: u32, district: u8) -> Vec<Row> {
        let numbers = self.scale.delivered() + 1..=self.scale.customers();
        numbers.map(|number| (tables::order(warehouse, district, number), Vec::new())).collect()
    }

    fn order_lines(self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut random = self.random(Table::OrderLine, warehouse, district);
        let mut rows = Vec::new();
        for order in self.first_orders(warehouse, district) {
            let is_delivered = order.number <= self.scale.delivered();
            for line in 1..=order.lines {
                let key =
                    tables::order_line(tables::order(warehouse, district, order.number), line);
                let row = OrderLine {
                    item: random.within(1..=self.scale.items()),
                    supplier: warehouse,
                    delivered: if is_delivered { DATE } else { 0 },
                    quantity: 5,
                    amount: if is_delivered { 0 } else { random.within(1..=999_999).into() },
                    info: random.letters(24..=24),
                };
                rows.push((key, row.to_bytes()));
            }
        }
        rows
    }
}

fn item(random: &mut Random, number: u32) -> Row {
    let mut name = Vec::new();
    random.append_letters(14..=24, &mut name);
    let head = Item {
        picture: random.within(1..=10_000),
        price: random.within(100..=10_000).into(),
        name_bytes: name.len() as u8,
    };
    let mut row = head.to_bytes();
    row.extend(name);
    random.append_data(&mut row);
    (tables::item(number), row)
}

fn stock(random: &mut Random, warehouse: u32, item: u32) -> Row {
    let quantity = random.within(10..=100) as i32;
    let mut row = Stock { quantity, ordered: 0, orders: 0, remote_orders: 0 }.to_bytes();
    for _ in 0..DISTRICTS {
        random.append_letters(24..=24, &mut row);
    }
    random.append_data(&mut row);
    (tables::stock(warehouse, item), row)
}
