// SPDX-License-Identifier: MIT
//! What `build/bench/latency json=1` prints, and the result file that is made of many such runs.

use std::path::Path;

use mallow_measure::allocators::Allocator;
use mallow_measure::machine::Machine;
use mallow_measure::stats;
use serde::{Deserialize, Serialize};

use crate::results::read_as;

/// The value of `format` in files of this form.
pub const FORMAT: &str = "mallow-latency-1";
/// The shares of `quantiles`, by their names.
pub const QUANTILES: [&str; 6] = ["P50", "P90", "P99", "P99.9", "P99.99", "P99.999"];
/// The parts that lie above each of these.
const ABOVE: [f64; 6] = [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5];
/// The bounds of `ppm`.
pub const BOUNDS: [&str; 4] = [">=100ns", ">=1us", ">=10us", ">=100us"];
/// Points of a curve to one nine.
pub const CURVE_STEP: f64 = 8.0;

/// One line of the program's output.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "row", rename_all = "lowercase")]
pub enum Line {
    /// Where it ran.
    Machine(Conditions),
    /// Its clock.
    Timer(Timer),
    /// The times of one kind of call in one mode.
    Times(Times),
    /// One cold process.
    Startup(Startup),
    /// The memory of one size.
    Memory(Memory),
    /// The last line.
    End {
        /// Time that the hypervisor gave to others, in ms.
        stolen_ms: f64,
    },
}

/// The processor that was measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The kernel's list of isolated processors.
    pub isolated: String,
    /// Its list of those without a tick.
    pub nohz_full: String,
    /// The kernel's clock.
    pub clocksource: String,
    /// What SCHED_FIFO may have of a second; -1 for all.
    pub rt_runtime_us: i64,
    /// Load of the machine before.
    pub load: f64,
    /// The processor, -1 for any.
    pub pinned: i64,
    /// Was that an isolated one?
    pub on_isolated: bool,
    /// Was SCHED_FIFO in force?
    pub fifo: bool,
    /// How many there were to choose from.
    pub processors: usize,
}

/// The clock that the calls were timed by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// What it is.
    pub source: String,
    /// Its unit.
    pub ns_per_tick: f64,
    /// The least of an empty pair of reads.
    pub least_ns: f64,
    /// The mean of those that nothing disturbed; taken off.
    pub overhead_ns: f64,
    /// Their median.
    pub typical_ns: f64,
    /// Its resolution.
    pub step_ns: f64,
}

/// One kind of call in one mode, from one process.
#[derive(Clone, Debug, Deserialize)]
pub struct Times {
    /// Which mode.
    pub mode: String,
    /// Size of the blocks, 0 for many.
    pub size: f64,
    /// Calls that were timed together.
    pub unit: u32,
    /// `malloc` or `floor`.
    pub subject: String,
    /// `malloc`, `free` or `both`.
    pub call: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// The distribution by eighths of a nine.
    #[serde(default)]
    pub curve: Vec<f64>,
}

/// The figures of one run; times in ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Values recorded.
    pub count: f64,
    /// Their mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
    /// In the order of [`QUANTILES`].
    pub quantiles: Vec<f64>,
    /// What the machine alone would do to each of these: the floor's quantile, as much further out as its loop
    /// spends less time in what is timed. None for the floor itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<f64>,
    /// In the order of [`BOUNDS`].
    pub ppm: Vec<f64>,
    /// Last tenth of the time ÷ first.
    pub drift: f64,
    /// Slowest window ÷ the median one.
    pub worst_window: f64,
    /// Page faults meanwhile.
    pub faults: f64,
    /// Times that the thread was preempted.
    pub switches: f64,
}

/// One cold process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Startup {
    /// From spawn to main.
    pub ready_us: f64,
    /// The first call.
    pub first_ns: f64,
    /// A million blocks of 64 B.
    pub fill_ms: f64,
    /// Of the calls of that.
    pub fill_p9999_ns: f64,
    /// Likewise.
    pub fill_max_ns: f64,
}

/// The memory of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Of the blocks.
    pub size: f64,
    /// RSS beyond what was asked for.
    pub overhead_percent: f64,
    /// RSS after all was freed.
    pub kept_percent: f64,
}

/// One kind of call in one mode: all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which mode.
    pub mode: String,
    /// Size of the blocks, 0 for many.
    pub size: f64,
    /// Calls that were timed together.
    pub unit: u32,
    /// `malloc` or `floor`.
    pub subject: String,
    /// `malloc`, `free` or `both`.
    pub call: String,
    /// One each.
    pub rounds: Vec<Figures>,
    /// The median of the rounds' curves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<f64>,
}

/// One allocator's runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Which.
    pub allocator: Allocator,
    /// What the gate noted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// By mode.
    pub rows: Vec<Row>,
    /// Cold processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup: Vec<Startup>,
    /// Memory by size, all rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<Memory>,
    /// What the hypervisor took of all its runs.
    pub stolen_ms: f64,
    /// Why there are no further rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A result file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Always [`FORMAT`].
    pub format: String,
    /// When it began, UTC.
    pub date: String,
    /// Commit of the tree, with `+` if changed.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// The processor.
    pub conditions: Conditions,
    /// The clock, as the first process saw it.
    pub timer: Timer,
    /// The least and the largest overhead that a process took off: they should be one.
    pub overheads_ns: (f64, f64),
    /// Rounds asked for.
    pub rounds: usize,
    /// Was it a quick run?
    pub quick: bool,
    /// The allocators, mallow first.
    pub subjects: Vec<Subject>,
}

