// SPDX-License-Identifier: MIT
//! Tests of the report's end, on made-up benchmarks, and of the explanations that are in the tree.

use super::*;
use crate::report::tests::{outcome, sample, series};
use crate::suite::Suite;

fn explained(text: &str) -> Explanations {
    serde_json::from_str(text).unwrap()
}

/// The `sample` has a row "small" that is at 2.00 on time and on RSS, and one "large" at 0.50.
#[test]
fn a_row_above_a_limit_is_explained_or_called_unexplained() {
    let text = render(&sample(), &Explanations::new());
    let row = |text: &str, kind: &str| {
        let found = text
            .lines()
            .find(|l| l.starts_with("small") && l.contains(kind));
        found.map(str::to_string).unwrap_or_default()
    };
    assert!(row(&text, " time ").ends_with("unexplained"), "{text}");
    assert!(row(&text, " RSS ").ends_with("unexplained"), "{text}");
    assert!(
        text.contains("1 on time, 1 on peak RSS; 2 of them unexplained"),
        "{text}"
    );

    let why = explained(r#"{"small": {"time": "The clock is slow.", "rss": " "}}"#);
    let text = render(&sample(), &why);
    assert!(
        row(&text, " time ").ends_with("The clock is slow."),
        "{text}"
    );
    assert!(row(&text, " RSS ").ends_with("unexplained"), "{text}");
    assert!(text.contains("1 of them unexplained"), "{text}");
}

#[test]
fn a_row_within_the_limits_needs_nothing() {
    let text = render(&sample(), &Explanations::new());
    let losses = text.split("loses first").nth(1).unwrap();
    assert!(!losses.contains("\nlarge"), "{text}");
}

#[test]
fn the_report_ends_with_the_means_and_their_goals() {
    let text = render(&sample(), &Explanations::new());
    let end: Vec<&str> = text
        .split("in each benchmark")
        .nth(1)
        .unwrap()
        .lines()
        .collect();
    // time: sqrt(2 * 0.5); RSS: sqrt(2 * 0.5); RSS of the large row: 0.5
    let find = |name: &str| {
        end.iter()
            .find(|l| l.trim_start().starts_with(name))
            .unwrap()
    };
    assert!(find("time").contains("1.000") && find("time").ends_with("goal < 1.00: NOT MET"));
    assert!(find("peak RSS  ").ends_with("goal <= 1.05: met"));
    assert!(find("peak RSS, rows").contains("0.500  over 1 benchmarks"));
    assert!(text.contains("NOT HERE") && text.contains("mi2"), "{text}");
}

#[test]
fn sixty_four_threads_are_compared_with_two() {
    let mut results = sample();
    let row = |name: &str, wall: f64, mib: f64| {
        outcome(
            name,
            None,
            vec![series("mallow", &[wall], mib), series("je", &[1.0], 10.0)],
        )
    };
    for (name, wall, mib) in [
        ("a-2", 1.0, 10.0),
        ("a-64", 2.0, 30.0),
        ("b-2", 1.0, 10.0),
        ("b-64", 1.05, 10.0),
        ("c-64", 9.0, 9.0),
    ] {
        results
            .benchmarks
            .push(serde_json::from_value(row(name, wall, mib)).unwrap());
    }
    for (at, live) in [(0, 2.0), (1, 4.0), (2, 2.0), (3, 1.0)] {
        let from = results.benchmarks.len() - 5;
        results.benchmarks[from + at].benchmark.live_mb = Some(live);
    }
    let text = scaling(&results);
    let line = |name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .unwrap_or_default()
            .to_string()
    };
    assert!(
        line("a ").contains("0.50") && line("a ").contains("3.00"),
        "{text}"
    );
    // "b" needs as much memory for half the data, which is no more than before.
    assert!(
        line("a ").ends_with("2.00  SLOWER, MORE THAN LIVE DATA"),
        "{text}"
    );
    assert!(line("b ").ends_with("0.50"), "{text}");
    assert!(
        line("a ").contains("je 1.00") && line("c").is_empty(),
        "{text}"
    );
}

#[test]
fn without_mallow_there_is_nothing_to_say() {
    let mut results = sample();
    for outcome in &mut results.benchmarks {
        outcome.series.retain(|s| s.allocator.key != "mallow");
    }
    assert_eq!(render(&results, &Explanations::new()), "");
}

#[test]
fn a_file_that_is_not_there_explains_nothing_and_a_broken_one_is_an_error() {
    let missing = Path::new("/no/such/explanations.json");
    assert!(read_explanations(missing).unwrap().is_empty());
    let path = std::env::temp_dir().join(format!("explanations-{}.json", std::process::id()));
    fs::write(&path, r#"{"small": {"speed": "x"}}"#).unwrap();
    let error = read_explanations(&path).unwrap_err();
    fs::remove_file(&path).unwrap();
    assert!(
        error.contains("speed") && error.contains("explanations-"),
        "{error}"
    );
}

/// The texts in the tree name rows of the suite.
#[test]
fn what_is_explained_exists() {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    let suite = Suite::read(&bench.join("suite.json")).unwrap();
    for name in read_explanations(&bench.join("explanations.json"))
        .unwrap()
        .keys()
    {
        assert!(
            suite.benchmarks.iter().any(|b| b.name == *name),
            "{name} is no row"
        );
    }
}
