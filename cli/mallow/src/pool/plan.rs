// SPDX-License-Identifier: MIT
//! `mallow pool plan`: what a configuration comes to, before any program runs.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use mallow_measure::table::Table;

use super::config::{percent, presets, ClassPlan, Config, Plan, Preset};
use super::{from_trace, grouped, max_size_argument, parse_size};
use crate::Failure;

const PRESET_BYTES: usize = 1 << 20;
/// What only a plan derived from a trace takes.
const OF_A_TRACE: [&str; 4] = ["classes", "counts", "max-size", "out"];
/// A configuration that cannot be is a result, not a failure of the tool.
const REFUSED: i32 = 1;

const ABOUT_FROM: &str = "\
With --from, the pool that would have served a program recorded by `mallow record`: classes that need \
the fewest bytes, their shares, the pool's size, and what a smaller pool would refuse.

Exit codes: 0 it can be; 1 the configuration cannot be (line, value and reason on stderr); 2 bad usage; \
125 the tool failed, as where a file cannot be read.";

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("plan")
        .about("Prints capacity, overhead and worst case of a pool")
        .override_usage(
            "mallow pool plan CONFIG\n       mallow pool plan --preset NAME [--size SIZE]\n       \
             mallow pool plan --from TRACE [--classes N] [--out CONFIG]",
        )
        .after_help(ABOUT_FROM)
        .arg(
            path("config", "CONFIG", "A configuration file")
                .required_unless_present_any(["preset", "from"]),
        )
        .arg(
            Arg::new("preset")
                .long("preset")
                .value_name("NAME")
                .help("A preset of the library instead of a file; `list` names them")
                .conflicts_with("config"),
        )
        .arg(
            Arg::new("size")
                .long("size")
                .value_name("SIZE")
                .help("The pool's size, instead of the file's [default with --preset: 1M]")
                .value_parser(parse_size)
                .allow_negative_numbers(true)
                .conflicts_with("from"),
        )
        .arg(
            path("from", "TRACE", "A trace of `mallow record`")
                .long("from")
                .conflicts_with_all(["config", "preset"]),
        )
        .arg(
            Arg::new("classes")
                .long("classes")
                .value_name("N")
                .help("How many classes at most [default: the fewest within 5 % of the best of 32]")
                .value_parser(clap::value_parser!(u64).range(1..=64))
                .allow_negative_numbers(true),
        )
        .arg(
            Arg::new("counts")
                .long("counts")
                .help("Exact numbers of blocks instead of size and shares")
                .action(ArgAction::SetTrue),
        )
        .arg(max_size_argument())
        .arg(
            path(
                "out",
                "CONFIG",
                "Where the configuration goes [default: printed]",
            )
            .long("out"),
        )
        // Beside a source of another kind clap would not miss the trace: that conflicts with it.
        .mut_args(|arg| match OF_A_TRACE.contains(&arg.get_id().as_str()) {
            true => arg
                .requires("from")
                .conflicts_with_all(["config", "preset"]),
            false => arg,
        })
        .arg(
            Arg::new("no-snippet")
                .long("no-snippet")
                .help("Leave out the C code")
                .action(ArgAction::SetTrue),
        )
}

fn path(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .value_name(value)
        .help(help)
        .value_parser(clap::value_parser!(PathBuf))
}

/// Classes, sums and bounds as text.
pub fn render(config: &Config, plan: &Plan, classes: &[ClassPlan]) -> String {
    let mut table = Table::new(["class", "block B", "aligned", "share %", "blocks", "bytes"]);
    for (index, (class, asked)) in classes.iter().zip(&config.classes).enumerate() {
        table.row([
            index.to_string(),
            grouped(class.block_bytes as u64),
            class.alignment_bytes.to_string(),
            match asked.share_ppm {
                0 => "-".into(),
                ppm => percent(u64::from(ppm)),
            },
            grouped(class.capacity_count as u64),
            grouped((class.block_bytes * class.capacity_count) as u64),
        ]);
    }
    let over = plan.overhead_bytes as f64 * 100.0 / plan.pool_bytes.max(1) as f64;
    let remote = match plan.remote_instructions {
        0 => String::new(),
        count => format!(", free by another thread {count}"),
    };
    format!(
        "{}\npool      {} bytes, aligned to {}\nblocks    {} bytes\noverhead  {} bytes ({over:.3} %), of these \
         bookkeeping {}\nworst case of a call, instructions: alloc {}, alloc by class {}, free {}{remote}; \
         system calls: 0\n",
        table.render(),
        grouped(plan.pool_bytes as u64),
        grouped(plan.alignment_bytes as u64),
        grouped(plan.payload_bytes as u64),
        grouped(plan.overhead_bytes as u64),
        grouped(plan.metadata_bytes as u64),
        plan.alloc_instructions,
        plan.alloc_class_instructions,
        plan.free_instructions,
    )
}

