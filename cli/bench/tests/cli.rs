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
    for arguments in [vec!["report", out], vec!["--help"]] {
        let full = Command::new(env!("CARGO_BIN_EXE_mallow-bench"))
            .args(&arguments)
            .stdout(fs::File::create("/dev/full").unwrap())
            .output()
            .unwrap();
        assert_eq!(full.status.code(), Some(125), "{arguments:?}");
        let said = text(&full.stderr);
        assert!(
            said.starts_with("mallow-bench: stdout: ") && said.lines().count() == 1,
            "{said}"
        );
    }
    let change = bench(&["report", out, out]);
    assert!(text(&change.stdout).contains("new / old"));
    // Whoever wrote the file: what it says is text.
    let file = fs::read_to_string(out).unwrap();
    fs::write(out, file.replace("\"scored\"", "\"\\u001b[31mred\"")).unwrap();
    let shown = text(&bench(&["report", out]).stdout);
    assert!(
        shown.contains("\\u{1b}[31mred") && !shown.contains('\u{1b}'),
        "{shown}"
    );
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
            vec!["--suite", suite, "--no-mallow", "--peers", ""],
            "--no-mallow: no peer",
        ),
        (
            vec!["--suite", suite, "--no-mallow", "-n", "none"],
            "'none'",
        ),
        (
            vec!["--suite", suite, "--no-mallow", "-n", "-1"],
            "option --runs: bad value '-1'",
        ),
        (
            vec!["--suite", suite, "--only", ","],
            "option --only: bad value ','",
        ),
        (
            vec!["--suite", suite, "--kind", ""],
            "option --kind: bad value ''",
        ),
        (
            vec!["--suite", suite, "--explanations", "/no/explanations"],
            "option --explanations: '/no/explanations'",
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
    let picture = root.join("x.svg");
    for out in ["/tmp", "/dev/null/x.json", picture.to_str().unwrap()] {
        let output = bench(&[
            "--suite",
            suite,
            "--no-mallow",
            "--peers",
            "glibc",
            "--out",
            out,
        ]);
        assert_eq!(output.status.code(), Some(2), "{out}");
        let said = text(&output.stderr);
        assert!(said.contains(&format!("option --out: '{out}': ")), "{said}");
        assert!(!said.contains("loop"), "measured first: {said}");
    }
    let file = root.join("pages.json");
    fs::write(&file, r#"{"format": "mallow-pages-1"}"#).unwrap();
    let report = bench(&["report", file.to_str().unwrap()]);
    assert_eq!(report.status.code(), Some(125));
    let said = text(&report.stderr);
    assert!(said.contains("mallow-bench pages --show"), "{said}");
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
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("no benchmark has run: "), "{said}");
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

/// A latency program that prints its figures, or whose gate fails.
fn latency_script(gate: &str) -> String {
    let times = |subject: &str, ns: u32| {
        format!(
            r#"echo '{{"row":"times","mode":"churn-64","size":64,"unit":1,"threads":1,"subject":"{subject}","call":"both","faults":0,"switches":0,"count":1000000,"mean":{ns},"max":9000,"quantiles":[{ns},{ns},{ns},{ns},{ns},700],"machine":[0,0,0,0,0,500],"ppm":[1,0,0,0],"drift":1,"worst_window":1,"curve":[{ns},{ns}]}}'"#
        )
    };
    format!(
        r#"case "$*" in
*nosuch=1*) echo 'bench: unknown option nosuch=1' >&2; exit 1 ;;
*list) echo gate churn-64 | tr ' ' '\n'; exit 0 ;;
*gate) {gate} ;;
esac
case "$*" in *pin=1*fifo=2*churn-64) ;; *) exit 3 ;; esac
echo '{{"row":"machine","isolated":"1","nohz_full":"","clocksource":"tsc","rt_runtime_us":950000,"load":0.5,"pinned":1,"on_isolated":true,"fifo":true,"processors":1}}'
echo '{{"row":"timer","source":"rdtscp","ns_per_tick":0.4,"least_ns":10,"overhead_ns":10,"typical_ns":20,"step_ns":1}}'
{}
{}
echo '{{"row":"end","stolen_ms":0}}'"#,
        times("floor", 11),
        times("malloc", 42)
    )
}

#[test]
fn the_latency_run_begins_with_the_gate_and_shows_what_it_wrote() {
    let passes = latency_script("echo 'gate: NOTED: impossible sizes are refused'; exit 0");
    let root = programs("latency", &[("latency", &passes)]);
    let out = root.join("out/latency.json");
    let arguments = [
        "latency",
        "--no-mallow",
        "--peers",
        "glibc",
        "--quiet",
        "-n",
        "2",
        "--pin",
        "1",
    ];
    let output = bench_in(
        &root,
        &[&arguments[..], &["--out", out.to_str().unwrap()]].concat(),
    );
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let row = said.lines().find(|l| l.starts_with("glibc")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        (words[1], words[7], words.last()),
        ("42.0", "700", Some(&"200")),
        "{said}"
    );
    assert!(said.contains("note: glibc fails the gate's check 'impossible sizes are refused'"));
    assert!(
        said.contains("sched_rt_runtime_us") && !said.contains("NOT AN ISOLATED"),
        "{said}"
    );
    let picture = root.join("out/second.svg");
    let again = bench_in(
        &root,
        &[
            "latency",
            "--show",
            out.to_str().unwrap(),
            "--picture",
            picture.to_str().unwrap(),
        ],
    );
    assert_eq!(text(&again.stdout), said);
    assert!(picture.exists() && out.with_extension("svg").exists());
}

