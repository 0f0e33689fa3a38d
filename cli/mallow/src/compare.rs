// SPDX-License-Identifier: MIT
//! `mallow compare`: one command under every allocator found, interleaved, with medians and ratios.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use mallow_measure::allocators::{self, Allocator};
use mallow_measure::chart::{self, Captions, Point};
use mallow_measure::elf;
use mallow_measure::launch::Ending;
use mallow_measure::machine::{self, Machine};
use mallow_measure::output;
use mallow_measure::progress::Progress;
use mallow_measure::session::{self, Job, Proof, Quantity, Series};
use mallow_measure::stats;
use mallow_measure::table::{self, Table};
use serde::Serialize;
use serde_json::json;

use crate::{command_argument, given_text, lib_argument, Failure};

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("compare")
        .about("Runs a command under mallow and every allocator found, and compares time and memory")
        .override_usage("mallow compare [OPTIONS] -- CMD...")
        .after_help(
            "Runs are interleaved (A B C, C B A and so on). Time and faults are those of the command and of all \
             children it waited for; peak memory is that of the largest single process among them. The \
             command's standard output is discarded, its input is empty unless --input names a file.\n\n\
             Exit codes: 0 all went well and the allocators agree; 1 an allocator failed, or exit codes or \
             outputs differ; 2 bad usage; 125 the tool itself failed; 126, 127 the command cannot be \
             executed or was not found.",
        )
        .arg(
            Arg::new("with")
                .long("with")
                .value_name("LIST")
                .help(format!(
                    "Allocators beside mallow, by short name, comma-separated: {}; also NAME-sys for an \
                     installed copy beside a built one, LABEL=/path/lib.so, all [default: all found]",
                    allocators::known_names()
                )),
        )
        .arg(number("runs", "Measured runs of each allocator", "5").short('n').long("runs"))
        .arg(number("warmup", "Runs of each before that, not counted", "1").long("warmup"))
        .arg(number("timeout", "Time limit of one run, 0 for none", "0").long("timeout").value_name("SECONDS"))
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Write F.json (all runs), F.svg (picture) or F.html (picture and table); repeatable"),
        )
        .arg(
            Arg::new("same-output")
                .long("same-output")
                .action(ArgAction::SetTrue)
                .help("Demand that standard output is the same under every allocator"),
        )
        .arg(
            Arg::new("input")
                .long("input")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Standard input of every run"),
        )
        .arg(
            Arg::new("no-mallow")
                .long("no-mallow")
                .action(ArgAction::SetTrue)
                .help("Compare only the others; the first of them is the baseline"),
        )
        .arg(
            Arg::new("no-verify")
                .long("no-verify")
                .action(ArgAction::SetTrue)
                .help("Do not look whether the library was mapped (for commands that debug themselves)"),
        )
        .arg(Arg::new("quiet").short('q').long("quiet").action(ArgAction::SetTrue).help("No progress"))
        .arg(lib_argument())
        .arg(command_argument())
}

fn number(name: &'static str, help: &'static str, default: &'static str) -> Arg {
    Arg::new(name)
        .value_name("N")
        .help(help)
        .default_value(default)
        .allow_negative_numbers(true) // to be named, as any bad value
}

/// A whole number within limits, named in the error.
fn whole(matches: &ArgMatches, name: &str, least: usize) -> Result<usize, Failure> {
    let text = matches
        .get_one::<String>(name)
        .map(String::as_str)
        .unwrap_or_default();
    match text.parse() {
        Ok(value) if (least..=100_000).contains(&value) => Ok(value),
        _ => Err(Failure::usage(format!(
            "option --{name}: bad value '{text}': wanted a whole number from {least} to 100000"
        ))),
    }
}

fn timeout(matches: &ArgMatches) -> Result<f64, Failure> {
    let text = matches
        .get_one::<String>("timeout")
        .map(String::as_str)
        .unwrap_or_default();
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1e7).contains(&value) => Ok(value),
        _ => Err(Failure::usage(format!(
            "option --timeout: bad value '{text}': wanted seconds from 0 to 10000000"
        ))),
    }
}

/// Where results go: checked before the runs, so that no hour of measuring is lost to a typing error.
fn outputs(matches: &ArgMatches) -> Result<Vec<PathBuf>, Failure> {
    let outputs: Vec<PathBuf> = matches
        .get_many("out")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    for path in &outputs {
        let kind = path
            .extension()
            .map(|e| e.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !matches!(kind.as_str(), "json" | "svg" | "html") {
            let shown = path.display();
            return Err(Failure::usage(format!(
                "option --out: '{shown}' must end in .json, .svg or .html"
            )));
        }
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if !parent.is_dir() {
            let shown = parent.display();
            return Err(Failure::usage(format!(
                "option --out: there is no directory '{shown}'"
            )));
        }
        output::writable(path)
            .map_err(|why| Failure::usage(format!("option --out: '{}': {why}", path.display())))?;
    }
    Ok(outputs)
}

/// The input of every run, looked at before the first.
fn input(matches: &ArgMatches) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = matches.get_one::<PathBuf>("input") else {
        return Ok(None);
    };
    output::readable(path)
        .map_err(|why| Failure::usage(format!("option --input: '{}': {why}", path.display())))?;
    Ok(Some(path.clone()))
}

