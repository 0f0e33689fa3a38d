// SPDX-License-Identifier: MIT
//! Runs one command once and measures it.
//!
//! The tools start themselves again as a *launcher* (first argument [`LAUNCHER_ARGUMENT`]), which forks
//! the command and waits for it. A process's peak RSS as the kernel reports it starts at the RSS of
//! the process that forked it, so the one who forks must be small: the launcher has done nothing yet.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::inherited;
use crate::launcher::launch;
pub use crate::measured::{Ending, Measured};
use crate::passing;

/// The hidden first argument that turns either tool into a launcher.
pub const LAUNCHER_ARGUMENT: &str = "--launch-one";

/// What the launcher is to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Request {
    /// The program (a path, already looked up) and its arguments.
    pub command: Vec<String>,
    /// Directory to run it in; the current one if none.
    pub directory: Option<PathBuf>,
    /// Variables to set for the command.
    pub set: Vec<(String, String)>,
    /// Variables to remove for the command.
    pub remove: Vec<String>,
    /// Time limit in seconds; none if 0.
    pub timeout_s: f64,
    /// Standard input; `/dev/null` if none.
    pub stdin: Option<PathBuf>,
    /// Standard output goes to this file; discarded if none.
    pub stdout: Option<PathBuf>,
    /// Standard error goes to this file; discarded if none.
    pub stderr: Option<PathBuf>,
    /// Leave the three streams and the process group as they are (an interactive run). Signals to this
    /// process are passed on to the command, at whose end this process goes on.
    pub inherit: bool,
    /// For the launcher: the signals that are.
    pub passed_on: Vec<i32>,
    /// Files that must be mapped when the process ends. With any, the command is traced (stopped at
    /// its start, its end and its signals only).
    pub expect_mapped: Vec<PathBuf>,
    /// The first of them must also be the first in the `LD_PRELOAD` of the program that ends.
    pub expect_first: bool,
}

/// Runs the command through a fresh launcher and returns what it measured.
pub fn run(request: &Request) -> io::Result<Measured> {
    if !request.inherit {
        return start(request, |_| ());
    }
    let request = Request {
        passed_on: passing::hold(),
        ..request.clone()
    };
    let measured = start(&request, |launcher| {
        passing::pass_to(launcher);
        passing::release(&request.passed_on);
    });
    passing::release(&request.passed_on); // if it did not start
    measured
}

fn start(request: &Request, started: impl FnOnce(libc::pid_t)) -> io::Result<Measured> {
    let (reader, writer) = pipe()?;
    let text = serde_json::to_string(request)?;
    let mut launcher = Command::new(std::env::current_exe()?);
    let mut child = inherited::hand_on(&mut launcher)
        .arg(LAUNCHER_ARGUMENT)
        .arg(writer.as_raw_fd().to_string())
        .args(in_parts(&text))
        .env_remove("LD_PRELOAD")
        .envs(std::env::var_os("LD_PRELOAD").map(|value| (SAVED_PRELOAD, value)))
        .stdin(if request.inherit {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .spawn()?;
    started(child.id() as libc::pid_t);
    drop(writer);
    let answer = io::read_to_string(fs::File::from(reader));
    let status = child.wait()?;
    passing::pass_to(0);
    match serde_json::from_str(&answer?) {
        Ok(measured) => Ok(measured),
        Err(_) => Err(io::Error::other(format!(
            "the launcher ended without a result ({status})"
        ))),
    }
}

/// The text as words of a command, of which the kernel takes none above 128 KiB.
fn in_parts(text: &str) -> Vec<String> {
    const CHARACTERS: usize = 30_000; // of at most 4 bytes
    let characters: Vec<char> = text.chars().collect();
    let parts = characters.chunks(CHARACTERS);
    parts.map(|part| part.iter().collect()).collect()
}

/// The launcher itself must not run on the caller's preloaded libraries, the command must.
pub(crate) const SAVED_PRELOAD: &str = "MALLOW_SAVED_PRELOAD";

/// Does the launcher's work and exits, if this process was started as one. Call it first in `main`.
pub fn launcher_main_if_asked() {
    let mut arguments = std::env::args_os();
    if arguments.nth(1).as_deref() != Some(LAUNCHER_ARGUMENT.as_ref()) {
        return;
    }
    let fd = arguments
        .next()
        .and_then(|fd| fd.to_string_lossy().parse::<RawFd>().ok());
    let text: String = arguments
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let (Some(fd), Ok(request)) = (fd, serde_json::from_str::<Request>(&text)) else {
        eprintln!("mallow: {LAUNCHER_ARGUMENT} is for internal use");
        std::process::exit(2);
    };
    // SAFETY: the caller passes the write end of a pipe that nothing else in this process uses.
    let mut pipe = fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: marks our own descriptor so that the command does not inherit it.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    let measured = launch(&request).unwrap_or_else(|e| Measured::not_started(e.to_string()));
    let written = serde_json::to_string(&measured).map(|text| pipe.write_all(text.as_bytes()));
    std::process::exit(i32::from(!matches!(written, Ok(Ok(())))));
}

/// A pipe whose write end survives exec.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors, which become ours.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The write end is for the launcher.
        libc::fcntl(ends[1], libc::F_SETFD, 0);
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
