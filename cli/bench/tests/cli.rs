// SPDX-License-Identifier: MIT
//! The runner on a small suite of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mallow-bench"))
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory that looks like a repository with a suite.
fn tree(name: &str, suite: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(root.join("bench")).unwrap();
    fs::write(root.join("bench/suite.json"), suite).unwrap();
    root
}

const SUITE: &str = r#"[
    {"name": "loop", "kind": "micro", "command": ["sh", "-c", "i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done"],
     "threads": 1, "setup": [["sh", "-c", "echo made > made.txt"]], "what": "counts", "source": "own"},
    {"name": "scored", "kind": "real", "command": ["sh", "-c", "cat made.txt; echo score 42 Mops/s"],
     "score": "higher", "what": "prints a score", "source": "own"},
    {"name": "absent", "kind": "real", "command": ["build/bench/absent"], "what": "", "source": ""}
]"#;

#[test]
fn a_suite_is_run_recorded_and_reported() {
    let root = tree("suite-run", SUITE);
    let (suite, out) = (root.join("bench/suite.json"), root.join("out.json"));
    let (suite, out) = (suite.to_str().unwrap(), out.to_str().unwrap());
    let output = bench(&[
        "--suite",
        suite,
        "--out",
        out,
        "--no-mallow",
        "--peers",
        "glibc",
        "-n",
        "2",
    ]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("NOT RUN: absent"), "{printed}");
    assert!(printed.contains("42 Mops/s"), "{printed}");
    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(out).unwrap()).unwrap();
    assert_eq!(value["format"], "mallow-bench-1");
    assert_eq!(
        value["benchmarks"][0]["series"][0]["runs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        value["benchmarks"][1]["series"][0]["runs"][0]["score"]["value"],
        42.0
    );
    assert!(root.join("out.svg").exists());
    let again = bench(&["report", out]);
    assert_eq!(text(&again.stdout), printed);
    let page = root.join("page.html");
    let written = bench(&["report", out, "--out", page.to_str().unwrap()]);
    assert_eq!(written.status.code(), Some(0));
    assert!(fs::read_to_string(&page).unwrap().contains("</svg>"));
    let refused = bench(&["report", out, "--out", "page.png"]);
    assert_eq!(refused.status.code(), Some(2));
    let change = bench(&["report", out, out]);
    assert!(text(&change.stdout).contains("new / old"));
}

#[test]
fn what_is_unknown_is_named() {
    let root = tree("suite-names", SUITE);
    let suite = root.join("bench/suite.json");
    let suite = suite.to_str().unwrap();
    for (arguments, named) in [
        (
            vec!["--suite", suite, "--no-mallow", "--only", "lop"],
            "'lop'; known: loop, scored",
        ),
        (
            vec!["--suite", suite, "--no-mallow", "--kind", "tiny"],
            "'tiny'",
        ),
        (
            vec!["--suite", suite, "--no-mallow", "--peers", "jx"],
            "'jx'",
        ),
        (
            vec!["--suite", suite, "--no-mallow", "-n", "none"],
            "'none'",
        ),
        (vec!["--suite", "/no/suite.json"], "/no/suite.json"),
    ] {
        let output = bench(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(named),
            "{}",
            text(&output.stderr)
        );
    }
    let report = bench(&["report", "/no/results.json"]);
    assert_eq!(report.status.code(), Some(125));
    assert!(text(&report.stderr).contains("/no/results.json"));
}

#[test]
fn a_setup_that_fails_is_reported_with_its_last_words() {
    let suite =
        r#"[{"name": "a", "command": ["true"], "setup": ["sh", "-c", "echo oh no >&2; exit 5"]}]"#;
    let root = tree("suite-setup", suite);
    let (suite, out) = (root.join("bench/suite.json"), root.join("out.json"));
    let arguments = [
        "--suite",
        suite.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--no-mallow",
        "--peers",
        "glibc",
    ];
    let output = bench(&arguments);
    assert!(
        text(&output.stdout).contains("exit status: 5: oh no"),
        "{}",
        text(&output.stdout)
    );
}
