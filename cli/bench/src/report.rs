// SPDX-License-Identifier: MIT
//! What the results say: every allocator against the best peer, benchmark by benchmark and overall.
//!
//! The best peer of a benchmark is the lowest median among all allocators but mallow and the hardened
//! ones, so a peer's ratio is at least 1 and mallow's below 1 means that it beats all of them.

use std::fmt::Write as _;

use mallow_measure::chart::{self, Captions, Point};
use mallow_measure::session::{Quantity, Series};
use mallow_measure::stats;
use mallow_measure::table::{self, Table};

use crate::results::{Outcome, Results};
use crate::verdict::{self, Explanations};

/// From this peak RSS of the best peer on, a benchmark counts as a large one.
const LARGE_BYTES: f64 = 20e6;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The benchmark's own time or score.
    Time,
    /// User and system CPU time.
    Cpu,
    /// User CPU time.
    User,
    /// Peak RSS.
    Memory,
}

/// The cost of one allocator in one benchmark: the median, less is better.
pub(crate) fn cost(outcome: &Outcome, series: &Series, measure: Measure) -> Option<f64> {
    let value = match measure {
        Measure::Time => {
            let figure = series.median(outcome.benchmark.quantity())?;
            outcome.benchmark.cost(figure)
        }
        Measure::Cpu => series.median(Quantity::Cpu)?,
        Measure::User => series.median(Quantity::User)?,
        Measure::Memory => series.median(Quantity::PeakRss)?,
    };
    value.is_finite().then_some(value)
}

fn is_peer(series: &Series) -> bool {
    series.allocator.key != "mallow" && !series.allocator.hardened
}

