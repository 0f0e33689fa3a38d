// SPDX-License-Identifier: MIT
//! The command line of `mallow-bench dispatch`.

use std::path::Path;

use clap::{ArgMatches, Command};
use mallow_measure::progress::Progress;

use crate::{
    dispatch, experiment_head, list, option, out_path, result_path, switch, text, tool, usage,
    whole, Failure,
};

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("dispatch")
        .about(
            "Routing of work over per-core pools: round-robin, least-occupied, two choices, forecast, \
             learned, in one simulation; a table, a result file and a picture",
        )
        .after_help("Exit code 1: least-occupied refused no less than round-robin, or trend and \
                     learned no less than that.")
        .arg(option("out", "FILE", "Where results go [default: \
                     bench/results/<date>-<commit>-dispatch.json]"))
        .arg(option("seeds", "N", "Seeds, each a load of its own [default: 20]").short('n'))
        .arg(option("with", "LIST", "Parameters for build/bench/dispatch, comma-separated, as \
                     cores=4,use=70; not seed and policy, of which there are several; delay holds \
                     for the first table"))
        .arg(option("show", "FILE", "Run nothing: print a result file, and draw its picture again"))
        .arg(switch("quiet", "No progress"))
}

/// Runs the simulation, or shows a result file.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(path) = text(matches, "show") {
        let results = dispatch::read(Path::new(path)).map_err(tool)?;
        print!("{}", dispatch::render(&results));
        let picture = Path::new(path).with_extension("svg");
        let svg = dispatch::picture(&results).map_err(tool)?;
        std::fs::write(&picture, svg).map_err(|e| tool(format!("'{}': {e}", picture.display())))?;
        return Ok(0);
    }
    let more = list(matches, "with")?;
    for word in &more {
        if let Some(why) = dispatch::refusal(word) {
            return Err(usage(format!("option --with: '{word}': {why}")));
        }
    }
    let (directory, head) = experiment_head("dispatch")?;
    let seeds = whole(matches, "seeds", 20, 1)? as u64;
    let usual = result_path(Path::new("."), &head.0, &head.1, "-dispatch");
    let out = out_path(matches, usual)?;
    let progress = Progress::new(matches.get_flag("quiet"));
    let program = directory.join("dispatch");
    let results = dispatch::run(&program, seeds, &more, head, &progress).map_err(tool)?;
    drop(progress);
    print!("{}", dispatch::render(&results));
    dispatch::write(&results, &out).map_err(tool)?;
    eprintln!(
        "mallow-bench: wrote {} and the picture beside it",
        out.display()
    );
    Ok(u8::from(!dispatch::holds(&results)))
}
