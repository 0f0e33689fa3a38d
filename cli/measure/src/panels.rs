// SPDX-License-Identifier: MIT
//! A picture of several panels with the same lines in each: a time in ns over a size in bytes or over a
//! percentile, both on logarithmic axes. One legend for all; what matters is drawn thick and last.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{colour, text, Failure, FAINT, INK};

/// One line of a panel.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend; the same name has the same colour in all panels.
    pub key: String,
    /// Where the panel's axis has it, and nanoseconds.
    pub points: Vec<(f64, f64)>,
    /// Drawn thick.
    pub strong: bool,
    /// Drawn in dots, for a yardstick.
    pub dotted: bool,
}

/// What lies along a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// A size in bytes, by powers of two.
    Bytes,
    /// A percentile, as the number of its nines: 1 is 90 %, 2 is 99 %.
    Nines,
}

impl Axis {
    fn place(self, x: f64) -> f64 {
        match self {
            Axis::Bytes => x.log2(),
            Axis::Nines => x,
        }
    }

    fn label(self, place: f64) -> String {
        match self {
            Axis::Bytes => tick(place, |v| bytes(v.exp2())),
            Axis::Nines => tick(place, nines),
        }
    }
}

/// One panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// What the lines' first figures are.
    pub axis: Axis,
    /// Times below this are within the clock's resolution, and drawn at it.
    pub least_ns: f64,
    /// The lines, weakest first.
    pub lines: Vec<Line>,
}

const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (460, 330);
const HEAD: u32 = 70;
const LEGEND: u32 = 44;

/// The whole picture as SVG text; the panels in rows of three.
pub fn draw(title: &str, subtitle: &str, panels: &[Panel]) -> Result<String, Failure> {
    let rows = panels.len().div_ceil(COLUMNS).max(1) as u32;
    let size = (
        PANEL.0 * COLUMNS as u32 + 20,
        HEAD + rows * PANEL.1 + LEGEND,
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw_text(title, &text(20), (20, 14))?;
        root.draw_text(subtitle, &text(14), (20, 42))?;
        let (_, below) = root.split_vertically(HEAD);
        let (middle, foot) = below.split_vertically(rows * PANEL.1);
        for (area, panel) in middle
            .split_evenly((rows as usize, COLUMNS))
            .iter()
            .zip(panels)
        {
            draw_panel(area, panel)?;
        }
        if let Some(panel) = panels.first() {
            legend(&foot, &panel.lines)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn draw_panel<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let (x0, x1) = bounds(points().map(|p| panel.axis.place(p.0)));
    let (y0, y1) = bounds(points().map(|p| p.1.max(panel.least_ns).log10()));
    let (y0, y1) = ((y0 + 1e-6).floor(), (y1 + 0.05).ceil());
    area.draw_text(&panel.title, &text(15), (58, 6))?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_top(28)
        .margin_right(24) // half of the last label
        .x_label_area_size(26)
        .y_label_area_size(52)
        .build_cartesian_2d(x0..x1, y0..y1)?;
    chart
        .configure_mesh()
        .x_labels(8)
        .y_labels((y1 - y0) as usize + 1)
        .x_label_formatter(&|x| panel.axis.label(*x))
        .y_label_formatter(&|y| tick(*y, |v| time(10f64.powf(v))))
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .label_style(text(12))
        .draw()?;
    for (at, line) in panel.lines.iter().enumerate() {
        let places: Vec<(f64, f64)> = line
            .points
            .iter()
            .map(|(x, y)| (panel.axis.place(*x), y.max(panel.least_ns).log10()))
            .collect();
        let style = stroke(line, at);
        if line.dotted {
            chart.draw_series(DashedLineSeries::new(places, 7, 4, style))?;
        } else {
            chart.draw_series([PathElement::new(places, style)])?;
        }
    }
    Ok(())
}

fn stroke(line: &Line, at: usize) -> ShapeStyle {
    let ink = if line.dotted {
        INK
    } else {
        colour(&line.key, at)
    };
    match (line.strong, line.key.starts_with("mallow")) {
        (true, _) => ink.stroke_width(3),
        (false, true) => ink.stroke_width(2),
        (false, false) => ink.mix(0.8).stroke_width(1),
    }
}

/// Samples of the lines with their names, in one row.
fn legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, lines: &[Line]) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let mut x = 24;
    for (at, line) in lines.iter().enumerate().rev() {
        let dashes = if line.dotted {
            vec![(x, x + 7), (x + 11, x + 18), (x + 22, x + 29)]
        } else {
            vec![(x, x + 28)]
        };
        for (from, to) in dashes {
            let dash = vec![(from, 20), (to, 20)];
            area.draw(&PathElement::new(dash, stroke(line, at)))?;
        }
        let beside = text(14).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(&line.key, &beside, (x + 32, 20))?;
        x += 58 + 9 * line.key.len() as i32;
    }
    Ok(())
}

