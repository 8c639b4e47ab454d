//! Pictures of figures: a line for each series, whiskers for the spread. Marked as simulated.

use crate::figure::Figure;
use hedgerow_bench::chart::COLOURS;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (860, 460);
const FONT: &str = "sans-serif";

/// The picture, as SVG.
pub fn draw(figure: &Figure, what: &str) -> Result<String, Box<dyn Error>> {
    let x_of = |x: f64| if figure.is_logarithmic { x.log2() } else { x };
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let top = points().map(|point| point.range().1).fold(f64::MIN_POSITIVE, f64::max) * 1.08;
    let left = points().map(|point| x_of(point.x)).fold(f64::MAX, f64::min);
    let right = points().map(|point| x_of(point.x)).fold(left + 1.0, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(format!("SIMULATED ({}): {what}", figure.machine), (FONT, 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .right_y_label_area_size(170)
            .build_cartesian_2d(left..right, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(figure.x)
            .y_desc(figure.unit)
            .x_label_formatter(&|x| match figure.is_logarithmic {
                true => format!("{:.0}", x.exp2()),
                false => format!("{x:.0}"),
            })
            .light_line_style(TRANSPARENT)
            .label_style((FONT, 13))
            .draw()?;
        for (series, colour) in figure.series.iter().zip(COLOURS.iter().cycle()) {
            let line = series.points.iter().map(|point| (x_of(point.x), point.median()));
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
                .label(series.name.clone())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            chart.draw_series(series.points.iter().map(|point| {
                let (least, greatest) = point.range();
                ErrorBar::new_vertical(
                    x_of(point.x),
                    least,
                    point.median(),
                    greatest,
                    colour.filled(),
                    6,
                )
            }))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font((FONT, 13))
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}
