// SPDX-License-Identifier: MIT
//! `mallow check`: runs the command and proves, from what the library itself reports at the end of
//! every process, that its symbols are bound and the blocks are its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use mallow_measure::elf::{self, Obstacle};
use mallow_measure::launch::{self, Ending, Measured, Request};
use mallow_measure::library;
use mallow_measure::output;
use mallow_measure::scratch::Scratch;
use mallow_measure::table::{self, Table};
use serde::{Deserialize, Serialize};

use crate::{command_argument, given_text, lib_argument, Failure};

/// Without these, blocks of one allocator could be freed by another.
const NEEDED: [&str; 7] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
];

/// With more processes than these, the table has one row a program.
const PROCESS_ROWS_MAX: usize = 16;

/// How long a process that is writing its report is waited for.
const WRITING_MAX: Duration = Duration::from_secs(2);

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("check")
        .about("Runs a command and proves that mallow is active in it and its child processes")
        .override_usage("mallow check [OPTIONS] -- CMD...")
        .after_help(
            "Exit codes: 0 mallow was active and the command succeeded; 1 mallow was not active (the \
             reason is printed); otherwise the command's own; 125 the tool itself failed; 126, 127 the \
             command cannot be executed or was not found.",
        )
        .arg(lib_argument())
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the verdict as JSON (on standard error, as the table)"),
        )
        .arg(command_argument())
}

/// What the library writes at exit (see MALLOW_REPORT); fields that are not needed are left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Report {
    mallow: String,
    pid: i64,
    exe: String,
    symbols: BTreeMap<String, bool>,
    probe_owned: bool,
    stats: BTreeMap<String, serde_json::Value>,
    process: BTreeMap<String, serde_json::Value>,
}

impl Report {
    fn number(map: &BTreeMap<String, serde_json::Value>, name: &str) -> f64 {
        map.get(name)
            .and_then(serde_json::Value::as_f64)
            .unwrap_or(0.0)
    }

    /// Live blocks or bytes at the end, over all sizes of blocks.
    fn live(&self, what: &str) -> f64 {
        let parts = ["small", "large", "huge"];
        let whole = self.stats.get(&format!("live_{what}"));
        whole
            .and_then(serde_json::Value::as_f64)
            .unwrap_or_else(|| {
                let part =
                    |size: &&str| Report::number(&self.stats, &format!("{size}_live_{what}"));
                parts.iter().map(part).sum()
            })
    }

    /// For a terminal: the name of a file may have anything in it.
    fn program(&self) -> String {
        output::printable(&self.exe)
    }

    fn bound(&self) -> String {
        let bound = self.symbols.values().filter(|ours| **ours).count();
        format!("{bound} of {}", self.symbols.len())
    }

    fn owned(&self) -> &'static str {
        if self.probe_owned {
            "yes"
        } else {
            "NO"
        }
    }

    fn peak_bytes(&self) -> f64 {
        Report::number(&self.process, "peak_rss_bytes")
    }

    fn foreign_symbols(&self) -> Vec<&str> {
        self.symbols
            .iter()
            .filter(|(_, ours)| !**ours)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    fn active(&self) -> bool {
        self.probe_owned
            && NEEDED
                .iter()
                .all(|name| self.symbols.get(*name).copied().unwrap_or(true))
            && self.symbols.get("malloc").copied().unwrap_or(false)
    }
}

/// The outcome, printed as a table or as JSON.
#[derive(Debug, Serialize)]
struct Verdict {
    active: bool,
    library: PathBuf,
    command: Vec<String>,
    ending: String,
    by_map: Option<String>,
    reasons: Vec<String>,
    processes: Vec<Report>,
}

