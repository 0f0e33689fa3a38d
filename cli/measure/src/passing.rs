// SPDX-License-Identifier: MIT
//! Signals that come to the tool while a command runs in its place: whoever knows only the tool means the
//! command. The tool passes them to its launcher, and that to the command.

use std::sync::atomic::{AtomicI32, Ordering};

/// What ends a program, or tells it something.
const PASSED_ON: [libc::c_int; 6] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

static RECEIVER: AtomicI32 = AtomicI32::new(0);
/// 0 for anybody.
static SENDER: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (receiver, sender) = (
        RECEIVER.load(Ordering::SeqCst),
        SENDER.load(Ordering::SeqCst),
    );
    // SAFETY: the kernel's own; kill may be called in a handler.
    unsafe {
        // An interrupt from the terminal has gone to the command as well.
        let of_terminal =
            matches!(signal, libc::SIGINT | libc::SIGQUIT) && (*info).si_code == libc::SI_KERNEL;
        if receiver > 0 && !of_terminal && (sender == 0 || (*info).si_pid() == sender) {
            libc::kill(receiver, signal);
        }
    }
}

fn install(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: only a disposition of this process changes.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

fn install_all(signals: &[libc::c_int]) {
    let handler = pass_on as extern "C" fn(_, _, _) as libc::sighandler_t;
    signals.iter().for_each(|&signal| install(signal, handler));
}

/// In the tool: holds signals back until there is somebody to pass them on to. Which ones: what we were
/// told to ignore or to block is so for the command, too.
pub fn hold() -> Vec<libc::c_int> {
    // SAFETY: the sets and the structure are ours.
    let held: Vec<libc::c_int> = unsafe {
        let (mut blocked, mut wanted) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
        libc::sigemptyset(&mut wanted);
        let is_free = |signal: libc::c_int| {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            now.sa_sigaction != libc::SIG_IGN && libc::sigismember(&blocked, signal) == 0
        };
        let held = PASSED_ON.into_iter().filter(|&signal| is_free(signal));
        let held = held.inspect(|&signal| {
            libc::sigaddset(&mut wanted, signal);
        });
        let held = held.collect();
        libc::sigprocmask(libc::SIG_BLOCK, &wanted, std::ptr::null_mut());
        held
    };
    install_all(&held);
    held
}

/// In the launcher, which began with these held back: passes on what its parent sends. What goes to the
/// whole process group has gone to the command as well.
pub fn take_over(held: &[libc::c_int]) {
    // SAFETY: always succeeds.
    SENDER.store(unsafe { libc::getppid() }, Ordering::SeqCst);
    install_all(held);
}

/// From now on, to this one; to nobody if 0.
pub fn pass_to(receiver: libc::pid_t) {
    RECEIVER.store(receiver, Ordering::SeqCst);
}

/// Lets come what was held back.
pub fn release(held: &[libc::c_int]) {
    // SAFETY: the set is ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        held.iter().for_each(|&signal| {
            libc::sigaddset(&mut set, signal);
        });
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// In a child before its exec: as if nothing had been held. Async-signal-safe.
pub fn forget(held: &[libc::c_int]) {
    held.iter()
        .for_each(|&signal| install(signal, libc::SIG_DFL));
    release(held);
}
