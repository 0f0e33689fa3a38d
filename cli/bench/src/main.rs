// SPDX-License-Identifier: MIT
//! `mallow-bench`: the suite under mallow and its peers, interleaved; results as JSON, tables and a
//! picture.

mod classics;
mod dispatch;
mod dispatch_command;
mod latency;
mod latency_command;
mod long_run;
mod long_run_command;
mod long_run_report;
mod pages;
mod report;
mod results;
mod suite;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode, Stdio};

use clap::{Arg, ArgAction, ArgMatches, Command};
use mallow_measure::allocators::{self, Allocator};
use mallow_measure::chart;
use mallow_measure::progress::Progress;
use mallow_measure::session::{self, Job};
use mallow_measure::{elf, launch, library, machine, output};

use results::{Outcome, Results};
use suite::{Benchmark, Suite};

/// Time limit of one run where the suite names none.
const TIMEOUT_S: f64 = 300.0;

/// What went wrong, and the exit code.
struct Failure(u8, String);

fn usage(text: impl Into<String>) -> Failure {
    Failure(2, text.into())
}

fn tool(text: impl Into<String>) -> Failure {
    Failure(125, text.into())
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .help(help)
        .allow_negative_numbers(true) // to be named, as any bad value
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn cli() -> Command {
    Command::new("mallow-bench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs the benchmark suite under mallow and every peer found, interleaved, and reports")
        .after_help(
            "Exit codes: 0 all went well; 1 mallow failed in a benchmark; 2 bad usage; 125 the tool itself \
             failed.",
        )
        .args_conflicts_with_subcommands(true)
        .arg(option("suite", "FILE", "The suite's description").default_value("bench/suite.json"))
        .arg(option("out", "FILE", "Where results go; the picture goes beside it as .svg [default: \
             bench/results/<date>-<commit>.json]"))
        .arg(option("runs", "N", "Measured runs of each allocator [default: 3; 1 with --quick]").short('n'))
        .arg(option("warmup", "N", "Runs of each before that, not counted").default_value("0"))
        .arg(switch("quick", "One run each; long benchmarks left out"))
        .arg(option("only", "NAMES", "Only these benchmarks, comma-separated"))
        .arg(option("kind", "KINDS", "Only these kinds (micro, macro, classic, real), comma-separated"))
        .arg(option("peers", "LIST", "Allocators beside mallow, comma-separated; `all` adds the hardened \
             ones [default: all found but these]"))
        .arg(option("explanations", "FILE", "Why mallow is behind in a row [default: explanations.json \
             beside the suite]"))
        .arg(option("lib", "PATH", "Which libmallow.so"))
        .arg(switch("no-mallow", "Measure the peers alone"))
        .arg(switch("list", "Print the suite and the allocators found, run nothing"))
        .arg(switch("quiet", "No progress"))
        .subcommand(
            Command::new("report")
                .about("Prints the report of a result file again, or the change between two")
                .arg(Arg::new("file").value_name("FILE").required(true))
                .arg(Arg::new("newer").value_name("FILE2").help("A later file: print what changed"))
                .arg(
                    option("explanations", "FILE", "Why mallow is behind in a row [default: \
                           bench/explanations.json, where it is there]"),
                )
                .arg(option(
                    "out",
                    "OUT",
                    "Also write the picture (OUT.svg), or a page with picture and report (OUT.html)",
                )),
        )
        .subcommand(experiment(
            "pages",
            "The user-mode page experiment: blocks of 64 KiB to 1 GiB under the kernel itself, mallow and \
             every peer; tables, a result file and a picture",
            "bench/results/<date>-<commit>-pages.json",
        )
        .arg(option("show", "FILE", "Run nothing: print a result file, and draw its picture again")))
        .subcommand(dispatch_command::command())
        .subcommand(latency_command::command())
        .subcommand(experiment(
            "classics",
            "The published tests of unalloc, CPE357 and nedmalloc, under mallow and every peer, beside the \
             published figures",
            "build/bench/results/bench-classics.json",
        ))
        .subcommand(long_run_command::command())
}

/// A subcommand that runs programs of its own under the allocators, in rounds.
fn experiment(name: &'static str, about: &'static str, out: &str) -> Command {
    single_experiment(name, about, out).arg(option("runs", "N", "Rounds [default: 1]").short('n'))
}

/// The same without rounds.
fn single_experiment(name: &'static str, about: &'static str, out: &str) -> Command {
    Command::new(name)
        .about(about)
        .arg(
            option("out", "FILE", "Where results go")
                .help(format!("Where results go [default: {out}]")),
        )
        .arg(option(
            "peers",
            "LIST",
            "Allocators beside mallow, comma-separated; `all` adds the hardened \
             ones [default: all found but these]",
        ))
        .arg(option("lib", "PATH", "Which libmallow.so"))
        .arg(switch("no-mallow", "Measure the peers alone"))
        .arg(switch("quiet", "No progress"))
}

fn main() -> ExitCode {
    launch::launcher_main_if_asked();
    output::end_where_it_fails("mallow-bench");
    let matches = match cli().try_get_matches() {
        Ok(matches) => matches,
        Err(told) => {
            let is_help = !told.use_stderr();
            return output::told("mallow-bench", told.print(), is_help, told.exit_code());
        }
    };
    let result = match matches.subcommand() {
        Some(("report", matches)) => report_main(matches),
        Some(("pages", matches)) => pages_main(matches),
        Some(("latency", matches)) => latency_command::run(matches),
        Some(("classics", matches)) => classics_main(matches),
        Some(("long-run", matches)) => long_run_command::run(matches),
        Some(("dispatch", matches)) => dispatch_command::run(matches),
        _ => bench_main(&matches),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure(code, text)) => {
            eprintln!("mallow-bench: {text}");
            ExitCode::from(code)
        }
    }
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// Words between commas; none if the option is not given. Given, it has one at least: an empty variable
/// of a script would else stand for all.
fn list(matches: &ArgMatches, name: &str) -> Result<Vec<String>, Failure> {
    let Some(given) = text(matches, name) else {
        return Ok(Vec::new());
    };
    let words: Vec<String> = given
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(String::from)
        .collect();
    if words.is_empty() {
        return Err(usage(format!(
            "option --{name}: bad value '{given}': wanted one or more, with commas between"
        )));
    }
    Ok(words)
}

fn whole(matches: &ArgMatches, name: &str, default: usize, least: usize) -> Result<usize, Failure> {
    let Some(given) = text(matches, name) else {
        return Ok(default);
    };
    match given.parse() {
        Ok(value) if (least..=1000).contains(&value) => Ok(value),
        _ => Err(usage(format!(
            "option --{name}: bad value '{given}': wanted {least} to 1000"
        ))),
    }
}

fn report_main(matches: &ArgMatches) -> Result<u8, Failure> {
    let read = |name| {
        text(matches, name)
            .map(|path| Results::read(Path::new(path)))
            .transpose()
    };
    let first = read("file")
        .map_err(tool)?
        .ok_or_else(|| usage("no result file"))?;
    let second = read("newer").map_err(tool)?;
    let report = match &second {
        Some(newer) => report::render_change(&first, newer),
        None => {
            let usual = PathBuf::from("bench/explanations.json");
            let explanations = explanations(matches, usual)?;
            report::render(&first, &explanations)
        }
    };
    print!("{report}");
    if let Some(path) = text(matches, "out") {
        let svg = report::picture(second.as_ref().unwrap_or(&first)).map_err(tool)?;
        let content = match Path::new(path).extension().and_then(|e| e.to_str()) {
            Some("svg") => svg,
            Some("html") => chart::page("mallow and its peers", &svg, &report),
            _ => {
                return Err(usage(format!(
                    "option --out: '{path}' must end in .svg or .html"
                )))
            }
        };
        std::fs::write(path, content).map_err(|e| tool(format!("'{path}': {e}")))?;
    }
    Ok(0)
}

/// Those of the file that is named, or of `usual`, which alone need not be there.
fn explanations(matches: &ArgMatches, usual: PathBuf) -> Result<verdict::Explanations, Failure> {
    let named = text(matches, "explanations").map(PathBuf::from);
    if let Some(path) = named.as_deref().filter(|path| !path.exists()) {
        return Err(usage(format!(
            "option --explanations: '{}': there is no such file",
            path.display()
        )));
    }
    verdict::read_explanations(&named.unwrap_or(usual)).map_err(usage)
}

fn chosen(matches: &ArgMatches) -> Result<Vec<Allocator>, Failure> {
    let found = allocators::find_all(text(matches, "lib").map(Path::new));
    let mut chosen = match text(matches, "peers") {
        Some(list) => allocators::select(&found, list).map_err(usage)?,
        None => {
            let mut all = allocators::everything(&found);
            all.retain(|a| !a.hardened);
            all
        }
    };
    chosen.retain(|allocator| allocator.key != "mallow");
    if !matches.get_flag("no-mallow") {
        let mallow = allocators::select(&found, "mallow").map_err(tool)?;
        chosen.splice(0..0, mallow);
    }
    if chosen.is_empty() {
        return Err(usage("option --no-mallow: no peer is left to be measured"));
    }
    if chosen.iter().all(|a| a.key == "mallow" || a.key == "glibc") {
        eprintln!("mallow-bench: no peer is here but glibc: build them with `make peers`");
    }
    Ok(chosen)
}

fn print_list(benchmarks: &[Benchmark], allocators: &[Allocator]) {
    for b in benchmarks {
        println!("{:8} {:20} {}", b.kind, b.name, b.what);
    }
    for a in allocators {
        println!("{:8} {}", a.key, a.headline());
    }
}

fn bench_main(matches: &ArgMatches) -> Result<u8, Failure> {
    let quick = matches.get_flag("quick");
    let rounds = whole(matches, "runs", if quick { 1 } else { 3 }, 1)?;
    let warmup = whole(matches, "warmup", 0, 0)?;
    let suite =
        Suite::read(Path::new(text(matches, "suite").unwrap_or_default())).map_err(usage)?;
    let benchmarks = suite
        .select(&list(matches, "only")?, &list(matches, "kind")?, quick)
        .map_err(usage)?;
    let beside = suite.root.join("bench/explanations.json");
    let explanations = explanations(matches, beside)?;
    let allocators = chosen(matches)?;
    if matches.get_flag("list") {
        print_list(&benchmarks, &allocators);
        return Ok(0);
    }
    let mut results = Results {
        format: results::FORMAT.into(),
        date: machine::now(),
        commit: machine::commit(&suite.root),
        machine: machine::machine(),
        rounds,
        warmup,
        quick,
        benchmarks: Vec::new(),
    };
    let usual = result_path(&suite.root, &results.date, &results.commit, "");
    let out = out_path(matches, usual)?;
    let progress = Progress::new(matches.get_flag("quiet"));
    for (number, benchmark) in benchmarks.iter().enumerate() {
        let label = format!("({}/{}) {}", number + 1, benchmarks.len(), benchmark.name);
        let outcome = run_benchmark(
            benchmark,
            &suite.root,
            &allocators,
            &results,
            &progress,
            &label,
        )?;
        if let Some(reason) = &outcome.skipped {
            progress.say(&format!("{label}: not run: {reason}"));
        }
        results.benchmarks.push(outcome);
        // After every benchmark, so that an interrupted session keeps what it has.
        results.write(&out).map_err(tool)?;
    }
    drop(progress);
    print!("{}", report::render(&results, &explanations));
    let picture = out.with_extension("svg");
    std::fs::write(&picture, report::picture(&results).map_err(tool)?)
        .map_err(|e| tool(format!("'{}': {e}", picture.display())))?;
    eprintln!(
        "mallow-bench: wrote {} and {}",
        out.display(),
        picture.display()
    );
    if let Some(why) = report::nothing_ran(&results) {
        return Err(tool(why));
    }
    Ok(u8::from(report::mallow_failed(&results)))
}

/// The file that --out names, or `usual`. Beside it lies the picture, of the same name but for the end.
fn out_path(matches: &ArgMatches, usual: PathBuf) -> Result<PathBuf, Failure> {
    match given_path(matches, "out")? {
        Some(path) if path == path.with_extension("svg") => Err(usage(format!(
            "option --out: '{}': that is where the picture goes: results need a name of their own, as in \
             x.json",
            path.display()
        ))),
        path => Ok(path.unwrap_or(usual)),
    }
}

/// The file to be written that an option names: looked at before anything is measured.
fn given_path(matches: &ArgMatches, name: &str) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = text(matches, name).map(PathBuf::from) else {
        return Ok(None);
    };
    let refused = |why: String| usage(format!("option --{name}: '{}': {why}", path.display()));
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    std::fs::create_dir_all(parent.unwrap_or(Path::new(".")))
        .map_err(|e| refused(e.to_string()))?;
    output::writable(&path).map_err(refused)?;
    Ok(Some(path))
}

