// SPDX-License-Identifier: MIT
//! `mallow-bench pages`: the user-mode page experiment (Douglas, arXiv 1105.1811 and 1105.1815), by
//! `bench/micro/page_alloc.c`: the kernel itself, mallow and every peer, interleaved; a table, a
//! picture, and the papers' statements beside our figures.

use std::path::Path;

use mallow_measure::allocators::Allocator;
use mallow_measure::machine::Machine;
use mallow_measure::panels::{self, Axis, Line, Panel};
use mallow_measure::progress::Progress;
use mallow_measure::session::{self, Job};
use mallow_measure::stats;
use mallow_measure::table::Table;
use serde::{Deserialize, Serialize};

use crate::results::read_as;

/// The value of `format` in files of this form.
pub const FORMAT: &str = "mallow-pages-1";
/// The key of the row that asks the kernel itself.
const KERNEL: &str = "kernel";
/// The key of mallow with room for every freed mapping, which is what the papers' allocator has.
const CACHED: &str = "mallow-4G";
/// What the program prints, in this order, after the size.
const PHASES: [(&str, &str); 6] = [
    ("allocate", "Allocate"),
    ("touch/page", "First touch, per page"),
    ("grow", "Grow to twice the size"),
    ("touch2/page", "First touch of the grown half, per page"),
    ("shrink", "Shrink back"),
    ("free", "Free"),
];
/// The sizes of the printed table (the file has all), as powers of two.
const SHOWN: [u32; 8] = [16, 18, 20, 22, 24, 26, 28, 30];
/// The clock's resolution where the picture was made first; single calls are not shown below it.
const CLOCK_NS: f64 = 10.0;
const PAGE: f64 = 4096.0;

/// One size under one allocator: ns of each phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The block's size.
    bytes: f64,
    /// In the order of [`PHASES`].
    ns: Vec<f64>,
}

/// One allocator's rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Which.
    allocator: Allocator,
    /// The rows of each round.
    rounds: Vec<Vec<Row>>,
    /// Why there are no further rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A result file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pages {
    /// Always [`FORMAT`].
    format: String,
    /// When it began, UTC.
    date: String,
    /// Commit of the tree, with `+` if changed.
    commit: String,
    /// Where it ran.
    machine: Machine,
    /// What the columns of `ns` are.
    phases: Vec<String>,
    /// The kernel first.
    subjects: Vec<Subject>,
}

fn plain(key: &str, title: &str) -> Allocator {
    Allocator {
        key: key.into(),
        title: title.into(),
        version: String::new(),
        preload: Vec::new(),
        hardened: false,
    }
}

/// Who takes part: the kernel, mallow twice, the peers.
fn subjects(allocators: &[Allocator]) -> Vec<Subject> {
    let mut all = vec![plain(KERNEL, "mmap, mremap and munmap themselves")];
    for allocator in allocators {
        all.push(allocator.clone());
        if allocator.key == "mallow" {
            let mut cached = allocator.clone();
            cached.key = CACHED.into();
            cached.title = "mallow with MALLOW_HUGE_CACHE=4G".into();
            all.push(cached);
        }
    }
    let subject = |allocator| Subject {
        allocator,
        rounds: Vec::new(),
        error: None,
    };
    all.into_iter().map(subject).collect()
}

fn job(program: &str, key: &str) -> Job {
    let mut job = Job {
        command: vec![program.into()],
        rounds: 1,
        timeout_s: 300.0,
        read_output: true,
        keep_output: true,
        verify: true,
        ..Job::default()
    };
    match key {
        KERNEL => job.command.push("kernel=1".into()),
        CACHED => job.set.push(("MALLOW_HUGE_CACHE".into(), "4G".into())),
        _ => {}
    }
    job
}

/// The program's table; the error says what it lacks.
fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines();
    let headings: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let wanted: Vec<&str> = std::iter::once("bytes")
        .chain(PHASES.map(|(name, _)| name))
        .collect();
    if headings != wanted {
        return Err(format!(
            "page_alloc prints '{}', wanted '{}'",
            headings.join(" "),
            wanted.join(" ")
        ));
    }
    let mut rows = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let figures: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        match figures {
            Ok(figures) if figures.len() == wanted.len() => rows.push(Row {
                bytes: figures[0],
                ns: figures[1..].to_vec(),
            }),
            _ => return Err(format!("page_alloc: not a row: '{line}'")),
        }
    }
    Ok(rows)
}