/// Runs the command and prints the verdict.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let (program, words) = given_text(matches)?;
    let lib = matches.get_one::<PathBuf>("lib").map(PathBuf::as_path);
    let library = library::find(lib).map_err(Failure::tool)?;
    let obstacles = elf::obstacles(&program);
    let scratch = Scratch::new().map_err(|e| Failure::tool(e.to_string()))?;
    let measured = run(&program, &words, &library, &scratch.0)?;
    if let Ending::NotStarted(reason) = &measured.ending {
        return Err(Failure::with_code(
            126,
            format!("cannot execute '{}': {reason}", program.display()),
        ));
    }
    let (processes, unreadable) = read_reports(&scratch.0);
    let mut reasons = judge(&measured, &processes, &obstacles);
    reasons.extend(unreadable);
    let by_map = (reasons.is_empty() && !has_report(&measured, &processes)).then(|| {
        let shown = elf::interpreter_of(&program);
        format!(
            "process {} ({}) left no report (it ended without exit handlers, or could not write one); it is \
             proved by its memory map: libmallow.so was loaded, first in the order of symbols",
            measured.pid,
            output::printable(&shown.to_string_lossy())
        )
    });
    let verdict = Verdict {
        by_map,
        active: reasons.is_empty(),
        library,
        command: words,
        ending: measured.ending.describe(),
        reasons,
        processes,
    };
    if matches.get_flag("json") {
        let text =
            serde_json::to_string_pretty(&verdict).map_err(|e| Failure::tool(e.to_string()))?;
        eprintln!("{text}");
    } else {
        eprint!("{}", render(&verdict));
    }
    Ok(exit_code(verdict.active, &measured.ending))
}

fn run(
    program: &Path,
    words: &[String],
    library: &Path,
    scratch: &Path,
) -> Result<Measured, Failure> {
    let existing = std::env::var_os("LD_PRELOAD");
    let ours = [library.to_path_buf()];
    let mut command = words.to_vec();
    command[0] = program.display().to_string();
    let request = Request {
        command,
        set: vec![
            (
                "LD_PRELOAD".into(),
                library::preload_value(&ours, existing.as_deref())
                    .to_string_lossy()
                    .into_owned(),
            ),
            (
                "MALLOW_REPORT".into(),
                scratch.join("%p.json").display().to_string(),
            ),
        ],
        remove: library::TOOL_VARIABLES.map(String::from).to_vec(),
        inherit: true,
        expect_mapped: ours.to_vec(),
        ..Request::default()
    };
    launch::run(&request).map_err(|e| Failure::tool(format!("cannot run the command: {e}")))
}

/// The reports of all processes, in the order of their ids, and complaints about unreadable ones.
fn read_reports(directory: &Path) -> (Vec<Report>, Vec<String>) {
    let (mut reports, mut complaints) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match read_report(&entry.path()) {
            Ok(report) => reports.push(report),
            Err(error) => complaints.push(format!(
                "the report {} is damaged: {error}",
                entry.file_name().to_string_lossy()
            )),
        }
    }
    reports.sort_by_key(|report| report.pid);
    (reports, complaints)
}

/// The report of one process, by whose id the file is named. One that the command did not wait for may
/// be writing it still.
fn read_report(path: &Path) -> Result<Report, serde_json::Error> {
    let process = Path::new("/proc").join(path.file_stem().unwrap_or_default());
    let begun = Instant::now();
    loop {
        let lives = process.exists(); // asked before: what it has written by its end is whole
        let text = fs::read_to_string(path).unwrap_or_default();
        match serde_json::from_str(&text) {
            Err(_) if lives && begun.elapsed() < WRITING_MAX => {
                thread::sleep(Duration::from_millis(5));
            }
            read => return read,
        }
    }
}

fn has_report(measured: &Measured, reports: &[Report]) -> bool {
    reports
        .iter()
        .any(|report| report.pid == i64::from(measured.pid))
}

/// A program may end without exit handlers, as shells do, or by a signal, and so without a report. Then this must do:
/// the library was mapped at its end, and it was first in the loader's order of symbols.
fn bound_by_map(measured: &Measured, obstacles: &[Obstacle]) -> bool {
    measured.mapped == Some(true)
        && obstacles.is_empty()
        && matches!(measured.ending, Ending::Exit(_) | Ending::Signal(_))
}

