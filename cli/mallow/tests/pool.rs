// SPDX-License-Identifier: MIT
//! `mallow pool` as a user calls it: plans, presets, errors, and the way from a recorded program to a
//! pool that serves it. Recorder and programs are compiled here.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("mallow-pool")
        .join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn mallow(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn config(directory: &Path, words: &str) -> PathBuf {
    let path = directory.join("pool.conf");
    fs::write(&path, words).unwrap();
    path
}

#[test]
fn a_plan_has_capacities_bounds_and_code() {
    let path = config(
        &scratch("plan"),
        "# two classes\n[pool]\nclass=4096,count=10,align=4096\nclass=100,count=1000\nremote=on\n",
    );
    let output = mallow(&["pool", "plan", text(&path)]);
    assert!(output.status.success(), "{}", said(&output));
    let out = printed(&output);
    for wanted in [
        "40,960",        // bytes of class 0
        "112,000",       // of class 1, rounded to 112
        "152,960 bytes", // blocks
        "system calls: 0",
        "free by another thread",
        "{.size_bytes = 4096, .alignment_bytes = 4096, .block_count = 10}",
        ".remote = true",
    ] {
        assert!(out.contains(wanted), "{wanted}\n{out}");
    }
    assert!(
        !out.contains("prefault"),
        "the file says nothing of it\n{out}"
    );
    let preset = printed(&mallow(&["pool", "plan", "--preset", "balanced"]));
    assert!(preset.contains(".prefault = true"), "{preset}");
    let short = printed(&mallow(&["pool", "plan", text(&path), "--no-snippet"]));
    assert!(!short.contains("#include") && out.starts_with(&short));
}

#[test]
fn the_code_compiles() {
    let directory = scratch("snippet");
    let output = printed(&mallow(&["pool", "plan", "--preset", "balanced"]));
    let code = output.split_once("#include").unwrap().1;
    let (top, rest) = code.split_once("const struct mw_pool_config").unwrap();
    let source = directory.join("snippet.c");
    let program = format!(
        "#include{top}\n#include <stdlib.h>\nint main(void) {{\nconst struct mw_pool_config{rest}return 0;\n}}\n"
    );
    fs::write(&source, program).unwrap();
    let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let built = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-I",
        ])
        .arg(include)
        .arg(&source)
        .status();
    assert!(built.unwrap().success());
}

#[test]
fn output_that_fails_is_an_error_of_one_line() {
    let full = fs::File::create("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(["pool", "plan", "--preset", "balanced"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(
        said(&output).starts_with("mallow: stdout: "),
        "{}",
        said(&output)
    );
    assert_eq!(said(&output).lines().count(), 1);
}