/// Runs all rounds. A subject that fails is left out of the rest and says why.
pub fn run(
    program: &str,
    allocators: &[Allocator],
    rounds: usize,
    head: (String, String, Machine),
    progress: &Progress,
) -> Result<Pages, String> {
    let mut subjects = subjects(allocators);
    for round in 0..rounds {
        let label = format!("pages, round {}/{rounds}:", round + 1);
        for subject in subjects.iter_mut().filter(|s| s.error.is_none()) {
            let job = job(program, &subject.allocator.key);
            let one = std::slice::from_ref(&subject.allocator);
            let series = session::run_interleaved(&job, one, &mut |e| progress.on(&label, &e))
                .map_err(|e| e.to_string())?;
            let output = series[0].runs.first().and_then(|run| run.output.as_deref());
            match (&series[0].error, output) {
                (Some(error), _) => subject.error = Some(error.clone()),
                (None, output) => match parse(output.unwrap_or_default()) {
                    Ok(rows) => subject.rounds.push(rows),
                    Err(error) => subject.error = Some(error),
                },
            }
        }
    }
    let (date, commit, machine) = head;
    Ok(Pages {
        format: FORMAT.into(),
        date,
        commit,
        machine,
        phases: PHASES.map(|(name, _)| name.into()).to_vec(),
        subjects,
    })
}

impl Subject {
    /// The median over the rounds of one phase at one size.
    fn ns(&self, phase: usize, bytes: f64) -> Option<f64> {
        let values: Vec<f64> = self
            .rounds
            .iter()
            .flatten()
            .filter(|row| row.bytes == bytes)
            .filter_map(|row| row.ns.get(phase).copied())
            .collect();
        stats::median(&values)
    }

    fn sizes(&self) -> Vec<f64> {
        let first = self.rounds.first();
        first.into_iter().flatten().map(|row| row.bytes).collect()
    }
}

fn phase(name: &str) -> usize {
    PHASES.iter().position(|(n, _)| *n == name).unwrap_or(0)
}

/// A statement of the papers as a ratio that can be taken here.
struct Claim {
    what: &'static str,
    published: &'static str,
    ratio: fn(&Subject, &Subject) -> Option<f64>,
}

/// Allocation with the first touch of every page.
fn ready(subject: &Subject, bytes: f64) -> Option<f64> {
    let touch = subject.ns(phase("touch/page"), bytes)? * bytes / PAGE;
    Some(subject.ns(phase("allocate"), bytes)? + touch)
}

/// Growing to twice the size with the first touch of the new half.
fn grown(subject: &Subject, bytes: f64) -> Option<f64> {
    let touch = subject.ns(phase("touch2/page"), bytes)? * bytes / PAGE;
    Some(subject.ns(phase("grow"), bytes)? + touch)
}

const MIB: f64 = 1048576.0;

const CLAIMS: [Claim; 5] = [
    Claim {
        what: "8 MiB allocated and touched: kernel / this",
        published: "10",
        ratio: |kernel, own| {
            stats::ratio(ready(kernel, 8.0 * MIB)?, ready(own, 8.0 * MIB)?.max(1.0))
        },
    },
    Claim {
        what: "first touch of a page at 8 MiB: kernel / this",
        published: "10",
        ratio: |kernel, own| {
            let touch = phase("touch/page");
            stats::ratio(
                kernel.ns(touch, 8.0 * MIB)?,
                own.ns(touch, 8.0 * MIB)?.max(0.1),
            )
        },
    },
    Claim {
        what: "128 KiB grown to 256 KiB and touched: kernel / this",
        published: "4.5",
        ratio: |kernel, own| {
            stats::ratio(grown(kernel, MIB / 8.0)?, grown(own, MIB / 8.0)?.max(1.0))
        },
    },
    Claim {
        what: "1 GiB allocated and touched: kernel / this",
        published: "-",
        ratio: |kernel, own| {
            stats::ratio(
                ready(kernel, 1024.0 * MIB)?,
                ready(own, 1024.0 * MIB)?.max(1.0),
            )
        },
    },
    Claim {
        what: "first touch of a page: 1 GiB / 64 KiB (1 = the size does not matter)",
        published: "about 1",
        ratio: |_, own| {
            let touch = phase("touch/page");
            stats::ratio(
                own.ns(touch, 1024.0 * MIB)?,
                own.ns(touch, MIB / 16.0)?.max(0.1),
            )
        },
    },
];

