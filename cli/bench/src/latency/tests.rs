// SPDX-License-Identifier: MIT
//! Tests of the latency run's reading, merging and showing, on made-up figures.

use super::data::{parse, Line, Subject};
use super::*;

fn allocator(key: &str) -> Allocator {
    Allocator {
        key: key.into(),
        title: key.into(),
        version: String::new(),
        preload: Vec::new(),
        hardened: false,
    }
}

fn times(mode: &str, subject: &str, call: &str, tail: f64, count: f64, floor: f64) -> String {
    format!(
        r#"{{"row":"times","mode":"{mode}","size":64,"unit":1,"threads":1,"subject":"{subject}","call":"{call}",
"faults":1,"switches":2,"count":{count},"mean":20,"max":9e6,"quantiles":[10,11,12,15,{tail},{}],
"machine":[0,0,0,0,{floor},{}],"ppm":[50,4.25,1,0],"drift":1.01,"worst_window":1.2,"curve":[1,2,{tail}]}}"#,
        10.0 * tail,
        10.0 * floor
    )
    .replace('\n', "")
}

const HEAD: &str = r#"
{"row":"machine","isolated":"","nohz_full":"","clocksource":"tsc","rt_runtime_us":950000,"load":1.5,"pinned":1,"on_isolated":false,"fifo":false,"processors":2}
{"row":"timer","source":"rdtscp","ns_per_tick":0.4,"least_ns":10,"overhead_ns":10,"typical_ns":20,"step_ns":10}
"#;
const END: &str = r#"
{"row":"startup","ready_us":900,"first_ns":20000,"fill_ms":150,"fill_p9999_ns":2000,"fill_max_ns":4e6}
{"row":"memory","size":16,"overhead_percent":6.5,"kept_percent":33}
{"row":"end","stolen_ms":12}
"#;

/// What one process prints whose P99.99 is `tail`, on a floor of `floor`.
fn output(tail: f64, floor: f64) -> String {
    let lines = [
        times("churn-64", "floor", "malloc", floor, 1e6, 0.0),
        times("churn-64", "floor", "both", floor, 1e6, 0.0),
        times("churn-64", "malloc", "malloc", tail, 1e6, floor),
        times("churn-64", "malloc", "both", tail, 1e6, floor),
        times("hot-64", "malloc", "both", tail, 1e4, floor),
        times("hot-64", "floor", "both", floor, 1e4, 0.0),
    ];
    format!("{HEAD}{}{END}", lines.join("\n"))
}

fn subject(key: &str, rounds: &[(f64, f64)]) -> Subject {
    let mut subject = Subject::new(allocator(key));
    let mut seen = Default::default();
    for (tail, floor) in rounds {
        subject.add(parse(&output(*tail, *floor)).unwrap(), &mut seen);
    }
    subject.settle(|mode| mode == "churn-64");
    subject
}

fn latency() -> Latency {
    Latency {
        format: FORMAT.into(),
        date: "2026-11-22".into(),
        commit: "abc".into(),
        machine: Machine::default(),
        conditions: data::Conditions::default(),
        timer: data::Timer::default(),
        overheads_ns: (10.0, 20.0),
        rounds: 3,
        quick: true,
        subjects: vec![
            subject("mallow", &[(100.0, 50.0), (300.0, 290.0), (200.0, 20.0)]),
            subject("je", &[(150.0, 10.0), (160.0, 10.0), (170.0, 10.0)]),
        ],
    }
}

