// SPDX-License-Identifier: MIT
//! `mallow-bench dispatch`: the policies of `<mallow/dispatch.h>` in one simulation
//! (`bench/dispatch/dispatch.c`), over many seeds; a table, what it shows, a result file, a picture.

use std::path::Path;
use std::process::Command;

use mallow_measure::machine::Machine;
use mallow_measure::progress::Progress;
use mallow_measure::stats::Summary;
use mallow_measure::strips::{self, Panel};
use mallow_measure::table::Table;
use serde::{Deserialize, Serialize};

use crate::results::read_as;

/// The value of `format` in files of this form.
pub const FORMAT: &str = "mallow-dispatch-1";
/// Delays of the second series, whose runs are played by one thread (the result is the same).
const DELAYS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Seeds of each delay.
const DELAY_SEEDS: u64 = 5;

/// What a run printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    policy: String,
    seed: u64,
    cores: u32,
    delay: u32,
    /// Pieces of work, and how many of them were refused.
    work: u64,
    refused: u64,
    refused_routed: u64,
    blocks: u64,
    remote: u64,
    /// Ticks from arrival to the last block.
    p50: u32,
    p99: u32,
    p999: u32,
    max: u32,
    /// Occupancy of the fullest core less the mean of all, over all ticks; and of the fullest.
    spread: f64,
    fullest: f64,
}

impl Row {
    fn refused_percent(&self) -> f64 {
        self.refused as f64 * 100.0 / self.work.max(1) as f64
    }
}

/// A result file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    format: String,
    date: String,
    commit: String,
    machine: Machine,
    /// Every policy with every seed.
    rows: Vec<Row>,
    /// Every policy with several delays.
    delays: Vec<Row>,
}

fn simulate(program: &Path, arguments: &[String]) -> Result<Vec<Row>, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    if !output.status.success() {
        return Err(format!(
            "{} {}: {}",
            program.display(),
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| format!("'{line}': {e}")))
        .collect()
}

/// Why a parameter of the user's cannot go to every run.
pub fn refusal(word: &str) -> Option<&'static str> {
    match word.split_once('=') {
        None => Some("wanted name=value"),
        Some(("seed" | "policy", _)) => {
            Some("every policy is run, with as many seeds as --seeds says")
        }
        Some(_) => None,
    }
}

/// Runs all; `more` goes to every run, but a delay of its own to each of the second series.
pub fn run(
    program: &Path,
    seeds: u64,
    more: &[String],
    head: (String, String, Machine),
    progress: &Progress,
) -> Result<Results, String> {
    let mut results = Results {
        format: FORMAT.into(),
        date: head.0,
        commit: head.1,
        machine: head.2,
        rows: Vec::new(),
        delays: Vec::new(),
    };
    for seed in 1..=seeds {
        progress.say(&format!("seed {seed} of {seeds}"));
        let arguments = [more, &[format!("seed={seed}")]].concat();
        results.rows.extend(simulate(program, &arguments)?);
    }
    for delay in DELAYS {
        progress.say(&format!("delay {delay}"));
        for seed in 1..=DELAY_SEEDS.min(seeds) {
            let own = [
                format!("seed={seed}"),
                format!("delay={delay}"),
                "threads=0".into(),
            ];
            results
                .delays
                .extend(simulate(program, &[more, &own].concat())?);
        }
    }
    Ok(results)
}

/// The policies in the order in which they were run.
fn policies(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.policy) {
            names.push(row.policy.clone());
        }
    }
    names
}

