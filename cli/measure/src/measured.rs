// SPDX-License-Identifier: MIT
//! What one run of a command yields.

use serde::{Deserialize, Serialize};

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed at the time limit.
    TimedOut,
    /// It could not be started: the reason.
    NotStarted(String),
}

impl Ending {
    /// In words, for a table or a message.
    pub fn describe(&self) -> String {
        match self {
            Ending::Exit(0) => "ok".into(),
            Ending::Exit(code) => format!("exit status {code}"),
            Ending::Signal(number) => {
                format!("killed by signal {number} ({})", signal_name(*number))
            }
            Ending::TimedOut => "timed out".into(),
            Ending::NotStarted(reason) => format!("not started: {reason}"),
        }
    }
}

fn signal_name(number: i32) -> &'static str {
    match number {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        _ => "see signal(7)",
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The command's process id.
    pub pid: i32,
    /// How it ended.
    pub ending: Ending,
    /// From fork to end, in seconds.
    pub wall_s: f64,
    /// User CPU time of it and all descendants it waited for, in seconds.
    pub user_s: f64,
    /// System CPU time, likewise.
    pub system_s: f64,
    /// The largest peak RSS of any *one* of these processes, in bytes.
    pub peak_rss_bytes: u64,
    /// Page faults served without I/O, of all of them together.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by the scheduler.
    pub involuntary_switches: u64,
    /// Were all of `expect_mapped` mapped at the end? `None` if not asked or not seen.
    pub mapped: Option<bool>,
}

impl Measured {
    /// Nothing was measured: the reason.
    pub fn not_started(reason: String) -> Measured {
        Measured {
            pid: 0,
            ending: Ending::NotStarted(reason),
            wall_s: 0.0,
            user_s: 0.0,
            system_s: 0.0,
            peak_rss_bytes: 0,
            minor_faults: 0,
            major_faults: 0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            mapped: None,
        }
    }
}
