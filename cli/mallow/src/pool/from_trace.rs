// SPDX-License-Identifier: MIT
//! `mallow pool plan --from`: the pool that would have served a recorded program.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use mallow_measure::table::Table;

use super::config::{Class, ClassPlan, Config};
use super::derive::{self, Choices};
use super::job::{Job, GRANULE};
use super::{grouped, plan};
use crate::trace::Trace;
use crate::Failure;

/// Classes among which the default is chosen.
const CLASSES_MOST: usize = 32;
/// How many more bytes than those the default may need.
const SLACK: f64 = 0.05;
/// Smaller pools that are tried, in percent.
const BUDGETS: [u64; 6] = [100, 95, 90, 75, 50, 25];
const WHOLE: u64 = super::ffi::WHOLE as u64;
const PAGE: usize = 4096;

/// The classes with exact numbers of blocks.
pub fn by_counts(classes: &[derive::Class]) -> Config {
    let counted = |class: &derive::Class| Class {
        size_bytes: class.block_bytes as usize,
        alignment_bytes: if class.alignment > GRANULE {
            class.alignment as usize
        } else {
            0
        },
        block_count: class.peak as usize,
        share_ppm: 0,
    };
    Config {
        classes: classes.iter().map(counted).collect(),
        ..Config::default()
    }
}

/// The same with a size and shares: the smallest pool, in steps of a small part of itself, whose shares
/// come to as many blocks of every class.
pub fn by_shares(counts: &Config) -> Result<Config, String> {
    let (exact, classes) = counts.plan().map_err(|problem| problem.text)?;
    let needs: Vec<u64> = classes
        .iter()
        .map(|c| (c.block_bytes * c.capacity_count + c.metadata_bytes) as u64)
        .collect();
    let unshared = exact.pool_bytes - needs.iter().sum::<u64>() as usize;
    let largest = (0..needs.len()).max_by_key(|&i| needs[i]).unwrap_or(0);
    let mut margin = 1e-5;
    while margin < 1.0 {
        let larger = |bytes: f64, part: f64| bytes * (1.0 + margin * part);
        let pool_bytes =
            (larger(exact.pool_bytes as f64, 1.0) as usize + PAGE).next_multiple_of(PAGE);
        // Half of what was added goes to every class in proportion; the rest is for the rounding up of
        // the shares. They are of what the pool's own bookkeeping leaves.
        let shared = pool_bytes - unshared;
        let share =
            |need: &u64| (larger(*need as f64, 0.5) * WHOLE as f64 / shared as f64).ceil() as u64;
        let shares: Vec<u64> = needs.iter().map(share).collect();
        margin *= 1.2;
        let Some(rest) = WHOLE.checked_sub(shares.iter().sum()) else {
            continue;
        };
        let mut config = counts.clone();
        config.pool_bytes = pool_bytes;
        for (index, class) in config.classes.iter_mut().enumerate() {
            let more = if index == largest { rest } else { 0 };
            class.block_count = 0;
            class.share_ppm = (shares[index] + more) as u32;
        }
        let enough = |planned: &[super::config::ClassPlan]| {
            planned
                .iter()
                .zip(&counts.classes)
                .all(|(got, need)| got.capacity_count >= need.block_count)
        };
        if config.plan().is_ok_and(|(_, planned)| enough(&planned)) {
            return Ok(config);
        }
    }
    Err("no shares come to these classes; use --counts".into())
}

/// Bytes that 1, 2, 4 ... classes need.
fn class_table(job: &Job, choices: &Choices, chosen: usize) -> String {
    let mut table = Table::new(["classes", "bytes in blocks", "of bytes live"]);
    let most = choices.class_count_max();
    let mut numbers: Vec<usize> = (0..7)
        .map(|shift| 1 << shift)
        .filter(|&n| n < most)
        .collect();
    numbers.extend([chosen, most]);
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let bytes = choices.bytes(number).unwrap_or(u64::MAX);
        if bytes == u64::MAX {
            continue; // so few cannot keep the alignments apart
        }
        let mark = if number == chosen { " *" } else { "" };
        table.row([
            format!("{number}{mark}"),
            grouped(bytes),
            format!("{:.3}", bytes as f64 / job.live_bytes_peak.max(1) as f64),
        ]);
    }
    table.render()
}

/// A pool with a part of the blocks of each class, but one at least.
fn smaller(config: &Config, planned: &[ClassPlan], budget: u64) -> Config {
    let mut smaller = config.clone();
    smaller.pool_bytes = 0;
    for (class, plan) in smaller.classes.iter_mut().zip(planned) {
        let part = plan.capacity_count as u128 * u128::from(budget) / 100;
        class.block_count = (part as usize).max(1);
        class.share_ppm = 0;
    }
    smaller
}