/// Why mallow was not active; empty if it was.
fn judge(measured: &Measured, reports: &[Report], obstacles: &[Obstacle]) -> Vec<String> {
    let mut reasons = Vec::new();
    if !has_report(measured, reports) && !bound_by_map(measured, obstacles) {
        reasons.push(why_no_report(measured, obstacles));
    }
    for report in reports.iter().filter(|report| !report.active()) {
        let missing: Vec<&str> = report
            .foreign_symbols()
            .into_iter()
            .filter(|name| NEEDED.contains(name))
            .collect();
        let own = obstacles
            .iter()
            .find(|o| matches!(o, Obstacle::OwnMalloc(_)));
        let mut text = format!("process {} ({})", report.pid, report.program());
        if missing.is_empty() {
            text.push_str(": a block from malloc is not mallow's");
        } else {
            text.push_str(&format!(": bound elsewhere: {}", missing.join(", ")));
        }
        if let Some(own) = own {
            text.push_str(&format!("; {}", own.describe()));
        }
        reasons.push(text);
    }
    reasons
}

fn why_no_report(measured: &Measured, obstacles: &[Obstacle]) -> String {
    if let Some(obstacle) = obstacles.iter().find(|o| o.prevents_loading()) {
        return obstacle.describe();
    }
    let main = format!("process {} wrote no report", measured.pid);
    match (&measured.ending, measured.mapped) {
        (_, Some(false)) => format!(
            "{main}: libmallow.so was not loaded into it (does the loader say why above? setuid, another \
             architecture, or a cleared environment)"
        ),
        (Ending::Signal(_), _) => format!("{main}: it was {}", measured.ending.describe()),
        (_, Some(true)) => format!("{main}, though libmallow.so was loaded"),
        _ => format!("{main}: it ended in a way that could not be observed"),
    }
}

fn exit_code(active: bool, ending: &Ending) -> u8 {
    match ending {
        _ if !active => 1,
        Ending::Exit(code) => u8::try_from(*code).unwrap_or(1),
        Ending::Signal(number) => u8::try_from(128 + number).unwrap_or(1),
        _ => 125,
    }
}

/// One row a process.
fn every_process(processes: &[Report]) -> Table {
    let mut table = Table::new([
        "pid",
        "program",
        "symbols bound",
        "blocks owned",
        "live blocks",
        "live MiB",
        "peak MiB",
    ]);
    for report in processes {
        table.row([
            report.pid.to_string(),
            report.program(),
            report.bound(),
            report.owned().to_string(),
            table::count(report.live("count")),
            table::mebibytes(report.live("bytes")),
            table::mebibytes(report.peak_bytes()),
        ]);
    }
    table
}

/// One row for all processes of one program with the same findings, in the order of their first.
fn every_program(processes: &[Report]) -> Table {
    let mut groups: Vec<(&Report, usize, f64)> = Vec::new();
    for report in processes {
        let same = |other: &Report| {
            (&other.exe, &other.symbols, other.probe_owned)
                == (&report.exe, &report.symbols, report.probe_owned)
        };
        match groups.iter_mut().find(|(first, _, _)| same(first)) {
            Some((_, count, peak)) => {
                *count += 1;
                *peak = peak.max(report.peak_bytes());
            }
            None => groups.push((report, 1, report.peak_bytes())),
        }
    }
    let mut table = Table::new([
        "program",
        "processes",
        "symbols bound",
        "blocks owned",
        "largest peak MiB",
    ]);
    for (report, count, peak) in groups {
        table.row([
            report.program(),
            count.to_string(),
            report.bound(),
            report.owned().to_string(),
            table::mebibytes(peak),
        ]);
    }
    table
}

