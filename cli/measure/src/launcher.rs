// SPDX-License-Identifier: MIT
//! The launcher's work: fork the command, wait for it, measure it.
//!
//! The launcher has one thread. Its time limit is SIGALRM; it kills the command's process group then,
//! and also when it is itself interrupted, so that no command outlives its measurement. In an interactive
//! run the command is told, and ends as it will.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

use crate::exec::{exec, is_program};
use crate::inherited;
use crate::launch::{pipe, Request, SAVED_PRELOAD};
use crate::library::LIBC;
use crate::measured::{Ending, Measured};
use crate::passing;

static CHILD_GROUP: AtomicI32 = AtomicI32::new(0);
static TIMED_OUT: AtomicBool = AtomicBool::new(false);

/// On SIGALRM: the time is over. On SIGINT and SIGTERM: so is ours.
extern "C" fn on_signal(number: libc::c_int) {
    let group = CHILD_GROUP.load(Ordering::SeqCst);
    // SAFETY: kill and _exit may be called in a signal handler.
    unsafe {
        if group > 0 {
            libc::kill(-group, libc::SIGKILL);
            libc::kill(group, libc::SIGKILL);
        }
        if number == libc::SIGALRM {
            TIMED_OUT.store(true, Ordering::SeqCst);
        } else {
            libc::_exit(128 + number);
        }
    }
}

/// The signals that were blocked for us, as they are for the command, but for those that we passed on.
struct Signals {
    blocked: libc::sigset_t,
    passed_on: Vec<libc::c_int>,
}

fn install_handlers(request: &Request) -> Signals {
    let ends = [libc::SIGALRM, libc::SIGINT, libc::SIGTERM];
    // An interactive run has no group of its own: it ends as its parent wants it to, or with that.
    let (ends, of_parent) = match request.inherit {
        true => (&ends[..1], libc::SIGKILL),
        false => (&ends[..], libc::SIGTERM),
    };
    let blocked = unblock(ends);
    // SAFETY: a plain handler without SA_RESTART, so that waiting is interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        for &signal in ends {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, of_parent);
    }
    passing::take_over(&request.passed_on);
    Signals {
        blocked,
        passed_on: request.passed_on.clone(),
    }
}

/// Lets these come, or no time limit would end anything; what was blocked before.
fn unblock(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: both sets are ours.
    unsafe {
        let (mut wanted, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut wanted);
        for &signal in signals {
            libc::sigaddset(&mut wanted, signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &wanted, &mut before);
        before
    }
}

fn start_timer(seconds: f64) {
    let whole = seconds.trunc();
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: whole as libc::time_t,
            tv_usec: ((seconds - whole) * 1e6) as libc::suseconds_t,
        },
    };
    // SAFETY: the structure is initialised and only read.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
}

/// Everything the child needs between fork and exec, made before the fork.
struct Prepared {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: Option<CString>,
    streams: Option<[OwnedFd; 3]>,
    traced: bool,
    is_program: bool,
}

fn c_string(bytes: Vec<u8>) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::other("a zero byte in the command or environment"))
}

fn prepare(request: &Request) -> io::Result<Prepared> {
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| name != SAVED_PRELOAD)
        .filter(|(name, _)| {
            !request
                .remove
                .iter()
                .any(|removed| name == removed.as_str())
        })
        .filter(|(name, _)| !request.set.iter().any(|(set, _)| name == set.as_str()))
        .collect();
    let chosen = |name: &str| {
        request.remove.iter().any(|r| r == name) || request.set.iter().any(|(s, _)| s == name)
    };
    if let (Some(saved), false) = (std::env::var_os(SAVED_PRELOAD), chosen("LD_PRELOAD")) {
        environment.push(("LD_PRELOAD".into(), saved));
    }
    environment.extend(
        request
            .set
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let streams = if request.inherit {
        None
    } else {
        let null = PathBuf::from("/dev/null");
        let output = |path: &Option<PathBuf>| {
            fs::File::create(path.as_ref().unwrap_or(&null)).map(OwnedFd::from)
        };
        let input = request.stdin.as_ref().unwrap_or(&null);
        let input = fs::File::open(input)
            .map_err(|e| io::Error::other(format!("standard input '{}': {e}", input.display())))?;
        Some([
            input.into(),
            output(&request.stdout)?,
            output(&request.stderr)?,
        ])
    };
    Ok(Prepared {
        arguments: request
            .command
            .iter()
            .map(|a| c_string(a.clone().into_bytes()))
            .collect::<io::Result<_>>()?,
        environment: environment
            .into_iter()
            .map(|(name, value)| {
                let mut entry = name.into_vec();
                entry.push(b'=');
                entry.extend(value.into_vec());
                c_string(entry)
            })
            .collect::<io::Result<_>>()?,
        directory: match &request.directory {
            Some(directory) => Some(c_string(directory.clone().into_os_string().into_vec())?),
            None => None,
        },
        streams,
        traced: !request.expect_mapped.is_empty(),
        is_program: is_program(request.command[0].as_ref()),
    })
}

