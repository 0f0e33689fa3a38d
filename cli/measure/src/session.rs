// SPDX-License-Identifier: MIT
//! One command under several allocators, interleaved (A B C, C B A, then in other strides), so that
//! a slow minute of the machine hits all of them alike.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::allocators::Allocator;
use crate::launch::{self, Ending, Measured, Request};
use crate::library;
use crate::scratch::Scratch;
use crate::stats::Summary;

/// More than what may be left of a block that is begun.
const ROOM_BYTES: usize = 64 << 10;

/// What to run, and how often.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The program (already looked up) and its arguments.
    pub command: Vec<String>,
    /// Where to run it.
    pub directory: Option<PathBuf>,
    /// Further variables for it.
    pub set: Vec<(String, String)>,
    /// Measured runs of each allocator.
    pub rounds: usize,
    /// Runs before that, whose figures are dropped.
    pub warmup: usize,
    /// Time limit of one run in seconds; none if 0.
    pub timeout_s: f64,
    /// Standard input of each run.
    pub stdin: Option<PathBuf>,
    /// Keep standard output: its hash and its last `score` line.
    pub read_output: bool,
    /// Keep standard output itself, too.
    pub keep_output: bool,
    /// In the first run of each allocator, see to it that its library was mapped.
    pub verify: bool,
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Everything the launcher measured.
    #[serde(flatten)]
    pub measured: Measured,
    /// A score the program printed as its last line `score NUMBER UNIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Hash of what it wrote to standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_hash: Option<String>,
    /// What that was, if the job asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// A benchmark's own figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The number.
    pub value: f64,
    /// Its unit as printed.
    pub unit: String,
}

/// Did the allocator's library serve the command?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Its library was mapped when the process ended.
    Mapped,
    /// It was not.
    NotMapped,
    /// The process ended in a way that could not be observed, or nobody looked.
    Unknown,
    /// glibc: libc was mapped, as every program has it, and came before all other libraries.
    CameFirst,
    /// There is nothing to preload: glibc's in results of old.
    NothingToMap,
}

/// All runs of one allocator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Which allocator.
    pub allocator: Allocator,
    /// Whether it was really used.
    pub proof: Proof,
    /// The measured runs that went well.
    pub runs: Vec<Run>,
    /// Why there are no (further) runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The quantities of a run, for tables and pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// Elapsed seconds.
    Wall,
    /// User CPU seconds.
    User,
    /// System CPU seconds.
    System,
    /// User and system CPU seconds.
    Cpu,
    /// Peak RSS in bytes.
    PeakRss,
    /// Page faults served without I/O.
    MinorFaults,
    /// Page faults with I/O.
    MajorFaults,
    /// Context switches of both kinds.
    Switches,
    /// The benchmark's own score.
    Score,
}

impl Run {
    /// One quantity of this run.
    pub fn value(&self, quantity: Quantity) -> Option<f64> {
        let m = &self.measured;
        Some(match quantity {
            Quantity::Wall => m.wall_s,
            Quantity::User => m.user_s,
            Quantity::System => m.system_s,
            Quantity::Cpu => m.user_s + m.system_s,
            Quantity::PeakRss => m.peak_rss_bytes as f64,
            Quantity::MinorFaults => m.minor_faults as f64,
            Quantity::MajorFaults => m.major_faults as f64,
            Quantity::Switches => (m.voluntary_switches + m.involuntary_switches) as f64,
            Quantity::Score => return self.score.as_ref().map(|s| s.value),
        })
    }
}

impl Series {
    /// Where the values of a quantity lie over the runs.
    pub fn summary(&self, quantity: Quantity) -> Option<Summary> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|r| r.value(quantity)).collect();
        Summary::of(&values?)
    }

    /// The median of a quantity.
    pub fn median(&self, quantity: Quantity) -> Option<f64> {
        self.summary(quantity).map(|s| s.median)
    }
}

/// What happens during a session, for a progress display.
pub enum Event<'a> {
    /// A run begins: which allocator, its number among all runs, and how many there will be.
    Begin {
        /// The allocator's short name.
        key: &'a str,
        /// Runs that ended so far.
        done: usize,
        /// Runs planned now.
        total: usize,
        /// Its figures will be dropped.
        warmup: bool,
    },
    /// The run ended.
    End {
        /// The allocator's short name.
        key: &'a str,
        /// Its figures.
        run: &'a Run,
    },
    /// The allocator is left out of the rest.
    Dropped {
        /// The allocator's short name.
        key: &'a str,
        /// Why.
        reason: &'a str,
    },
}

