// SPDX-License-Identifier: MIT
//! `mallow-bench long-run`: `bench/macro/server_mix.c` under mallow and every peer, all at the same
//! time, and what each has resident meanwhile. The program paces itself and uses a few hundredths of a
//! core, so that they do not disturb one another; what it does does not depend on the allocator, and
//! this is checked.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mallow_measure::allocators::Allocator;
use mallow_measure::library;
use mallow_measure::machine::Machine;
use mallow_measure::progress::Progress;
use serde::{Deserialize, Serialize};

use crate::results::read_as;

/// The value of `format` in files of this form.
pub const FORMAT: &str = "mallow-long-run-1";
/// Between two samples.
const SAMPLE: Duration = Duration::from_millis(250);
/// A program that has not ended so long after its time is killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A phase of the program by its schedule, the same under every allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Since the program's start.
    pub at_ms: u64,
    /// From 0; the number of days for what comes after the last.
    pub day: usize,
    /// Its name.
    pub phase: String,
    /// Workers in it.
    pub threads: usize,
}

/// What the program prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// The phases.
    pub begins: Vec<Begin>,
    /// Milliseconds since the start, and bytes asked for and not yet freed from then on.
    pub live: Vec<(u64, u64)>,
    /// Allocations, frees and resizes in all.
    pub operations: u64,
    /// Made of what was read back from every block freed.
    pub checksum: String,
}

/// How one run of the program fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// User and system time.
    pub cpu_ms: u64,
    /// Page faults without I/O.
    pub faults: u64,
    /// How late the latest tick was.
    pub late_ms: u64,
}

/// One allocator's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Which.
    pub allocator: Allocator,
    /// When its process began, after the first sample's zero.
    pub started_ms: u64,
    /// VmRSS at each sample, in KiB, as long as it ran.
    pub rss_kib: Vec<u64>,
    /// Pss at each, from smaps_rollup; 0 where the kernel did not say.
    pub pss_kib: Vec<u64>,
    /// Its cost.
    pub own: Own,
    /// Why the run does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A result file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LongRun {
    /// Always [`FORMAT`].
    pub format: String,
    /// When it began, UTC.
    pub date: String,
    /// Commit of the tree, with `+` if changed.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// Program and arguments.
    pub command: Vec<String>,
    /// When the samples were taken.
    pub at_ms: Vec<u64>,
    /// What all did.
    pub course: Course,
    /// Mallow first if it was there.
    pub subjects: Vec<Subject>,
}

/// Reads what the program printed; the error names the line.
pub fn parse(text: &str) -> Result<(Course, Own), String> {
    let (mut course, mut own) = (Course::default(), None);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = || format!("server_mix: not understood: '{line}'");
        let number = |at: usize| -> Result<u64, String> {
            words.get(at).and_then(|w| w.parse().ok()).ok_or_else(bad)
        };
        match words.first().copied() {
            Some("begin") => course.begins.push(Begin {
                at_ms: number(1)?,
                day: number(2)? as usize,
                phase: words.get(3).ok_or_else(bad)?.to_string(),
                threads: number(4)? as usize,
            }),
            Some("live") => course.live.push((number(1)?, number(2)?)),
            Some("end") => {
                course.operations = number(1)?;
                course.checksum = words.get(2).ok_or_else(bad)?.to_string();
            }
            Some("own") => {
                own = Some(Own {
                    cpu_ms: number(1)?,
                    faults: number(2)?,
                    late_ms: number(3)?,
                })
            }
            _ => return Err(bad()),
        }
    }
    match own {
        Some(own) if !course.checksum.is_empty() => Ok((course, own)),
        _ => Err("server_mix: it did not come to its end".into()),
    }
}

/// A figure in KiB from a file of /proc: `Name:   123 kB`.
fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_end_matches("kB").trim().parse().ok()
}

/// A process that runs, and what it says meanwhile.
struct Running {
    child: Child,
    output: Option<JoinHandle<String>>,
    errors: Option<JoinHandle<String>>,
    ended: bool,
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> Option<JoinHandle<String>> {
    pipe.map(|mut pipe| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    })
}

fn start(command: &[String], allocator: &Allocator) -> Result<Running, String> {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).env_remove("LD_PRELOAD");
    for name in library::TOOL_VARIABLES {
        process.env_remove(name);
    }
    if !allocator.preload.is_empty() {
        process.env(
            "LD_PRELOAD",
            library::preload_value(&allocator.preload, None),
        );
    }
    let mut child = process
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("'{}': {e}", command[0]))?;
    Ok(Running {
        output: reader(child.stdout.take()),
        errors: reader(child.stderr.take()),
        child,
        ended: false,
    })
}

