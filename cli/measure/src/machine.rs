// SPDX-License-Identifier: MIT
//! The machine and the state of the source tree, as every result records them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Everything that absolute figures depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name on the network.
    pub host: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Logical processors that may be used.
    pub cores: usize,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Frequency governor, if there is one.
    pub governor: String,
    /// Transparent huge pages: always, madvise or never.
    pub huge_pages: String,
    /// Version line of the C compiler.
    pub compiler: String,
    /// Version of glibc.
    pub libc: String,
}

/// The machine we are on.
pub fn machine() -> Machine {
    let line = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_string()
    };
    let cpu_info = line("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .and_then(|l| l.split_once(':'))
            .map(|(_, value)| value.trim().to_string())
            .unwrap_or_default()
    };
    let huge_pages = line("/sys/kernel/mm/transparent_hugepage/enabled");
    let memory_kb = field(&line("/proc/meminfo"), "MemTotal");
    Machine {
        host: line("/proc/sys/kernel/hostname"),
        kernel: format!("Linux {}", line("/proc/sys/kernel/osrelease")),
        cpu: field(&cpu_info, "model name"),
        cores: std::thread::available_parallelism()
            .map(usize::from)
            .unwrap_or(1),
        memory_bytes: memory_kb
            .split(' ')
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024,
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        huge_pages: huge_pages
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map(|(chosen, _)| chosen.to_string())
            .unwrap_or_default(),
        compiler: output_line("cc", &["--version"], Path::new(".")),
        libc: output_line("getconf", &["GNU_LIBC_VERSION"], Path::new(".")),
    }
}

fn output_line(program: &str, arguments: &[&str], directory: &Path) -> String {
    Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .unwrap_or_default()
}

/// The commit of the tree at `root`, with `+` if it has changes; `unknown` outside a repository.
pub fn commit(root: &Path) -> String {
    let hash = output_line("git", &["rev-parse", "--short=12", "HEAD"], root);
    if hash.is_empty() {
        return "unknown".into();
    }
    let changed = output_line(
        "git",
        &["status", "--porcelain", "--untracked-files=no"],
        root,
    );
    format!("{hash}{}", if changed.is_empty() { "" } else { "+" })
}

/// Now, in UTC, as `2026-11-21T21:40:00Z`.
pub fn now() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(|d| d.as_secs())
        .unwrap_or(0);
    format_utc(seconds)
}

/// Civil date from days since 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn format_utc(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    let era = days / 146_097;
    let day_of_era = days - era * 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let time = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(format_utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format_utc(1_795_297_199), "2026-11-21T21:39:59Z");
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine();
        assert!(machine.cores >= 1 && machine.memory_bytes > 0);
        assert!(machine.kernel.starts_with("Linux "));
    }
}
