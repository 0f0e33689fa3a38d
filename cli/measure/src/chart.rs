// SPDX-License-Identifier: MIT
//! Pictures as SVG: time against memory, and bars of both. Text is left to the viewer's own font.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::known::KNOWN;

/// One allocator in a picture.
#[derive(Clone, Debug)]
pub struct Point {
    /// Short name, the label.
    pub key: String,
    /// Time (seconds or a ratio).
    pub time: f64,
    /// Smallest and largest time.
    pub time_range: (f64, f64),
    /// Memory (MiB or a ratio).
    pub memory: f64,
    /// Smallest and largest memory.
    pub memory_range: (f64, f64),
}

/// What the picture says about itself.
#[derive(Clone, Debug)]
pub struct Captions {
    /// Above everything.
    pub title: String,
    /// Name and unit of the time axis.
    pub time: String,
    /// Name and unit of the memory axis.
    pub memory: String,
}

pub(crate) type Failure = Box<dyn std::error::Error>;

pub(crate) const INK: RGBColor = RGBColor(40, 44, 52);
pub(crate) const FAINT: RGBColor = RGBColor(225, 228, 232);
const OURS: RGBColor = RGBColor(196, 58, 106);
const OURS_TOO: RGBColor = RGBColor(236, 138, 176);
const GLIBC: RGBColor = RGBColor(110, 118, 129);
const PALETTE: [RGBColor; 8] = [
    RGBColor(31, 111, 178),
    RGBColor(46, 139, 87),
    RGBColor(204, 121, 0),
    RGBColor(117, 87, 168),
    RGBColor(0, 139, 148),
    RGBColor(140, 86, 75),
    RGBColor(107, 142, 35),
    RGBColor(70, 90, 160),
];

/// The same allocator has the same colour in every picture.
pub(crate) fn colour(key: &str, at: usize) -> RGBColor {
    match key {
        "mallow" => OURS,
        key if key.starts_with("mallow") => OURS_TOO,
        "glibc" => GLIBC,
        _ => PALETTE[KNOWN.iter().position(|k| k.key == key).unwrap_or(at) % PALETTE.len()],
    }
}

pub(crate) fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// The time-against-memory picture with bars beside it, as SVG text.
pub fn time_and_memory(captions: &Captions, points: &[Point]) -> Result<String, Failure> {
    let points: Vec<Point> = points
        .iter()
        .filter(|p| p.time.is_finite() && p.memory.is_finite())
        .cloned()
        .collect();
    let height = 460.max(120 + 44 * points.len() as u32);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (1120, height)).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw_text(&captions.title, &text(18), (20, 14))?;
        let (_, below) = root.split_vertically(44);
        let (left, right) = below.split_horizontally(560);
        scatter(&left, captions, &points)?;
        let (upper, lower) = right.split_vertically((height - 44) / 2);
        bars(&upper, &captions.time, &points, |p| (p.time, p.time_range))?;
        bars(&lower, &captions.memory, &points, |p| {
            (p.memory, p.memory_range)
        })?;
        root.present()?;
    }
    Ok(svg)
}

/// The span of an axis: from 0 if the values come near it, else a margin around them.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, 0f64), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = ((high - low) * 0.15).max(high * 0.03).max(1e-9);
    let start = if low - margin < high * 0.25 {
        0.0
    } else {
        low - margin
    };
    (start, high + margin)
}