/// bench/results/<date>-<commit><suffix>.json
fn result_path(root: &Path, date: &str, commit: &str, suffix: &str) -> PathBuf {
    let stamp = date.replace(':', "").replace(['T', 'Z'], "-");
    let commit = commit.replace('+', "-changed");
    root.join(format!("bench/results/{stamp}{commit}{suffix}.json"))
}

/// The directory of the benchmark programs, and what every result file begins with.
fn experiment_head(
    program: &str,
) -> Result<(PathBuf, (String, String, machine::Machine)), Failure> {
    let root = std::env::current_dir().map_err(|e| tool(e.to_string()))?;
    let directory = root.join("build/bench");
    if !directory.join(program).exists() {
        return Err(tool(format!(
            "'{}' is not there: run it in the repository, after `make bench-programs`",
            directory.join(program).display()
        )));
    }
    let head = (machine::now(), machine::commit(&root), machine::machine());
    Ok((directory, head))
}

fn pages_main(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(path) = text(matches, "show") {
        let pages = pages::read(Path::new(path)).map_err(tool)?;
        print!("{}", pages::render(&pages));
        let picture = Path::new(path).with_extension("svg");
        let svg = pages::picture(&pages).map_err(tool)?;
        std::fs::write(&picture, svg).map_err(|e| tool(format!("'{}': {e}", picture.display())))?;
        return Ok(0);
    }
    let (directory, head) = experiment_head("page_alloc")?;
    let rounds = whole(matches, "runs", 1, 1)?;
    let usual = result_path(Path::new("."), &head.0, &head.1, "-pages");
    let out = out_path(matches, usual)?;
    let progress = Progress::new(matches.get_flag("quiet"));
    let program = directory.join("page_alloc").display().to_string();
    let allocators = chosen(matches)?;
    let pages = pages::run(&program, &allocators, rounds, head, &progress).map_err(tool)?;
    drop(progress);
    print!("{}", pages::render(&pages));
    pages::write(&pages, &out).map_err(tool)?;
    eprintln!(
        "mallow-bench: wrote {} and the picture beside it",
        out.display()
    );
    Ok(u8::from(pages::mallow_failed(&pages)))
}