/// In the child: goes on when the parent traces us, and not without a parent.
unsafe fn wait_for_tracer(reader: RawFd, writer: RawFd) {
    libc::close(writer);
    let mut byte = 0_u8;
    loop {
        match libc::read(reader, std::ptr::from_mut(&mut byte).cast(), 1) {
            1 => return,
            0 => libc::_exit(127),
            _ => {} // interrupted
        }
    }
}

/// In the parent. A command that has itself traced when it starts could not be left stopped, as one that is
/// seized can. Where that is refused it runs untraced, and nothing is seen.
fn trace(pid: i32, gate: OwnedFd) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    // SAFETY: the process is ours, and waits for us.
    unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) };
    io::Write::write_all(&mut fs::File::from(gate), &[1])
}

/// Runs in the child; only async-signal-safe calls. Reports errno through the pipe if exec fails.
unsafe fn child(
    prepared: &Prepared,
    signals: &Signals,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    report: RawFd,
    gate: Option<(RawFd, RawFd)>,
) -> ! {
    let steps = || -> bool {
        inherited::restore();
        libc::sigprocmask(libc::SIG_SETMASK, &signals.blocked, std::ptr::null_mut());
        passing::forget(&signals.passed_on);
        if let Some(streams) = &prepared.streams {
            libc::setpgid(0, 0);
            for (target, stream) in streams.iter().enumerate() {
                if libc::dup2(stream.as_raw_fd(), target as RawFd) < 0 {
                    return false;
                }
            }
        }
        if let Some(directory) = &prepared.directory {
            if libc::chdir(directory.as_ptr()) != 0 {
                return false;
            }
        }
        if let Some((reader, writer)) = gate {
            wait_for_tracer(reader, writer);
        }
        let path = prepared.arguments[0].as_c_str();
        exec(prepared.is_program, path, argv.as_ptr(), envp.as_ptr());
        false
    };
    steps();
    let error = (*libc::__errno_location()).to_ne_bytes();
    libc::write(report, error.as_ptr().cast(), error.len());
    libc::_exit(127)
}

/// Runs the command to its end.
pub fn launch(request: &Request) -> io::Result<Measured> {
    if request.command.is_empty() {
        return Err(io::Error::other("no command"));
    }
    let prepared = prepare(request)?;
    let pointers = |strings: &[CString]| {
        let mut list: Vec<*const libc::c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        list.push(std::ptr::null());
        list
    };
    let (argv, envp) = (
        pointers(&prepared.arguments),
        pointers(&prepared.environment),
    );
    let (error_reader, error_writer) = pipe()?;
    let (gate_reader, gate_writer) = pipe()?;
    for writer in [&error_writer, &gate_writer] {
        // SAFETY: closes on exec, so that reading the errors ends when the command has started.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    let report = error_writer.as_raw_fd();
    let gate = (gate_reader.as_raw_fd(), gate_writer.as_raw_fd());
    let gate = prepared.traced.then_some(gate);
    let signals = install_handlers(request);
    let start = Instant::now();
    // SAFETY: this process has one thread; the child calls async-signal-safe functions only.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => unsafe { child(&prepared, &signals, &argv, &envp, report, gate) },
        pid => pid,
    };
    CHILD_GROUP.store(pid, Ordering::SeqCst);
    passing::pass_to(pid);
    passing::release(&request.passed_on);
    if request.timeout_s > 0.0 {
        start_timer(request.timeout_s.max(1e-6)); // less is the timer's 0, which is none
    }
    drop(error_writer);
    if prepared.traced {
        trace(pid, gate_writer)?;
    }
    let mut waiting = Waiting::default();
    let (status, usage) = waiting.until_end(pid, request)?;
    passing::pass_to(0);
    let wall_s = start.elapsed().as_secs_f64();
    start_timer(0.0);
    let mut error = Vec::new();
    io::Read::read_to_end(&mut fs::File::from(error_reader), &mut error)?;
    if let Ok(errno) = <[u8; 4]>::try_from(error.as_slice()) {
        return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
    }
    Ok(measured(pid, status, wall_s, &usage, waiting.mapped))
}