fn chosen(matches: &ArgMatches) -> Result<Vec<Allocator>, Failure> {
    let found = allocators::find_all(matches.get_one::<PathBuf>("lib").map(PathBuf::as_path));
    let list = matches
        .get_one::<String>("with")
        .map_or("all", String::as_str);
    let mut chosen = allocators::select(&found, list)
        .map_err(|text| Failure::usage(format!("option --with: {text}")))?;
    if chosen.is_empty() && matches.contains_id("with") {
        return Err(Failure::usage(format!(
            "option --with: '{list}' names no allocator"
        )));
    }
    chosen.retain(|allocator| allocator.key != "mallow");
    if !matches.get_flag("no-mallow") {
        let mallow = allocators::select(&found, "mallow").map_err(Failure::tool)?;
        chosen.splice(0..0, mallow);
    }
    if chosen.is_empty() {
        return Err(Failure::usage("option --with: no allocator chosen"));
    }
    Ok(chosen)
}

/// Runs everything, prints the table, writes what was asked for.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let (runs, warmup) = (whole(matches, "runs", 1)?, whole(matches, "warmup", 0)?);
    let (timeout_s, outputs) = (timeout(matches)?, outputs(matches)?);
    let input = input(matches)?;
    let allocators = chosen(matches)?;
    let (program, words) = given_text(matches)?;
    for obstacle in elf::obstacles(&program) {
        if obstacle.prevents_loading() {
            return Err(Failure::tool(format!(
                "nothing to compare: {}",
                obstacle.describe()
            )));
        }
        eprintln!("mallow: warning: {}", obstacle.describe());
    }
    let mut command = words.clone();
    command[0] = program.display().to_string();
    let job = Job {
        command,
        rounds: runs,
        warmup,
        timeout_s,
        stdin: input,
        read_output: matches.get_flag("same-output"),
        keep_output: false,
        verify: !matches.get_flag("no-verify"),
        ..Job::default()
    };
    let label = program
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let progress = Progress::new(matches.get_flag("quiet"));
    let series =
        session::run_interleaved(&job, &allocators, &mut |event| progress.on(&label, &event))
            .map_err(|e| Failure::tool(format!("cannot run the command: {e}")))?;
    drop(progress);
    let result = Comparison::new(words, runs, warmup, series);
    let text = result.render();
    print!("{text}");
    for path in &outputs {
        result.write(path, &text)?;
    }
    Ok(u8::from(!result.complaints.is_empty()))
}

/// Everything that was found out.
#[derive(Serialize)]
struct Comparison {
    command: Vec<String>,
    date: String,
    machine: Machine,
    runs: usize,
    warmup: usize,
    baseline: String,
    complaints: Vec<String>,
    series: Vec<Series>,
}

const QUANTITIES: [(Quantity, &str); 8] = [
    (Quantity::Wall, "wall_s"),
    (Quantity::User, "user_s"),
    (Quantity::System, "system_s"),
    (Quantity::Cpu, "cpu_s"),
    (Quantity::PeakRss, "peak_rss_bytes"),
    (Quantity::MinorFaults, "minor_faults"),
    (Quantity::MajorFaults, "major_faults"),
    (Quantity::Switches, "context_switches"),
];

impl Comparison {
    fn new(command: Vec<String>, runs: usize, warmup: usize, series: Vec<Series>) -> Comparison {
        let baseline = series
            .first()
            .map(|s| s.allocator.key.clone())
            .unwrap_or_default();
        let complaints = complaints(&series);
        let (date, machine) = (machine::now(), machine::machine());
        Comparison {
            command,
            date,
            machine,
            runs,
            warmup,
            baseline,
            complaints,
            series,
        }
    }

    fn title(&self) -> String {
        let mut text = output::printable(&self.command.join(" ")); // SVG takes no control characters
        if text.chars().count() > 90 {
            text = text.chars().take(87).collect::<String>() + "...";
        }
        text
    }