#[test]
fn every_preset_can_be_planned_and_sized() {
    let list = printed(&mallow(&["pool", "plan", "--preset", "list"]));
    let names: Vec<&str> = list
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(names.len() >= 7 && names.contains(&"balanced"), "{list}");
    for name in names {
        let output = mallow(&["pool", "plan", "--preset", name, "--size", "4M"]);
        assert!(
            printed(&output).contains("4,194,304 bytes"),
            "{name}: {}",
            said(&output)
        );
    }
    let sized = mallow(&["pool", "plan", "--preset", "list", "--size", "4M"]);
    assert_eq!(
        (sized.status.code(), printed(&sized).as_str()),
        (Some(2), "")
    );
    assert!(said(&sized).contains("--size") && said(&sized).contains("list"));
    let unknown = mallow(&["pool", "plan", "--preset", "fastest"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("'fastest'") && said(&unknown).contains("balanced"));
}

#[test]
fn what_belongs_to_a_trace_is_refused_without_one() {
    let directory = scratch("of-a-trace");
    let path = config(&directory, "pool_size=1M\nclass=16,100\n");
    let out = directory.join("out.conf");
    for arguments in [
        vec!["--counts"],
        vec!["--classes", "3"],
        vec!["--max-size", "1K"],
        vec!["--out", text(&out)],
    ] {
        for source in [vec![text(&path)], vec!["--preset", "hft"]] {
            let words = [vec!["pool", "plan"], source, arguments.clone()].concat();
            let output = mallow(&words);
            assert_eq!(output.status.code(), Some(2), "{words:?}");
            assert!(said(&output).contains(arguments[0]), "{}", said(&output));
        }
    }
}

#[test]
fn errors_name_the_line_and_the_value() {
    let directory = scratch("errors");
    for (words, line, value) in [
        (
            "pool_size=1M\nclass=16,50\nclass=64,lots\n",
            3,
            "class=64,lots",
        ),
        ("pool_size=many\n", 1, "pool_size=many"),
        ("pool_size=1M\n\ncolour=red\n", 3, "colour=red"),
        (
            "pool_size=1M\nclass=16,100\nprefault=perhaps\n",
            3,
            "prefault=perhaps",
        ),
        ("pool_size=1M\nnonsense\n", 2, "nonsense"),
        ("pool_size=1M\nclass=16,50\nclass=0,50\n", 3, "class=0,50"),
        (
            "pool_size=1M\nclass=64,50\n# again\nclass=64,50\n",
            4,
            "class=64,50",
        ),
        ("pool_size=1M\nclass=64,50\nclass=4M,50\n", 3, "class=4M,50"),
        (
            "pool_size=1M\nclass=64,50\nclass=128,50,align=48\n",
            3,
            "class=128,50,align=48",
        ),
    ] {
        let path = config(&directory, words);
        let output = mallow(&["pool", "plan", text(&path)]);
        assert_eq!(output.status.code(), Some(1), "{words}");
        let start = format!("mallow: {}:{line}: '{value}': ", text(&path));
        assert!(
            said(&output).starts_with(&start),
            "{words}\n{}",
            said(&output)
        );
    }
    let path = config(&directory, "pool_size=1M\nclass=16,50\nclass=64,49\n");
    let sum = said(&mallow(&["pool", "plan", text(&path)]));
    assert!(
        sum.contains("99 %") && sum.contains("pool_size=1048576"),
        "{sum}"
    );
    let path = config(&directory, "pool_size=1M\nclass=16,50\nclass=0,50\n");
    let sized = said(&mallow(&["pool", "plan", text(&path), "--size", "2M"]));
    assert!(sized.contains(":3: 'class=0,50': "), "{sized}");
    let path = config(&directory, "[alocator]\npool_size=1M\nclass=16,100\n");
    let passed_over = said(&mallow(&["pool", "plan", text(&path)]));
    assert!(
        passed_over.contains("line 1: what follows '[alocator]' is passed over"),
        "{passed_over}"
    );
    let path = config(&directory, "class=16,100\n");
    let without = said(&mallow(&["pool", "plan", text(&path)]));
    assert!(!without.contains("''"), "{without}");
    let sized = mallow(&["pool", "plan", text(&path), "--size", "1M"]);
    assert!(sized.status.success(), "{}", said(&sized));
    let path = directory.join("pool.conf");
    fs::write(&path, b"# caf\xe9\npool_size=1M\nclass=16,100\n").unwrap();
    assert!(mallow(&["pool", "plan", text(&path)]).status.success());
    for (path, why) in [
        ("/nonexistent.conf", "No such file"),
        ("/tmp", "directory"),
        ("/dev/zero", "is no configuration"), // and it does not end
    ] {
        for arguments in [
            vec!["pool", "plan", path],
            vec!["pool", "replay", "--pool", path, "/nonexistent.trace"],
        ] {
            let output = mallow(&arguments);
            assert_eq!(output.status.code(), Some(125), "{path}");
            assert!(
                said(&output).starts_with(&format!("mallow: {path}: "))
                    && said(&output).contains(why),
                "{}",
                said(&output)
            );
        }
    }
}

#[test]
fn what_stands_in_a_file_does_not_reach_the_terminal_as_it_is() {
    let path = scratch("garbage").join("pool.conf");
    fs::write(&path, [b"\x1b[2Jhi\x07".as_slice(), &[b'x'; 5000]].concat()).unwrap();
    let output = mallow(&["pool", "plan", text(&path)]);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains(r"\u{1b}[2Jhi\u{7}xxx") && said.contains("xxx...': "),
        "{said}"
    );
    assert!(said.len() < 400 && said.lines().count() == 1, "{said}");
}

/// Every row of the table of budgets is what a pool with so many blocks needs, and refuses.
fn smaller_pools_refuse_what_the_plan_says(at: &Path, table: &str, counts: &Path, trace: &Path) {
    let words = fs::read_to_string(counts).unwrap();
    for percent in [100, 95, 90, 75, 50, 25] {
        let row = format!("{percent} %");
        let row = table.lines().find(|line| line.starts_with(&row)).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        let part = |line: &str| match line.split_once(",count=") {
            None => line.to_string(),
            Some((size, rest)) => {
                let (count, rest) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                let count = (count.parse::<u64>().unwrap() * percent / 100).max(1);
                format!("{size},count={count}{rest}")
            }
        };
        let smaller: Vec<String> = words.lines().map(part).collect();
        let path = at.join("smaller.conf");
        fs::write(&path, smaller.join("\n")).unwrap();
        let plan = printed(&mallow(&["pool", "plan", text(&path)]));
        assert!(
            plan.contains(&format!("pool      {} bytes", cells[2])),
            "{row}\n{plan}"
        );
        let replayed = mallow(&["pool", "replay", "--pool", text(&path), text(trace)]);
        let out = printed(&replayed);
        assert!(
            out.contains(&format!(", {} refused", cells[3])),
            "{row}\n{out}"
        );
    }
}

