// SPDX-License-Identifier: MIT
//! The recorder on small programs that end, fork and execute in every way, and on real ones.

mod recording;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use recording::{compile, mallow, program, record, recorder, scratch, PRELUDE};

#[test]
fn every_kind_of_call_is_recorded_exactly() {
    let code = r#"
int main(void) {
    char *a = malloc(70001);
    char *b = calloc(3, 70003);
    void *c = NULL;
    if (posix_memalign(&c, 4096, 70007) != 0 || malloc_usable_size(a) != 70001) return 1;
    a = realloc(a, 70009);
    if (malloc_usable_size(a) != 70009) return 2;
    void *volatile none = realloc(b, (size_t)-1 / 4);
    if (none != NULL) return 3;
    none = malloc((size_t)-1 / 2);
    if (none != NULL) return 4;
    none = calloc((size_t)-1 / 2, 16);
    if (none != NULL) return 5;
    none = reallocarray(NULL, (size_t)-1 / 2, 16);
    if (none != NULL) return 7;
    none = reallocarray(b, (size_t)-1 / 2, 16);
    if (none != NULL) return 8;
    none = pvalloc((size_t)-1);
    if (none != NULL) return 9;
    free(aligned_alloc(64, 70013));
    free(c);
    if (realloc(b, 0) != NULL) return 6;
    void *d = reallocarray(NULL, 7, 10003);
    (void)d;
    free(NULL);
    free(a);
    return 0;
}"#;
    let run = record("calls", &[program("calls", code).to_str().unwrap()]);
    assert!(run.output.status.success(), "{:?}", run.output);
    assert_eq!(run.traces.len(), 1);
    let trace = &run.traces[0];
    assert!(trace.head.contains(", ended") && !trace.head.contains("CUT"));
    let first = trace
        .lines
        .iter()
        .position(|l| l.ends_with(" 70001"))
        .unwrap();
    let id: u64 = trace.lines[first]
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let (a, b, c, e, d) = (id, id + 1, id + 2, id + 3, id + 4);
    let huge = u64::MAX / 4;
    let expected = [
        format!("allocate {a} 70001"),
        format!("allocate {b} 210009 zeroed"),
        format!("allocate {c} 70007 align=4096"),
        format!("resize {a} 70009"),
        format!("resize-refused {b} {huge}"),
    ];
    assert_eq!(trace.lines[first..first + 5], expected);
    let expected = [
        format!("allocate {e} 70013 align=64"),
        format!("free {e}"),
        format!("free {c}"),
        format!("free {b}"),
        format!("allocate {d} 70021"),
        format!("free {a}"),
    ];
    let half = u64::MAX / 2;
    let most = u64::MAX;
    let refused = [
        format!("refused {half}"),
        format!("refused {most}"),
        format!("refused {most}"),
        format!("resize-refused {b} {most}"),
    ];
    assert_eq!(trace.lines[first + 5..first + 9], refused);
    assert!(trace.lines[first + 9].starts_with("refused "));
    assert_eq!(trace.lines[first + 10..first + 16], expected);
}

#[test]
fn nothing_is_lost_however_the_process_ends() {
    let code = r#"
int main(int argc, char **argv) {
    for (int i = 0; i < 200000; i++) free(malloc(777));
    void *volatile kept = malloc(778);
    (void)kept; (void)argc;
    switch (argv[1][0]) {
    case 'k': kill(getpid(), SIGKILL); break;
    case 'a': abort();
    case 'q': _exit(7);
    case 'e': execl("/bin/true", "true", NULL); break;
    case 'r': return 7;
    default: exit(7);
    }
    return 1;
}"#;
    let path = program("ends", code);
    for (how, status) in [
        ("k", 137),
        ("a", 134),
        ("q", 7),
        ("e", 0),
        ("r", 7),
        ("x", 7),
    ] {
        let run = record(&format!("ends-{how}"), &[path.to_str().unwrap(), how]);
        assert_eq!(run.output.status.code(), Some(status), "{how}");
        let own = run.with(778);
        assert_eq!(own.len(), 1, "{how}");
        let sizes = own[0].sizes();
        assert_eq!(
            sizes.iter().filter(|&&s| s == 777).count(),
            200_000,
            "{how}"
        );
        assert!(own[0].live().values().any(|&size| size == 778), "{how}");
        assert!(own[0].count("free") >= 200_000, "{how}");
        assert_eq!(own[0].head.contains(", ended"), "rx".contains(how), "{how}");
    }
}