/// Who runs when in a round: everyone once. As given at first, backwards in every other round, and in
/// other strides later, so that nobody always runs after the same one: what a process leaves behind
/// (pages that are still there, or none) is part of what the next one finds.
fn order(round: usize, count: usize) -> Vec<usize> {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let strides: Vec<usize> = (1..=count.max(1)).filter(|&s| gcd(s, count) == 1).collect();
    let turn = round / 2;
    let stride = strides[turn % strides.len()];
    let mut order: Vec<usize> = (0..count).map(|i| (turn + i * stride) % count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Runs the job under each allocator in turn, round after round. An allocator whose run fails to start,
/// times out or is killed is dropped from the rest; a command's own exit status is only recorded.
pub fn run_interleaved(
    job: &Job,
    allocators: &[Allocator],
    report: &mut dyn FnMut(Event),
) -> io::Result<Vec<Series>> {
    let scratch = Scratch::new()?;
    let mut all: Vec<Series> = allocators
        .iter()
        .map(|allocator| Series {
            allocator: allocator.clone(),
            proof: if allocator.preload.is_empty() {
                Proof::NothingToMap
            } else {
                Proof::Unknown
            },
            runs: Vec::new(),
            error: None,
        })
        .collect();
    let rounds = job.warmup + job.rounds;
    let mut done = 0;
    for round in 0..rounds {
        let order = order(round, all.len());
        for (place, &at) in order.iter().enumerate() {
            if all[at].error.is_some() {
                continue;
            }
            let left: usize = order
                .iter()
                .enumerate()
                .filter(|&(_, &other)| all[other].error.is_none())
                .map(|(others_place, _)| rounds - round - usize::from(others_place < place))
                .sum();
            let (warmup, total) = (round < job.warmup, done + left);
            let key = all[at].allocator.key.clone();
            report(Event::Begin {
                key: &key,
                done,
                total,
                warmup,
            });
            let verify = job.verify && round == 0 && all[at].proof == Proof::Unknown;
            let (run, problem) = one_run(job, &all[at].allocator, verify, &scratch)?;
            done += 1;
            report(Event::End {
                key: &key,
                run: &run,
            });
            let series = &mut all[at];
            if let (true, Some(mapped)) = (verify, run.measured.mapped) {
                series.proof = match (mapped, is_libc(&series.allocator)) {
                    (false, _) => Proof::NotMapped,
                    (true, true) => Proof::CameFirst,
                    (true, false) => Proof::Mapped,
                };
            }
            let problem = problem.or_else(|| {
                (series.proof == Proof::NotMapped)
                    .then(|| "its library was not loaded into the command".to_string())
            });
            if let Some(reason) = problem {
                report(Event::Dropped {
                    key: &key,
                    reason: &reason,
                });
                series.error = Some(reason);
            } else if !warmup {
                series.runs.push(run);
            }
        }
    }
    Ok(all)
}

fn is_libc(allocator: &Allocator) -> bool {
    allocator.preload == [Path::new(library::LIBC)]
}

fn one_run(
    job: &Job,
    allocator: &Allocator,
    verify: bool,
    scratch: &Scratch,
) -> io::Result<(Run, Option<String>)> {
    let (output, errors) = (scratch.0.join("stdout"), scratch.0.join("stderr"));
    let existing = std::env::var_os("LD_PRELOAD");
    let preload = library::preload_value(&allocator.preload, existing.as_deref());
    let mut request = Request {
        command: job.command.clone(),
        directory: job.directory.clone(),
        set: job.set.clone(),
        remove: library::TOOL_VARIABLES.map(String::from).to_vec(),
        timeout_s: job.timeout_s,
        stdin: job.stdin.clone(),
        stdout: job.read_output.then(|| output.clone()),
        stderr: Some(errors.clone()),
        inherit: false,
        passed_on: Vec::new(),
        expect_mapped: if verify {
            allocator.preload.clone()
        } else {
            Vec::new()
        },
        expect_first: is_libc(allocator),
    };
    if preload.is_empty() {
        request.remove.push("LD_PRELOAD".into());
    } else {
        let preload = preload.into_string().map_err(|value| {
            io::Error::other(format!(
                "LD_PRELOAD '{}' is no UTF-8",
                value.to_string_lossy()
            ))
        })?;
        request.set.push(("LD_PRELOAD".into(), preload));
    }
    let measured = launch::run(&request)?;
    let said = read_tail(&errors, 64 << 10);
    let mut run = Run {
        measured,
        score: None,
        output_hash: None,
        output: None,
    };
    if job.read_output {
        let text = whole(&output)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&text);
        run.output_hash = Some(format!("{:016x}", hasher.finish()));
        let text = String::from_utf8_lossy(&text);
        run.score = last_score(&text);
        run.output = job.keep_output.then(|| text.into_owned());
    }
    let problem = problem_of(&run.measured.ending, &said, job.timeout_s);
    Ok((run, problem))
}

/// What a command wrote to a file here. An error where there is no room for more: then who can tell
/// whether the command had any?
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let text = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()), // it did not start
        text => text?,
    };
    has_room(path)?;
    Ok(text)
}