/// Records a program of the machine, derives a pool, replays: no refusal. A pool with a block less in
/// a class refuses.
fn from_recording_to_pool(name: &str, variables: &[(&str, &str)], command: &[&str]) {
    let directory = scratch(name);
    let recorder = directory.join("libmallow-record.so");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../recorder");
    let sources = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let built = Command::new("cc")
        .args([
            "-std=gnu17",
            "-O1",
            "-fno-builtin",
            "-D_GNU_SOURCE",
            "-shared",
            "-fPIC",
            "-o",
        ])
        .arg(&recorder)
        .args(sources.filter(|path| path.extension().is_some_and(|e| e == "c")))
        .status();
    assert!(built.unwrap().success());
    let prefix = directory.join("t");
    let recorded = Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args([
            "record",
            "-o",
            text(&prefix),
            "--recorder",
            text(&recorder),
            "--",
        ])
        .args(command)
        .envs(variables.iter().copied())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    let traces = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let traces = traces.filter(|path| path.extension().is_some_and(|e| e == "trace"));
    let trace = traces
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();

    for more in [&[][..], &["--counts"], &["--classes", "3"]] {
        let out = directory.join("derived.conf");
        let mut arguments = vec!["pool", "plan", "--from", text(&trace), "--out", text(&out)];
        arguments.extend(more);
        let derived = mallow(&arguments);
        assert!(derived.status.success(), "{}", said(&derived));
        let budget = printed(&derived);
        let whole = budget
            .lines()
            .find(|line| line.starts_with("100 %"))
            .unwrap();
        assert!(
            whole.ends_with(" 0         0.0000") || whole.contains(" 0 "),
            "{whole}"
        );
        let quarter = budget
            .lines()
            .find(|line| line.starts_with("25 %"))
            .unwrap();
        assert!(!quarter.ends_with(" 0.0000"), "{quarter}");
        if more == &["--counts"] {
            smaller_pools_refuse_what_the_plan_says(&directory, &budget, &out, &trace);
        }
        let replayed = mallow(&["pool", "replay", "--pool", text(&out), text(&trace)]);
        assert!(
            printed(&replayed).contains(", 0 refused"),
            "{}{}",
            printed(&replayed),
            said(&replayed)
        );
        assert_eq!(replayed.status.code(), Some(0));
    }

    // The exact numbers are the least: one block less in the first class, and it refuses.
    let out = directory.join("counts.conf");
    let nobody = fs::File::create("/dev/full").unwrap(); // what is printed is lost, the file is not
    Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(["pool", "plan", "--counts", "--from", text(&trace), "--out"])
        .arg(&out)
        .stdout(nobody)
        .output()
        .unwrap();
    let words = fs::read_to_string(&out).unwrap();
    assert!(words.contains("prefault=on"), "as in the code: {words}");
    let line = words
        .lines()
        .find(|line| line.starts_with("class="))
        .unwrap();
    let (size, count) = line.split_once(",count=").unwrap();
    let fewer = format!("{size},count={}", count.parse::<u64>().unwrap() - 1);
    fs::write(&out, words.replacen(line, &fewer, 1)).unwrap();
    let replayed = mallow(&["pool", "replay", "--pool", text(&out), text(&trace)]);
    assert_eq!(replayed.status.code(), Some(1), "{}", printed(&replayed));
    assert!(!printed(&replayed).contains(", 0 refused"));
}

#[test]
fn a_recorded_shell_is_served() {
    let script = "for i in 1 2 3 4 5 6 7 8; do x=\"$x$x$i\"; done; echo ${#x}";
    from_recording_to_pool("shell", &[], &["sh", "-c", script]);
}

#[test]
fn a_recorded_python_is_served() {
    if !Path::new("/usr/bin/python3").exists() {
        return; // Debian has it wherever the tests can be built; elsewhere the shell must do
    }
    let code = "import json\nx = [{'a': i, 'b': str(i) * (i % 50)} for i in range(3000)]\n\
                y = json.loads(json.dumps(x))\ny.sort(key=lambda r: r['b'])\nprint(len(y))";
    from_recording_to_pool(
        "python",
        &[("PYTHONMALLOC", "malloc")],
        &["/usr/bin/python3", "-S", "-c", code],
    );
}

