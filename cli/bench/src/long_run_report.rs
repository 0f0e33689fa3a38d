// SPDX-License-Identifier: MIT
//! What a long run says: a table of means, peaks, what is left when idle, and drift; and the picture.

use mallow_measure::stats;
use mallow_measure::table::{self, Table};
use mallow_measure::timeline::{self, Form, Line, Timeline};
use mallow_measure::trend::{self, Point};

use crate::long_run::{LongRun, Subject};

const MIB: f64 = 1048576.0;
const MS_A_MINUTE: f64 = 60_000.0;
/// The name of the line of what the program holds.
const LIVE: &str = "live bytes";
/// The phase that is none: the process is being torn down.
const EXIT: &str = "exit";

/// One allocator's figures; bytes in MiB.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// By time, over the whole run.
    pub mean: f64,
    /// The largest sample.
    pub peak: f64,
    /// The median over the days of the last sample before the idle phase ends.
    pub idle: Option<f64>,
    /// The last sample, all freed.
    pub freed: Option<f64>,
    /// MiB an hour by which the days' minima rise, the first days left out.
    pub drift: Option<f64>,
    /// The same over the whole of that time, relative to the median of these minima.
    pub rise: Option<f64>,
}

/// The figures of a curve: minutes and MiB.
pub fn figures(run: &LongRun, points: &[Point]) -> Option<Figures> {
    let days = days(run);
    let minima = trend::minima(points, &days[days.len() * 3 / 10..]);
    let slope = trend::slope(&minima);
    let values: Vec<f64> = minima.iter().map(|p| p.1).collect();
    let length = minima.last().zip(minima.first()).map(|(b, a)| b.0 - a.0);
    let idle: Vec<f64> = trend::lasts(points, &phases(run, "idle"))
        .iter()
        .map(|p| p.1)
        .collect();
    let freed = trend::lasts(points, &phases(run, "end"));
    Some(Figures {
        mean: trend::mean(points)?,
        peak: trend::peak(points)?,
        idle: stats::median(&idle),
        freed: freed.last().map(|p| p.1),
        drift: slope.map(|s| s * 60.0),
        rise: slope
            .zip(length)
            .zip(stats::median(&values))
            .and_then(|((s, l), m)| stats::ratio(s * l, m)),
    })
}

/// Each phase's beginning and end in minutes; the last ends when the longest curve does.
fn spans(run: &LongRun) -> Vec<(String, usize, (f64, f64))> {
    let begins = &run.course.begins;
    let last = run.course.live.last().map_or(0, |l| l.0);
    let end = run.at_ms.last().map_or(last, |at| last.max(*at));
    let next = |at: usize| begins.get(at + 1).map_or(end, |b| b.at_ms);
    let one = |(at, b): (usize, &crate::long_run::Begin)| {
        let span = (b.at_ms as f64 / MS_A_MINUTE, next(at) as f64 / MS_A_MINUTE);
        (b.phase.clone(), b.day, span)
    };
    begins.iter().enumerate().map(one).collect()
}

fn phases(run: &LongRun, name: &str) -> Vec<(f64, f64)> {
    let named = spans(run).into_iter().filter(|(phase, _, _)| phase == name);
    named.map(|(_, _, span)| span).collect()
}

/// Each day's beginning and end; what comes after the last day is none.
fn days(run: &LongRun) -> Vec<(f64, f64)> {
    let mut days: Vec<(f64, f64)> = Vec::new();
    for (phase, day, span) in spans(run) {
        match days.get_mut(day) {
            Some(known) => known.1 = span.1,
            None if phase != "end" && phase != EXIT => days.push(span),
            None => {}
        }
    }
    days
}

/// A subject's RSS or PSS over its own time, until its schedule ends.
fn curve(run: &LongRun, subject: &Subject, kib: &[u64]) -> Vec<Point> {
    let point = |(at, kib): (&u64, &u64)| {
        let ms = at.saturating_sub(subject.started_ms) as f64;
        (ms / MS_A_MINUTE, *kib as f64 / 1024.0)
    };
    let exit = run.course.begins.iter().find(|b| b.phase == EXIT);
    let exit = exit.map_or(f64::MAX, |b| b.at_ms as f64 / MS_A_MINUTE);
    let points = run.at_ms.iter().zip(kib).map(point);
    points.filter(|p| p.0 < exit).collect()
}

/// What the program holds, at the times of the samples.
fn live(run: &LongRun) -> Vec<Point> {
    let steps: Vec<Point> = run
        .course
        .live
        .iter()
        .map(|(ms, bytes)| (*ms as f64 / MS_A_MINUTE, *bytes as f64 / MIB))
        .collect();
    let times = run.at_ms.iter().map(|at| *at as f64 / MS_A_MINUTE);
    times
        .filter_map(|t| trend::held(&steps, t).map(|v| (t, v)))
        .collect()
}