#[test]
fn a_forked_child_has_a_trace_of_its_own_with_what_it_inherited() {
    let code = r#"
static void child(void *inherited) {
    free(inherited);
    void *volatile own = malloc(30003);
    (void)own;
    _exit(0);
}
int main(int argc, char **argv) {
    (void)argc;
    char *inherited = malloc(30001);
    char *kept = memalign(128, 30002);
    (void)kept;
    for (int i = 0; i < 3; i++) {
        // Without the C library's fork handlers, too.
        const pid_t pid = argv[1][0] == 'f' ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) child(inherited);
        int status = 1;
        if (waitpid(pid, &status, 0) != pid || status != 0) return 1;
        free(malloc(30004));
    }
    const pid_t silent = fork();
    if (silent == 0) exit(0);
    waitpid(silent, NULL, 0);
    return 0;
}"#;
    let path = program("forks", code);
    for how in ["f", "c"] {
        let run = record(&format!("forks-{how}"), &[path.to_str().unwrap(), how]);
        assert!(run.output.status.success(), "{:?}", run.output);
        let children = run.with(30003);
        assert_eq!(children.len(), 3);
        for child in children {
            assert!(child.head.contains(", forked"));
            assert!(!child.sizes().contains(&30004));
            assert_eq!(child.count("unknown"), 0);
            assert_eq!(
                child
                    .lines
                    .iter()
                    .filter(|l| l.contains("align=128 inherited"))
                    .count(),
                1
            );
            let live: Vec<u64> = child.live().into_values().collect();
            assert!(live.contains(&30002) && live.contains(&30003) && !live.contains(&30001));
        }
        let parents = run.with(30004);
        assert_eq!(parents.len(), 1);
        assert!(!parents[0].sizes().contains(&30003));
        assert!(parents[0].live().into_values().any(|size| size == 30001));
        assert_eq!(
            run.traces.len(),
            4,
            "a child that calls nothing leaves no file"
        );
    }
}

#[test]
fn an_executed_program_writes_a_second_file() {
    let script = "exec sh -c 'exec sh -c \"ulimit -n; :\"'";
    let run = record("exec", &["sh", "-c", script]);
    assert!(run.output.status.success());
    let names: Vec<&str> = run.traces.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        names[0].ends_with(".2.trace") && names[1].ends_with(".3.trace"),
        "{names:?}"
    );
}

#[test]
fn threads_that_hand_blocks_on_and_fork_leave_a_possible_order() {
    let code = r#"
static _Atomic(void *) box[64];
static void *work(void *seed) {
    unsigned x = (unsigned)(size_t)seed * 2654435761u + 1;
    for (int i = 0; i < 60000; i++) {
        x = x * 1664525u + 1013904223u;
        void *new = malloc(16 + (x >> 20) % 300);
        if ((x >> 8) % 4 == 0) new = realloc(new, 16 + (x >> 16) % 9000);
        free(__atomic_exchange_n((void **)&box[(x >> 10) % 64], new, __ATOMIC_ACQ_REL));
        if (i % 20000 == 10000) {
            const pid_t pid = fork();
            if (pid == 0) {
                for (int k = 0; k < 64; k++) free(box[k]);
                _exit(0);
            }
            int status = 1;
            if (waitpid(pid, &status, 0) != pid || status != 0) abort();
        }
    }
    return NULL;
}
int main(void) {
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    for (int k = 0; k < 64; k++) free(box[k]);
    return 0;
}"#;
    // `shown` has checked every free and resize of every trace against what lived.
    let run = record("threads", &[program("threads", code).to_str().unwrap()]);
    assert!(run.output.status.success(), "{:?}", run.output);
    assert_eq!(run.traces.len(), 1 + 6 * 3);
    let parent = run
        .traces
        .iter()
        .find(|t| !t.head.contains("forked"))
        .unwrap();
    assert!(parent.head.contains(" 7 threads") || parent.head.contains(" 6 threads"));
    assert!(parent.count("allocate") >= 6 * 60000);
    for trace in &run.traces {
        assert_eq!(trace.count("unknown"), 0, "{}", trace.name);
    }
}

