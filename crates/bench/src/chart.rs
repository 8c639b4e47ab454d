//! Pictures: one SVG a case, bars for competitors in groups for phases, whiskers for the spread; and one for each phase
//! whose calls were timed, a line a competitor: how many of a million calls took longer than that.
//!
//! Text stays text in the file, in whatever font the viewer has for `sans-serif`, so no font is
//! needed to draw.

use crate::calls::Curve;
use crate::experiments::Figure;
use crate::numbers::show_number;
use crate::record::Records;
use crate::summary::{self, Entry, Table};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};

const HEIGHT: u32 = 420;
/// Room of a bar, and beside a group.
const BAR_WIDTH: u32 = 26;
const GROUP_GAP: u32 = 40;
/// Room of the legend, right of the bars.
const LEGEND_WIDTH: u32 = 190;
/// Width of a picture of lines.
const LINES_WIDTH: u32 = 760;
/// What all calls are in a picture of lines, and the fewest that are told apart from none.
const ALL_CALLS: f64 = 1e6;
const FEWEST_CALLS: f64 = 0.1;
const FONT: &str = "sans-serif";

/// Colours that are told apart by people who see some of them alike (Okabe and Ito), a grey and four more: as many as the
/// experiment with most competitors has, so that none looks like another.
pub const COLOURS: [RGBColor; 13] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
    RGBColor(0, 0, 0),
    RGBColor(128, 70, 27),
    RGBColor(0, 84, 66),
    RGBColor(150, 150, 220),
    RGBColor(110, 0, 80),
];

/// Draws into a string; whether there was anything to draw.
type Draw<'a> = dyn Fn(&mut String) -> Result<bool, Box<dyn Error>> + 'a;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws each case of `records` that has figures into `directory`; the files that were written.
///
/// Errors: a sentence, if the directory or a file cannot be written.
pub fn draw(records: &Records, directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        format!("cannot write {}: {error}", path.display())
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    let mut written = Vec::new();
    for table in summary::tables(records) {
        let mut write = |name: &str, draw: &Draw<'_>| {
            let path = directory.join(file_name(name));
            let mut svg = String::new();
            if draw(&mut svg).map_err(|error| failed(&path, &error))? {
                std::fs::write(&path, svg).map_err(|error| failed(&path, &error))?;
                written.push(path);
            }
            Ok::<(), String>(())
        };
        let name = format!("{}-{}", table.experiment, table.case);
        write(&name, &|svg| draw_table(&table, svg))?;
        for (phase, curves) in &table.curves {
            let caption = format!("{}: {}, {phase}", table.experiment, table.case);
            let name = format!("{name}-{phase}-latency");
            write(&name, &|svg| draw_curves(&caption, curves, svg))?;
        }
    }
    Ok(written)
}

/// Letters, digits and dashes.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
    format!("{}.svg", parts.join("-"))
}

