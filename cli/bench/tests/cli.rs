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

/// A repository whose benchmark programs are scripts that print what is given.
fn programs(name: &str, scripts: &[(&str, &str)]) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let directory = root.join("build/bench");
    fs::create_dir_all(&directory).unwrap();
    for (program, body) in scripts {
        let path = directory.join(program);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    root
}

fn bench_in(root: &PathBuf, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mallow-bench"))
        .args(arguments)
        .current_dir(root)
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

#[test]
fn the_page_experiment_asks_the_kernel_and_the_allocators() {
    let script = "ns=100; [ \"$1\" = kernel=1 ] && ns=2000\n\
                  echo bytes allocate touch/page grow touch2/page shrink free\n\
                  for b in 65536 131072 8388608 1073741824; do echo $b 10 $ns 20 $ns 30 40; done";
    let root = programs("pages", &[("page_alloc", script)]);
    let arguments = [
        "pages",
        "--no-mallow",
        "--peers",
        "glibc",
        "--quiet",
        "-n",
        "2",
    ];
    let out = root.join("out/pages.json");
    let output = bench_in(
        &root,
        &[&arguments[..], &["--out", out.to_str().unwrap()]].concat(),
    );
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let touch = said
        .lines()
        .find(|l| l.starts_with("first touch of a page at 8 MiB"))
        .unwrap();
    assert!(touch.split_whitespace().last() == Some("20"), "{said}");
    assert!(out.exists() && out.with_extension("svg").exists());
    let again = bench_in(&root, &["pages", "--show", out.to_str().unwrap()]);
    assert_eq!(text(&again.stdout), said);
}

#[test]
fn the_classics_are_tables_of_published_and_measured_figures() {
    let scripts = [
        (
            "unalloc_test",
            "echo figure malloc 50 ns; echo figure scheme_malloc 25 ns",
        ),
        (
            "unalloc_fill",
            "echo figure scheme1_used 75.1 %; echo figure malloc_used 96.5 %",
        ),
        ("cpe357", "echo figure cold_process 33.3 us"),
        (
            "nedmalloc_pairs",
            "echo figure threads_1 12.5 Mpairs/s; exit 3",
        ),
    ];
    let root = programs("classics", &scripts);
    let arguments = ["classics", "--no-mallow", "--peers", "glibc", "--quiet"];
    let output = bench_in(&root, &arguments);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for figure in [
        "2.00",
        "75.1",
        "96.5",
        "33.3",
        "12.5",
        "7.3 to 8.2",
        "169",
        "120",
    ] {
        assert!(said.contains(figure), "{figure}: {said}");
    }
    assert!(
        said.contains("PROBLEM: nedmalloc_pairs: glibc: exit status 3"),
        "{said}"
    );
    assert!(root
        .join("build/bench/results/bench-classics.json")
        .exists());
}

#[test]
fn an_experiment_without_its_programs_says_how_to_get_them() {
    let root = programs("nothing", &[]);
    let output = bench_in(&root, &["pages", "--quiet"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("make bench-programs"));
}
