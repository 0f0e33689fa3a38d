// SPDX-License-Identifier: MIT
//! The latency curves: a panel a mode, the percentile along it by nines, all allocators in each; and the
//! hot path by size.

use mallow_measure::panels::{self, Axis, Line, Panel};

use super::data::{Latency, Row, Subject, CURVE_STEP};

/// The floor's name in the legend.
const FLOOR: &str = "floor (no call)";

/// The curves that are drawn, if they were measured.
const CURVES: [(&str, &str); 9] = [
    ("hot-64", "Hot path, 64 B: ns a pair, 32 timed together"),
    ("call-64", "Hot path, 64 B: single calls"),
    ("churn-64", "Churn, 64 B: a random block replaced"),
    ("churn-1024", "Churn, 1 KiB: a random block replaced"),
    ("mixed", "Mixed churn, 7 classes"),
    ("pipeline", "Messages of 264 B in bursts"),
    ("order-random", "Freed in random order, 32 together"),
    ("remote", "One thread allocates, another frees"),
    ("threads", "Threads that free each other's blocks"),
];

/// Has this mode a panel of its own?
pub fn is_drawn(mode: &str) -> bool {
    CURVES.iter().any(|(drawn, _)| *drawn == mode)
}

/// What is drawn over the size: mode's stem, quantile, title.
const BY_SIZE: [(&str, usize, &str); 3] = [
    ("hot", 0, "Hot path by size: P50, ns a pair"),
    ("hot", 3, "Hot path by size: P99.9, ns a pair"),
    ("call", 4, "Single calls by size: P99.99"),
];

/// The points of a curve that at least one value lies beyond.
fn points(row: &Row) -> Vec<(f64, f64)> {
    let count = row.rounds.iter().map(|f| f.count).fold(f64::MAX, f64::min);
    let nines = |at: usize| at as f64 / CURVE_STEP;
    row.curve
        .iter()
        .enumerate()
        .filter(|(at, _)| count * 10f64.powf(-nines(*at)) >= 1.0)
        .map(|(at, ns)| (nines(at), *ns))
        .collect()
}

fn by_size(subject: &Subject, stem: &str, at: usize, of: &str) -> Vec<(f64, f64)> {
    let rows = subject.rows.iter().filter(|row| {
        row.subject == of && row.call == "both" && row.mode == format!("{stem}-{}", row.size)
    });
    rows.filter_map(|row| Some((row.size, row.quantile(at)?)))
        .collect()
}

/// The floors of all allocators as one line: the medians.
fn floor(latency: &Latency, points: impl Fn(&Subject) -> Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let all: Vec<Vec<(f64, f64)>> = latency.subjects.iter().map(points).collect();
    let longest = all.iter().max_by_key(|points| points.len());
    longest
        .into_iter()
        .flatten()
        .filter_map(|(x, _)| {
            let at = |points: &Vec<(f64, f64)>| points.iter().find(|p| p.0 == *x).map(|p| p.1);
            let values: Vec<f64> = all.iter().filter_map(at).collect();
            Some((*x, mallow_measure::stats::median(&values)?))
        })
        .collect()
}

fn lines(
    latency: &Latency,
    points: impl Fn(&Subject, &'static str) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines = vec![Line {
        key: FLOOR.into(),
        points: floor(latency, |subject| points(subject, "floor")),
        strong: false,
        dotted: true,
    }];
    // The last is drawn on top, and stands first in the legend.
    for subject in latency.subjects.iter().rev() {
        lines.push(Line {
            key: subject.allocator.key.clone(),
            points: points(subject, "malloc"),
            strong: subject.allocator.key == "mallow",
            dotted: false,
        });
    }
    lines
}

/// The whole picture as SVG text.
pub fn picture(latency: &Latency) -> Result<String, String> {
    let least_ns = latency.timer.step_ns.max(1.0);
    let modes = latency.modes();
    let mut panels: Vec<Panel> = CURVES
        .iter()
        .filter(|(mode, _)| modes.iter().any(|m| m == mode))
        .map(|(mode, title)| {
            let of = |subject: &Subject, of: &'static str| {
                subject
                    .row(mode, of, "both")
                    .map(points)
                    .unwrap_or_default()
            };
            let lines = lines(latency, of);
            let amortised = mode.starts_with("hot") || mode.starts_with("order");
            Panel {
                title: (*title).into(),
                axis: Axis::Nines,
                least_ns: if amortised { 1.0 } else { least_ns },
                lines,
            }
        })
        .collect();
    for (stem, at, title) in BY_SIZE {
        let of = |subject: &Subject, of: &'static str| by_size(subject, stem, at, of);
        let lines = lines(latency, of);
        if lines.iter().any(|line| line.points.len() > 1) {
            panels.push(Panel {
                title: title.into(),
                axis: Axis::Bytes,
                least_ns: 1.0,
                lines,
            });
        }
    }
    let c = &latency.conditions;
    let title = "Time of malloc and free by percentile (lower and flatter is better)";
    let subtitle = format!(
        "{}, {}; {}; commit {}; medians of {} interleaved round(s). Dashed: the same loop without a call",
        latency.machine.cpu,
        latency.machine.kernel,
        if c.on_isolated { "isolated processor" } else { "no isolated processor" },
        latency.commit,
        latency.rounds
    );
    panels::draw(title, &subtitle, &panels).map_err(|e| format!("picture: {e}"))
}