#[test]
fn a_file_of_another_experiment_names_the_command_that_shows_it() {
    let root = programs("formats", &[]);
    let forms = [
        ("mallow-bench-1", "report"),
        ("mallow-pages-1", "pages --show"),
        ("mallow-dispatch-1", "dispatch --show"),
        ("mallow-long-run-1", "long-run --show"),
        ("mallow-latency-1", "latency --show"),
    ];
    for (form, right) in forms {
        let path = root.join(form).with_extension("json");
        fs::write(&path, format!("{{\"format\": \"{form}\"}}")).unwrap();
        for (_, command) in forms.iter().filter(|(other, _)| *other != form) {
            let words: Vec<&str> = command.split(' ').chain(path.to_str()).collect();
            let output = bench_in(&root, &words);
            let said = text(&output.stderr);
            let shown = format!("mallow-bench {right} {}", path.display());
            assert_eq!(output.status.code(), Some(125), "{words:?}");
            assert!(said.contains(&shown), "{words:?}: {said}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_named_before_anything_is_run() {
    let root = programs("latency-usage", &[("latency", &latency_script("exit 0"))]);
    let out = root.join("latency.json");
    let _ = fs::remove_file(&out);
    for (flag, value, words) in [
        ("--set", "nosuch=1", "unknown option nosuch=1"),
        ("--only", "nosuch", "no mode 'nosuch'"),
        ("--pin", "last", "option --pin: bad value 'last'"),
        ("--picture", "/tmp", "option --picture: '/tmp'"),
        (
            "--picture",
            "/dev/null/x.svg",
            "option --picture: '/dev/null/x.svg'",
        ),
    ] {
        let to = out.to_str().unwrap();
        let peers = ["latency", "--no-mallow", "--peers", "glibc"];
        let output = bench_in(
            &root,
            &[&peers[..], &[flag, value, "--quiet", "--out", to]].concat(),
        );
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains(words),
            "{}",
            text(&output.stderr)
        );
        assert!(text(&output.stdout).is_empty() && !out.exists());
    }
}

#[test]
fn an_allocator_that_fails_the_gate_is_not_measured() {
    let fails = latency_script("echo 'gate: FAILED: calloc gives zeroes'; exit 1");
    let root = programs("latency-gate", &[("latency", &fails)]);
    let out = root.join("latency.json");
    let arguments = [
        "latency",
        "--no-mallow",
        "--peers",
        "glibc",
        "--quiet",
        "--pin",
        "1",
    ];
    let output = bench_in(
        &root,
        &[&arguments[..], &["--out", out.to_str().unwrap()]].concat(),
    );
    let said = text(&output.stdout);
    assert!(
        said.contains("PROBLEM: glibc: gate: exit status 1 gate: FAILED: calloc gives zeroes"),
        "{said}"
    );
    assert!(!said.contains("churn-64"), "{said}");
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

/// The real program, built here: a few seconds under glibc twice, which must do the same both times.
#[test]
fn a_long_run_in_short() {
    let root = programs("long-run", &[]);
    let bench = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    let program = root.join("build/bench/server_mix");
    let built = Command::new("cc")
        .args([
            "-std=gnu17",
            "-D_GNU_SOURCE",
            "-O2",
            "-fno-builtin",
            "-pthread",
            "-I",
        ])
        .arg(&bench)
        .arg(bench.join("macro/server_mix.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    let out = root.join("long.json");
    let out = out.to_str().unwrap();
    // Any library will do as another allocator: libm brings none, so this is glibc's again.
    let libm = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
    ];
    let again = libm.iter().find(|path| std::path::Path::new(path).exists());
    let peers = match again {
        Some(path) => format!("glibc,again={path}"),
        None => "glibc".into(),
    };
    let arguments = [
        "--minutes",
        "0.05",
        "--days",
        "2",
        "--no-mallow",
        "--quiet",
        "--out",
        out,
    ];
    let output = bench_in(
        &root,
        &[&["long-run", "--peers", &peers][..], &arguments].concat(),
    );
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!said.contains("PROBLEM"), "{said}");
    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(out).unwrap()).unwrap();
    assert_eq!(value["format"], "mallow-long-run-1");
    let samples = value["subjects"][0]["rss_kib"].as_array().unwrap().len();
    assert!(samples >= 4, "{samples} samples in three seconds");
    assert!(value["course"]["operations"].as_u64().unwrap() > 10_000);
    let begins = value["course"]["begins"].as_array().unwrap();
    assert_eq!(begins.len(), 2 * 6 + 2);
    assert!(root.join("long.svg").exists());
    let again = bench_in(&root, &["long-run", "--show", out]);
    assert_eq!(text(&again.stdout), said);
}

#[test]
fn a_program_that_does_something_else_the_second_time_is_found() {
    let script = "echo begin 0 0 day 1; echo live 0 5 5\n\
                  case $LD_PRELOAD in *libm.*) sum=bad;; *) sum=good;; esac; sleep 0.4\n\
                  echo end 10 $sum; echo own 1 2 3";
    let root = programs("long-differs", &[("server_mix", script)]);
    let libm = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
    ];
    let libm = libm
        .iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap();
    let peers = format!("glibc,other={libm}");
    let out = root.join("out.json");
    let arguments = [
        "long-run",
        "--no-mallow",
        "--quiet",
        "--minutes",
        "0.05",
        "--peers",
        &peers,
        "--out",
    ];
    let output = bench_in(&root, &[&arguments[..], &[out.to_str().unwrap()]].concat());
    let said = text(&output.stdout);
    assert!(
        said.contains("PROBLEM: other: it did not do the same operations"),
        "{said}"
    );
    assert!(!said.contains("PROBLEM: glibc"), "{said}");
    let refused = bench_in(&root, &["long-run", "--no-mallow", "--minutes", "never"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("'never'"));
}
