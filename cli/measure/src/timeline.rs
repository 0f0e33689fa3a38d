// SPDX-License-Identifier: MIT
//! A picture of quantities over time: the whole above, one part of it enlarged below, the legend with a
//! figure for each line beside them. What matters is drawn thick and last.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{colour, text, Failure, FAINT, INK};
use crate::trend::{self, Point};

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One of many.
    Thin,
    /// The one that matters.
    Strong,
    /// A yardstick, dashed.
    Dashed,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub key: String,
    /// What the legend says behind it.
    pub figure: String,
    /// Minutes and MiB, in order of time.
    pub points: Vec<Point>,
    /// How it is drawn.
    pub form: Form,
}

/// The picture.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Above it.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// Heading of the legend's figures.
    pub figures: String,
    /// In the legend's order.
    pub lines: Vec<Line>,
    /// Spans of time that are shaded, in minutes.
    pub shaded: Vec<(f64, f64)>,
    /// What is enlarged below: its title and span in minutes.
    pub part: (String, (f64, f64)),
}

const WIDTH: u32 = 1400;
const HEAD: u32 = 74;
const WHOLE: u32 = 420;
const PART: u32 = 420;
const LEGEND: u32 = 230;
const SHADE: RGBColor = RGBColor(238, 241, 245);
/// More points than this are not seen.
const POINTS: usize = 1100;

/// The whole picture as SVG text.
pub fn draw(picture: &Timeline) -> Result<String, Failure> {
    let mut svg = String::new();
    {
        let size = (WIDTH, HEAD + WHOLE + PART);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw_text(&picture.title, &text(20), (20, 14))?;
        root.draw_text(&picture.subtitle, &text(14), (20, 44))?;
        let (_, below) = root.split_vertically(HEAD);
        let (panels, legend_area) = below.split_horizontally(WIDTH - LEGEND);
        let (whole, part) = panels.split_vertically(WHOLE);
        let points = || picture.lines.iter().flat_map(|line| &line.points);
        let end = points().map(|p| p.0).fold(0.0, f64::max);
        panel(&whole, picture, "The whole run", (0.0, end.max(1e-3)))?;
        panel(&part, picture, &picture.part.0, picture.part.1)?;
        legend(&legend_area, picture)?;
        root.present()?;
    }
    Ok(svg)
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    picture: &Timeline,
    title: &str,
    span: (f64, f64),
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let inside = |line: &Line| {
        let beyond = (span.0, span.1 + 1e-9);
        trend::thinned(trend::within(&line.points, beyond), POINTS)
    };
    let top = picture
        .lines
        .iter()
        .flat_map(inside)
        .map(|p| p.1)
        .fold(1.0, f64::max);
    let decimals = match span.1 - span.0 {
        length if length < 1.0 => 2,
        length if length < 15.0 => 1,
        _ => 0,
    };
    area.draw_text(title, &text(15), (70, 6))?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_top(30)
        .x_label_area_size(38)
        .y_label_area_size(60)
        .build_cartesian_2d(span.0..span.1, 0.0..top * 1.04)?;
    for (from, to) in &picture.shaded {
        let (from, to) = (from.max(span.0), to.min(span.1));
        if from < to {
            let band = [(from, 0.0), (to, top * 1.04)];
            chart.draw_series([Rectangle::new(band, SHADE.filled())])?;
        }
    }
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(12)
        .y_labels(8)
        .x_desc("minutes")
        .y_desc("RSS, MiB")
        .x_label_formatter(&|x| format!("{x:.decimals$}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .label_style(text(12))
        .axis_desc_style(text(13))
        .draw()?;
    let rank = |form| match form {
        Form::Thin => 0,
        Form::Dashed => 1,
        Form::Strong => 2,
    };
    let mut order: Vec<(usize, &Line)> = picture.lines.iter().enumerate().collect();
    order.sort_by_key(|(_, line)| rank(line.form));
    for (at, line) in order {
        let (points, style) = (inside(line), stroke(line, at));
        match line.form {
            Form::Dashed => chart.draw_series(DashedLineSeries::new(points, 5, 3, style))?,
            _ => chart.draw_series([PathElement::new(points, style)])?,
        };
    }
    Ok(())
}

fn stroke(line: &Line, at: usize) -> ShapeStyle {
    match line.form {
        Form::Strong => colour(&line.key, at).stroke_width(4),
        Form::Dashed => INK.stroke_width(2),
        Form::Thin => colour(&line.key, at).mix(0.8).stroke_width(2),
    }
}

fn legend<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    picture: &Timeline,
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let beside = text(14).pos(Pos::new(HPos::Left, VPos::Center));
    let figure = text(14).pos(Pos::new(HPos::Right, VPos::Center));
    let right = LEGEND as i32 - 24;
    area.draw_text(&picture.figures, &figure, (right, 40))?;
    for (at, line) in picture.lines.iter().enumerate() {
        let y = 68 + 26 * at as i32;
        let dashes = match line.form {
            Form::Dashed => vec![(8, 15), (19, 26), (30, 37)],
            _ => vec![(8, 37)],
        };
        for (from, to) in dashes {
            area.draw(&PathElement::new(
                vec![(from, y), (to, y)],
                stroke(line, at),
            ))?;
        }
        area.draw_text(&line.key, &beside, (46, y))?;
        area.draw_text(&line.figure, &figure, (right, y))?;
    }
    let y = 68 + 26 * picture.lines.len() as i32;
    if !picture.shaded.is_empty() {
        area.draw(&Rectangle::new([(8, y - 7), (37, y + 7)], SHADE.filled()))?;
        area.draw_text("idle: no call made", &beside, (46, y))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str, form: Form, points: &[Point]) -> Line {
        Line {
            key: key.into(),
            figure: format!("{key} figure"),
            points: points.to_vec(),
            form,
        }
    }

    fn timeline(lines: Vec<Line>) -> Timeline {
        Timeline {
            title: "title".into(),
            subtitle: "subtitle".into(),
            figures: "mean MiB".into(),
            lines,
            shaded: vec![(1.0, 2.0)],
            part: ("the last day".into(), (1.0, 3.0)),
        }
    }

    #[test]
    fn every_line_its_figure_and_both_panels_are_in_the_picture() {
        let points = [(0.0, 1.0), (1.5, 99.0), (3.0, 2.0)];
        let svg = draw(&timeline(vec![
            line("mallow", Form::Strong, &points),
            line("je", Form::Thin, &points),
            line("live", Form::Dashed, &points),
        ]))
        .unwrap();
        for word in [
            "title",
            "subtitle",
            "mean MiB",
            "the last day",
            "idle: no call made",
        ] {
            assert!(svg.contains(&format!("\n{word}\n")), "{word}");
        }
        for key in ["mallow", "je", "live"] {
            assert!(svg.contains(&format!("\n{key}\n")) && svg.contains(&format!("{key} figure")));
        }
        assert!(svg.contains("stroke-width=\"4\""), "mallow is drawn thick");
    }

    #[test]
    fn no_lines_and_single_points_do_no_harm() {
        assert!(draw(&timeline(Vec::new())).is_ok());
        assert!(draw(&timeline(vec![line("je", Form::Thin, &[])])).is_ok());
        assert!(draw(&timeline(vec![line("je", Form::Thin, &[(0.0, 0.0)])])).is_ok());
    }
}