#[test]
fn fork_handlers_may_allocate_and_descriptors_may_be_closed() {
    let code = r#"
static void handler(void) { free(malloc(41)); }
__attribute__((constructor)) static void early(void) { pthread_atfork(handler, handler, handler); }
int main(void) {
    for (int i = 3; i < 4096; i++) close(i);
    for (int i = 0; i < 1200000; i++) free(malloc(42)); // more than one window
    const pid_t pid = fork();
    if (pid == 0) { free(malloc(43)); _exit(0); }
    int status = 1;
    return waitpid(pid, &status, 0) == pid ? status : 1;
}"#;
    let run = record("handlers", &[program("handlers", code).to_str().unwrap()]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let own = run.with(42);
    assert_eq!(own.len(), 1);
    assert_eq!(
        own[0].sizes().iter().filter(|&&s| s == 42).count(),
        1_200_000
    );
    assert_eq!(own[0].sizes().iter().filter(|&&s| s == 41).count(), 2);
    assert_eq!(
        run.with(43)[0].sizes().iter().filter(|&&s| s == 41).count(),
        1
    );
}

#[test]
fn a_full_disk_cuts_the_trace_and_not_the_program() {
    let code = r#"
int main(void) {
    const struct rlimit limit = {400000, 400000}; // beyond it the kernel sends SIGXFSZ to who writes
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 1000000; i++) free(malloc(55));
    puts("went on");
    return 0;
}"#;
    let run = record("full", &[program("full", code).to_str().unwrap()]);
    assert!(run.output.status.success());
    assert_eq!(run.output.stdout, b"went on\n");
    assert_eq!(run.traces.len(), 1);
    assert!(run.traces[0].head.contains("CUT"));
    assert!(run.traces[0].count("allocate") > 10_000);
    let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
    assert!(said.contains("ends early"), "{said}");
}