fn scatter<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    captions: &Captions,
    points: &[Point],
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let (x0, x1) = span(
        points
            .iter()
            .flat_map(|p| [p.time, p.time_range.0, p.time_range.1]),
    );
    let (y0, y1) = span(
        points
            .iter()
            .flat_map(|p| [p.memory, p.memory_range.0, p.memory_range.1]),
    );
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x0..x1, y0..y1)?;
    chart
        .configure_mesh()
        .x_desc(format!("{} (left is better)", captions.time))
        .y_desc(format!("{} (lower is better)", captions.memory))
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .label_style(text(12))
        .axis_desc_style(text(13))
        .draw()?;
    for (at, point) in points.iter().enumerate() {
        let ink = colour(&point.key, at);
        let (time, memory) = (point.time_range, point.memory_range);
        let whiskers = [
            [(time.0, point.memory), (time.1, point.memory)],
            [(point.time, memory.0), (point.time, memory.1)],
        ];
        chart.draw_series(
            whiskers.map(|line| PathElement::new(line.to_vec(), ink.mix(0.45).stroke_width(1))),
        )?;
        chart.draw_series([Circle::new((point.time, point.memory), 5, ink.filled())])?;
    }
    labels(area, &chart, points)
}

/// A name as it is drawn: of a long one, as paths and versions make it, the ends.
fn shown(name: &str) -> String {
    const MOST: usize = 26;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= MOST {
        return name.into();
    }
    let end = letters.len() - (MOST - 1) / 2;
    letters[..MOST / 2]
        .iter()
        .chain(&['…'])
        .chain(&letters[end..])
        .collect()
}

/// How many pixels a name is given, in letters of 13: those of the viewer's font may be broad.
fn name_width(name: &str) -> i32 {
    8 * shown(name).chars().count() as i32
}

/// Names beside the points: at the first place around each that covers no other name and no point.
fn labels<B: DrawingBackend, X, Y>(
    area: &DrawingArea<B, Shift>,
    chart: &ChartContext<B, Cartesian2d<X, Y>>,
    points: &[Point],
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    const HEIGHT: i32 = 14;
    let origin = area.get_base_pixel();
    let (left_end, right_end) = (origin.0, origin.0 + area.dim_in_pixel().0 as i32 - 4);
    let dots: Vec<(i32, i32)> = points
        .iter()
        .map(|p| chart.backend_coord(&(p.time, p.memory)))
        .collect();
    let mut taken: Vec<(i32, i32, i32)> = dots.iter().map(|(x, y)| (x - 5, y - 7, 10)).collect();
    for (at, point) in points.iter().enumerate() {
        let ((x, y), width) = (dots[at], name_width(&point.key));
        let around = [
            (9, -7),
            (-9 - width, -7),
            (-width / 2, -22),
            (-width / 2, 9),
        ];
        let further = (1..12).flat_map(|n| [(9, -7 + 7 * n), (9, -7 - 7 * n), (-9 - width, 7 * n)]);
        let free = |left: i32, top: i32| {
            left >= left_end
                && left + width <= right_end
                && !taken
                    .iter()
                    .any(|(l, t, w)| left < l + w && *l < left + width && (top - t).abs() < HEIGHT)
        };
        let (left, top) = around
            .into_iter()
            .chain(further)
            .map(|(dx, dy)| (x + dx, y + dy))
            .find(|(left, top)| free(*left, *top))
            .unwrap_or((x + 9, y - 7));
        taken.push((left, top, width));
        let style = ("sans-serif", 13)
            .into_font()
            .color(&colour(&point.key, at));
        let place = (left - origin.0, top - origin.1);
        area.draw_text(&shown(&point.key), &style, place)?;
    }
    Ok(())
}