/// What smaller pools need, and would refuse.
fn budget_table(job: &Job, config: &Config, planned: &[ClassPlan]) -> Result<String, String> {
    let mut table = Table::new(["blocks", "bytes", "refused", "of requests %"]);
    for budget in BUDGETS {
        let (plan, classes) = smaller(config, planned, budget)
            .plan()
            .map_err(|problem| problem.text)?;
        let blocks: Vec<u64> = classes.iter().map(|c| c.block_bytes as u64).collect();
        let counts: Vec<u64> = classes.iter().map(|c| c.capacity_count as u64).collect();
        let refused = job.play(&blocks, &counts).refused_count();
        table.row([
            format!("{budget} %"),
            grouped(plan.pool_bytes as u64),
            grouped(refused),
            format!(
                "{:.4}",
                refused as f64 * 100.0 / job.request_count.max(1) as f64
            ),
        ]);
    }
    Ok(table.render())
}

/// Derives, prints, writes.
pub fn main(path: &Path, matches: &ArgMatches, with_code: bool) -> Result<u8, Failure> {
    let limit = matches.get_one::<u64>("max-size").copied();
    let trace = Trace::open(path).map_err(Failure::tool)?;
    let header = trace.header().clone();
    let warning = trace.warning();
    let job = Job::read(trace, limit.unwrap_or(u64::MAX)).map_err(Failure::tool)?;
    if job.steps.is_empty() {
        let which = limit.map_or(String::new(), |limit| {
            format!(" of at most {limit} bytes (--max-size)")
        });
        return Err(Failure::tool(format!(
            "{}: no requests{which}",
            path.display()
        )));
    }
    if let Some(warning) = &warning {
        eprintln!("{warning}");
    }
    let asked = matches.get_one::<u64>("classes").map(|&n| n as usize);
    let choices = Choices::new(&job, asked.unwrap_or(CLASSES_MOST));
    let chosen = match asked {
        Some(number) => number.min(choices.class_count_max()),
        None => choices.enough(SLACK),
    };
    let derived = choices.classes(chosen);
    let no_pool = |why| Failure::tool(format!("{}: no pool for it: {why}", path.display()));
    let counts = by_counts(&derived);
    let config = match matches.get_flag("counts") {
        true => counts,
        false => by_shares(&counts).map_err(no_pool)?,
    }
    .brought_in();
    let (planned, classes) = config.plan().map_err(|problem| no_pool(problem.text))?;

    let budgets = budget_table(&job, &config, &classes).map_err(no_pool)?;

    let heading = format!(
        "The pool that serves {} ({} requests) without a refusal,\nderived by mallow pool plan --from.{}{}",
        header.command_line(60),
        job.request_count,
        limit.map_or(String::new(), |l| format!(" Requests above {l} bytes are not in it.")),
        warning.map_or("", |_| "\nThe trace ended before the program did.")
    );
    let text = config.text(&heading);
    let out = matches.get_one::<PathBuf>("out");
    if let Some(out) = out {
        // Before anything is printed: who reads it may go away.
        std::fs::write(out, &text).map_err(|e| Failure::tool(format!("{}: {e}", out.display())))?;
    }

    println!(
        "{}: {}\n{} requests of {} sizes, at most {} bytes live at once\n",
        path.display(),
        header.command_line(100),
        grouped(job.request_count),
        grouped(job.sizes.len() as u64),
        grouped(job.live_bytes_peak),
    );
    if job.passed_count > 0 {
        println!(
            "left to another allocator: {} requests above {} bytes, at most {} bytes of them live\n",
            grouped(job.passed_count),
            grouped(limit.unwrap_or(u64::MAX)),
            grouped(job.passed_bytes_peak)
        );
    }
    println!("{}", class_table(&job, &choices, chosen));
    println!("{}", plan::render(&config, &planned, &classes));
    println!("{budgets}");

    match out {
        Some(out) => println!("written: {}", out.display()),
        None => print!("{text}"),
    }
    if with_code {
        print!("\n{}", plan::snippet(&config));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares that come to what the counts ask for, where the pool's own bookkeeping is most of it.
    #[test]
    fn few_blocks_of_many_classes_have_shares_too() {
        for class_count in [1, 2, 30, 64] {
            let classes: Vec<derive::Class> = (1..=class_count)
                .map(|n| derive::Class {
                    block_bytes: GRANULE * n,
                    alignment: GRANULE,
                    peak: 1,
                })
                .collect();
            let counts = by_counts(&classes);
            let shares = by_shares(&counts).unwrap();
            let (plan, classes) = shares.plan().unwrap();
            assert!(classes.iter().all(|class| class.capacity_count >= 1));
            let exact = counts.plan().unwrap().0.pool_bytes;
            assert!(plan.pool_bytes < 2 * (exact + PAGE), "{class_count}");
        }
    }
}
