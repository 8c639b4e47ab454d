//! Tables in Markdown: medians, spread, and ratios to the first competitor; one a case with all that is
//! known, or one for everything with what a document needs.
//!
//! Plain functions; thread-safety does not arise.

use crate::latches::figures;
use crate::numbers::show_number;
use crate::record::Records;
use crate::summary::{self, Entry, Row, Spread, Table};
use crate::{compaction, recovery, tpcc};
use std::fmt::Write;

/// What a compact table compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The first competitor of the case.
    First,
    /// The competitor before, as on a ladder.
    Previous,
}

/// The tables of `records`, after the machines, revisions and commands that they come from.
pub fn markdown(records: &Records) -> String {
    let mut out = String::new();
    write(&mut out, records).expect("a string takes everything");
    out
}

/// One table of all `records`, after the machines, revisions and commands that they come from; what gave
/// no figures follows it.
pub fn compact(records: &Records, over: Over) -> String {
    let mut out = String::new();
    write_compact(&mut out, records, over).expect("a string takes everything");
    out
}

/// A table for each case of `records`, with a column for each competitor: medians.
pub fn wide(records: &Records) -> String {
    let mut out = String::new();
    write_wide(&mut out, records).expect("a string takes everything");
    out
}

fn write_wide(out: &mut String, records: &Records) -> std::fmt::Result {
    write_headers(out, records)?;
    for table in summary::tables(records) {
        let rows = || table.rows.iter().chain(&table.calls);
        let mut competitors: Vec<&str> = Vec::new();
        for entry in rows().flat_map(|row| &row.entries) {
            if entry.figure.is_some() && !competitors.contains(&entry.competitor.as_str()) {
                competitors.push(&entry.competitor);
            }
        }
        writeln!(out, "\n## {}: {}\n\n{}.\n", table.experiment, table.case, table.setting)?;
        writeln!(out, "| {} | {} |", table.figure.unit(), competitors.join(" | "))?;
        writeln!(out, "|---|{}", "---:|".repeat(competitors.len()))?;
        for row in rows() {
            let figure = |name: &&str| {
                let entry = row.entries.iter().find(|entry| entry.competitor == **name);
                median(entry.and_then(|entry| entry.figure))
            };
            let figures: Vec<String> = competitors.iter().map(figure).collect();
            writeln!(out, "| {} | {} |", row.phase, figures.join(" | "))?;
        }
    }
    write_others(out, records)?;
    write_unreadable(out, records)
}

fn write_compact(out: &mut String, records: &Records, over: Over) -> std::fmt::Result {
    write_headers(out, records)?;
    let whom = match over {
        Over::First => "the first",
        Over::Previous => "the one before",
    };
    writeln!(
        out,
        "\n| experiment | case | phase | competitor | median | smallest to largest | over {whom} |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let tables = summary::tables(records);
    for table in &tables {
        let unit = table.figure.short_unit();
        let rows = table.rows.iter().map(|row| (row, unit));
        let others = table.calls.iter().chain(&table.tree).map(|row| (row, ""));
        for (row, unit) in rows.chain(others) {
            for entry in &row.entries {
                let Some(figure) = entry.figure else { continue };
                let ratio = match over {
                    Over::First => entry.ratio,
                    Over::Previous => entry.step,
                };
                writeln!(
                    out,
                    "| {} | {} | {} | {} | {}{unit} | {} | {} |",
                    table.experiment,
                    table.case,
                    row.phase,
                    entry.competitor,
                    show_number(figure.median),
                    range(Some(figure)),
                    median(ratio)
                )?;
            }
        }
    }
    let mut is_first = true;
    for table in &tables {
        for missing in &table.missing {
            let gap = if is_first { "\n" } else { "" };
            writeln!(out, "{gap}- {}, {}: {missing}", table.experiment, table.case)?;
            is_first = false;
        }
    }
    write_unreadable(out, records)
}

fn write(out: &mut String, records: &Records) -> std::fmt::Result {
    write_headers(out, records)?;
    for table in summary::tables(records) {
        write_table(out, &table)?;
    }
    write_others(out, records)?;
    write_unreadable(out, records)
}

/// What is no experiment.
fn write_others(out: &mut String, records: &Records) -> std::fmt::Result {
    if !records.recovered.is_empty() {
        out.write_str(&recovery::table(&records.recovered))?;
    }
    if !records.tpcc.is_empty() {
        out.write_str(&tpcc::run::table(&records.tpcc))?;
    }
    if !records.latches.is_empty() {
        out.write_str(&figures::tables(&records.latches))?;
    }
    if !records.compacted.is_empty() {
        out.write_str(&compaction::table(&records.compacted))?;
    }
    Ok(())
}

fn write_unreadable(out: &mut String, records: &Records) -> std::fmt::Result {
    for line in &records.unreadable {
        writeln!(out, "\nNot a record: {line}")?;
    }
    Ok(())
}

fn write_headers(out: &mut String, records: &Records) -> std::fmt::Result {
    for header in &records.headers {
        let machine = &header.machine;
        writeln!(
            out,
            "- revision {}, size {:?}: `{}`, on {} x {}, {:.1} GiB, {}{}{}{}{}",
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
            if header.memory_touched { ", memory touched before each process" } else { "" },
        )?;
    }
    Ok(())
}

fn write_table(out: &mut String, table: &Table) -> std::fmt::Result {
    let first = table.bytes_a_record.first().map_or("first", |(name, ..)| name);
    let figure = table.figure.unit();
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
    if !table.calls.is_empty() {
        write_rows(out, "of single calls", first, &table.calls)?;
    }
    // Without more than its size nothing is known of the tree; that stands below.
    if table.tree.len() > 1 {
        write_rows(out, "of the tree", first, &table.tree)?;
    }
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

/// Figures without what they cost.
fn write_rows(out: &mut String, what: &str, first: &str, rows: &[Row]) -> std::fmt::Result {
    writeln!(
        out,
        "| {what} | competitor | median | smallest to largest | over {first}, median \
         | smallest to largest |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for row in rows {
        for entry in row.entries.iter().filter(|entry| entry.figure.is_some()) {
            let Entry { competitor, figure, ratio, .. } = entry;
            let figures = [median(*figure), range(*figure), median(*ratio), range(*ratio)];
            writeln!(out, "| {} | {competitor} | {} |", row.phase, figures.join(" | "))?;
        }
    }
    writeln!(out)
}

fn median(spread: Option<Spread>) -> String {
    spread.map_or("".into(), |spread| show_number(spread.median))
}

fn range(spread: Option<Spread>) -> String {
    spread.map_or("".into(), |s| format!("{} to {}", show_number(s.min), show_number(s.max)))
}

fn cells(entry: &Entry) -> String {
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