fn ranked(run: &LongRun) -> Vec<(&Subject, Vec<Point>, Figures)> {
    let mut all: Vec<_> = run
        .subjects
        .iter()
        .filter(|s| s.error.is_none())
        .filter_map(|s| {
            let points = curve(run, s, &s.rss_kib);
            figures(run, &points).map(|f| (s, points, f))
        })
        .collect();
    all.sort_by(|a, b| a.2.mean.total_cmp(&b.2.mean));
    all
}

fn mib(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| table::mebibytes(v * MIB))
}

/// The table; least mean RSS first.
pub fn render(run: &LongRun) -> String {
    let days = days(run).len();
    let minutes = run.at_ms.last().map_or(0.0, |at| *at as f64 / MS_A_MINUTE);
    let mut text = format!(
        "A server over {days} days in {minutes:.1} minutes, all allocators at once; commit {}, {}\n{}, {}\n\
         {} allocations, resizes and frees by each, checksum {}; MiB\n\n",
        run.commit,
        run.date,
        run.machine.cpu,
        run.machine.kernel,
        table::count(run.course.operations as f64),
        run.course.checksum
    );
    let mut rows = Table::new([
        "allocator",
        "mean RSS",
        "/ live",
        "mean PSS",
        "peak",
        "idle",
        "all freed",
        "drift MiB/h",
        "rise",
        "CPU s",
        "faults",
        "late ms",
    ]);
    let held = figures(run, &live(run));
    let signed = |value: Option<f64>, unit: &str| {
        value.map_or("-".into(), |v| {
            format!("{v:+.1}{unit}").replace("-0.0", "+0.0")
        })
    };
    let row = |key: &str, f: &Figures, pss: Option<f64>, own: [String; 3]| {
        let ratio = held.as_ref().and_then(|h| stats::ratio(f.mean, h.mean));
        let cells = [
            key.to_string(),
            mib(Some(f.mean)),
            table::ratio(ratio),
            mib(pss),
            mib(Some(f.peak)),
            mib(f.idle),
            mib(f.freed),
            signed(f.drift, ""),
            signed(f.rise.map(|r| 100.0 * r), " %"),
        ];
        cells.into_iter().chain(own)
    };
    for (subject, _, f) in ranked(run) {
        let own = [
            format!("{:.1}", subject.own.cpu_ms as f64 / 1000.0),
            table::count(subject.own.faults as f64),
            subject.own.late_ms.to_string(),
        ];
        let pss = trend::mean(&curve(run, subject, &subject.pss_kib)).filter(|pss| *pss > 0.0);
        rows.row(row(&subject.allocator.key, &f, pss, own));
    }
    if let Some(held) = &held {
        let nothing = [String::new(), String::new(), String::new()];
        rows.row(row(LIVE, held, None, nothing));
    }
    text.push_str(&rows.render());
    text.push_str(&format!(
        "\nidle: the median of the last samples of the idle phases. drift: slope (Theil-Sen) of the \
         days' minima from day {} on; rise: that over the time\nit was taken from, relative to the \
         minima. What the program holds drifts, too: the last row.\n",
        days * 3 / 10 + 1
    ));
    for subject in &run.subjects {
        if let Some(error) = &subject.error {
            text.push_str(&format!("PROBLEM: {}: {error}\n", subject.allocator.key));
        }
    }
    text
}

/// The picture: RSS over time, mallow thick, what the program holds dashed.
pub fn picture(run: &LongRun) -> Result<String, String> {
    let line = |key: &str, points: Vec<Point>, mean: f64, form: Form| Line {
        key: key.into(),
        figure: mib(Some(mean)),
        points,
        form,
    };
    let mut lines: Vec<Line> = ranked(run)
        .into_iter()
        .map(|(subject, points, f)| {
            let key = &subject.allocator.key;
            let form = if key == "mallow" {
                Form::Strong
            } else {
                Form::Thin
            };
            line(key, points, f.mean, form)
        })
        .collect();
    let held = live(run);
    if let Some(mean) = trend::mean(&held) {
        lines.push(line(LIVE, held, mean, Form::Dashed));
    }
    let mut shaded = phases(run, "idle");
    shaded.extend(phases(run, "end"));
    let days = days(run);
    let last = days.last().copied().unwrap_or((0.0, 1.0));
    let end = shaded.last().map_or(last.1, |s| s.1);
    let picture = Timeline {
        title:
            "A server's resident memory over time, under every allocator at once (lower is better)"
                .into(),
        subtitle: format!(
            "{}, {}; commit {}; the same {} operations under each, fixed seed",
            run.machine.cpu,
            run.machine.kernel,
            run.commit,
            table::count(run.course.operations as f64)
        ),
        figures: "mean MiB".into(),
        lines,
        shaded,
        part: (
            format!("Its last day (of {}), then everything freed", days.len()),
            (last.0, end.max(last.0 + 1e-3)),
        ),
    };
    timeline::draw(&picture).map_err(|e| format!("picture: {e}"))
}

/// Did mallow fail?
pub fn mallow_failed(run: &LongRun) -> bool {
    let mut ours = run.subjects.iter().filter(|s| s.allocator.key == "mallow");
    ours.any(|s| s.error.is_some())
}

#[cfg(test)]
#[path = "long_run_report_tests.rs"]
mod tests;