    fn render(&self) -> String {
        let mut text = format!(
            "{}\n{} runs each after {} warm-up, interleaved; {}, {} cores, {}\n\n",
            self.title(),
            self.runs,
            self.warmup,
            self.machine.cpu,
            self.machine.cores,
            self.machine.kernel
        );
        text.push_str(&self.table().render());
        text.push_str(&format!(
            "\nMedians; wall spread is min..max; each x is the ratio to {} (below 1.00 is better).\n",
            self.baseline
        ));
        let unseen: Vec<&str> = self
            .series
            .iter()
            .filter(|s| matches!(s.proof, Proof::Unknown | Proof::NotMapped))
            .map(|s| s.allocator.key.as_str())
            .collect();
        if unseen.is_empty() {
            text.push_str("Every library was seen mapped in the command");
            if self.series.iter().any(|s| s.proof == Proof::CameFirst) {
                text.push_str(", and libc before all others for glibc");
            }
            text.push_str(".\n");
        } else {
            text.push_str(&format!("Not seen mapped: {}", unseen.join(", ")));
            if unseen.contains(&"glibc") {
                text.push_str(" (for glibc: libc, before all other libraries)");
            }
            text.push_str(".\n");
        }
        for complaint in &self.complaints {
            text.push_str(&format!("PROBLEM: {}\n", output::printable(complaint)));
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "allocator",
            "wall s",
            "spread",
            "x",
            "user s",
            "x",
            "sys s",
            "x",
            "peak MiB",
            "x",
            "minor faults",
            "major",
            "switches",
        ]);
        let base = self.series.first();
        for series in &self.series {
            let name = series.allocator.headline();
            let Some(wall) = series.summary(Quantity::Wall) else {
                table.row([name, "-".into()]);
                continue;
            };
            let median = |q: Quantity| series.median(q).unwrap_or(0.0);
            let against = |q: Quantity| {
                let base = base.and_then(|b| b.median(q))?;
                stats::ratio(median(q), base)
            };
            table.row([
                name,
                table::seconds(wall.median),
                format!("{}..{}", table::seconds(wall.min), table::seconds(wall.max)),
                table::ratio(against(Quantity::Wall)),
                table::seconds(median(Quantity::User)),
                table::ratio(against(Quantity::User)),
                table::seconds(median(Quantity::System)),
                table::ratio(against(Quantity::System)),
                table::mebibytes(median(Quantity::PeakRss)),
                table::ratio(against(Quantity::PeakRss)),
                table::count(median(Quantity::MinorFaults)),
                table::count(median(Quantity::MajorFaults)),
                table::count(median(Quantity::Switches)),
            ]);
        }
        table
    }

    fn picture(&self) -> Result<String, Failure> {
        let mib = f64::from(1 << 20);
        let points: Vec<Point> = self
            .series
            .iter()
            .filter_map(|series| {
                let (wall, peak) = (
                    series.summary(Quantity::Wall)?,
                    series.summary(Quantity::PeakRss)?,
                );
                Some(Point {
                    key: series.allocator.key.clone(),
                    time: wall.median,
                    time_range: (wall.min, wall.max),
                    memory: peak.median / mib,
                    memory_range: (peak.min / mib, peak.max / mib),
                })
            })
            .collect();
        let captions = Captions {
            title: self.title(),
            time: "Elapsed time (s)".into(),
            memory: "Peak memory (MiB)".into(),
        };
        chart::time_and_memory(&captions, &points)
            .map_err(|e| Failure::tool(format!("picture: {e}")))
    }

    fn json(&self) -> Result<String, Failure> {
        let fail = |e: serde_json::Error| Failure::tool(format!("JSON: {e}"));
        let mut value = serde_json::to_value(self).map_err(fail)?;
        value["format"] = json!("mallow-compare-1");
        for (row, series) in self.series.iter().enumerate() {
            for (quantity, name) in QUANTITIES {
                if let Some(summary) = series.summary(quantity) {
                    value["series"][row]["summary"][name] =
                        serde_json::to_value(summary).map_err(fail)?;
                }
            }
        }
        serde_json::to_string_pretty(&value).map_err(fail)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), Failure> {
        let content = match path.extension().and_then(|e| e.to_str()) {
            Some("json") => self.json()? + "\n",
            Some("svg") => self.picture()?,
            _ => chart::page(
                &format!("mallow compare: {}", self.title()),
                &self.picture()?,
                text,
            ),
        };
        fs::write(path, content)
            .map_err(|e| Failure::tool(format!("'{}': {e}", path.display())))?;
        eprintln!("mallow: wrote {}", path.display());
        Ok(())
    }
}

/// What the user must know: allocators that failed, and where the command behaved differently.
fn complaints(series: &[Series]) -> Vec<String> {
    let mut found: Vec<String> = series
        .iter()
        .filter_map(|s| {
            s.error
                .as_ref()
                .map(|e| format!("{}: {e}", s.allocator.key))
        })
        .collect();
    let mut differ = |what: &str, of: &dyn Fn(&session::Run) -> Option<String>| {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for (s, run) in series
            .iter()
            .flat_map(|s| s.runs.iter().map(move |run| (s, run)))
        {
            let Some(value) = of(run) else { continue };
            let key = s.allocator.key.as_str();
            match groups.iter_mut().find(|(v, _)| *v == value) {
                Some((_, keys)) if keys.contains(&key) => {}
                Some((_, keys)) => keys.push(key),
                None => groups.push((value, vec![key])),
            }
        }
        if groups.len() > 1 {
            let list: Vec<String> = groups
                .iter()
                .map(|(value, keys)| format!("{value} ({})", keys.join(", ")))
                .collect();
            found.push(format!("{what} differ: {}", list.join("; ")));
        } else if let Some((value, _)) =
            groups.first().filter(|(v, _)| v.starts_with("exit status"))
        {
            found.push(format!("the command fails under every allocator: {value}"));
        }
    };
    differ("exit codes", &|run| match run.measured.ending {
        Ending::Exit(0) => Some("0".into()),
        _ => Some(run.measured.ending.describe()),
    });
    differ("outputs", &|run| run.output_hash.clone());
    found
}
