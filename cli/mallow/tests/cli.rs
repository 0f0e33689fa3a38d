// SPDX-License-Identifier: MIT
//! The tool as a user calls it.

mod stand_in;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stand_in::{code, compile, mallow, printed, said, scratch, stand_in};

/// Frees nothing.
const OTHER_MALLOC: &str = r#"
#include <string.h>
static char room[256 << 20] __attribute__((aligned(16)));
static size_t used;
void *malloc(size_t size) {
    const size_t whole = (size + 31) & ~(size_t)15;
    char *block = room + __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    *(size_t *)block = size;
    return block + 16;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    const size_t before = old == NULL ? 0 : ((size_t *)old)[-2];
    return before == 0 ? malloc(size) : memcpy(malloc(size), old, before < size ? before : size);
}
"#;

const WHOSE_MALLOC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int main(void) {
    Dl_info info;
    dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info);
    return strstr(info.dli_fname, "/libc") != NULL ? 0 : 9;
}
"#;

#[test]
fn run_sets_the_preload_and_options_and_hides_its_own_variables() {
    let script = "echo \"$LD_PRELOAD|$MALLOW_HUGE_CACHE|$MALLOW_STATS|$MALLOW_LIB\"; exit 7";
    let output = mallow(&[
        "run",
        "--stats",
        "--huge-cache",
        "4M",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(code(&output), 7);
    assert_eq!(
        printed(&output).trim(),
        format!("{}|4M|1|", stand_in().display())
    );
}

#[test]
fn run_keeps_what_was_preloaded() {
    let output = Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("MALLOW_LIB", stand_in())
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .unwrap();
    assert_eq!(
        printed(&output).trim(),
        format!("{}:libm.so.6", stand_in().display())
    );
}

#[test]
fn run_fails_clearly() {
    let missing = mallow(&["run", "--", "no-such-command-here"]);
    assert_eq!(code(&missing), 127);
    assert!(said(&missing).contains("'no-such-command-here'"));
    let refused = mallow(&["run", "--", "/etc/passwd"]);
    assert_eq!(code(&refused), 126);
    let value = mallow(&["run", "--huge-cache", "lots", "--", "true"]);
    assert_eq!(code(&value), 2);
    assert!(said(&value).contains("--huge-cache") && said(&value).contains("'lots'"));
    let negative = mallow(&["run", "--huge-cache", "-1", "--", "true"]);
    assert_eq!(code(&negative), 2);
    assert!(said(&negative).contains("--huge-cache") && said(&negative).contains("'-1'"));
    let mode = mallow(&["run", "--mode", "banana", "--", "echo", "started"]);
    assert_eq!((code(&mode), printed(&mode).as_str()), (2, ""));
    assert!(said(&mode).contains("--mode: bad value 'banana': wanted default or realtime"));
    let threshold = mallow(&["run", "--huge-threshold", "2M", "--", "echo", "started"]);
    assert_eq!((code(&threshold), printed(&threshold).as_str()), (2, ""));
    assert!(said(&threshold).contains("--huge-threshold: bad value '2M': wanted"));
    assert!(said(&threshold).contains("from 64K to 1M"));
    let option = mallow(&["run", "--hugecache", "1", "--", "true"]);
    assert_eq!(code(&option), 2);
    assert!(said(&option).contains("--hugecache"));
    // What the library would refuse when the command has begun.
    let limit = mallow(&["run", "--limit", "8388608T", "--", "echo", "started"]);
    assert_eq!((code(&limit), printed(&limit).as_str()), (2, ""));
    assert!(said(&limit).contains("--limit: bad value '8388608T'"));
    let library = mallow(&["run", "--lib", "/no/lib.so", "--", "true"]);
    assert_eq!(code(&library), 125);
    assert!(said(&library).contains("/no/lib.so"));
}

/// The loader takes it for two, and runs the command without either.
#[test]
fn a_library_whose_path_the_loader_would_cut_is_refused() {
    for name in ["sp ace", "co:lon"] {
        let folder = scratch().join(name);
        fs::create_dir_all(&folder).unwrap();
        let library = folder.join("libmallow.so");
        fs::copy(stand_in(), &library).unwrap();
        let library = library.to_str().unwrap();
        for words in [
            ["run", "--lib"],
            ["check", "--lib"],
            ["record", "--recorder"],
        ] {
            let mut arguments = words.to_vec();
            arguments.extend([library, "--", "echo", "started"]);
            let output = mallow(&arguments);
            assert_eq!((code(&output), printed(&output).as_str()), (125, ""));
            assert!(said(&output).contains(name), "{}", said(&output));
            assert!(said(&output).contains("LD_PRELOAD"), "{}", said(&output));
        }
    }
}

/// The loader takes it, and the command would run on libc's malloc, `check` say that ours is active.
#[test]
fn a_library_that_is_not_ours_is_refused() {
    let other = compile(
        "libother.so",
        "int other(void) { return 1; }",
        &["-shared", "-fPIC"],
    );
    let other = other.to_str().unwrap();
    for words in [
        ["run", "--lib"],
        ["check", "--lib"],
        ["record", "--recorder"],
    ] {
        let mut arguments = words.to_vec();
        arguments.extend([other, "--", "echo", "started"]);
        let output = mallow(&arguments);
        assert_eq!((code(&output), printed(&output).as_str()), (125, ""));
        assert!(
            said(&output).contains("another library than libmallow"),
            "{}",
            said(&output)
        );
    }
}

/// One word of a command is not to have 128 KiB; all together may have more.
#[test]
fn a_long_command_is_run_as_by_a_shell() {
    let mut arguments = vec!["check", "--", "true"];
    arguments.extend(vec!["a word"; 30_000]);
    let output = mallow(&arguments);
    assert_eq!(code(&output), 0, "{}", said(&output));
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for arguments in [
        vec!["--help"],
        vec!["--version"],
        vec!["pool", "plan", "--help"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_mallow"))
            .args(&arguments)
            .stdout(fs::File::create("/dev/full").unwrap())
            .output()
            .unwrap();
        assert_eq!(code(&output), 125, "{arguments:?}");
        assert!(
            said(&output).starts_with("mallow: stdout: "),
            "{}",
            said(&output)
        );
    }
    let output = mallow(&["--help"]);
    assert_eq!((code(&output), said(&output).as_str()), (0, ""));
    assert!(printed(&output).contains("Usage: mallow"));
}

#[test]
fn run_warns_of_a_static_program() {
    let program = compile("static", "int main(void) { return 0; }", &["-static"]);
    let output = mallow(&["run", "--", program.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert!(
        said(&output).contains("statically linked"),
        "{}",
        said(&output)
    );
}

#[test]
fn check_proves_every_process() {
    let output = mallow(&["check", "--", "perl", "-e", "system(q(env > /dev/null))"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(
        said(&output).contains("ACTIVE in 2 processes"),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("2 of 2"));
    // A program's name does not reach the terminal as it is.
    let text = said(&output);
    assert!(text.contains("/stand/\\u{1b}in  "), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn check_reports_as_json() {
    let output = mallow(&["check", "--json", "--", "env"]);
    let value: serde_json::Value = serde_json::from_str(&said(&output)).unwrap();
    assert_eq!(value["active"], true);
    assert_eq!(value["processes"][0]["mallow"], "0.0.9");
}

#[test]
fn check_says_why_not() {
    let foreign = Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(["check", "--", "env"])
        .env("MALLOW_LIB", stand_in())
        .env("STAND_IN_BAD", "1")
        .output()
        .unwrap();
    assert_eq!(code(&foreign), 1);
    assert!(
        said(&foreign).contains("bound elsewhere: malloc"),
        "{}",
        said(&foreign)
    );
    let program = compile("static-check", "int main(void) { return 0; }", &["-static"]);
    let fixed = mallow(&["check", "--", program.to_str().unwrap()]);
    assert_eq!(code(&fixed), 1);
    assert!(said(&fixed).contains("statically linked"));
    let killed = mallow(&["check", "--", "sh", "-c", "kill -9 $$"]);
    // Whether its memory map can be seen at such an end is the kernel's to say.
    assert!([1, 137].contains(&code(&killed)), "{}", said(&killed));
    assert!(said(&killed).contains("SIGKILL"), "{}", said(&killed));
}

#[test]
fn check_goes_by_the_memory_map_where_no_exit_handler_runs() {
    let source = "#include <unistd.h>\nint main(void) { _exit(0); }";
    let program = compile("silent", source, &[]);
    let output = mallow(&["check", "--", program.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(
        said(&output).contains("by its memory map"),
        "{}",
        said(&output)
    );
    // Misuse is such an end, by a line of the library's own.
    let source = "#include <stdlib.h>\nint main(void) { abort(); }";
    let program = compile("aborting", source, &[]);
    let output = mallow(&["check", "--", program.to_str().unwrap()]);
    assert_eq!(code(&output), 134, "{}", said(&output));
    assert!(
        said(&output).contains("is ACTIVE in 1"),
        "{}",
        said(&output)
    );
    let unset = mallow(&["check", "--", "env", "-i", program.to_str().unwrap()]);
    assert_eq!(code(&unset), 1, "{}", said(&unset));
    assert!(said(&unset).contains("was not loaded"), "{}", said(&unset));
}

#[test]
fn check_waits_for_a_report_that_is_being_written() {
    let begun = scratch().join("report-begun");
    let _ = fs::remove_file(&begun);
    let begun = begun.display();
    let script = format!("STAND_IN_SLOW={begun} sleep 0 & until [ -e {begun} ]; do :; done");
    let output = mallow(&["check", "--", "sh", "-c", &script]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(
        said(&output).contains("is ACTIVE in 2 processes"),
        "{}",
        said(&output)
    );
}

#[test]
fn check_leaves_interrupts_ignored_where_it_was_told_to() {
    let script =
        "trap '' INT QUIT; exec \"$0\" check -- sh -c 'kill -INT $$; kill -QUIT $$; exit 5'";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_mallow")])
        .env("MALLOW_LIB", stand_in())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    assert_eq!(code(&output), 5, "{}", said(&output));
}

/// A program for another machine is no script, though libc has a shell read what the kernel does not
/// know; a script without `#!` is one.
#[test]
fn what_cannot_be_executed_is_not_given_to_a_shell_unless_it_is_a_script() {
    let mut bytes = fs::read("/proc/self/exe").unwrap();
    bytes.truncate(4096);
    bytes[18..20].copy_from_slice(&[0xff, 0xff]); // e_machine
    bytes[64..].fill(b'\n');
    bytes.extend_from_slice(b"echo read by a shell\n");
    let other = scratch().join("other-machine");
    fs::write(&other, bytes).unwrap();
    let script = scratch().join("script-without-a-line");
    fs::write(&script, "echo read by a shell; exit 3\n").unwrap();
    let recorder = scratch().join("mallow-record.so");
    let recorder = compile_recorder(&recorder);
    let prefix = scratch().join("not-a-script");
    let record = [
        "record",
        "-o",
        prefix.to_str().unwrap(),
        "--recorder",
        recorder,
    ];
    for file in [&other, &script] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for tool in [&["run"][..], &["check"], &record] {
        let output = mallow(&[tool, &["--", other.to_str().unwrap()]].concat());
        assert_eq!(code(&output), 126, "{tool:?}: {}", said(&output));
        assert!(
            said(&output).contains("Exec format error"),
            "{}",
            said(&output)
        );
        let output = mallow(&[tool, &["--", script.to_str().unwrap()]].concat());
        assert_eq!(code(&output), 3, "{tool:?}: {}", said(&output));
        assert_eq!(printed(&output), "read by a shell\n");
    }
}

fn compile_recorder(out: &Path) -> &str {
    let source = "void mw_record_note_v1(unsigned kind, const char *text) {}";
    compile(
        out.file_name().unwrap().to_str().unwrap(),
        source,
        &["-shared", "-fPIC"],
    );
    out.to_str().unwrap()
}

/// The tool with these signals ignored, and blocked, when it begins.
fn mallow_with(ignored: &'static [i32], blocked: &'static [i32], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mallow"));
    command
        .args(arguments)
        .env("MALLOW_LIB", stand_in())
        .env_remove("LD_PRELOAD");
    // SAFETY: only async-signal-safe calls, on a set of its own.
    unsafe {
        command.pre_exec(move || {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            blocked.iter().for_each(|&signal| {
                libc::sigaddset(&mut set, signal);
            });
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            ignored.iter().for_each(|&signal| {
                libc::signal(signal, libc::SIG_IGN);
            });
            Ok(())
        })
    };
    command.output().unwrap()
}

#[test]
fn a_command_ignores_and_blocks_what_the_tool_was_started_with() {
    // As services of systemd have SIGPIPE, and children of some supervisors SIGCHLD.
    let ignored = &[libc::SIGPIPE, libc::SIGCHLD];
    let odd = "[13579bdf]";
    let both = format!("^SigIgn:.*{odd}{odd}[0-9a-f][0-9a-f][0-9a-f]$");
    let none = "^SigIgn:.*[02468ace][02468ace][0-9a-f][0-9a-f][0-9a-f]$";
    let blocked = "^SigBlk:.*6[0-9a-f][0-9a-f][0-9a-f]$"; // 14 and 15
    let job = |pattern: &str, tool: &[&str]| -> Vec<String> {
        let grep = ["--", "grep", "-q", pattern, "/proc/self/status"];
        [tool, &grep]
            .concat()
            .iter()
            .map(|w| w.to_string())
            .collect()
    };
    let compare = ["compare", "-q", "-n", "1", "--with", "glibc", "--no-mallow"];
    for tool in [&["run"][..], &["check"], &compare] {
        for (ignored, held, pattern) in [
            (&ignored[..], &[][..], both.as_str()),
            (&[], &[], none),
            (&[], &[libc::SIGALRM, libc::SIGTERM], blocked),
        ] {
            let words = job(pattern, tool);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = mallow_with(ignored, held, &words);
            assert_eq!(code(&output), 0, "{words:?}: {}", said(&output));
        }
    }
}

#[test]
fn a_time_limit_holds_where_its_signal_is_blocked() {
    let job = ["--no-mallow", "--with", "glibc", "-n", "1", "--timeout"];
    for limit in ["0.2", "1e-9"] {
        let words = [&["compare", "-q"], &job[..], &[limit, "--", "sleep", "20"]].concat();
        let output = mallow_with(&[], &[libc::SIGALRM], &words);
        let printed = printed(&output);
        assert!(printed.contains("timed out"), "{printed}{}", said(&output));
    }
}

#[test]
fn check_passes_on_the_commands_own_failure() {
    let output = mallow(&["check", "--", "sh", "-c", "exit 3"]);
    assert_eq!(code(&output), 3);
    assert!(said(&output).contains("ACTIVE") && said(&output).contains("exit status 3"));
}

#[test]
fn compare_measures_and_writes_all_forms() {
    let files: Vec<PathBuf> = ["json", "svg", "html"]
        .iter()
        .map(|e| scratch().join(format!("compare.{e}")))
        .collect();
    let mut arguments = vec!["compare", "--with", "glibc", "-n", "2", "--same-output"];
    for file in &files {
        arguments.extend(["--out", file.to_str().unwrap()]);
    }
    let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i";
    arguments.extend(["--", "sh", "-c", busy]);
    let output = mallow(&arguments);
    assert_eq!(code(&output), 0, "{}{}", printed(&output), said(&output));
    assert!(printed(&output).contains("glibc") && printed(&output).contains("mallow"));
    let value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
    assert_eq!(value["baseline"], "mallow");
    for series in value["series"].as_array().unwrap() {
        assert_eq!(series["runs"].as_array().unwrap().len(), 2);
        assert!(series["summary"]["wall_s"]["median"].as_f64().unwrap() > 0.0);
        assert!(
            series["summary"]["peak_rss_bytes"]["median"]
                .as_f64()
                .unwrap()
                > 100_000.0
        );
    }
    assert_eq!(value["series"][0]["proof"], "mapped");
    assert_eq!(value["series"][1]["proof"], "came_first");
    assert!(fs::read_to_string(&files[1]).unwrap().starts_with("<svg"));
    assert!(fs::read_to_string(&files[2]).unwrap().contains("</svg>"));
}

/// A program that is linked with another allocator, and an environment that preloads one.
#[test]
fn the_row_of_glibc_is_glibcs() {
    let other = compile("libother-malloc.so", OTHER_MALLOC, &["-shared", "-fPIC"]);
    let other = other.to_str().unwrap();
    let plain = compile("whose", WHOSE_MALLOC, &[]);
    let linked = scratch().join("whose-linked");
    let code_file = scratch().join("whose.c");
    let built = Command::new("cc")
        .args(["-Wl,--no-as-needed", "-o"])
        .args([&linked, &code_file, Path::new(other)])
        .status();
    assert!(built.unwrap().success());
    let (plain, linked) = (plain.to_str().unwrap(), linked.to_str().unwrap());
    let options = ["compare", "-q", "--no-mallow", "--with", "glibc", "-n", "2"];
    let compare = |command: &[&str], preload: &str| {
        Command::new(env!("CARGO_BIN_EXE_mallow"))
            .args([&options[..], &["--"], command].concat())
            .env("LD_PRELOAD", preload)
            .output()
            .unwrap()
    };
    for (program, preload) in [(linked, ""), (plain, other), (linked, other)] {
        let output = compare(&[program], preload);
        assert_eq!(code(&output), 0, "{}{}", printed(&output), said(&output));
        let seen = "seen mapped in the command, and libc before all others for glibc.\n";
        assert!(printed(&output).contains(seen), "{}", printed(&output));
    }
    // Where the command itself sets the variable, nothing is claimed.
    let own = format!("LD_PRELOAD={other}");
    let output = compare(&["env", &own, plain], "");
    let unseen = "Not seen mapped: glibc (for glibc: libc, before all other libraries).\n";
    assert!(printed(&output).contains(unseen), "{}", printed(&output));
}

#[test]
fn compare_shows_control_characters_of_the_command_as_text() {
    let picture = scratch().join("control.svg");
    let out = picture.to_str().unwrap();
    let mut arguments = vec![
        "compare", "-q", "--with", "glibc", "-n", "1", "--warmup", "0",
    ];
    arguments.extend([
        "--out",
        out,
        "--",
        "sh",
        "-c",
        "true \u{1}\u{1b}[31m\nexit 3",
    ]);
    let output = mallow(&arguments);
    let title = "sh -c true \\u{1}\\u{1b}[31m\\nexit 3";
    assert!(
        printed(&output).starts_with(&format!("{title}\n")),
        "{}",
        printed(&output)
    );
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.contains(title), "{svg}");
    assert!(
        !svg.contains(['\u{1}', '\u{1b}']),
        "XML has no such characters"
    );
    let script = "printf 'no \\033[31mred\\n' >&2; kill -ABRT $$";
    let output = mallow(&[
        "compare", "-q", "--with", "glibc", "-n", "1", "--", "sh", "-c", script,
    ]);
    assert!(
        printed(&output).contains("no \\u{1b}[31mred"),
        "{}",
        printed(&output)
    );
}

#[test]
fn compare_notices_what_differs() {
    let script = "case $LD_PRELOAD in *mallow*) echo a; exit 4;; *) echo b;; esac";
    let arguments = [
        "compare",
        "-q",
        "--with",
        "glibc",
        "-n",
        "1",
        "--same-output",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = mallow(&arguments);
    assert_eq!(code(&output), 1);
    assert!(printed(&output).contains("exit codes differ: exit status 4 (mallow); 0 (glibc)"));
    assert!(printed(&output).contains("outputs differ"));
}

#[test]
fn compare_leaves_out_what_hangs_or_is_refused() {
    let script = "case $LD_PRELOAD in *mallow*) sleep 60;; esac";
    let arguments = [
        "compare",
        "--with",
        "glibc",
        "-n",
        "1",
        "--timeout",
        "0.3",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = mallow(&arguments);
    assert_eq!(code(&output), 1);
    assert!(
        printed(&output).contains("mallow: timed out after 0.3 s"),
        "{}",
        printed(&output)
    );
    let text = scratch().join("no-library.so");
    fs::write(&text, "not a library").unwrap();
    let with = format!("broken={}", text.display());
    let output = mallow(&[
        "compare",
        "--no-mallow",
        "--with",
        &with,
        "-n",
        "1",
        "--",
        "true",
    ]);
    assert_eq!(code(&output), 1);
    assert!(
        printed(&output).contains("cannot be preloaded"),
        "{}",
        printed(&output)
    );
    assert!(printed(&output).contains("\nNot seen mapped: broken.\n"));
}

#[test]
fn compare_names_what_is_wrong_before_it_runs() {
    let folder = scratch().join("folder.svg");
    fs::create_dir_all(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    for (arguments, named) in [
        (vec!["compare", "--with", "jx", "--", "true"], "'jx'"),
        (vec!["compare", "-n", "0", "--", "true"], "'0'"),
        (vec!["compare", "--timeout", "soon", "--", "true"], "'soon'"),
        (vec!["compare", "--out", "x.png", "--", "true"], "'x.png'"),
        (
            vec!["compare", "--out", "/no/dir/x.svg", "--", "true"],
            "'/no/dir'",
        ),
        (vec!["compare", "--out", folder, "--", "true"], folder),
        (vec!["compare", "--with", "", "--", "true"], "--with: ''"),
        (
            vec!["compare", "--with", "=/x.so", "--", "true"],
            "'=/x.so'",
        ),
        (
            vec!["compare", "-n", "-1", "--", "true"],
            "--runs: bad value '-1'",
        ),
        (
            vec!["compare", "--timeout", "-1", "--", "true"],
            "--timeout: bad value '-1'",
        ),
        (
            vec!["compare", "--input", "/no/file", "--", "true"],
            "--input: '/no/file'",
        ),
        (
            vec!["compare", "--input", "/tmp", "--", "true"],
            "--input: '/tmp'",
        ),
    ] {
        let output = mallow(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(said(&output).contains(named), "{}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    }
    let missing = mallow(&["compare", "--with", "glibc", "--", "no-such-command-here"]);
    assert_eq!(code(&missing), 127);
}

#[test]
fn a_missing_folder_for_temporary_files_is_named() {
    for arguments in [
        vec!["check", "--", "true"],
        vec!["compare", "--with", "glibc", "--", "true"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_mallow"))
            .args(&arguments)
            .env("MALLOW_LIB", stand_in())
            .env("TMPDIR", "/dev/null")
            .output()
            .unwrap();
        assert_eq!(code(&output), 125);
        let named = "temporary directory '/dev/null/mallow-scratch-";
        assert!(said(&output).contains(named), "{}", said(&output));
    }
}

#[test]
fn a_small_program_is_not_charged_with_the_tools_memory() {
    let program = compile("tiny", "int main(void) { return 0; }", &[]);
    let file = scratch().join("tiny.json");
    let output = mallow(&[
        "compare",
        "-q",
        "--no-mallow",
        "--with",
        "glibc",
        "-n",
        "1",
        "--out",
        file.to_str().unwrap(),
        "--",
        program.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    let value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let peak = value["series"][0]["summary"]["peak_rss_bytes"]["median"]
        .as_f64()
        .unwrap();
    assert!(peak < 2_500_000.0, "{peak} bytes");
}