fn bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    caption: &str,
    points: &[Point],
    value: impl Fn(&Point) -> (f64, (f64, f64)),
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let (width, height) = area.dim_in_pixel();
    let (figure_width, top) = (64, 26);
    let widest = points.iter().map(|p| name_width(&p.key)).max();
    let name_width = widest.unwrap_or(0).max(64) + 6;
    let room = f64::from(width.saturating_sub(name_width as u32 + figure_width + 24));
    let largest = points
        .iter()
        .map(|p| value(p).0.max(value(p).1 .1))
        .fold(f64::MIN_POSITIVE, f64::max);
    let step = f64::from(height.saturating_sub(top + 14)) / points.len().max(1) as f64;
    let thickness = (step * 0.66).clamp(4.0, 20.0);
    area.draw_text(caption, &text(13), (name_width, 6))?;
    for (at, point) in points.iter().enumerate() {
        let (figure, (low, high)) = value(point);
        let middle = (f64::from(top) + step * (at as f64 + 0.5)) as i32;
        let half = (thickness / 2.0) as i32;
        let x = |v: f64| name_width + (v / largest * room) as i32;
        let ink = colour(&point.key, at);
        let beside = text(12).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw_text(&shown(&point.key), &beside, (name_width - 6, middle))?;
        let corners = [(x(0.0), middle - half), (x(figure), middle + half)];
        area.draw(&Rectangle::new(corners, ink.mix(0.85).filled()))?;
        area.draw(&PathElement::new(
            vec![(x(low), middle), (x(high), middle)],
            INK.stroke_width(1),
        ))?;
        let after = text(12).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(&short(figure), &after, (x(figure.max(high)) + 6, middle))?;
    }
    Ok(())
}

fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.1 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// A page that holds a picture and, below it, text as it is.
pub fn page(title: &str, svg: &str, body: &str) -> String {
    let style =
        "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1160px;padding:0 1rem;\
                 color:#282c34;background:#fff}pre{overflow-x:auto;background:#f6f7f9;padding:1rem}\
                 svg{max-width:100%;height:auto}";
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{0}</title>\n\
         <style>{style}</style>\n<h1>{0}</h1>\n{svg}\n<pre>{1}</pre>\n</html>\n",
        escape(title),
        escape(body)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(key: &str, time: f64, memory: f64) -> Point {
        Point {
            key: key.into(),
            time,
            time_range: (time * 0.9, time * 1.1),
            memory,
            memory_range: (memory, memory),
        }
    }

    fn captions() -> Captions {
        Captions {
            title: "a < b".into(),
            time: "time (s)".into(),
            memory: "MiB".into(),
        }
    }

    #[test]
    fn every_allocator_is_in_the_picture() {
        let points = [
            point("mallow", 1.0, 10.0),
            point("je", 1.0, 10.0),
            point("mi", 2.0, 40.0),
        ];
        let svg = time_and_memory(&captions(), &points).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for key in ["mallow", "je", "mi"] {
            assert_eq!(svg.matches(&format!("\n{key}\n")).count(), 3, "{key}");
        }
        assert!(svg.contains("a &lt; b"));
    }

    #[test]
    fn long_names_lie_within_the_picture_and_beside_no_bar() {
        let names = [
            "mallow",
            "mimalloc-2.3-secure",
            "a-name-of-more-than-all-letters-that-fit",
        ];
        let points = names.map(|name| point(name, 1.0, 10.0));
        let svg = time_and_memory(&captions(), &points).unwrap();
        assert!(svg.contains("\na-name-of-mor…ers-that-fit\n"), "{svg}");
        // Where a bar begins: right of what the longest name takes, in the right half.
        let begins = |line: &str| line.split('"').nth(1).and_then(|x| x.parse::<i32>().ok());
        let bars: Vec<i32> = svg
            .lines()
            .filter(|line| line.starts_with("<rect x=") && line.contains("opacity=\"0.85\""))
            .filter_map(begins)
            .collect();
        assert_eq!(bars.len(), 6, "{svg}");
        assert!(bars.iter().all(|&x| x >= 560 + 26 * 8), "{bars:?}");
    }

    #[test]
    fn odd_values_do_no_harm() {
        for points in [
            vec![],
            vec![point("je", 0.0, 0.0)],
            vec![point("je", f64::NAN, 1.0)],
        ] {
            assert!(time_and_memory(&captions(), &points).is_ok());
        }
    }

    #[test]
    fn pages_escape_what_they_show() {
        let page = page("<x>", "<svg></svg>", "a & b");
        assert!(
            page.contains("&lt;x&gt;")
                && page.contains("<svg></svg>")
                && page.contains("a &amp; b")
        );
    }
}