fn has_room(path: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new().append(true).open(path);
    file.and_then(|mut file| file.write_all(&[0; ROOM_BYTES]))
        .map_err(|e| {
            let text = format!("output of the command in '{}': {e}", path.display());
            io::Error::new(e.kind(), text)
        })
}

fn problem_of(ending: &Ending, said: &str, timeout_s: f64) -> Option<String> {
    if let Some(line) = said
        .lines()
        .find(|l| l.contains("LD_PRELOAD cannot be preloaded"))
    {
        return Some(format!("the loader refused it: {}", line.trim()));
    }
    match ending {
        Ending::Exit(_) => None,
        Ending::TimedOut => Some(format!("timed out after {timeout_s} s")),
        other => {
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            let detail = last
                .map(|line| format!(": {}", line.trim()))
                .unwrap_or_default();
            Some(format!("{}{detail}", other.describe()))
        }
    }
}

/// The last line `score NUMBER UNIT` of a program's output.
pub fn last_score(text: &str) -> Option<Score> {
    text.lines().rev().find_map(|line| {
        let mut words = line.strip_prefix("score ")?.split_whitespace();
        let value = words.next()?.parse().ok().filter(|v: &f64| v.is_finite())?;
        Some(Score {
            value,
            unit: words.collect::<Vec<_>>().join(" "),
        })
    })
}

fn read_tail(path: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        let _ = file.take(limit).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_whole_only_where_there_is_room_for_more() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.0.join("stdout");
        assert_eq!(whole(&path).unwrap(), b"");
        fs::write(&path, "all of it").unwrap();
        assert_eq!(whole(&path).unwrap(), b"all of it");
        let full = has_room(Path::new("/dev/full")).unwrap_err();
        assert!(full.to_string().contains("/dev/full"), "{full}");
    }

    #[test]
    fn each_runs_once_a_round_and_not_always_after_the_same_one() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
        assert_eq!(order(7, 1), [0]);
        assert!(order(4, 0).is_empty());
        for count in 2..12 {
            for round in 0..20 {
                let mut sorted = order(round, count);
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            }
        }
        let before = |round| {
            let order = order(round, 10);
            let place = order.iter().position(|&at| at == 4).unwrap();
            place.checked_sub(1).map(|p| order[p])
        };
        let mut all: Vec<_> = (0..6).map(before).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() >= 4, "{all:?}");
    }

    #[test]
    fn the_last_score_line_counts() {
        let score = last_score("x\nscore 1 ops\nscore 12.5 M ops/s\nbye\n").unwrap();
        assert_eq!((score.value, score.unit.as_str()), (12.5, "M ops/s"));
        assert_eq!(last_score("scores 1\nscore many\n"), None);
        assert_eq!(last_score("score 3").unwrap().unit, "");
    }

    #[test]
    fn the_loaders_refusal_is_found() {
        let said = "ERROR: ld.so: object '/x.so' from LD_PRELOAD cannot be preloaded: ignored.\n";
        assert!(problem_of(&Ending::Exit(0), said, 0.0)
            .unwrap()
            .contains("/x.so"));
        assert_eq!(problem_of(&Ending::Exit(3), "noise", 0.0), None);
        assert!(problem_of(&Ending::TimedOut, "", 2.5)
            .unwrap()
            .contains("2.5 s"));
        let killed = problem_of(&Ending::Signal(libc::SIGABRT), "a\nbad free\n\n", 0.0).unwrap();
        assert!(
            killed.contains("SIGABRT") && killed.contains("bad free"),
            "{killed}"
        );
    }
}
