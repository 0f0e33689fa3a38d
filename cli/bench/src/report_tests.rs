// SPDX-License-Identifier: MIT
//! Tests of the report on two made-up benchmarks.

use super::*;
use crate::results::FORMAT;
use serde_json::json;

pub(crate) fn series(key: &str, wall: &[f64], mib: f64) -> serde_json::Value {
    let runs: Vec<serde_json::Value> = wall
        .iter()
        .map(|wall| {
            json!({"pid": 1, "ending": {"Exit": 0}, "wall_s": wall, "user_s": wall, "system_s": 0.0,
                   "peak_rss_bytes": (mib * 1048576.0) as u64, "minor_faults": 1, "major_faults": 0,
                   "voluntary_switches": 0, "involuntary_switches": 0, "mapped": null,
                   "score": {"value": 1.0 / wall, "unit": "ops/s"}})
        })
        .collect();
    json!({"allocator": {"key": key, "title": key, "version": "1", "preload": [],
                         "hardened": key == "hm"}, "proof": "mapped", "runs": runs})
}

pub(crate) fn outcome(
    name: &str,
    score: Option<&str>,
    rows: Vec<serde_json::Value>,
) -> serde_json::Value {
    json!({"name": name, "kind": "micro", "command": ["x"], "score": score, "series": rows})
}

pub(crate) fn sample() -> Results {
    let value = json!({
        "format": FORMAT, "date": "2026-11-21T00:00:00Z", "commit": "abc", "rounds": 3, "warmup": 0,
        "quick": false,
        "machine": {"host": "h", "kernel": "Linux", "cpu": "c", "cores": 2, "memory_bytes": 1,
                    "governor": "", "huge_pages": "madvise", "compiler": "gcc", "libc": "glibc"},
        "benchmarks": [
            outcome("small", None, vec![series("mallow", &[2.0, 2.2, 1.8], 4.0), series("je", &[1.0], 4.0),
                                   series("mi", &[4.0], 2.0), series("hm", &[0.1], 1.0)]),
            outcome("large", Some("higher"), vec![series("mallow", &[1.0], 50.0), series("je", &[2.0], 100.0),
                                             series("mi", &[4.0], 200.0)]),
        ]
    });
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_small_score_keeps_its_digits() {
    let results = sample();
    let large = &results.benchmarks[1];
    let cost = |score| large.benchmark.cost(score);
    assert_eq!(figure(large, Measure::Time, cost(0.73)), "0.730 ops/s");
    assert_eq!(figure(large, Measure::Time, cost(4.2e7)), "42.00M ops/s");
}

#[test]
fn the_best_is_a_peer_and_never_a_hardened_one() {
    let results = sample();
    assert_eq!(
        best_peer(&results.benchmarks[0], Measure::Time),
        Some(("je", 1.0))
    );
    assert_eq!(
        against_best(&results.benchmarks[0], "mallow", Measure::Time),
        Some(2.0)
    );
    assert_eq!(
        against_best(&results.benchmarks[0], "mallow", Measure::Memory),
        Some(2.0)
    );
    assert_eq!(
        against_best(&results.benchmarks[0], "sn", Measure::Time),
        None
    );
}

#[test]
fn a_score_of_which_more_is_better_is_turned_round() {
    let results = sample();
    assert_eq!(
        against_best(&results.benchmarks[1], "mallow", Measure::Time),
        Some(0.5)
    );
    assert_eq!(
        against_best(&results.benchmarks[1], "mi", Measure::Time),
        Some(2.0)
    );
}

#[test]
fn overall_means() {
    let results = sample();
    let (time, count) = overall(&results, "mallow", Measure::Time, false).unwrap();
    assert!((time - 1.0).abs() < 1e-9 && count == 2);
    let (large, count) = overall(&results, "mallow", Measure::Memory, true).unwrap();
    assert!((large - 0.5).abs() < 1e-9 && count == 1);
}

#[test]
fn the_report_begins_its_losses_with_the_worst() {
    let text = render(&sample(), &Explanations::new());
    let losses = text.split("worst first").nth(1).unwrap();
    let losses = losses.split("Geometric").next().unwrap();
    assert!(
        losses.find("small").unwrap() < losses.find("large").unwrap(),
        "{text}"
    );
    assert!(!mallow_failed(&sample()));
}

#[test]
fn a_change_is_new_by_old() {
    let (old, mut new) = (sample(), sample());
    for run in &mut new.benchmarks[0].series[0].runs {
        run.measured.wall_s *= 0.5;
    }
    let text = render_change(&old, &new);
    let row = text.lines().find(|line| line.starts_with("small")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("0.50"), "{text}");
}

#[test]
fn the_picture_has_every_allocator() {
    let svg = picture(&sample()).unwrap();
    assert!(svg.contains("\nmallow\n") && svg.contains("\nhm\n"));
}
