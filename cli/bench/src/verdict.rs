// SPDX-License-Identifier: MIT
//! The end of a report: how mallow stands against the best peer of each benchmark, the rows that are
//! above a limit with their explanations, and what 64 threads cost against 2.
//!
//! Explanations are written by people, in bench/explanations.json: a row's name -> `time` and `rss`, why
//! mallow is behind there. A row above a limit that has none is printed as unexplained.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use mallow_measure::session::Quantity;
use mallow_measure::stats;
use mallow_measure::table::{self, Table};
use serde::Deserialize;

use crate::report::{against_best, best_peer, figure, is_large, overall, Measure};
use crate::results::{Outcome, Results};

/// Against whom the geometric means are stated.
pub const ENVELOPE: [&str; 9] = ["glibc", "mi", "mi2", "je", "tcg", "tc", "sn", "rp", "tbb"];
/// From this ratio to the best peer on, a row needs an explanation.
const TIME_LIMIT: f64 = 1.10;
const RSS_LIMIT: f64 = 1.15;
/// Least throughput at 64 threads against that at 2.
const SCALING_LIMIT: f64 = 0.9;

/// Why mallow is behind in a row.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// On time.
    time: Option<String>,
    /// On peak RSS.
    rss: Option<String>,
}

/// By the row's name.
pub type Explanations = BTreeMap<String, Explanation>;

/// Reads the file; none is no explanations, a broken one is an error that names it.
pub fn read_explanations(path: &Path) -> Result<Explanations, String> {
    let shown = path.display();
    match fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Explanations::new()),
        Err(e) => Err(format!("explanations '{shown}': {e}")),
        Ok(text) => serde_json::from_str(&text).map_err(|e| format!("explanations '{shown}': {e}")),
    }
}

/// One row above a limit.
struct Excess<'a> {
    outcome: &'a Outcome,
    measure: Measure,
    ratio: f64,
    explanation: Option<&'a str>,
}

/// All rows above a limit, by how far they are above it.
fn excesses<'a>(results: &'a Results, explanations: &'a Explanations) -> Vec<Excess<'a>> {
    let mut all = Vec::new();
    for outcome in &results.benchmarks {
        let own = explanations.get(&outcome.benchmark.name);
        let of = |measure, limit, explanation: Option<&'a String>| {
            let ratio = against_best(outcome, "mallow", measure).filter(|r| *r > limit)?;
            let explanation = explanation
                .map(|text| text.trim())
                .filter(|text| !text.is_empty());
            Some(Excess {
                outcome,
                measure,
                ratio,
                explanation,
            })
        };
        all.extend(of(
            Measure::Time,
            TIME_LIMIT,
            own.and_then(|e| e.time.as_ref()),
        ));
        all.extend(of(
            Measure::Memory,
            RSS_LIMIT,
            own.and_then(|e| e.rss.as_ref()),
        ));
    }
    let above = |e: &Excess| e.ratio / limit_of(e.measure);
    all.sort_by(|a, b| above(b).total_cmp(&above(a)));
    all
}

fn limit_of(measure: Measure) -> f64 {
    if measure == Measure::Memory {
        RSS_LIMIT
    } else {
        TIME_LIMIT
    }
}

fn name_of(measure: Measure) -> &'static str {
    if measure == Measure::Memory {
        "RSS"
    } else {
        "time"
    }
}

/// Where we lose first, with the reason that is written down for it.
fn losses(excesses: &[Excess]) -> String {
    let mut text = format!(
        "\nWhere mallow loses first: rows above {TIME_LIMIT:.2} on time or {RSS_LIMIT:.2} on peak RSS, the best \
         peer, why\n"
    );
    if excesses.is_empty() {
        text.push_str("none\n");
    }
    for excess in excesses {
        let name = &excess.outcome.benchmark.name;
        let best = best_peer(excess.outcome, excess.measure)
            .map(|(key, cost)| format!("{key} {}", figure(excess.outcome, excess.measure, cost)))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "{name:<18} {:<4} {:>5.2}  {best:<24} {}",
            name_of(excess.measure),
            excess.ratio,
            excess.explanation.unwrap_or("unexplained")
        );
    }
    text
}

