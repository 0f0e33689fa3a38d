// SPDX-License-Identifier: MIT
//! A picture of repeated measurements: in each panel a strip of points a subject, with their median and
//! the range of their middle half; and, beside the strips, lines over a parameter.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{text, Failure, FAINT, INK};

const PANEL: (u32, u32) = (500, 330);
const HEAD: u32 = 70;
const COLUMNS: usize = 2;
const INKS: [RGBColor; 8] = [
    RGBColor(110, 118, 129),
    RGBColor(31, 111, 178),
    RGBColor(0, 139, 148),
    RGBColor(204, 121, 0),
    RGBColor(117, 87, 168),
    RGBColor(196, 58, 106),
    RGBColor(46, 139, 87),
    RGBColor(140, 86, 75),
];

/// One panel.
#[derive(Clone, Debug)]
pub enum Panel {
    /// A strip of values a subject, in the order of the subjects.
    Strips {
        /// Above it.
        title: String,
        /// Values by subject.
        values: Vec<Vec<f64>>,
    },
    /// A line a subject over a parameter with doubling steps.
    Lines {
        /// Above it.
        title: String,
        /// Name of the parameter.
        across: String,
        /// Points by subject.
        points: Vec<Vec<(f64, f64)>>,
    },
}

/// The whole picture as SVG text; the panels in rows of two.
pub fn draw(
    title: &str,
    subtitle: &str,
    subjects: &[String],
    panels: &[Panel],
) -> Result<String, Failure> {
    let rows = panels.len().div_ceil(COLUMNS).max(1);
    let size = (
        PANEL.0 * COLUMNS as u32 + 20,
        HEAD + rows as u32 * PANEL.1 + 10,
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw_text(title, &text(20), (20, 14))?;
        root.draw_text(subtitle, &text(14), (20, 42))?;
        let (_, below) = root.split_vertically(HEAD);
        for (area, panel) in below.split_evenly((rows, COLUMNS)).iter().zip(panels) {
            match panel {
                Panel::Strips { title, values } => draw_strips(area, title, subjects, values)?,
                Panel::Lines {
                    title,
                    across,
                    points,
                } => draw_lines(area, title, across, subjects, points)?,
            }
        }
        root.present()?;
    }
    Ok(svg)
}

fn ink(subject: usize) -> RGBColor {
    INKS[subject % INKS.len()]
}

/// From 0 to a little above the largest value.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
    match most > 0.0 {
        true => most * 1.08,
        false => 1.0,
    }
}

fn draw_strips<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    subjects: &[String],
    values: &[Vec<f64>],
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let count = subjects.len() as f64;
    area.draw_text(title, &text(15), (58, 6))?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_top(28)
        .x_label_area_size(26)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..count, 0.0..top(values.iter().flatten().copied()))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .label_style(text(12))
        .draw()?;
    for (at, strip) in values.iter().enumerate() {
        let middle = at as f64 + 0.5;
        let points = strip.iter().enumerate().map(|(i, &value)| {
            let aside = (i as f64 + 0.5) / strip.len() as f64 - 0.5;
            Circle::new((middle + aside * 0.5, value), 2, ink(at).mix(0.5).filled())
        });
        chart.draw_series(points)?;
        if let Some(summary) = crate::stats::Summary::of(strip) {
            let bar = |x: f64, low: f64, high: f64, width: u32| {
                let ends = match low == high {
                    true => vec![(middle - x, low), (middle + x, low)],
                    false => vec![(middle, low), (middle, high)],
                };
                PathElement::new(ends, ink(at).stroke_width(width))
            };
            chart.draw_series([
                bar(0.32, summary.median, summary.median, 3),
                bar(0.0, summary.q1, summary.q3, 3),
            ])?;
        }
    }
    let width = f64::from(PANEL.0 - 10 - 10 - 52);
    for (at, subject) in subjects.iter().enumerate() {
        let x = 62.0 + width * (at as f64 + 0.5) / count;
        let below = text(11).pos(Pos::new(HPos::Center, VPos::Center));
        area.draw_text(subject, &below, (x as i32, PANEL.1 as i32 - 22))?;
    }
    Ok(())
}

fn draw_lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    across: &str,
    subjects: &[String],
    points: &[Vec<(f64, f64)>],
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let all = || points.iter().flatten();
    let right = all().map(|p| p.0).fold(2.0, f64::max).log2();
    let left = all().map(|p| p.0).fold(f64::MAX, f64::min).max(1.0).log2();
    area.draw_text(title, &text(15), (58, 6))?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_top(28)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(
            left.min(right - 1.0)..right + 0.9,
            0.0..top(all().map(|p| p.1)),
        )?;
    chart
        .configure_mesh()
        .x_desc(across)
        .x_labels(8)
        .x_label_formatter(&|x| match (x - x.round()).abs() < 1e-6 && *x <= right {
            true => format!("{}", x.exp2().round()),
            false => String::new(),
        })
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .label_style(text(12))
        .draw()?;
    for (at, line) in points.iter().enumerate() {
        let places: Vec<(f64, f64)> = line.iter().map(|(x, y)| (x.log2(), *y)).collect();
        chart.draw_series([PathElement::new(places, ink(at).stroke_width(2))])?;
    }
    let ends: Vec<f64> = points
        .iter()
        .map(|l| l.last().map_or(0.0, |p| p.1))
        .collect();
    let places = apart(&ends, top(all().map(|p| p.1)) * LABEL_SHARE);
    for (at, (subject, place)) in subjects.iter().zip(places).enumerate() {
        let beside = ("sans-serif", 11).into_font().color(&ink(at));
        let style = beside.pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series([Text::new(subject.clone(), (right + 0.05, place), style)])?;
    }
    Ok(())
}

/// A label's height as a share of a panel's.
const LABEL_SHARE: f64 = 0.045;

/// The places moved up as far as needed to lie `least` apart, in their order.
fn apart(places: &[f64], least: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
    let mut moved = places.to_vec();
    for pair in order.windows(2) {
        moved[pair[1]] = moved[pair[1]].max(moved[pair[0]] + least);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_and_panel_is_drawn() {
        let subjects = ["one".to_string(), "two".to_string()];
        let strips = Panel::Strips {
            title: "refused".into(),
            values: vec![vec![1.0, 2.0, 3.0], vec![0.5, 0.25]],
        };
        let lines = Panel::Lines {
            title: "by delay".into(),
            across: "ticks".into(),
            points: vec![vec![(1.0, 2.0), (2.0, 3.0)], vec![(1.0, 1.0), (2.0, 1.5)]],
        };
        let svg = draw("Title", "Sub", &subjects, &[strips, lines]).unwrap();
        for word in ["Title", "Sub", "refused", "by delay", "ticks"] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(svg.matches("\none\n").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 5);
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        assert_eq!(apart(&[3.0, 1.0, 1.0, 9.0], 1.0), [3.0, 1.0, 2.0, 9.0]);
        assert_eq!(apart(&[2.0, 1.0, 1.0], 1.0), [3.0, 1.0, 2.0]);
    }

    #[test]
    fn nothing_measured_is_an_empty_panel() {
        let panel = Panel::Strips {
            title: "none".into(),
            values: vec![Vec::new()],
        };
        assert!(draw("t", "s", &["one".to_string()], &[panel]).is_ok());
    }
}