/// The tables, and what the papers state beside ours.
pub fn render(pages: &Pages) -> String {
    let rounds = pages.subjects.iter().map(|s| s.rounds.len()).max();
    let mut text = format!(
        "User-mode page allocation (arXiv 1105.1811, 1105.1815), commit {}, {}\n{}, {}; medians, after a \
         warm-up of each size, {} round(s) of processes, interleaved\n",
        pages.commit,
        pages.date,
        pages.machine.cpu,
        pages.machine.kernel,
        rounds.unwrap_or(0)
    );
    let shown: Vec<&Subject> = pages
        .subjects
        .iter()
        .filter(|s| !s.rounds.is_empty())
        .collect();
    let keys = shown.iter().map(|s| s.allocator.key.clone());
    for (at, (_, title)) in PHASES.iter().enumerate() {
        text.push_str(&format!("\n{title}\n"));
        let mut table = Table::new(std::iter::once("block".to_string()).chain(keys.clone()));
        for power in SHOWN {
            let bytes = f64::from(power).exp2();
            let cell = |s: &&Subject| s.ns(at, bytes).map_or("-".into(), panels::time);
            let cells: Vec<String> = shown.iter().map(cell).collect();
            if cells.iter().any(|cell| cell != "-") {
                table.row(std::iter::once(panels::bytes(bytes)).chain(cells));
            }
        }
        text.push_str(&table.render());
    }
    text.push_str(&claims(&shown));
    for subject in &pages.subjects {
        if let Some(error) = &subject.error {
            text.push_str(&format!("PROBLEM: {}: {error}\n", subject.allocator.key));
        }
    }
    text
}

fn claims(shown: &[&Subject]) -> String {
    let Some(kernel) = shown.iter().find(|s| s.allocator.key == KERNEL) else {
        return String::new();
    };
    let own: Vec<&&Subject> = shown.iter().filter(|s| s.allocator.key != KERNEL).collect();
    let keys = own.iter().map(|s| s.allocator.key.clone());
    let headings = ["what the papers state".to_string(), "published".into()];
    let mut table = Table::new(headings.into_iter().chain(keys));
    for claim in &CLAIMS {
        let cells = own.iter().map(|s| {
            let ratio = (claim.ratio)(kernel, s);
            ratio.map_or("-".into(), |r| {
                if r >= 9.95 {
                    format!("{r:.0}")
                } else {
                    format!("{r:.1}")
                }
            })
        });
        let head = [claim.what.to_string(), claim.published.into()];
        table.row(head.into_iter().chain(cells));
    }
    format!("\nTimes as fast as the kernel\n{}", table.render())
}

/// The picture: a panel a phase, peers thin, mallow thick, the kernel dotted.
pub fn picture(pages: &Pages) -> Result<String, String> {
    let rank = |key: &str| match key {
        "mallow" => 3,
        CACHED => 2,
        KERNEL => 1,
        _ => 0,
    };
    let mut subjects: Vec<&Subject> = pages
        .subjects
        .iter()
        .filter(|s| !s.rounds.is_empty())
        .collect();
    subjects.reverse();
    subjects.sort_by_key(|s| rank(&s.allocator.key));
    let line = |at: usize, subject: &&Subject| {
        let point = |bytes: f64| subject.ns(at, bytes).map(|ns| (bytes, ns));
        let key = &subject.allocator.key;
        Line {
            key: key.clone(),
            points: subject.sizes().into_iter().filter_map(point).collect(),
            strong: rank(key) == 3 || rank(key) == 1,
            dotted: rank(key) == 1,
        }
    };
    let panels: Vec<Panel> = PHASES
        .iter()
        .enumerate()
        .map(|(at, (_, title))| Panel {
            title: (*title).into(),
            axis: Axis::Bytes,
            least_ns: if title.ends_with("per page") {
                1.0
            } else {
                CLOCK_NS
            },
            lines: subjects.iter().map(|s| line(at, s)).collect(),
        })
        .collect();
    let title = "Blocks of 64 KiB to 1 GiB after a warm-up: time by size (lower is better)";
    let subtitle = format!(
        "{}, {}; commit {}. mallow-4G: with MALLOW_HUGE_CACHE=4G; a call below the clock's 10 ns is drawn there",
        pages.machine.cpu, pages.machine.kernel, pages.commit
    );
    panels::draw(title, &subtitle, &panels).map_err(|e| format!("picture: {e}"))
}

/// Did mallow fail?
pub fn mallow_failed(pages: &Pages) -> bool {
    let mut ours = pages
        .subjects
        .iter()
        .filter(|s| s.allocator.key.starts_with("mallow"));
    ours.any(|s| s.error.is_some())
}

/// Reads a result file; the error names it.
pub fn read(path: &Path) -> Result<Pages, String> {
    read_as(path, FORMAT)
}

/// Writes the result file and the picture beside it.
pub fn write(pages: &Pages, path: &Path) -> Result<(), String> {
    let fail = |path: &Path, e: std::io::Error| format!("cannot write '{}': {e}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| fail(parent, e))?;
    }
    let text = serde_json::to_string(pages).map_err(|e| e.to_string())?;
    std::fs::write(path, text + "\n").map_err(|e| fail(path, e))?;
    let svg = path.with_extension("svg");
    std::fs::write(&svg, picture(pages)?).map_err(|e| fail(&svg, e))
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
