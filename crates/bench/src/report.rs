//! Tables in Markdown: medians, spread, and ratios to the first competitor.

use crate::experiments::Figure;
use crate::record::Records;
use crate::summary::{self, Entry, Spread, Table};
use std::fmt::Write;

/// The tables of `records`, after the machines, revisions and commands that they come from.
pub fn markdown(records: &Records) -> String {
    let mut out = String::new();
    write(&mut out, records).expect("a string takes everything");
    out
}

fn write(out: &mut String, records: &Records) -> std::fmt::Result {
    for header in &records.headers {
        let machine = &header.machine;
        writeln!(
            out,
            "- revision {}, size {:?}: `{}`, on {} x {}, {:.1} GiB, {}{}{}{}",
            header.revision,
            header.size,
            header.command,
            machine.cores,
            machine.model,
            machine.memory_bytes as f64 / f64::from(1 << 30),
            machine.kernel,
            machine.huge_pages.as_ref().map_or(String::new(), |v| format!(", huge pages {v}")),
            machine.autogroup.map_or("", |on| if on { ", autogroups" } else { ", no autogroups" }),
            machine.load.map_or(String::new(), |load| format!(", load before {load}")),
        )?;
    }
    for table in summary::tables(records) {
        write_table(out, &table)?;
    }
    for line in &records.unreadable {
        writeln!(out, "\nNot a record: {line}")?;
    }
    Ok(())
}

fn write_table(out: &mut String, table: &Table) -> std::fmt::Result {
    let first = table.bytes_a_record.first().map_or("first", |(name, ..)| name);
    let figure = match table.figure {
        Figure::Rate => "operations/s",
        Figure::Space => "file over records",
    };
    writeln!(out, "\n## {}: {}\n\n{}.\n", table.experiment, table.case, table.setting)?;
    writeln!(
        out,
        "| phase | competitor | {figure}, median | smallest to largest | runs | over {first}, median \
         | smallest to largest | CPU us/operation \
         | page reads/operation | disk MiB/s |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for row in &table.rows {
        for entry in row.entries.iter().filter(|entry| entry.figure.is_some()) {
            writeln!(out, "| {} | {} | {} |", row.phase, entry.competitor, cells(entry))?;
        }
    }
    writeln!(out)?;
    for (name, memory, pages) in &table.bytes_a_record {
        let show = |spread: &Option<Spread>, of: &str| {
            spread.map(|spread| format!("{:.1} bytes of {of}", spread.median))
        };
        let memory = show(memory, "memory after loading");
        let pages = show(pages, "pages at the end");
        let figures: Vec<String> = memory.into_iter().chain(pages).collect();
        if !figures.is_empty() {
            writeln!(out, "- {name}: {}, a record", figures.join(", "))?;
        }
    }
    for missing in &table.missing {
        writeln!(out, "- {missing}")?;
    }
    Ok(())
}

fn cells(entry: &Entry) -> String {
    let median = |spread: Option<Spread>| spread.map_or("".into(), |s| show_number(s.median));
    let range = |spread: Option<Spread>| {
        spread.map_or("".into(), |s| format!("{} to {}", show_number(s.min), show_number(s.max)))
    };
    let runs = entry.figure.map_or(0, |spread| spread.count);
    [
        median(entry.figure),
        range(entry.figure),
        runs.to_string(),
        median(entry.ratio),
        range(entry.ratio),
        median(entry.cpu_us),
        median(entry.reads),
        median(entry.disk_mib),
    ]
    .join(" | ")
}

/// A number with three digits that count: `1.23 M`, `45.6 k`, `0.123`.
pub fn show_number(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n >= 999_500.0 => (n / 1e6, " M"),
        n if n >= 9_995.0 => (n / 1e3, " k"),
        n => (n, ""),
    };
    let digits = match scaled {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 || s == 0.0 => 2,
        _ => 3,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0.00"),
            (0.1234, "0.123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (1234.5, "1234"),
            (45_678.0, "45.7 k"),
            (999_999.0, "1.00 M"),
            (12_345_678.0, "12.3 M"),
        ] {
            assert_eq!(show_number(number), text);
        }
    }
}