fn measured(
    pid: i32,
    status: i32,
    wall_s: f64,
    usage: &libc::rusage,
    mapped: Option<bool>,
) -> Measured {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let ending = if TIMED_OUT.load(Ordering::SeqCst) {
        Ending::TimedOut
    } else if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Exit(libc::WEXITSTATUS(status))
    };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Measured {
        pid,
        ending,
        wall_s,
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        peak_rss_bytes: count(usage.ru_maxrss) * 1024,
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
        mapped,
    }
}

/// Waits for the command's end; passes on what stops a traced command meanwhile.
#[derive(Default)]
struct Waiting {
    comes_first: bool,
    mapped: Option<bool>,
}

impl Waiting {
    fn until_end(&mut self, pid: i32, request: &Request) -> io::Result<(i32, libc::rusage)> {
        loop {
            let mut status = 0;
            // SAFETY: both are plain output structures.
            let (waited, usage) = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                (
                    libc::wait4(pid, &mut status, libc::__WALL, &mut usage),
                    usage,
                )
            };
            if waited < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            if !libc::WIFSTOPPED(status) {
                return Ok((status, usage));
            }
            self.on_stop(pid, status, request);
        }
    }

    fn on_stop(&mut self, pid: i32, status: i32, request: &Request) {
        let signal = libc::WSTOPSIG(status);
        let (go_on, signal) = match status >> 16 {
            libc::PTRACE_EVENT_EXIT => {
                self.mapped = mapped_now(pid, &request.expect_mapped)
                    .filter(|mapped| !mapped || self.comes_first || !request.expect_first);
                (libc::PTRACE_CONT, 0)
            }
            libc::PTRACE_EVENT_EXEC => {
                // Looked at now: a program may write its title over its environment later.
                self.comes_first = comes_first(pid, &request.expect_mapped);
                (libc::PTRACE_CONT, 0)
            }
            // Stopped by a signal, it stays so; what goes on after that is shown as a trap.
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => (libc::PTRACE_LISTEN, 0),
            libc::PTRACE_EVENT_STOP => (libc::PTRACE_CONT, 0),
            _ => (libc::PTRACE_CONT, signal),
        };
        // SAFETY: the process is ours and stopped; a failure means that it was killed meanwhile.
        unsafe { libc::ptrace(go_on, pid, 0, signal) };
    }
}

fn mapped_now(pid: i32, expected: &[PathBuf]) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .ok()
        .filter(|maps| !maps.is_empty())?;
    Some(expected.iter().all(|path| {
        let shown = path.to_string_lossy();
        maps.lines()
            .any(|line| line.ends_with(shown.as_ref()) || (shown == LIBC && is_old_libc(line)))
    }))
}

/// `libc-2.31.so`, to which `libc.so.6` is a link before glibc 2.34.
fn is_old_libc(line: &str) -> bool {
    let name = line.rsplit('/').next().unwrap_or_default();
    name.starts_with("libc-2.") && name.ends_with(".so")
}

/// Is the first of these the first that the program is to preload?
fn comes_first(pid: i32, expected: &[PathBuf]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let preload = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="))
        .unwrap_or_default();
    let first = preload
        .split(|byte| matches!(byte, b':' | b' '))
        .find(|name| !name.is_empty());
    expected.first().map(|path| path.as_os_str().as_bytes()) == first
}
