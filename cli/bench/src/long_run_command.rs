// SPDX-License-Identifier: MIT
//! The command line of `mallow-bench long-run`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, Command};
use mallow_measure::progress::Progress;

use crate::{
    chosen, experiment_head, given_path, list, long_run, long_run_report, option, out_path,
    result_path, single_experiment, text, tool, usage, whole, Failure,
};

/// Its options.
pub fn command() -> Command {
    single_experiment(
        "long-run",
        "A server of changing load under mallow and every peer at the same time: RSS over time, its mean, what is \
         left when idle, drift; a table, a result file and a picture",
        "bench/results/<date>-<commit>-long.json",
    )
    .arg(option("minutes", "N", "How long; a fraction will do").default_value("20"))
    .arg(option("days", "N", "Cycles of load in that time [default: one in two minutes, but 5]"))
    .arg(option("only", "KEYS", "Of the allocators, only these, comma-separated"))
    .arg(option("picture", "FILE", "The picture goes here, too"))
    .arg(option("show", "FILE", "Run nothing: print a result file, and draw its picture again"))
}

/// Runs it, or shows what it wrote.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let picture = given_path(matches, "picture")?;
    if let Some(path) = text(matches, "show") {
        let run = long_run::read(Path::new(path)).map_err(tool)?;
        return show_long_run(&run, Path::new(path), picture);
    }
    let given = text(matches, "minutes").unwrap_or_default();
    let minutes = given.parse().ok().filter(|m| (0.05..=10_000.0).contains(m));
    let minutes: f64 = minutes.ok_or_else(|| {
        usage(format!(
            "option --minutes: bad value '{given}': wanted 0.05 to 10000"
        ))
    })?;
    let days = whole(
        matches,
        "days",
        ((minutes / 2.0) as usize).clamp(5, 1000),
        1,
    )?;
    let (directory, head) = experiment_head("server_mix")?;
    let usual = result_path(Path::new("."), &head.0, &head.1, "-long");
    let out = out_path(matches, usual)?;
    let mut allocators = chosen(matches)?;
    let only = list(matches, "only")?;
    if let Some(name) = only
        .iter()
        .find(|n| !allocators.iter().any(|a| a.key == **n))
    {
        return Err(usage(format!("option --only: no allocator '{name}' here")));
    }
    allocators.retain(|a| only.is_empty() || only.contains(&a.key));
    let command = vec![
        directory.join("server_mix").display().to_string(),
        format!("ms={}", (minutes * 60_000.0) as u64),
        format!("days={days}"),
    ];
    let progress = Progress::new(matches.get_flag("quiet"));
    let lasts = Duration::from_secs_f64(minutes * 60.0);
    let run = long_run::run(command, lasts, &allocators, head, &progress).map_err(tool)?;
    drop(progress);
    long_run::write(&run, &out).map_err(tool)?;
    eprintln!("mallow-bench: wrote {}", out.display());
    show_long_run(&run, &out, picture)
}

/// Prints it, and draws it beside its file.
fn show_long_run(
    run: &long_run::LongRun,
    file: &Path,
    picture: Option<PathBuf>,
) -> Result<u8, Failure> {
    print!("{}", long_run_report::render(run));
    let svg = long_run_report::picture(run).map_err(tool)?;
    let beside = file.with_extension("svg");
    for path in std::iter::once(beside).chain(picture) {
        std::fs::write(&path, &svg).map_err(|e| tool(format!("'{}': {e}", path.display())))?;
    }
    Ok(u8::from(long_run_report::mallow_failed(run)))
}