fn column(rows: &[Row], policy: &str, value: impl Fn(&Row) -> f64) -> Vec<f64> {
    rows.iter()
        .filter(|row| row.policy == policy)
        .map(value)
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares = values.iter().map(|v| (v - middle).powi(2)).sum::<f64>();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// Does `better` refuse less than `worse`? The mean of both, and in how many seeds.
struct Comparison {
    better: &'static str,
    worse: &'static str,
    means: (f64, f64),
    wins: usize,
    seeds: usize,
}

fn compare(rows: &[Row], better: &'static str, worse: &'static str) -> Comparison {
    let one = column(rows, better, Row::refused_percent);
    let other = column(rows, worse, Row::refused_percent);
    Comparison {
        better,
        worse,
        means: (mean(&one), mean(&other)),
        wins: one.iter().zip(&other).filter(|(a, b)| a < b).count(),
        seeds: one.len(),
    }
}

/// What the experiment is there to show.
fn claims(rows: &[Row]) -> [Comparison; 3] {
    [
        compare(rows, "least-occupied", "round-robin"),
        compare(rows, "trend", "least-occupied"),
        compare(rows, "learned", "least-occupied"),
    ]
}

/// True if the claims hold in the mean: least-occupied below round-robin, and below that the trend or
/// the learned policy.
pub fn holds(results: &Results) -> bool {
    let [first, trend, learned] = claims(&results.rows);
    let less = |c: &Comparison| c.means.0 < c.means.1;
    less(&first) && (less(&trend) || less(&learned))
}

/// Table and claims as text.
pub fn render(results: &Results) -> String {
    let rows = &results.rows;
    let mut table = Table::new([
        "policy",
        "refused %",
        "sd",
        "min",
        "max",
        "p50",
        "p99",
        "p99.9",
        "max ticks",
        "spread %",
        "fullest %",
    ]);
    for policy in policies(rows) {
        let refused = column(rows, &policy, Row::refused_percent);
        let Some(range) = Summary::of(&refused) else {
            continue;
        };
        let middle = |value: fn(&Row) -> f64| mean(&column(rows, &policy, value));
        table.row([
            policy.clone(),
            format!("{:.3}", mean(&refused)),
            format!("{:.3}", deviation(&refused)),
            format!("{:.3}", range.min),
            format!("{:.3}", range.max),
            format!("{:.1}", middle(|r| f64::from(r.p50))),
            format!("{:.1}", middle(|r| f64::from(r.p99))),
            format!("{:.1}", middle(|r| f64::from(r.p999))),
            format!("{:.1}", middle(|r| f64::from(r.max))),
            format!("{:.2}", middle(|r| r.spread * 100.0)),
            format!("{:.1}", middle(|r| r.fullest * 100.0)),
        ]);
    }
    let mut text = table.render() + "\n";
    for claim in claims(rows) {
        text += &format!(
            "{} refuses less than {} in {} of {} seeds: {:.3} % against {:.3} %\n",
            claim.better, claim.worse, claim.wins, claim.seeds, claim.means.0, claim.means.1
        );
    }
    for better in ["trend", "learned"] {
        let claim = compare(rows, better, "least-expected");
        text += &format!(
            "beside it: {} less than {} in {} of {} seeds: {:.3} % against {:.3} %\n",
            claim.better, claim.worse, claim.wins, claim.seeds, claim.means.0, claim.means.1
        );
    }
    text + "\n" + &render_delays(&results.delays)
}

fn render_delays(rows: &[Row]) -> String {
    let names = policies(rows);
    let headings = ["refused %, delay of".to_string()]
        .into_iter()
        .chain(DELAYS.iter().map(|d| format!("{d} ticks")));
    let mut table = Table::new(headings);
    for policy in names {
        let cells = delay_means(rows, &policy);
        let cells = cells.iter().map(|(_, refused)| format!("{refused:.3}"));
        table.row([policy.clone()].into_iter().chain(cells));
    }
    table.render()
}

fn delay_means(rows: &[Row], policy: &str) -> Vec<(f64, f64)> {
    DELAYS
        .iter()
        .map(|&delay| {
            let own: Vec<Row> = rows.iter().filter(|r| r.delay == delay).cloned().collect();
            let refused = column(&own, policy, Row::refused_percent);
            (f64::from(delay), mean(&refused))
        })
        .collect()
}

/// The picture.
pub fn picture(results: &Results) -> Result<String, String> {
    let names = policies(&results.rows);
    let strips = |title: &str, value: fn(&Row) -> f64| Panel::Strips {
        title: title.into(),
        values: names
            .iter()
            .map(|policy| column(&results.rows, policy, value))
            .collect(),
    };
    let panels = [
        strips("Work refused, % (a point a seed)", Row::refused_percent),
        Panel::Lines {
            title: format!("Work refused, % in the mean of {DELAY_SEEDS} seeds, by the delay"),
            across: "ticks from routing to the core's queue".into(),
            points: names
                .iter()
                .map(|policy| delay_means(&results.delays, policy))
                .collect(),
        },
        strips("P99.9 from arrival to the last block, ticks", |r| {
            f64::from(r.p999)
        }),
        strips(
            "Fullest core less the mean, % of its blocks, over all ticks",
            |r| r.spread * 100.0,
        ),
    ];
    let cores = results.rows.first().map_or(0, |row| row.cores);
    let seeds = results.rows.iter().map(|row| row.seed).max().unwrap_or(0);
    let subtitle = format!(
        "{cores} cores, a pool and a thread each; bursty and skewed load; {seeds} seeds; bars: median and \
         middle half; commit {}",
        results.commit
    );
    strips::draw("Dispatch over per-core pools", &subtitle, &names, &panels)
        .map_err(|e| e.to_string())
}

/// Reads a result file.
pub fn read(path: &Path) -> Result<Results, String> {
    read_as(path, FORMAT)
}

/// Writes the file, and the picture beside it.
pub fn write(results: &Results, path: &Path) -> Result<(), String> {
    let named = |text: String| format!("'{}': {text}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| named(e.to_string()))?;
    }
    let text = serde_json::to_string(results).map_err(|e| named(e.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|e| named(e.to_string()))?;
    let svg = picture(results)?;
    std::fs::write(path.with_extension("svg"), svg).map_err(|e| named(e.to_string()))
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
