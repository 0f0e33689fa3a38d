// SPDX-License-Identifier: MIT
//! Signals that the tools were started with ignored, as services are with SIGPIPE. Rust's run-time ignores
//! that itself, and has all that it starts end by it; and with SIGCHLD ignored nobody can wait for a
//! command. So both are looked at before that run-time begins, and a command gets them as the tool did.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[link_section = ".init_array"]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    if is_ignored(libc::SIGCHLD) {
        CHILD_IGNORED.store(true, Ordering::Relaxed);
        // SAFETY: only the disposition changes; no other thread is there yet.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: the structure is only written.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// For a child before its exec: both signals as they were. Async-signal-safe.
pub fn restore() {
    for (signal, ignored) in [
        (libc::SIGPIPE, &PIPE_IGNORED),
        (libc::SIGCHLD, &CHILD_IGNORED),
    ] {
        let disposition = match ignored.load(Ordering::Relaxed) {
            true => libc::SIG_IGN,
            false => libc::SIG_DFL,
        };
        // SAFETY: only the disposition changes.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// Has the command begin with both as they were.
pub fn hand_on(command: &mut Command) -> &mut Command {
    // SAFETY: what runs there is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            restore();
            Ok(())
        })
    }
}