fn classics_main(matches: &ArgMatches) -> Result<u8, Failure> {
    let (directory, head) = experiment_head(classics::PROGRAMS[0])?;
    let rounds = whole(matches, "runs", 1, 1)?;
    let out = out_path(matches, "build/bench/results/bench-classics.json".into())?;
    let progress = Progress::new(matches.get_flag("quiet"));
    let allocators = chosen(matches)?;
    let classics = classics::run(&directory, &allocators, rounds, head, &progress).map_err(tool)?;
    drop(progress);
    print!("{}", classics::render(&classics));
    classics::write(&classics, &out).map_err(tool)?;
    eprintln!("mallow-bench: wrote {}", out.display());
    Ok(u8::from(classics::mallow_failed(&classics)))
}

fn run_benchmark(
    benchmark: &Benchmark,
    root: &Path,
    allocators: &[Allocator],
    results: &Results,
    progress: &Progress,
    label: &str,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome {
        benchmark: benchmark.clone(),
        skipped: None,
        series: Vec::new(),
    };
    let mut command = benchmark.command.clone();
    match program(root, &command[0]) {
        Ok(path) => command[0] = path,
        Err(reason) => outcome.skipped = Some(reason),
    }
    for setup in benchmark.setup.commands() {
        if outcome.skipped.is_none() {
            outcome.skipped = run_setup(&setup, root).err();
        }
    }
    if outcome.skipped.is_some() {
        return Ok(outcome);
    }
    let job = Job {
        command,
        directory: Some(root.to_path_buf()),
        set: benchmark.environment.clone().into_iter().collect(),
        rounds: results.rounds,
        warmup: results.warmup,
        timeout_s: benchmark.timeout.unwrap_or(TIMEOUT_S),
        stdin: None,
        read_output: true,
        keep_output: false,
        verify: true,
    };
    outcome.series = session::run_interleaved(&job, allocators, &mut |e| progress.on(label, &e))
        .map_err(|e| tool(format!("{}: {e}", benchmark.name)))?;
    Ok(outcome)
}

/// The program's path: relative ones are looked for in the repository, names in PATH.
fn program(root: &Path, name: &str) -> Result<String, String> {
    let path = if name.contains('/') {
        root.join(name)
    } else {
        PathBuf::from(name)
    };
    let path = elf::resolve_command(path.as_os_str()).map_err(|(_, reason)| reason)?;
    match elf::obstacles(&path)
        .into_iter()
        .find(elf::Obstacle::prevents_loading)
    {
        Some(obstacle) => Err(obstacle.describe()),
        None => Ok(path.display().to_string()),
    }
}

/// Runs a setup command without any allocator; the error has the last line it said.
fn run_setup(command: &[String], root: &Path) -> Result<(), String> {
    let mut process = Process::new(&command[0]);
    process
        .args(&command[1..])
        .current_dir(root)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null());
    for name in library::TOOL_VARIABLES {
        process.env_remove(name);
    }
    let output = process
        .output()
        .map_err(|e| format!("setup '{}': {e}", command.join(" ")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said
        .lines()
        .rfind(|l| !l.trim().is_empty())
        .unwrap_or_default()
        .to_string();
    Err(format!(
        "setup '{}': {}: {last}",
        command.join(" "),
        output.status
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::cli().debug_assert();
    }
}