fn render(verdict: &Verdict) -> String {
    let mut text = String::from("\n");
    if verdict.processes.len() > PROCESS_ROWS_MAX {
        text.push_str(&every_program(&verdict.processes).render());
    } else if !verdict.processes.is_empty() {
        text.push_str(&every_process(&verdict.processes).render());
    }
    for report in &verdict.processes {
        let foreign = report.foreign_symbols();
        if !foreign.is_empty() {
            text.push_str(&format!(
                "process {}: bound elsewhere: {}\n",
                report.pid,
                foreign.join(", ")
            ));
        }
    }
    let library = verdict.library.display();
    if verdict.active {
        let version = verdict
            .processes
            .first()
            .map(|r| r.mallow.as_str())
            .unwrap_or_default();
        let count = verdict.processes.len() + usize::from(verdict.by_map.is_some());
        let noun = if count == 1 { "process" } else { "processes" };
        if let Some(note) = &verdict.by_map {
            text.push_str(&format!("{note}\n"));
        }
        let version = format!("mallow {version}");
        let version = version.trim_end();
        text.push_str(&format!(
            "{version} is ACTIVE in {count} {noun} ({library})\n"
        ));
    } else {
        text.push_str(&format!("mallow is NOT ACTIVE ({library})\n"));
        for reason in &verdict.reasons {
            text.push_str(&format!("  because {reason}\n"));
        }
    }
    if verdict.ending != "ok" {
        text.push_str(&format!("the command itself: {}\n", verdict.ending));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pid: i64, malloc: bool, owned: bool) -> Report {
        Report {
            pid,
            exe: "/bin/x".into(),
            symbols: [("malloc", malloc), ("free", true), ("_Znwm", false)]
                .map(|(name, ours)| (name.to_string(), ours))
                .into(),
            probe_owned: owned,
            ..Report::default()
        }
    }

    fn measured(ending: Ending, mapped: Option<bool>) -> Measured {
        let text = r#"{"pid":7,"ending":{"Exit":0},"wall_s":0,"user_s":0,"system_s":0,"peak_rss_bytes":0,
            "minor_faults":0,"major_faults":0,"voluntary_switches":0,"involuntary_switches":0,"mapped":null}"#;
        Measured {
            ending,
            mapped,
            ..serde_json::from_str(text).unwrap()
        }
    }

    #[test]
    fn active_needs_symbols_and_blocks_in_every_process() {
        let ok = measured(Ending::Exit(0), Some(true));
        assert!(judge(&ok, &[report(7, true, true), report(8, true, true)], &[]).is_empty());
        let bound = judge(&ok, &[report(7, true, true), report(8, false, true)], &[]);
        assert!(bound.len() == 1 && bound[0].contains("process 8") && bound[0].contains("malloc"));
        let blocks = judge(&ok, &[report(7, true, false)], &[]);
        assert!(blocks[0].contains("not mallow's"));
    }

    #[test]
    fn a_missing_report_is_explained() {
        let other = [report(9, true, true)];
        let why = |ending, mapped, obstacles: &[Obstacle]| {
            judge(&measured(ending, mapped), &other, obstacles)
        };
        assert!(why(Ending::Exit(0), Some(false), &[])[0].contains("not loaded"));
        assert!(why(Ending::Exit(0), Some(true), &[]).is_empty());
        let own = [Obstacle::OwnMalloc("/bin/x".into())];
        assert!(why(Ending::Exit(0), Some(true), &own)[0].contains("no report"));
        assert!(why(Ending::Signal(9), None, &[])[0].contains("SIGKILL"));
        assert!(why(Ending::Signal(6), Some(true), &[]).is_empty());
        let fixed = [Obstacle::Static("/bin/x".into())];
        assert!(why(Ending::Exit(0), Some(false), &fixed)[0].contains("statically linked"));
    }

    #[test]
    fn many_processes_are_grouped_by_program() {
        let mut all: Vec<Report> = (1..=30).map(|pid| report(pid, true, true)).collect();
        all[29].probe_owned = false;
        let text = every_program(&all).render();
        assert!(text.contains("29") && text.contains("NO"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn live_blocks_are_summed_if_there_is_no_sum() {
        let mut of = report(1, true, true);
        of.stats = [("small_live_count", 3), ("huge_live_count", 2)]
            .map(|(name, value)| (name.to_string(), value.into()))
            .into();
        assert_eq!(of.live("count"), 5.0);
    }

    #[test]
    fn exit_codes() {
        assert_eq!(exit_code(true, &Ending::Exit(0)), 0);
        assert_eq!(exit_code(false, &Ending::Exit(0)), 1);
        assert_eq!(exit_code(true, &Ending::Exit(3)), 3);
        assert_eq!(exit_code(true, &Ending::Signal(6)), 134);
    }
}