/// Draws a table; whether there was anything to draw.
fn draw_table(table: &Table, svg: &mut String) -> Result<bool, Box<dyn Error>> {
    let groups: Vec<(&str, &[Entry])> = table
        .rows
        .iter()
        .filter(|row| row.entries.iter().any(|entry| entry.figure.is_some()))
        .map(|row| (row.phase.as_str(), row.entries.as_slice()))
        .collect();
    let figures = groups.iter().flat_map(|(_, entries)| entries.iter()).filter_map(|e| e.figure);
    let top = figures.map(|figure| figure.max).fold(0.0, f64::max) * 1.08;
    if top <= 0.0 {
        return Ok(false);
    }
    let bars = groups.first().map_or(0, |(_, entries)| entries.len());
    // Labels of about six pixels a character, side by side.
    let longest = groups.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let label_width = 6 * u32::try_from(longest).unwrap_or(u32::MAX / 6) + 14;
    let group_width = (bars as u32 * BAR_WIDTH + GROUP_GAP).max(label_width);
    let width = 110 + groups.len() as u32 * group_width + LEGEND_WIDTH;
    let right = groups.len() as f64 + f64::from(LEGEND_WIDTH) / f64::from(group_width);
    let root = SVGBackend::with_string(svg, (width, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let caption = format!("{}: {}", table.experiment, table.case);
    let mut chart: Chart<'_, '_> = ChartBuilder::on(&root)
        .caption(caption, (FONT, 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    let unit = match table.figure {
        Figure::Rate => "operations/s",
        Figure::Space => "bytes of the file over bytes of the records",
        Figure::Instructions => "instructions/operation",
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(unit)
        .y_label_formatter(&|figure: &f64| show_number(*figure))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let bar = f64::from(BAR_WIDTH) / f64::from(group_width);
    for at in 0..bars {
        draw_competitor(&mut chart, &groups, at, bar)?;
    }
    for (at, (phase, _)) in groups.iter().enumerate() {
        let (x, y) = chart.plotting_area().map_coordinate(&(at as f64 + 0.5, 0.0));
        let style = (FONT, 13).into_text_style(&root).pos(centred());
        root.draw(&Text::new((*phase).to_owned(), (x, y + 10), style))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font((FONT, 13))
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(true)
}

fn centred() -> plotters::style::text_anchor::Pos {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    Pos::new(HPos::Center, VPos::Top)
}

/// The bars of competitor number `at`, with their whiskers, and its line in the legend.
fn draw_competitor(
    chart: &mut Chart<'_, '_>,
    groups: &[(&str, &[Entry])],
    at: usize,
    bar: f64,
) -> Result<(), Box<dyn Error>> {
    let colour = COLOURS[at % COLOURS.len()];
    let name = groups.first().map_or("", |(_, entries)| entries[at].competitor.as_str());
    let mut bars = Vec::new();
    let mut whiskers = Vec::new();
    for (group, (_, entries)) in groups.iter().enumerate() {
        let Some(figure) = entries[at].figure else { continue };
        let left = group as f64 + 0.5 + (at as f64 - entries.len() as f64 / 2.0) * bar;
        let (from, to) = (left + 0.08 * bar, left + 0.92 * bar);
        let middle = left + 0.5 * bar;
        bars.push(Rectangle::new([(from, 0.0), (to, figure.median)], colour.filled()));
        whiskers.push(PathElement::new(vec![(middle, figure.min), (middle, figure.max)], BLACK));
    }
    chart
        .draw_series(bars)?
        .label(name)
        .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    chart.draw_series(whiskers)?;
    Ok(())
}

/// Draws how many of a million calls took longer than any time, both by powers of ten; whether there was anything to
/// draw.
fn draw_curves(caption: &str, curves: &[Curve], svg: &mut String) -> Result<bool, Box<dyn Error>> {
    let times = || curves.iter().flat_map(|curve| &curve.slower).map(|(time, _)| *time);
    let (first, last) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    if last <= 0.0 {
        return Ok(false);
    }
    let root = SVGBackend::with_string(svg, (LINES_WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, (FONT, 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (first.max(0.1) * 0.8..last * 1.25).log_scale(),
            (FEWEST_CALLS..ALL_CALLS * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("microseconds")
        .y_desc("calls of a million that took longer")
        .x_label_formatter(&|time: &f64| show_number(*time))
        .y_label_formatter(&|calls: &f64| show_number(*calls))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (at, curve) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        // Between two steps of the histogram there were no calls: as many took longer than either.
        let mut points = Vec::with_capacity(2 * curve.slower.len());
        let mut above = ALL_CALLS;
        for &(time, calls) in &curve.slower {
            points.push((time, above));
            above = calls.max(FEWEST_CALLS);
            points.push((time, above));
        }
        chart
            .draw_series([PathElement::new(points, colour.stroke_width(2))])?
            .label(curve.competitor.as_str())
            .legend(move |(x, y)| Rectangle::new([(x, y - 2), (x + 14, y + 2)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font((FONT, 13))
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_with_their_names() {
        let slower = vec![(0.5, 900_000.0), (80.0, 10.0), (2e4, 0.0)];
        let curves = [Curve { competitor: "robin".into(), slower }];
        let mut svg = String::new();
        assert!(draw_curves("birds", &curves, &mut svg).unwrap());
        assert!(svg.contains("robin") && svg.contains("birds"), "{svg}");
        assert!(!draw_curves("none", &[], &mut String::new()).unwrap());
    }

    #[test]
    fn files_have_plain_names() {
        assert_eq!(file_name("out-of-memory-256 MiB x 5"), "out-of-memory-256-mib-x-5.svg");
    }
}