/// Throughput and memory of the rows named *-64 against those named *-2, which do the same work; the data
/// alive may grow with the threads, and memory with it, but not more.
fn scaling(results: &Results) -> String {
    let mut table = Table::new([
        "benchmark",
        "throughput 64 / 2 threads",
        "best peer of it",
        "peak RSS 64 / 2",
        "best peer of it",
        "live data 64 / 2",
        "",
    ]);
    let mut rows = 0;
    for many in &results.benchmarks {
        let Some(base) = many.benchmark.name.strip_suffix("-64") else {
            continue;
        };
        let two = format!("{base}-2");
        let Some(few) = results.benchmarks.iter().find(|b| b.benchmark.name == two) else {
            continue;
        };
        let speed = |key: &str| ratio_of(few, many, key, Measure::Time);
        let memory = |key: &str| ratio_of(many, few, key, Measure::Memory);
        let peers = ENVELOPE.iter().copied();
        let fastest = peers
            .clone()
            .filter_map(|k| Some((k, speed(k)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let leanest = peers
            .filter_map(|k| Some((k, memory(k)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let shown =
            |best: Option<(&str, f64)>| best.map_or("-".into(), |(k, r)| format!("{k} {r:.2}"));
        let Some(own) = speed("mallow") else {
            continue;
        };
        rows += 1;
        let live = many.benchmark.live_mb.zip(few.benchmark.live_mb);
        let live = live.and_then(|(many, few)| stats::ratio(many, few));
        let grown = memory("mallow");
        let mut faults = Vec::new();
        if own < SCALING_LIMIT {
            faults.push("SLOWER");
        }
        if grown
            .zip(live)
            .is_some_and(|(grown, live)| grown > live.max(1.0))
        {
            faults.push("MORE THAN LIVE DATA");
        }
        table.row([
            base.to_string(),
            table::ratio(Some(own)),
            shown(fastest),
            table::ratio(grown),
            shown(leanest),
            table::ratio(live),
            faults.join(", "),
        ]);
    }
    if rows == 0 {
        return String::new();
    }
    format!(
        "\n64 threads against 2, the same work (mallow; wanted: throughput of {SCALING_LIMIT} and more, \
         memory that grows no more than the live data)\n{}",
        table.render()
    )
}

/// An allocator's cost in one benchmark against its cost in another.
fn ratio_of(upper: &Outcome, lower: &Outcome, key: &str, measure: Measure) -> Option<f64> {
    let of = |outcome: &Outcome| {
        let series = outcome.series.iter().find(|s| s.allocator.key == key)?;
        match measure {
            Measure::Memory => series.median(Quantity::PeakRss),
            _ => crate::report::cost(outcome, series, measure),
        }
    };
    stats::ratio(of(upper)?, of(lower)?)
}

/// The last lines.
fn means(results: &Results, excesses: &[Excess]) -> String {
    let here = |key: &&&str| {
        let mut series = results.benchmarks.iter().flat_map(|b| &b.series);
        series.any(|s| s.allocator.key == ***key && !s.runs.is_empty())
    };
    let present: Vec<&str> = ENVELOPE.iter().filter(here).copied().collect();
    let absent: Vec<&str> = ENVELOPE.iter().filter(|key| !here(key)).copied().collect();
    let mut text = format!(
        "\nmallow against the best of {{{}}} in each benchmark, geometric means\n",
        present.join(", ")
    );
    if !absent.is_empty() {
        let _ = writeln!(
            text,
            "NOT HERE, so the best may be worse than it is: {}",
            absent.join(", ")
        );
    }
    let line = |name: &str, measure, large, goal: f64, strictly: bool| {
        let Some((mean, count)) = overall(results, "mallow", measure, large) else {
            return format!("  {name:<34} -\n");
        };
        let met = if strictly { mean < goal } else { mean <= goal };
        format!(
            "  {name:<34} {mean:.3}  over {count} benchmarks   goal {} {goal:.2}: {}\n",
            if strictly { "<" } else { "<=" },
            if met { "met" } else { "NOT MET" }
        )
    };
    text.push_str(&line("time", Measure::Time, false, 1.0, true));
    text.push_str(&line("peak RSS", Measure::Memory, false, 1.05, false));
    text.push_str(&line(
        "peak RSS, rows of 20 MB and more",
        Measure::Memory,
        true,
        1.0,
        false,
    ));
    let above = |measure| excesses.iter().filter(|e| e.measure == measure).count();
    let unexplained = excesses.iter().filter(|e| e.explanation.is_none()).count();
    let _ = writeln!(
        text,
        "  rows above a limit: {} on time, {} on peak RSS; {unexplained} of them unexplained",
        above(Measure::Time),
        above(Measure::Memory)
    );
    text
}

/// The end of the report; nothing if mallow took no part.
pub fn render(results: &Results, explanations: &Explanations) -> String {
    let mut series = results.benchmarks.iter().flat_map(|b| &b.series);
    if !series.any(|s| s.allocator.key == "mallow") {
        return String::new();
    }
    let excesses = excesses(results, explanations);
    let large = results.benchmarks.iter().filter(|b| is_large(b)).count();
    let mut text = scaling(results);
    text.push_str(&losses(&excesses));
    text.push_str(&means(results, &excesses));
    let _ = writeln!(
        text,
        "  (large: the best peer peaks at 20 MB or more; {large} here)"
    );
    text
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
