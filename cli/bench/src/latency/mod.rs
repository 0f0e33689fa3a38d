// SPDX-License-Identifier: MIT
//! `mallow-bench latency`: `build/bench/latency` under mallow and every peer, interleaved: the gate first,
//! then round after round, in each round a group of modes under all allocators before the next group.

mod data;
mod picture;
mod published;
mod report;

use std::path::Path;

use mallow_measure::allocators::Allocator;
use mallow_measure::machine::Machine;
use mallow_measure::measured::Ending;
use mallow_measure::progress::Progress;
use mallow_measure::session::{self, Job, Run};

use crate::{tool, usage, Failure};

pub use data::Latency;
pub use data::FORMAT;
use data::{Seen, Subject};
pub use picture::picture;
pub use report::render;

/// Modes that run in one process, so that its allocators are compared within a minute.
const GROUPS: [&[&str]; 6] = [
    &["hot", "call"],
    &["churn"],
    &["mixed", "order"],
    &["pipeline"],
    &["remote", "threads"],
    &["startup", "memory"],
];

/// Counts of the full run: 64 million timed calls of churn at each size.
const FULL: [&str; 11] = [
    "hot=1m",
    "single=4m",
    "churn=32m",
    "mixed=32m",
    "order=262144",
    "pipeline=50m",
    "remote=32m",
    "thread_steps=16m",
    "starts=5",
    "memory=256M",
    "live=262144",
];

/// Counts of the quick run.
const QUICK: [&str; 11] = [
    "hot=100k",
    "single=300k",
    "churn=1500k",
    "mixed=1500k",
    "order=32768",
    "pipeline=1m",
    "remote=1500k",
    "thread_steps=750k",
    "starts=3",
    "memory=16M",
    "live=262144",
];

/// Modes that a quick run leaves out.
const NOT_QUICK: [&str; 3] = ["churn-16", "churn-256", "churn-4096"];

/// The most that one process may take.
const TIMEOUT_S: f64 = 1800.0;

/// What to run.
pub struct Plan {
    /// Rounds of everything.
    pub rounds: usize,
    /// Fewer operations, fewer sizes.
    pub quick: bool,
    /// Only these modes; all if empty.
    pub only: Vec<String>,
    /// Further `name=value` of the program: they count last.
    pub set: Vec<String>,
}

impl Plan {
    fn job(&self, program: &str, words: &[String]) -> Job {
        let counts = if self.quick { QUICK } else { FULL };
        let mut command = vec![program.to_string(), "json=1".into()];
        command.extend(counts.map(String::from));
        command.extend(self.set.iter().cloned());
        command.extend(words.iter().cloned());
        Job {
            command,
            rounds: 1,
            timeout_s: TIMEOUT_S,
            read_output: true,
            keep_output: true,
            ..Job::default()
        }
    }

    /// The groups' modes that were asked for, by the names that the program has (`all`).
    fn groups(&self, all: &[String]) -> Result<Vec<Vec<String>>, String> {
        let stem = |name: &str, word: &str| {
            name == word
                || name
                    .strip_prefix(word)
                    .is_some_and(|rest| rest.starts_with('-'))
        };
        if let Some(unknown) = self
            .only
            .iter()
            .find(|word| !all.iter().any(|name| stem(name, word)))
        {
            return Err(format!("no mode '{unknown}'; there are {}", all.join(", ")));
        }
        let wanted = |name: &String| match self.only.as_slice() {
            [] => !(self.quick && NOT_QUICK.contains(&name.as_str())),
            only => only.iter().any(|word| stem(name, word)),
        };
        let of = |group: &&[&str]| -> Vec<String> {
            all.iter()
                .filter(|name| group.iter().any(|word| stem(name, word)))
                .filter(|name| wanted(name))
                .cloned()
                .collect()
        };
        Ok(GROUPS
            .iter()
            .map(of)
            .filter(|group| !group.is_empty())
            .collect())
    }
}

