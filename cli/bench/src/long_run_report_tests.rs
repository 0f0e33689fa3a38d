// SPDX-License-Identifier: MIT
//! Tests of the table and the picture, on made-up curves.

use mallow_measure::allocators::Allocator;
use mallow_measure::machine::Machine;

use super::*;
use crate::long_run::{Begin, Course, Own, FORMAT};

const DAYS: usize = 10;
const DAY_MS: u64 = 60_000;

/// RSS of a day: 300 MiB while it works, 100 MiB when idle, and more by `leak` MiB from day to day.
fn kib(at_ms: u64, leak: u64) -> u64 {
    let (day, within) = (at_ms / DAY_MS, at_ms % DAY_MS);
    let level = match (day as usize >= DAYS, within < DAY_MS / 2) {
        // Torn down while it is sampled: that must not count.
        (true, _) if within >= 5_000 => return 1,
        (true, _) => 5,
        (false, true) => 300,
        (false, false) => 100,
    };
    (level + leak * day) * 1024
}

fn subject(key: &str, at_ms: &[u64], leak: u64) -> Subject {
    let rss_kib: Vec<u64> = at_ms.iter().map(|at| kib(*at, leak)).collect();
    Subject {
        allocator: Allocator {
            key: key.into(),
            title: key.into(),
            version: String::new(),
            preload: Vec::new(),
            hardened: false,
        },
        started_ms: 0,
        pss_kib: rss_kib.iter().map(|kib| kib / 2).collect(),
        rss_kib,
        own: Own::default(),
        error: None,
    }
}

fn run() -> LongRun {
    let end = DAYS as u64 * DAY_MS;
    let at_ms: Vec<u64> = (1..=(end + 6_000) / 250).map(|i| i * 250).collect();
    let begin = |at_ms, day, phase: &str| Begin {
        at_ms,
        day,
        phase: phase.into(),
        threads: 2,
    };
    let mut course = Course {
        operations: 5,
        checksum: "c0de".into(),
        ..Course::default()
    };
    for day in 0..DAYS {
        let at = day as u64 * DAY_MS;
        course.begins.push(begin(at, day, "day"));
        course.begins.push(begin(at + DAY_MS / 2, day, "idle"));
        course.live.push((at, 100 << 20));
    }
    course.begins.push(begin(end, DAYS, "end"));
    course.begins.push(begin(end + 5_000, DAYS, "exit"));
    course.live.push((end, 0));
    let mut failed = subject("rp", &at_ms, 0);
    failed.error = Some("killed".into());
    LongRun {
        format: FORMAT.into(),
        date: "2026-11-22".into(),
        commit: "abc".into(),
        machine: Machine::default(),
        command: Vec::new(),
        course,
        subjects: vec![
            subject("je", &at_ms, 2),
            subject("mallow", &at_ms, 0),
            failed,
        ],
        at_ms,
    }
}

#[test]
fn a_steady_server_has_no_drift_and_a_leaking_one_has_its_leak() {
    let run = run();
    let of = |at: usize| {
        let subject = &run.subjects[at];
        figures(&run, &curve(&run, subject, &subject.rss_kib)).unwrap()
    };
    let (leaks, steady) = (of(0), of(1));
    assert_eq!(steady.drift, Some(0.0));
    assert_eq!(steady.rise, Some(0.0));
    // 2 MiB a minute; from day 4 on, so over six minutes, beside 100 + 2 * 6 MiB in the middle.
    assert!((leaks.drift.unwrap() - 120.0).abs() < 1e-6);
    assert!((leaks.rise.unwrap() - 12.0 / 112.0).abs() < 1e-6);
    assert_eq!(
        (steady.peak, steady.idle, steady.freed),
        (300.0, Some(100.0), Some(5.0))
    );
    assert_eq!(leaks.idle, Some(109.0));
    assert!((steady.mean - 200.0).abs() < 3.0, "{}", steady.mean);
}

#[test]
fn the_table_is_ranked_and_names_what_failed() {
    let text = render(&run());
    let at = |word: &str| text.find(&format!("\n{word} ")).unwrap();
    assert!(at("mallow") < at("je") && at("je") < at("live"), "{text}");
    assert!(
        text.contains("PROBLEM: rp: killed") && !text.contains("\nrp "),
        "{text}"
    );
    let row = text.lines().find(|l| l.starts_with("mallow")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    // mean over live's mean, which is 100 MiB for all but the last five of 605 seconds.
    assert_eq!(cells[2], "2.00", "{row}");
    assert_eq!(cells[5..9], ["100", "5.00", "+0.0", "+0.0"], "{row}");
}

#[test]
fn the_picture_has_the_runs_that_count_and_the_live_bytes() {
    let svg = picture(&run()).unwrap();
    for word in ["mallow", "je", LIVE] {
        assert!(svg.contains(&format!("\n{word}\n")), "{word}");
    }
    assert!(!svg.contains("\nrp\n"));
}

#[test]
fn a_run_that_failed_for_all_is_still_reported() {
    let mut run = run();
    run.course = Course::default();
    run.subjects
        .iter_mut()
        .for_each(|s| s.error = Some("no".into()));
    assert!(render(&run).contains("PROBLEM: mallow: no") && picture(&run).is_ok());
    assert!(mallow_failed(&run));
}