#[test]
fn a_file_that_cannot_begin_leaves_the_program_and_no_file() {
    for kib in ["0", "4"] {
        let script = format!("ulimit -f {kib}; exec ls -d /");
        let run = record("none", &["bash", "-c", &script]);
        assert_eq!(run.output.status.code(), Some(0));
        assert_eq!(run.output.stdout, b"/\n");
        assert_eq!(run.traces.len(), 1); // bash's own, from before
        let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
        assert!(said.contains("nothing is recorded"), "{said}");
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_a_warning() {
    let folder = scratch().join("emptied-traces");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let prefix = folder.join("t");
    let recorder = recorder().to_str().unwrap();
    let prefix = prefix.to_str().unwrap();
    let output = mallow(&[
        "record",
        "-o",
        prefix,
        "--recorder",
        recorder,
        "--",
        "perl",
        "-e",
        r#"open(my $f, '>', "$ENV{MW_RECORD}.7.trace"); close $f; exit 3"#,
    ]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("t.7.trace: is no trace"), "{said}");
    assert!(said.contains("perl -e"), "{said}"); // the other is in the table
}

#[test]
fn the_recorder_itself_cannot_allocate() {
    let listed = Command::new("nm")
        .arg("-D")
        .arg("--undefined-only")
        .arg(recorder())
        .output();
    let text = String::from_utf8(listed.unwrap().stdout).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let names: Vec<&str> = names.map(|n| n.split('@').next().unwrap()).collect();
    assert!(names.contains(&"__libc_malloc"));
    for name in [
        "malloc", "calloc", "realloc", "free", "memalign", "fopen", "dlsym", "strdup",
    ] {
        assert!(!names.contains(&name), "{name}");
    }
}

#[test]
fn the_commands_status_and_output_are_its_own() {
    let run = record("status", &["sh", "-c", "echo here; exit 3"]);
    assert_eq!(run.output.status.code(), Some(3));
    assert_eq!(run.output.stdout, b"here\n");
    let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
    assert!(
        said.contains(".trace") && said.contains("echo here"),
        "{said}"
    );
}

#[test]
fn a_command_without_allocations_keeps_its_status_and_leaves_no_file() {
    let path = program("quiet", "int main(void) { return 4; }");
    let run = record("quiet", &[path.to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(4));
    assert!(run.traces.is_empty());
    let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
    assert!(said.contains("nothing was recorded"), "{said}");
}

#[test]
fn bad_calls_fail_clearly() {
    let nowhere = mallow(&["record", "-o", "/nonexistent/t", "--", "true"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let missing = mallow(&["record", "--recorder", "/nonexistent.so", "--", "true"]);
    assert_eq!(missing.status.code(), Some(125));
    let unknown = mallow(&["record", "--", "no-such-command-here"]);
    assert_eq!(unknown.status.code(), Some(127));
    for prefix in ["/tmp/", "/dev/null/t"] {
        let nowhere = mallow(&["record", "-o", prefix, "--", "true"]);
        assert_eq!(nowhere.status.code(), Some(2), "{prefix}");
    }
    let negative = mallow(&["trace", "--thread", "-1", "t"]);
    assert_eq!(negative.status.code(), Some(2));
    let said = String::from_utf8_lossy(&negative.stderr).into_owned();
    assert!(said.contains("'-1' for '--thread <N>'"), "{said}");
    let trace = mallow(&["trace", "/nonexistent.trace"]);
    assert_eq!(trace.status.code(), Some(125));
}

/// Rows of `mallow trace --csv`, without the first line, as words.
fn csv(path: &Path, arguments: &[&str]) -> Vec<Vec<String>> {
    let mut all = vec!["trace", "--csv", path.to_str().unwrap()];
    all.extend(arguments);
    let output = mallow(&all);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let head = "time_us,thread,operation,id,size,size_before,alignment,zeroed,inherited,scope,text";
    assert_eq!(lines.next(), Some(head));
    let words = |line: &str| line.split(',').map(str::to_string).collect::<Vec<_>>();
    lines.map(words).collect()
}

const CSV_PROGRAM: &str = r#"
static void *other(void *nothing) { free(malloc(90001)); return nothing; }
int main(void) {
    static char *kept[3];
    pthread_t thread;
    for (int i = 0; i < 3; i++) kept[i] = malloc(80000 + i);
    pthread_create(&thread, NULL, other, NULL);
    pthread_join(thread, NULL);
    usleep(50000);
    kept[0] = realloc(kept[0], 80100);
    free(kept[1]);
    return malloc((size_t)-1 / 2) != NULL;
}"#;

#[test]
fn csv_says_all_that_the_text_says_and_what_frees_give_back() {
    let run = record("csv", &[program("csv", CSV_PROGRAM).to_str().unwrap()]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let path = scratch().join("csv-traces").join(&run.traces[0].name);
    let rows = csv(&path, &[]);
    assert_eq!(rows.len(), run.traces[0].lines.len());
    // Replayed, it leaves the same blocks; and each size before is what the block had.
    let mut live = BTreeMap::new();
    for row in &rows {
        assert_eq!(row.len(), 11, "{row:?}");
        let number = |at: usize| row[at].parse::<u64>().ok();
        let before = match row[2].as_str() {
            "allocate" => live.insert(number(3), number(4)),
            "resize" => live.insert(number(3), number(4)),
            "free" => live.remove(&number(3)),
            _ => continue,
        };
        assert_eq!(before.flatten(), number(5), "{row:?}");
    }
    let expected = run.traces[0].live();
    let live: BTreeMap<u64, u64> = live
        .into_iter()
        .map(|(id, size)| (id.unwrap(), size.unwrap()))
        .collect();
    assert_eq!(live, expected);
    assert!(rows.iter().any(|row| row[2] == "refused"));
}

#[test]
fn filters_leave_the_records_that_meet_all_of_them() {
    let run = record(
        "filters",
        &[program("filters", CSV_PROGRAM).to_str().unwrap()],
    );
    let path = scratch().join("filters-traces").join(&run.traces[0].name);
    let wanted = |arguments: &[&str]| {
        let short = |row: &Vec<String>| format!("{} {}{}", row[2], row[4], row[5]);
        csv(&path, arguments).iter().map(short).collect::<Vec<_>>()
    };
    let ours = ["--min-size", "80000", "--max-size", "99999"];
    let all = [
        "allocate 80000",
        "allocate 80001",
        "allocate 80002",
        "allocate 90001",
        "free 90001",
        "resize 8010080000",
        "free 80001",
    ];
    assert_eq!(wanted(&ours), all);
    let with = |more: &[&str]| wanted(&[&ours[..], more].concat());
    assert_eq!(with(&["--only", "free,resize"]), all[4..]);
    assert_eq!(with(&["--thread", "1"]), all[3..5]);
    assert_eq!(with(&["--since", "0.05"]), all[5..]);
    assert_eq!(with(&["--until", "0.05"]), all[..5]);
    // By the size that the block has at the end, whatever it was born with.
    assert_eq!(with(&["--live"]), ["allocate 80100", "allocate 80002"]);
    let larger = ["--live", "--min-size", "80050"];
    assert_eq!(wanted(&larger)[0], "allocate 80100");
    let smaller = ["--live", "--min-size", "80000", "--max-size", "80050"];
    assert_eq!(wanted(&smaller), ["allocate 80002"]);
    assert_eq!(wanted(&["--only", "refused"]).len(), 1);
    // What a pipe brings can be read once.
    for (option, code, words) in [("--csv", 0, ""), ("--live", 2, "read twice")] {
        let script = format!("cat \"$1\" | \"$0\" trace {option} /dev/stdin");
        let piped = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_mallow")])
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(piped.status.code(), Some(code), "{piped:?}");
        let said = String::from_utf8_lossy(&piped.stderr);
        assert!(said.contains(words), "{said}");
    }
    let text = mallow(&[
        "trace",
        path.to_str().unwrap(),
        "--live",
        "--min-size",
        "80K",
    ]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert_eq!(
        text.lines().filter(|line| !line.starts_with('#')).count(),
        0
    );
    for (bad, word) in [
        ("--only frees", "frees"),
        ("--since -1", "'-1' for '--since"),
        ("--min-size x", "x"),
        ("--min-size -1", "'-1' for '--min-size"),
        (
            "--min-size 2K --max-size 1K",
            "--min-size is above --max-size",
        ),
        ("--since 2 --until 1.5", "--since is above --until"),
        ("--thread 2", "--thread"),
        ("--scopes --live", "--live"),
        ("--scope nosuch", "no scope nosuch"),
        ("--head --only free", "--only"),
    ] {
        let words: Vec<&str> = bad.split(' ').collect();
        let output = mallow(&[&["trace", path.to_str().unwrap()], &words[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(word),
            "{output:?}"
        );
    }
}

/// The header is C11 and C++11, and needs nothing to be linked, whatever kind of program it is.
const NOTES_PROGRAM: &str = r#"
#include <mallow/record.h>
static void *other(void *nothing) { mw_record_mark("in, \"another\""); free(malloc(60001)); return nothing; }
int main(void) {
    pthread_t thread;
    char text[32], longest[400];
    void *kept[3];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    mw_record_begin("load");
    kept[0] = malloc(60002);
    mw_record_begin("image");
    kept[1] = malloc(60003);
    pthread_create(&thread, NULL, other, NULL);
    pthread_join(thread, NULL);
    mw_record_end();
    kept[2] = malloc(60004);
    mw_record_end();
    for (int i = 0; i < 3000; i++) { // more than the recorder remembers
        snprintf(text, sizeof text, "step %d", i % 2000);
        mw_record_mark(text);
    }
    mw_record_mark(longest);
    mw_record_begin(NULL);
    mw_record_mark(NULL);
    mw_record_end();
    free(kept[1]);
    if (fork() == 0) {
        mw_record_begin("child");
        free(malloc(60005));
        _exit(0);
    }
    wait(NULL);
    return 0;
}"#;

#[test]
fn marks_and_scopes_of_the_program_are_in_the_trace() {
    let source = scratch().join("notes.c");
    fs::write(&source, format!("{PRELUDE}{NOTES_PROGRAM}")).unwrap();
    let include = format!(
        "-I{}",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../include")
    );
    for (name, options) in [
        ("notes-pie", ["-pie", "-fPIE"]),
        ("notes-fixed", ["-no-pie", "-fno-pie"]),
    ] {
        let path = scratch().join(name);
        let sources = std::slice::from_ref(&source);
        compile(
            &path,
            &["-pthread", &include, options[0], options[1]],
            sources,
        );
        // Alone it runs, and says nothing.
        assert!(Command::new(&path).status().unwrap().success());
        let run = record(name, &[path.to_str().unwrap()]);
        assert!(run.output.status.success(), "{:?}", run.output);
        let parent = run.with(60002)[0];
        let marks: Vec<&String> = parent
            .lines
            .iter()
            .filter(|l| l.starts_with("mark step"))
            .collect();
        assert_eq!(marks.len(), 3000, "{name}");
        for (number, line) in marks.iter().enumerate() {
            assert_eq!(**line, format!("mark step {}", number % 2000));
        }
        assert!(parent.lines.contains(&format!("mark {}", "x".repeat(255))));
        let nameless = ["scope-begin ", "mark ", "scope-end"].map(String::from);
        assert!(parent.lines.windows(3).any(|three| *three == nameless));
        assert!(parent
            .lines
            .contains(&"mark in, \\\"another\\\"".to_string()));
        assert_eq!(run.with(60005)[0].count("scope-begin child"), 1);

        let path = scratch().join(format!("{name}-traces")).join(&parent.name);
        let path = path.to_str().unwrap();
        let said = |arguments: &[&str]| {
            let output = mallow(&[&["trace", path][..], arguments].concat());
            String::from_utf8(output.stdout).unwrap()
        };
        let table = said(&["--scopes"]);
        let row = |name: &str| {
            let line = table
                .lines()
                .find(|l| l.split_whitespace().next() == Some(name));
            let words: Vec<&str> = line.unwrap().split_whitespace().skip(1).collect();
            words
                .iter()
                .map(|w| w.parse::<u64>().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(row("load"), [2, 120006, 120006, 120006]);
        assert_eq!(
            row("load/image")[0..2],
            [2, 60003 + row("load/image")[1] - 60003]
        );
        assert_eq!(row("load/image")[3] + 60003, row("load/image")[2]);
        let within = said(&[
            "--scope",
            "load",
            "--only",
            "allocate",
            "--min-size",
            "60000",
        ]);
        let sizes: Vec<&str> = within
            .lines()
            .filter_map(|l| l.rsplit(' ').next())
            .collect();
        assert_eq!(sizes[2..], ["60002", "60003", "60004"]);
        let as_in_the_table = said(&["--scope", "load/image", "--only", "allocate"]);
        assert!(as_in_the_table.contains(" 60003\n"), "{as_in_the_table}");
        assert!(!as_in_the_table.contains(" 60002\n"), "{as_in_the_table}");
        let csv = said(&["--csv", "--only", "mark,allocate", "--thread", "1"]);
        assert!(csv.contains(",,\"in, \"\"another\"\"\"\n"), "{csv}");
    }
}