/// One process under one allocator: its output, or why there is none.
fn run_one(
    job: &Job,
    allocator: &Allocator,
    label: &str,
    progress: &Progress,
) -> Result<Result<String, String>, String> {
    let one = std::slice::from_ref(allocator);
    let mut all = session::run_interleaved(job, one, &mut |e| progress.on(label, &e))
        .map_err(|e| e.to_string())?;
    let series = all.swap_remove(0);
    Ok(match (series.error, series.runs.into_iter().next()) {
        (Some(error), _) => Err(error),
        (None, Some(run)) => output_of(run),
        (None, None) => Err("it was not run".into()),
    })
}

fn output_of(run: Run) -> Result<String, String> {
    match run.measured.ending {
        Ending::Exit(0) => Ok(run.output.unwrap_or_default()),
        ending => {
            let output = run.output.unwrap_or_default();
            let failed: Vec<&str> = output.lines().filter(|l| l.contains("FAILED")).collect();
            Err(format!("{} {}", ending.describe(), failed.join("; "))
                .trim()
                .into())
        }
    }
}

/// The program's modes, by its own list. It is given the counts, too, and says what is wrong with them.
fn modes(program: &str, set: &[String]) -> Result<Vec<String>, Failure> {
    let output = std::process::Command::new(program)
        .args(set)
        .arg("list")
        .output()
        .map_err(|e| tool(format!("'{program}': {e}")))?;
    if !output.status.success() {
        return Err(usage(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(String::from).collect())
}

/// Runs the gate and all rounds. An allocator that fails is left out of the rest and says why.
pub fn run(
    program: &str,
    allocators: &[Allocator],
    plan: &Plan,
    head: (String, String, Machine),
    progress: &Progress,
) -> Result<Latency, Failure> {
    let groups = plan.groups(&modes(program, &plan.set)?).map_err(usage)?;
    let mut subjects: Vec<Subject> = allocators.iter().cloned().map(Subject::new).collect();
    for subject in &mut subjects {
        let job = Job {
            verify: true,
            ..plan.job(program, &["gate".to_string()])
        };
        match run_one(&job, &subject.allocator, "gate", progress).map_err(tool)? {
            Ok(text) => {
                let noted = text.lines().filter_map(|l| l.strip_prefix("gate: NOTED: "));
                subject.notes = noted.map(String::from).collect();
            }
            Err(error) => subject.error = Some(format!("gate: {error}")),
        }
    }
    let mut seen = Seen::default();
    for round in 0..plan.rounds {
        for group in &groups {
            let label = format!("round {}/{}, {}:", round + 1, plan.rounds, group[0]);
            let job = plan.job(program, group);
            for subject in subjects.iter_mut().filter(|s| s.error.is_none()) {
                match run_one(&job, &subject.allocator, &label, progress)
                    .map_err(tool)?
                    .and_then(|text| data::parse(&text))
                {
                    Ok(lines) => subject.add(lines, &mut seen),
                    Err(error) => subject.error = Some(error),
                }
            }
        }
    }
    subjects
        .iter_mut()
        .for_each(|s| s.settle(picture::is_drawn));
    let (date, commit, machine) = head;
    Ok(Latency {
        format: FORMAT.into(),
        date,
        commit,
        machine,
        conditions: seen.conditions.unwrap_or_default(),
        timer: seen.timer.unwrap_or_default(),
        overheads_ns: seen.overheads_ns,
        rounds: plan.rounds,
        quick: plan.quick,
        subjects,
    })
}

/// Did mallow fail?
pub fn mallow_failed(latency: &Latency) -> bool {
    let mut ours = latency
        .subjects
        .iter()
        .filter(|s| s.allocator.key == "mallow");
    ours.any(|s| s.error.is_some())
}

/// Writes the picture.
pub fn write_picture(latency: &Latency, path: &Path) -> Result<(), String> {
    std::fs::write(path, picture(latency)?).map_err(|e| format!("'{}': {e}", path.display()))
}

#[cfg(test)]
mod tests;