/// The best peer's name and cost.
pub(crate) fn best_peer(outcome: &Outcome, measure: Measure) -> Option<(&str, f64)> {
    outcome
        .series
        .iter()
        .filter(|s| is_peer(s))
        .filter_map(|s| Some((s.allocator.key.as_str(), cost(outcome, s, measure)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
}

/// An allocator's cost against the best peer's.
pub(crate) fn against_best(outcome: &Outcome, key: &str, measure: Measure) -> Option<f64> {
    let series = outcome.series.iter().find(|s| s.allocator.key == key)?;
    stats::ratio(
        cost(outcome, series, measure)?,
        best_peer(outcome, measure)?.1,
    )
}

pub(crate) fn is_large(outcome: &Outcome) -> bool {
    best_peer(outcome, Measure::Memory).is_some_and(|(_, bytes)| bytes >= LARGE_BYTES)
}

/// All allocators of the session in their order.
fn keys(results: &Results) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for series in results.benchmarks.iter().flat_map(|b| &b.series) {
        if !keys.contains(&series.allocator.key) {
            keys.push(series.allocator.key.clone());
        }
    }
    keys
}

/// The geometric mean of an allocator's ratios over the benchmarks that it finished, and their number.
pub(crate) fn overall(
    results: &Results,
    key: &str,
    measure: Measure,
    large_only: bool,
) -> Option<(f64, usize)> {
    let ratios: Vec<f64> = results
        .benchmarks
        .iter()
        .filter(|b| !large_only || is_large(b))
        .filter_map(|b| against_best(b, key, measure))
        .filter(|r| *r > 0.0)
        .collect();
    Some((stats::geometric_mean(&ratios)?, ratios.len()))
}

/// The whole report as text; how mallow stands comes last.
pub fn render(results: &Results, explanations: &Explanations) -> String {
    let mut text = headline(results);
    text.push_str("\nTime: median, ratio to the best peer\n");
    text.push_str(&ratios(results, Measure::Time).render());
    text.push_str("\nPeak RSS: median, ratio to the best peer\n");
    text.push_str(&ratios(results, Measure::Memory).render());
    if keys(results).iter().any(|key| key == "mallow") {
        text.push_str("\nmallow / best peer, worst first (below 1.00 mallow is ahead)\n");
        text.push_str(&losses(results).render());
    }
    text.push_str("\nGeometric means of the ratios to the best peer\n");
    text.push_str(&means(results).render());
    text.push_str(&problems(results));
    text.push_str(&verdict::render(results, explanations));
    text
}

fn headline(results: &Results) -> String {
    let m = &results.machine;
    let mut text = format!(
        "commit {}, {}; {} runs each after {} warm-up, interleaved{}\n{}, {} cores, {:.0} GiB, {}, {}, THP {}{}\n{}\n",
        results.commit,
        results.date,
        results.rounds,
        results.warmup,
        if results.quick { ", quick" } else { "" },
        m.cpu,
        m.cores,
        m.memory_bytes as f64 / f64::from(1 << 30),
        m.kernel,
        m.libc,
        m.huge_pages,
        if m.governor.is_empty() { String::new() } else { format!(", governor {}", m.governor) },
        m.compiler,
    );
    let mut seen = Vec::new();
    for series in results.benchmarks.iter().flat_map(|b| &b.series) {
        if !seen.contains(&series.allocator.key) {
            seen.push(series.allocator.key.clone());
            let _ = write!(
                text,
                "{} = {}; ",
                series.allocator.key,
                series.allocator.headline()
            );
        }
    }
    text.truncate(text.trim_end_matches("; ").len());
    text.push('\n');
    text
}

fn ratios(results: &Results, measure: Measure) -> Table {
    let keys = keys(results);
    let headings = ["benchmark".to_string(), "best".into()];
    let mut table = Table::new(headings.into_iter().chain(keys.iter().cloned()));
    for outcome in results.benchmarks.iter().filter(|b| !b.series.is_empty()) {
        let best = best_peer(outcome, measure).map(|(_, cost)| figure(outcome, measure, cost));
        let cells = keys
            .iter()
            .map(|key| table::ratio(against_best(outcome, key, measure)));
        let name = outcome.benchmark.name.clone();
        table.row(
            [name, best.unwrap_or_else(|| "-".into())]
                .into_iter()
                .chain(cells),
        );
    }
    table
}

/// A cost with its unit, as a person reads it.
pub(crate) fn figure(outcome: &Outcome, measure: Measure, cost: f64) -> String {
    match (measure, outcome.benchmark.quantity()) {
        (Measure::Memory, _) => format!("{} MiB", table::mebibytes(cost)),
        (Measure::Time, Quantity::Score) => {
            let unit = outcome
                .series
                .iter()
                .flat_map(|s| &s.runs)
                .find_map(|r| r.score.as_ref());
            let unit = unit.map(|score| score.unit.clone()).unwrap_or_default();
            let value = outcome.benchmark.cost(cost);
            let text = if value < 10.0 {
                table::seconds(value) // the digits that tell
            } else {
                table::count(value)
            };
            format!("{text} {unit}")
        }
        _ => format!("{} s", table::seconds(cost)),
    }
}

fn losses(results: &Results) -> Table {
    let mut table = Table::new([
        "benchmark",
        "time",
        "best peer",
        "user",
        "cpu",
        "peak RSS",
        "best peer",
        "spread of time",
    ]);
    let worst = |outcome: &Outcome| {
        let time = against_best(outcome, "mallow", Measure::Time).unwrap_or(f64::MAX);
        time.max(against_best(outcome, "mallow", Measure::Memory).unwrap_or(f64::MAX))
    };
    let mut rows: Vec<&Outcome> = results
        .benchmarks
        .iter()
        .filter(|b| !b.series.is_empty())
        .collect();
    rows.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
    for outcome in rows {
        let ratio = |measure| table::ratio(against_best(outcome, "mallow", measure));
        let peer = |measure| {
            let text = best_peer(outcome, measure)
                .map(|(key, cost)| format!("{key} {}", figure(outcome, measure, cost)));
            text.unwrap_or_else(|| "-".into())
        };
        let series = outcome.series.iter().find(|s| s.allocator.key == "mallow");
        let spread = series
            .and_then(|s| s.summary(outcome.benchmark.quantity()))
            .map(|s| {
                let width = stats::ratio(s.max - s.min, s.median).unwrap_or(0.0);
                format!("{:.0} %", width * 100.0)
            });
        table.row([
            outcome.benchmark.name.clone(),
            ratio(Measure::Time),
            peer(Measure::Time),
            ratio(Measure::User),
            ratio(Measure::Cpu),
            ratio(Measure::Memory),
            peer(Measure::Memory),
            spread.unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}

fn means(results: &Results) -> Table {
    let mut table = Table::new([
        "allocator",
        "benchmarks",
        "time",
        "cpu",
        "peak RSS",
        "time x RSS",
        "RSS, large ones",
    ]);
    for key in keys(results) {
        let mean = |measure, large| overall(results, &key, measure, large).map(|(mean, _)| mean);
        let (time, memory) = (mean(Measure::Time, false), mean(Measure::Memory, false));
        let count = overall(results, &key, Measure::Time, false).map_or(0, |(_, count)| count);
        table.row([
            key.clone(),
            count.to_string(),
            table::ratio(time),
            table::ratio(mean(Measure::Cpu, false)),
            table::ratio(memory),
            table::ratio(time.zip(memory).map(|(time, memory)| time * memory)),
            table::ratio(mean(Measure::Memory, true)),
        ]);
    }
    table
}

/// The names of what went wrong, empty if nothing did.
fn problems(results: &Results) -> String {
    let mut text = String::new();
    for outcome in &results.benchmarks {
        let name = &outcome.benchmark.name;
        if let Some(reason) = &outcome.skipped {
            let _ = writeln!(text, "NOT RUN: {name}: {reason}");
        }
        for series in &outcome.series {
            if let Some(error) = &series.error {
                let _ = writeln!(text, "PROBLEM: {name}: {}: {error}", series.allocator.key);
            }
            let failed = series
                .runs
                .iter()
                .find(|r| r.measured.ending.describe() != "ok");
            if let Some(run) = failed {
                let ending = run.measured.ending.describe();
                let _ = writeln!(text, "PROBLEM: {name}: {}: {ending}", series.allocator.key);
            }
        }
    }
    text
}

/// Did mallow fail in a benchmark that glibc finished?
pub fn mallow_failed(results: &Results) -> bool {
    results
        .benchmarks
        .iter()
        .flat_map(|b| &b.series)
        .any(|series| {
            let bad = series
                .runs
                .iter()
                .any(|r| r.measured.ending.describe() != "ok");
            series.allocator.key == "mallow" && (series.error.is_some() || bad)
        })
}

/// Why there is no figure at all, if there is none.
pub fn nothing_ran(results: &Results) -> Option<String> {
    if results.benchmarks.iter().any(|b| b.skipped.is_none()) {
        return None;
    }
    let first = results.benchmarks.first();
    let why = first.and_then(|b| b.skipped.as_deref());
    Some(format!(
        "no benchmark has run: {}",
        why.unwrap_or("none was chosen")
    ))
}

/// Two sessions: each allocator's change, mallow's worst benchmarks first.
pub fn render_change(old: &Results, new: &Results) -> String {
    let mut text = format!(
        "old: commit {}, {}\nnew: commit {}, {}\nRatios new / old: below 1.00 is better now.\n",
        old.commit, old.date, new.commit, new.date
    );
    if old.machine != new.machine {
        text.push_str(
            "NOTE: the machines or their state differ; look at the peers' drift below.\n",
        );
    }
    let change = |outcome: &Outcome, key: &str, measure: Measure| {
        let before = old
            .benchmarks
            .iter()
            .find(|b| b.benchmark.name == outcome.benchmark.name)?;
        let of = |o: &Outcome| {
            o.series
                .iter()
                .find(|s| s.allocator.key == key)
                .and_then(|s| cost(o, s, measure))
        };
        stats::ratio(of(outcome)?, of(before)?)
    };
    let mut rows: Vec<(&Outcome, Option<f64>, Option<f64>)> = new
        .benchmarks
        .iter()
        .map(|b| {
            (
                b,
                change(b, "mallow", Measure::Time),
                change(b, "mallow", Measure::Memory),
            )
        })
        .filter(|(_, time, memory)| time.is_some() || memory.is_some())
        .collect();
    rows.sort_by(|a, b| b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0)));
    let mut table = Table::new([
        "mallow in",
        "time",
        "peak RSS",
        "now / best peer",
        "RSS / best peer",
    ]);
    for (outcome, time, memory) in rows {
        table.row([
            outcome.benchmark.name.clone(),
            table::ratio(time),
            table::ratio(memory),
            table::ratio(against_best(outcome, "mallow", Measure::Time)),
            table::ratio(against_best(outcome, "mallow", Measure::Memory)),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    let mut table = Table::new(["geometric mean of", "benchmarks", "time", "peak RSS"]);
    for key in keys(new) {
        let all = |measure| -> Vec<f64> {
            new.benchmarks
                .iter()
                .filter_map(|b| change(b, &key, measure))
                .collect()
        };
        let times = all(Measure::Time);
        table.row([
            key.clone(),
            times.len().to_string(),
            table::ratio(stats::geometric_mean(&times)),
            table::ratio(stats::geometric_mean(&all(Measure::Memory))),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    text
}

/// Time against memory, geometric means over the suite.
pub fn picture(results: &Results) -> Result<String, String> {
    let points: Vec<Point> = keys(results)
        .into_iter()
        .filter_map(|key| {
            let (time, _) = overall(results, &key, Measure::Time, false)?;
            let (memory, _) = overall(results, &key, Measure::Memory, false)?;
            Some(Point {
                key,
                time,
                time_range: (time, time),
                memory,
                memory_range: (memory, memory),
            })
        })
        .collect();
    let captions = Captions {
        title: format!(
            "{} benchmarks, commit {}: geometric means against the best peer of each",
            results
                .benchmarks
                .iter()
                .filter(|b| !b.series.is_empty())
                .count(),
            results.commit
        ),
        time: "Time / best peer".into(),
        memory: "Peak RSS / best peer".into(),
    };
    chart::time_and_memory(&captions, &points).map_err(|e| format!("picture: {e}"))
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
