// SPDX-License-Identifier: MIT
//! The command line of `mallow-bench latency`.

use std::path::Path;

use clap::{ArgMatches, Command};
use mallow_measure::progress::Progress;

use crate::latency::{self, Latency, Plan};
use crate::{
    chosen, experiment, experiment_head, given_path, list, option, out_path, result_path, switch,
    text, tool, whole, Failure,
};

/// Its options.
pub fn command() -> Command {
    experiment(
        "latency",
        "Single calls from the median to the worst, the machine's own noise beside them, under mallow and every \
         peer; tables, a result file and curves",
        "bench/results/<date>-<commit>-latency.json",
    )
    .mut_arg("runs", |arg| arg.help("Rounds [default: 3]"))
    .arg(switch("quick", "Fewer operations and sizes: below ten minutes with ten allocators"))
    .arg(option("only", "MODES", "Only these modes, comma-separated, by name or stem: hot, churn-64"))
    .arg(option("pin", "CPU", "The processor to run on [default: an isolated one, else the last]"))
    .arg(
        option("fifo", "WHEN", "SCHED_FIFO: on, off, or auto, which is on an isolated processor only")
            .value_parser(["on", "off", "auto"]),
    )
    .arg(option("set", "NAME=VALUE,...", "Counts of build/bench/latency (see its --help) for all runs"))
    .arg(option("picture", "FILE", "Also write the picture there [default: beside the result file only]"))
    .arg(option("show", "FILE", "Run nothing: print a result file, and draw its picture again"))
}

/// Runs it, or shows what it wrote.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let named = given_path(matches, "picture")?;
    let pictures = |latency: &Latency, beside: &Path| -> Result<(), Failure> {
        let all = std::iter::once(beside.with_extension("svg")).chain(named.clone());
        all.into_iter()
            .try_for_each(|path| latency::write_picture(latency, &path).map_err(tool))
    };
    if let Some(path) = text(matches, "show") {
        let latency = Latency::read(Path::new(path)).map_err(tool)?;
        print!("{}", latency::render(&latency));
        pictures(&latency, Path::new(path))?;
        return Ok(0);
    }
    let (directory, head) = experiment_head("latency")?;
    let mut set = list(matches, "set")?;
    if text(matches, "pin").is_some() {
        set.push(format!("pin={}", whole(matches, "pin", 0, 0)?));
    }
    let fifo = text(matches, "fifo").unwrap_or("auto");
    set.push(format!(
        "fifo={}",
        ["off", "on", "auto"]
            .iter()
            .position(|f| *f == fifo)
            .unwrap_or(2)
    ));
    let plan = Plan {
        rounds: whole(matches, "runs", 3, 1)?,
        quick: matches.get_flag("quick"),
        only: list(matches, "only")?,
        set,
    };
    let suffix = if plan.quick {
        "-latency-quick"
    } else {
        "-latency"
    };
    let usual = result_path(Path::new("."), &head.0, &head.1, suffix);
    let out = out_path(matches, usual)?;
    let progress = Progress::new(matches.get_flag("quiet"));
    let program = directory.join("latency").display().to_string();
    let latency = latency::run(&program, &chosen(matches)?, &plan, head, &progress)?;
    drop(progress);
    print!("{}", latency::render(&latency));
    latency.write(&out).map_err(tool)?;
    pictures(&latency, &out)?;
    eprintln!(
        "mallow-bench: wrote {} and the picture beside it",
        out.display()
    );
    Ok(u8::from(latency::mallow_failed(&latency)))
}