#[test]
fn a_replay_says_what_is_wrong() {
    let directory = scratch("replay");
    let path = config(&directory, "class=64,count=1\nfallback=on\n");
    let output = mallow(&[
        "pool",
        "replay",
        "--pool",
        text(&path),
        "/nonexistent.trace",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("fallback"));
    let path = config(&directory, "class=64,count=1\n");
    let output = mallow(&[
        "pool",
        "replay",
        "--pool",
        text(&path),
        "/nonexistent.trace",
    ]);
    assert_eq!(output.status.code(), Some(125));
    let output = mallow(&["pool", "plan", "--from", text(&path)]);
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("no trace"), "{}", said(&output));
    let output = mallow(&["pool", "plan", "--from", "/tmp"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("directory"), "{}", said(&output));
}

/// A pool for a part of a run is no pool for the run.
#[test]
fn a_trace_that_ends_early_is_said_to() {
    let directory = scratch("cut");
    let mut bytes = vec![0; 4096];
    bytes[..8].copy_from_slice(b"mwtrace\0");
    bytes[8] = 1; // version
    bytes[13] = 0x10; // bytes of the header
    bytes[16] = 3; // of the record
    bytes[24] = 1; // records
    bytes[256..259].copy_from_slice(b"job");
    bytes.extend([1, 10, 64]); // a block of 64 bytes
    let trace = directory.join("t.1.trace");
    let (out, path) = (directory.join("out.conf"), text(&trace));
    for (cut, wanted) in [(0, ""), (28, "t.1.trace ends early: No space left")] {
        bytes[40] = u8::from(cut != 0); // flags
        bytes[44] = cut; // ENOSPC
        fs::write(&trace, &bytes).unwrap();
        let planned = mallow(&["pool", "plan", "--from", path, "--out", text(&out)]);
        let replayed = mallow(&["pool", "replay", "--pool", text(&out), path]);
        for output in [planned, replayed] {
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            assert!(said(&output).contains(wanted), "{}", said(&output));
            assert_eq!(said(&output).lines().count(), usize::from(cut != 0));
        }
        let words = fs::read_to_string(&out).unwrap();
        assert_eq!(words.contains("ended before the program did"), cut != 0);
    }
}

/// The status and the body of one request to `mallow pool page`.
fn asked(address: &str, request: &str) -> (String, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().strip_prefix("HTTP/1.1 ");
    (status.unwrap().to_string(), body.to_string())
}

#[test]
fn the_page_says_what_the_plan_says() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(["pool", "page"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    let address = address.strip_suffix('/').unwrap().to_string();
    let post = |body: &str| {
        let length = body.len();
        let head = format!("POST /plan HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}");
        asked(&address, &format!("{head}\r\n\r\n{body}"))
    };
    let (status, html) = asked(
        &address,
        &format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n"),
    );
    assert!(status == "200 OK" && html.contains("<textarea"), "{status}");

    let directory = scratch("page");
    for words in [
        "pool_size=64M\nclass=64,60\nclass=256,30,align=64\nclass=1024,10\nprefault=on\n",
        "class=4096,count=10,align=4096\nclass=100,count=1000\nremote=on\n",
    ] {
        let path = config(&directory, words);
        let printed = printed(&mallow(&["pool", "plan", text(&path)]));
        let (status, body) = post(words);
        assert_eq!(status, "200 OK");
        assert!(printed.ends_with(&body), "{printed}\n{body}"); // but for its title
    }
    let (status, body) = post("pool_size=1M\nclass=0,50\nclass=16,50\n");
    assert_eq!(status, "422 Unprocessable Content");
    assert!(body.starts_with("line:2: 'class=0,50': "), "{body}");
    let large =
        format!("POST /plan HTTP/1.1\r\nHost: {address}\r\nContent-Length: 99999999\r\n\r\n");
    assert_eq!(asked(&address, &large).0, "413 Content Too Large");
    let other = asked(&address, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!(other.0, "403 Forbidden");
    // Browsers open connections that they do not use yet.
    let idle = std::net::TcpStream::connect(&address).unwrap();
    let start = std::time::Instant::now();
    assert_eq!(post("pool_size=1M\nclass=16,100\n").0, "200 OK");
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
    drop(idle);
    // A second one at the same port is refused, with the reason.
    let port = address.rsplit(':').next().unwrap();
    let second = mallow(&["pool", "page", "--port", port]);
    assert_eq!(second.status.code(), Some(125));
    assert!(said(&second).contains(port), "{}", said(&second));
    server.kill().unwrap();
    server.wait().unwrap();
}