/// The least and the largest, or some range for no values.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), v| {
            (low.min(v), high.max(v))
        });
    match low < high {
        true => (low, high),
        false if low == high => (low, low + 1.0),
        false => (0.0, 1.0),
    }
}

/// Labels are at whole powers only.
fn tick(value: f64, name: impl Fn(f64) -> String) -> String {
    if (value - value.round()).abs() < 1e-6 {
        name(value.round())
    } else {
        String::new()
    }
}

/// The percentile with so many nines, without its sign: "0", "90", "99.9".
fn nines(count: f64) -> String {
    match count as i32 {
        0 => "0".into(),
        1 => "90".into(),
        2 => "99".into(),
        more => format!("99.{}", "9".repeat(more.max(3) as usize - 2)),
    }
}

/// Bytes as a power of 1,024: "64K", "1G".
pub fn bytes(value: f64) -> String {
    let units = ["", "K", "M", "G", "T"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.0}{}", units[unit])
}

/// A time in ns with the unit that suits it, in at most three digits: "1.2 us".
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        v if v >= 999.5e6 => (v / 1e9, "s"),
        v if v >= 999.5e3 => (v / 1e6, "ms"),
        v if v >= 999.5 => (v / 1e3, "us"),
        v => (v, "ns"),
    };
    if value < 9.95 && unit != "ns" && (value - value.round()).abs() >= 0.05 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str, points: &[(f64, f64)]) -> Line {
        Line {
            key: key.into(),
            points: points.to_vec(),
            strong: key == "mallow",
            dotted: key == "kernel",
        }
    }

    #[test]
    fn every_panel_and_every_line_is_in_the_picture() {
        let lines = [
            line("je", &[(65536.0, 100.0), (1048576.0, 1e6)]),
            line("kernel", &[(65536.0, 2000.0), (1048576.0, 2000.0)]),
            line("mallow", &[(65536.0, 0.0), (1048576.0, 30.0)]),
        ];
        let panel = |title: &str| Panel {
            title: title.into(),
            axis: Axis::Bytes,
            least_ns: 10.0,
            lines: lines.to_vec(),
        };
        let panels: Vec<Panel> = ["allocate", "touch", "grow", "free"].map(panel).to_vec();
        let svg = draw("title", "subtitle", &panels).unwrap();
        for panel in &panels {
            assert!(svg.contains(&format!("\n{}\n", panel.title)), "{svg}");
        }
        for name in ["je", "kernel", "mallow", "64K", "1M", "10 ns", "1 ms"] {
            assert!(svg.contains(&format!("\n{name}\n")), "{name}");
        }
    }

    #[test]
    fn no_lines_and_single_points_do_no_harm() {
        for lines in [
            vec![],
            vec![line("je", &[])],
            vec![line("je", &[(1.0, 1.0)])],
        ] {
            let (title, least_ns) = ("x".into(), 1.0);
            assert!(draw(
                "a",
                "b",
                &[Panel {
                    title,
                    axis: Axis::Bytes,
                    least_ns,
                    lines
                }]
            )
            .is_ok());
        }
    }

    #[test]
    fn percentiles_are_named_by_their_nines() {
        let names = [0.0, 1.0, 2.0, 3.0, 6.0].map(|n| Axis::Nines.label(n));
        assert_eq!(names, ["0", "90", "99", "99.9", "99.9999"]);
        assert_eq!(Axis::Nines.label(2.5), "");
        assert_eq!(Axis::Bytes.label(16.0), "64K");
    }

    #[test]
    fn figures_have_the_unit_that_suits_them() {
        assert_eq!(time(35.4), "35 ns");
        assert_eq!(time(1000.0), "1 us");
        assert_eq!(time(1234.0), "1.2 us");
        assert_eq!(time(56_000.0), "56 us");
        assert_eq!(time(3.24e6), "3.2 ms");
        assert_eq!(time(2e9), "2 s");
        assert_eq!(bytes(65536.0), "64K");
        assert_eq!(bytes(1073741824.0), "1G");
    }
}