#[test]
fn output_that_ends_early_or_says_something_else_is_refused() {
    assert_eq!(parse(&output(1.0, 1.0)).unwrap().len(), 11);
    let cut = output(1.0, 1.0).replace(r#"{"row":"end","stolen_ms":12}"#, "");
    assert!(parse(&cut).unwrap_err().contains("too early"));
    assert!(parse("{\"row\":\"other\"}\n").is_err());
    assert!(matches!(
        parse(END).unwrap().last(),
        Some(Line::End { stolen_ms }) if *stolen_ms == 12.0
    ));
}

#[test]
fn figures_are_medians_of_the_rounds_and_the_excess_is_taken_round_by_round() {
    let ours = &latency().subjects[0];
    assert_eq!(ours.own("churn-64").unwrap().quantile(4), Some(200.0));
    // 500, 100, 1800: the rounds' own differences, not the difference of the medians.
    assert_eq!(ours.excess("churn-64", 5), Some(500.0));
    assert_eq!(ours.own("churn-64").unwrap().curve, [1.0, 2.0, 200.0]);
    assert!(ours.own("hot-64").unwrap().curve.is_empty());
    assert_eq!(ours.own("churn-64").unwrap().flatness(), Some(1.5));
    let quieter = subject("je", &[(10.0, 50.0)]);
    assert_eq!(quieter.excess("churn-64", 5), Some(0.0));
    assert_eq!(ours.stolen_ms, 36.0);
    assert!(ours.row("churn-64", "floor", "malloc").is_none());
}

#[test]
fn a_quantile_that_no_value_lies_beyond_is_not_shown() {
    let ours = &latency().subjects[0];
    let hot = ours.own("hot-64").unwrap();
    assert_eq!(hot.quantile(4), Some(200.0));
    assert_eq!(hot.quantile(5), None);
    assert_eq!(ours.excess("hot-64", 5), None);
}

#[test]
fn the_report_has_the_floor_every_allocator_the_published_rows_and_the_verdicts() {
    let text = render(&latency());
    for wanted in [
        "(floor)",
        "published: PMAD",
        "17881",
        "BEHIND  churn-64, P99.99: mallow 200, best other 160 (je); their rounds overlap\n",
        "lowest  churn-64, excess over the floor at P99.999: mallow 500, best other 1.5us (je); their rounds overlap\n",
        "met     hot path, P99.9 / P50 at most 2 at every size: largest 1.50, at 64 B",
        "100..300",
        "NOT AN ISOLATED PROCESSOR",
        "NOTE: processes took off 10.0 to 20.0 ns",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    let floor = text.lines().find(|l| l.starts_with("(floor)")).unwrap();
    assert!(floor.split_whitespace().count() > 10, "{floor}");
}

#[test]
fn an_allocator_that_failed_is_named_and_mallow_s_failure_counts() {
    let mut latency = latency();
    assert!(!mallow_failed(&latency));
    latency.subjects[0].error = Some("gate: exit status 1".into());
    latency.subjects[1].notes = vec!["impossible sizes are refused".into()];
    let text = render(&latency);
    assert!(
        text.contains("PROBLEM: mallow: gate: exit status 1"),
        "{text}"
    );
    assert!(text.contains("note: je fails"), "{text}");
    assert!(mallow_failed(&latency));
}

#[test]
fn the_modes_are_grouped_and_a_quick_run_leaves_some_out() {
    let all: Vec<String> = "gate startup memory hot-16 call-16 churn-16 churn-64 mixed order-lifo pipeline remote threads"
        .split(' ')
        .map(String::from)
        .collect();
    let mut plan = Plan {
        rounds: 1,
        quick: true,
        only: Vec::new(),
        set: Vec::new(),
    };
    let quick = plan.groups(&all).unwrap();
    assert_eq!(quick[0], ["hot-16", "call-16"]);
    assert_eq!(quick[1], ["churn-64"]);
    let covered = quick.concat().len();
    assert_eq!(
        covered,
        all.len() - 2,
        "all but the gate and churn-16: {quick:?}"
    );
    plan.only = vec!["churn".into()];
    assert_eq!(plan.groups(&all).unwrap(), [["churn-16", "churn-64"]]);
    plan.only = vec!["chur".into()];
    assert!(plan.groups(&all).unwrap_err().contains("chur"));
}

#[test]
fn a_written_file_is_read_back_and_the_picture_has_every_allocator() {
    let path = std::env::temp_dir().join(format!("latency-{}.json", std::process::id()));
    latency().write(&path).unwrap();
    let again = Latency::read(&path).unwrap();
    assert_eq!(render(&again), render(&latency()));
    std::fs::write(&path, "{}").unwrap();
    assert!(Latency::read(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    let svg = picture(&again).unwrap();
    for key in ["mallow", "je", "floor (no call)", "99.9"] {
        assert!(
            svg.contains(&format!("\n{key}\n")) || key == "99.9",
            "{key}"
        );
    }
}
