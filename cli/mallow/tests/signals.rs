// SPDX-License-Identifier: MIT
//! Signals to the tool while a command runs, and to commands.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

mod stand_in;
use stand_in::{code, said, scratch, stand_in};

const ALL: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];

/// `mallow check` of a shell script, with the signals as they are for a program at a terminal, but for what
/// is to be ignored; when the script has made the file that `$0` names.
fn check(name: &str, script: &str, ignored: Option<i32>) -> (Child, PathBuf) {
    let ready = scratch().join(name);
    let _ = fs::remove_file(&ready);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mallow"));
    command
        .args(["check", "--", "sh", "-c", script])
        .arg(&ready)
        .env("MALLOW_LIB", stand_in())
        .env_remove("LD_PRELOAD")
        .current_dir(scratch()) // a core file may be left
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: only async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            for signal in ALL {
                let ignore = ignored == Some(signal);
                libc::signal(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL });
            }
            Ok(())
        })
    };
    let tool = command.spawn().unwrap();
    until("the script is there", || ready.exists());
    (tool, ready)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: a process of ours.
    unsafe { libc::kill(pid as i32, signal) };
}

#[test]
fn check_passes_signals_on_and_gives_its_verdict() {
    for signal in ALL {
        let script =
            "trap 'echo told; exit 7' TERM HUP INT QUIT; : >$0; while :; do sleep 0.02; done";
        let (tool, _) = check("told", script, None);
        kill(tool.id(), signal);
        let output = tool.wait_with_output().unwrap();
        assert_eq!(code(&output), 7, "{signal}: {}", said(&output));
        assert_eq!(output.stdout, b"told\n", "{signal}");
        assert!(said(&output).contains("is ACTIVE"), "{}", said(&output));
        let (tool, _) = check("ended", ": >$0; while :; do sleep 0.02; done", None);
        kill(tool.id(), signal);
        let output = tool.wait_with_output().unwrap();
        assert_eq!(code(&output), 128 + signal, "{}", said(&output));
        assert!(said(&output).contains("is ACTIVE"), "{}", said(&output));
    }
}

#[test]
fn check_leaves_ignored_what_it_was_told_to() {
    let (tool, ready) = check(
        "ignored",
        ": >$0; while [ -e $0 ]; do sleep 0.02; done",
        Some(libc::SIGHUP),
    );
    kill(tool.id(), libc::SIGHUP);
    fs::remove_file(&ready).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
}

#[test]
fn a_command_that_stops_itself_stays_so_until_it_is_continued() {
    let script = "echo $$ >$0.part; mv $0.part $0; kill -STOP $$; echo went on; exit 5";
    let (tool, ready) = check("stops", script, None);
    let pid = fs::read_to_string(&ready).unwrap().trim().parse().unwrap();
    // `t` is a stop for its tracer alone.
    let is_stopped = || {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = status.rsplit(") ").next().unwrap_or_default();
        state.starts_with(['T', 't'])
    };
    until("it stops", is_stopped);
    thread::sleep(Duration::from_millis(100));
    assert!(is_stopped());
    kill(pid, libc::SIGCONT);
    let output = tool.wait_with_output().unwrap();
    assert_eq!(code(&output), 5, "{}", said(&output));
    assert_eq!(output.stdout, b"went on\n");
    assert!(said(&output).contains("is ACTIVE"), "{}", said(&output));
}

#[test]
fn no_command_outlives_the_tool() {
    let (mut tool, ready) = check(
        "outlives",
        "echo $$ >$0.part; mv $0.part $0; exec sleep 60",
        None,
    );
    let process = fs::read_to_string(&ready).unwrap();
    let process = Path::new("/proc").join(process.trim());
    assert!(process.exists());
    kill(tool.id(), libc::SIGKILL);
    tool.wait().unwrap();
    // Dead, if perhaps not waited for.
    until("the command is dead", || {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        !status.contains("State:") || status.contains("State:\tZ")
    });
}