/// The lines of one run; the error says what is no such line, or that the end is missing.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let lines: Vec<Line> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).map_err(|e| format!("latency: '{line}': {e}")))
        .collect::<Result<_, _>>()?;
    match lines.last() {
        Some(Line::End { .. }) => Ok(lines),
        _ => Err("latency: its output ends too early".into()),
    }
}

impl Figures {
    /// A quantile, if so many values were recorded that one at least lies above it.
    pub fn quantile(&self, at: usize) -> Option<f64> {
        let enough = self.count * ABOVE.get(at)? >= 1.0 - 1e-9;
        self.quantiles.get(at).copied().filter(|_| enough)
    }

    /// A quantile less what the machine alone would do to it; 0 where the machine did more to the floor.
    pub fn excess(&self, at: usize) -> Option<f64> {
        Some((self.quantile(at)? - self.machine.get(at)?).max(0.0))
    }
}

impl Row {
    /// The median over the rounds of something.
    pub fn median(&self, value: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.rounds.iter().map(value).collect();
        stats::median(&values?)
    }

    /// The median over the rounds of a quantile.
    pub fn quantile(&self, at: usize) -> Option<f64> {
        self.median(|f| f.quantile(at))
    }

    /// P99.9 ÷ P50: how flat it is.
    pub fn flatness(&self) -> Option<f64> {
        self.median(|f| stats::ratio(f.quantile(3)?, f.quantile(0)?))
    }
}

/// What all processes say about the machine.
pub struct Seen {
    /// The first one's.
    pub conditions: Option<Conditions>,
    /// Likewise.
    pub timer: Option<Timer>,
    /// See [`Latency`].
    pub overheads_ns: (f64, f64),
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            conditions: None,
            timer: None,
            overheads_ns: (f64::MAX, 0.0),
        }
    }
}

impl Subject {
    /// An allocator without any run.
    pub fn new(allocator: Allocator) -> Subject {
        Subject {
            allocator,
            notes: Vec::new(),
            rows: Vec::new(),
            startup: Vec::new(),
            memory: Vec::new(),
            stolen_ms: 0.0,
            error: None,
        }
    }

    /// Adds what a process printed. Of the floor's calls only both together are kept.
    pub fn add(&mut self, lines: Vec<Line>, seen: &mut Seen) {
        for line in lines {
            match line {
                Line::Machine(conditions) => {
                    seen.conditions.get_or_insert(conditions);
                }
                Line::Timer(timer) => {
                    let (low, high) = seen.overheads_ns;
                    seen.overheads_ns = (low.min(timer.overhead_ns), high.max(timer.overhead_ns));
                    seen.timer.get_or_insert(timer);
                }
                Line::Times(times) if times.subject == "floor" && times.call != "both" => {}
                Line::Times(times) => self.add_times(times),
                Line::Startup(startup) => self.startup.push(startup),
                Line::Memory(memory) => self.memory.push(memory),
                Line::End { stolen_ms } => self.stolen_ms += stolen_ms,
            }
        }
    }

    fn add_times(&mut self, times: Times) {
        let same = |row: &Row| {
            (&row.mode, &row.subject, &row.call) == (&times.mode, &times.subject, &times.call)
        };
        let at = self.rows.iter().position(same).unwrap_or_else(|| {
            self.rows.push(Row {
                mode: times.mode.clone(),
                size: times.size,
                unit: times.unit,
                subject: times.subject.clone(),
                call: times.call.clone(),
                rounds: Vec::new(),
                curve: Vec::new(),
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.rounds.push(times.figures);
        // All rounds' curves one after the other, until `settle` takes the median.
        row.curve.extend(times.curve);
    }

    /// Once all rounds are there: one curve of each row's, and none of those that are not `drawn`.
    pub fn settle(&mut self, drawn: impl Fn(&str) -> bool) {
        for row in &mut self.rows {
            if !drawn(&row.mode) {
                row.curve.clear();
            }
            let length = row.curve.len() / row.rounds.len().max(1);
            let curves = std::mem::take(&mut row.curve);
            row.curve = (0..length)
                .filter_map(|at| {
                    let values: Vec<f64> =
                        curves.iter().skip(at).step_by(length).copied().collect();
                    stats::median(&values)
                })
                .collect();
        }
    }

    /// The row of a mode.
    pub fn row(&self, mode: &str, subject: &str, call: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.mode == mode && row.subject == subject && row.call == call)
    }

    /// Both calls of the allocator.
    pub fn own(&self, mode: &str) -> Option<&Row> {
        self.row(mode, "malloc", "both")
    }

    /// Both calls of the floor.
    pub fn floor(&self, mode: &str) -> Option<&Row> {
        self.row(mode, "floor", "both")
    }

    /// The allocator's part of a quantile. Median over the rounds.
    pub fn excess(&self, mode: &str, at: usize) -> Option<f64> {
        self.own(mode)?.median(|f| f.excess(at))
    }
}

impl Latency {
    /// The modes that ran in windows, in the program's order.
    pub fn modes(&self) -> Vec<String> {
        let mut modes: Vec<String> = Vec::new();
        for row in self.subjects.iter().flat_map(|s| &s.rows) {
            if !modes.contains(&row.mode) {
                modes.push(row.mode.clone());
            }
        }
        modes
    }

    /// Reads a result file; the error names it.
    pub fn read(path: &Path) -> Result<Latency, String> {
        read_as(path, FORMAT)
    }

    /// Writes the result file.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let fail = |e: String| format!("cannot write '{}': {e}", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| fail(e.to_string()))?;
        }
        let text = serde_json::to_string(self).map_err(|e| fail(e.to_string()))?;
        std::fs::write(path, text + "\n").map_err(|e| fail(e.to_string()))
    }
}