impl Running {
    /// RSS and PSS in KiB; `None` when it has ended.
    fn sample(&mut self) -> Option<(u64, u64)> {
        if self.ended || !matches!(self.child.try_wait(), Ok(None)) {
            self.ended = true;
            return None;
        }
        let read = |name: &str| {
            fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap_or_default()
        };
        let rss = field_kib(&read("status"), "VmRSS:")?;
        let pss = field_kib(&read("smaps_rollup"), "Pss:");
        Some((rss, pss.unwrap_or(0)))
    }

    /// Is every library that was to be preloaded mapped?
    fn has_mapped(&self, libraries: &[std::path::PathBuf]) -> bool {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.child.id()));
        let maps = maps.unwrap_or_default();
        libraries.iter().all(|library| {
            let real = library.canonicalize().unwrap_or_else(|_| library.clone());
            maps.contains(&real.display().to_string())
        })
    }

    /// What it printed, once it has ended; the error says how it failed.
    fn finish(mut self) -> Result<String, String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        let text = |thread: Option<JoinHandle<String>>| {
            thread.and_then(|t| t.join().ok()).unwrap_or_default()
        };
        let (output, errors) = (text(self.output.take()), text(self.errors.take()));
        if status.success() {
            return Ok(output);
        }
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        Err(format!("{status}: {}", last.unwrap_or_default().trim()))
    }
}

/// Starts one process for each allocator, samples all until they have ended, and compares what they did.
pub fn run(
    command: Vec<String>,
    lasts: Duration,
    allocators: &[Allocator],
    head: (String, String, Machine),
    progress: &Progress,
) -> Result<LongRun, String> {
    let (date, commit, machine) = head;
    let mut all = LongRun {
        format: FORMAT.into(),
        date,
        commit,
        machine,
        command,
        at_ms: Vec::new(),
        course: Course::default(),
        subjects: Vec::new(),
    };
    let zero = Instant::now();
    let mut running: Vec<Running> = Vec::new();
    for allocator in allocators {
        let started_ms = zero.elapsed().as_millis() as u64;
        match start(&all.command, allocator) {
            Ok(process) => running.push(process),
            Err(error) => {
                // Nobody is left behind.
                running.iter_mut().for_each(|r| drop(r.child.kill()));
                running.into_iter().for_each(|r| drop(r.finish()));
                return Err(error);
            }
        }
        all.subjects.push(Subject {
            allocator: allocator.clone(),
            started_ms,
            rss_kib: Vec::new(),
            pss_kib: Vec::new(),
            own: Own::default(),
            error: None,
        });
    }
    watch(&mut all, &mut running, zero, lasts, progress);
    for (subject, process) in all.subjects.iter_mut().zip(running) {
        match process.finish().and_then(|text| parse(&text)) {
            Ok((course, own)) => {
                subject.own = own;
                if all.course.checksum.is_empty() {
                    all.course = course;
                } else if all.course != course && subject.error.is_none() {
                    subject.error = Some("it did not do the same operations".into());
                }
            }
            Err(error) => {
                subject.error.get_or_insert(error);
            }
        }
    }
    Ok(all)
}

/// Samples until all have ended; kills what goes on for too long.
fn watch(
    all: &mut LongRun,
    running: &mut [Running],
    zero: Instant,
    lasts: Duration,
    progress: &Progress,
) {
    let mut due = zero + SAMPLE;
    let mut said = 0;
    loop {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        all.at_ms.push(zero.elapsed().as_millis() as u64);
        let mut going = 0;
        for (subject, process) in all.subjects.iter_mut().zip(running.iter_mut()) {
            let Some((rss, pss)) = process.sample() else {
                continue;
            };
            going += 1;
            if subject.rss_kib.is_empty() && !process.has_mapped(&subject.allocator.preload) {
                subject.error = Some("its library was not loaded into the program".into());
            }
            subject.rss_kib.push(rss);
            subject.pss_kib.push(pss);
        }
        if going == 0 {
            all.at_ms.pop();
            return;
        }
        let elapsed = zero.elapsed();
        if elapsed > lasts + PATIENCE {
            running.iter_mut().for_each(|r| drop(r.child.kill()));
        }
        let minutes = elapsed.as_secs() / 60;
        if minutes > said {
            said = minutes;
            let total = lasts.as_secs_f64() / 60.0;
            progress.say(&format!(
                "long-run: minute {minutes} of {total:.1}, {going} processes"
            ));
        }
        // A late sample shifts none of those after it.
        while due <= Instant::now() {
            due += SAMPLE;
        }
    }
}

/// Reads a result file; the error names it.
pub fn read(path: &Path) -> Result<LongRun, String> {
    read_as(path, FORMAT)
}

/// Writes the result file.
pub fn write(all: &LongRun, path: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot write '{}': {e}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    let text = serde_json::to_string(all).map_err(|e| e.to_string())?;
    fs::write(path, text + "\n").map_err(fail)
}

#[cfg(test)]
#[path = "long_run_tests.rs"]
mod tests;