/// C code that makes the pool, as it is configured.
pub fn snippet(config: &Config) -> String {
    let mut text = String::from(
        "#include <mallow/pool.h>\n\nstatic const struct mw_pool_class classes[] = {\n",
    );
    for class in &config.classes {
        let mut fields = vec![format!(".size_bytes = {}", class.size_bytes)];
        if class.alignment_bytes != 0 {
            fields.push(format!(".alignment_bytes = {}", class.alignment_bytes));
        }
        if class.block_count != 0 {
            fields.push(format!(".block_count = {}", class.block_count));
        }
        if class.share_ppm != 0 {
            fields.push(format!(".share_ppm = {}", class.share_ppm));
        }
        text.push_str(&format!("    {{{}}},\n", fields.join(", ")));
    }
    let [fallback, prefault, lock, remote, check_owner] = config.switches;
    let mut fields = vec![
        ".classes = classes".to_string(),
        format!(".class_count = {}", config.classes.len()),
    ];
    if config.pool_bytes != 0 {
        fields.push(format!(".pool_bytes = {}", config.pool_bytes));
    }
    for (name, on) in [
        ("prefault", prefault),
        ("fallback", fallback),
        ("lock", lock),
        ("remote", remote),
        ("check_owner", check_owner),
    ] {
        if on {
            fields.push(format!(".{name} = true"));
        }
    }
    text + &format!(
        "}};\nconst struct mw_pool_config config = {{\n    {},\n}};\nstruct mw_pool *pool = NULL;\n\
         size_t problem = 0;\nif (mw_pool_create(&config, &pool, &problem) != MW_POOL_OK) {{\n    \
         abort(); // class `problem` is to blame\n}}\n",
        fields.join(",\n    ")
    )
}

fn preset(name: &str) -> Result<Preset, Failure> {
    let all = presets();
    let names: Vec<&str> = all.iter().map(|preset| preset.name.as_str()).collect();
    let names = names.join(", ");
    all.into_iter()
        .find(|preset| preset.name == name)
        .ok_or_else(|| Failure::usage(format!("option --preset: '{name}' is none of {names}")))
}

fn list_presets() -> String {
    let mut table = Table::new(["preset", "classes", "for"]);
    for preset in presets() {
        let classes: Vec<String> = preset
            .classes
            .iter()
            .map(|c| format!("{}:{} %", c.size_bytes, percent(u64::from(c.share_ppm))))
            .collect();
        table.row([preset.name, classes.join(" "), preset.text]);
    }
    table.render()
}

fn planned(matches: &ArgMatches) -> Result<(String, Config, Plan, Vec<ClassPlan>), Failure> {
    let size = matches.get_one::<u64>("size").map(|&size| size as usize);
    if let Some(name) = matches.get_one::<String>("preset") {
        let preset = preset(name)?;
        let config = Config {
            classes: preset.classes,
            pool_bytes: size.unwrap_or(PRESET_BYTES),
            ..Config::default()
        }
        .brought_in();
        let (plan, classes) = config.plan().map_err(|p| {
            Failure::with_code(
                REFUSED,
                format!("preset {name}, pool of {}: {}", config.pool_bytes, p.text),
            )
        })?;
        return Ok((
            format!("preset {name}: {}", preset.text),
            config,
            plan,
            classes,
        ));
    }
    let file: &Path = matches
        .get_one::<PathBuf>("config")
        .expect("clap asks for one");
    let title = file.display().to_string();
    let (config, plan, classes) = Config::read_and_plan(file, size, REFUSED)?;
    Ok((title, config, plan, classes))
}

/// Prints the plan.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let with_code = !matches.get_flag("no-snippet");
    if let Some(trace) = matches.get_one::<PathBuf>("from") {
        return from_trace::main(trace, matches, with_code);
    }
    if matches.get_one::<String>("preset").map(String::as_str) == Some("list") {
        if matches.contains_id("size") {
            return Err(Failure::usage(
                "option --size: --preset list only names the presets",
            ));
        }
        print!("{}", list_presets());
        return Ok(0);
    }
    let (title, config, plan, classes) = planned(matches)?;
    print!("{title}\n\n{}", render(&config, &plan, &classes));
    if with_code {
        print!("\n{}", snippet(&config));
    }
    Ok(0)
}
