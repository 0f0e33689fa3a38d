// SPDX-License-Identifier: MIT
//! `mallow pool replay`: a recorded program's requests on the real pool of the C library.
//!
//! Every block is checked for its alignment, carries its id at both ends while it lives, and is read
//! back before it is freed, so blocks that overlap are found.

use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;

use clap::{Arg, ArgMatches, Command};
use mallow_measure::table::Table;

use super::config::{status_text, ClassPlan, Config, Plan};
use super::job::{wanted, ById};
use super::{ffi, grouped, max_size_argument};
use crate::trace::{Operation, Trace};
use crate::Failure;

const CODES: &str = "\
Exit codes: 0 the pool served every request; 1 it refused some; 2 bad usage; 125 the tool failed, or a \
check of a block.";

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("replay")
        .about("Replays a trace on a pool and prints what it refused")
        .after_help(CODES)
        .arg(
            Arg::new("pool")
                .long("pool")
                .value_name("CONFIG")
                .help("The pool's configuration")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(max_size_argument())
        .arg(
            Arg::new("trace")
                .value_name("TRACE")
                .help("A trace of `mallow record`")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf)),
        )
}

/// Memory of our own for the pool, at the alignment that it wants.
struct Memory {
    mapping: *mut c_void,
    length: usize,
    start: *mut c_void,
}

impl Memory {
    fn new(plan: &Plan) -> Result<Memory, String> {
        let length = plan
            .pool_bytes
            .checked_add(plan.alignment_bytes)
            .ok_or("the pool is too big")?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(format!("no memory for a pool of {length} bytes: {error}"));
        }
        let step = mapping.align_offset(plan.alignment_bytes);
        Ok(Memory {
            mapping,
            length,
            // SAFETY: `length` has room for the step.
            start: unsafe { mapping.byte_add(step) },
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; nothing refers to it any more.
        unsafe { libc::munmap(self.mapping, self.length) };
    }
}

/// A pool in memory of our own.
pub struct Pool {
    handle: *mut c_void,
    classes: Vec<ClassPlan>,
    by_size: Vec<usize>, // class indexes, ascending in block_bytes
    _memory: Memory,
}

/// A block that lives.
struct Live {
    address: *mut u8,
    bytes: usize,
    class: usize,
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests, resizes that stay in their class included.
    pub requests: u64,
    /// Requests above the limit, not asked of the pool.
    pub passed: u64,
    /// By class, and last those too big for every class.
    pub refused: Vec<u64>,
    /// Most blocks in use, by class.
    pub peak: Vec<u64>,
    /// The last refusal, in the library's words.
    pub reason: Option<String>,
}

impl Outcome {
    /// All refusals.
    pub fn refused_count(&self) -> u64 {
        self.refused.iter().sum()
    }
}

impl Pool {
    /// Makes the pool; prefault, lock and the owner's check are left out.
    pub fn new(config: &Config, plan: &Plan, classes: &[ClassPlan]) -> Result<Pool, String> {
        let memory = Memory::new(plan)?;
        let mut raw = config.as_ffi();
        raw.pool_bytes = plan.pool_bytes;
        raw.memory = memory.start;
        (raw.prefault, raw.lock, raw.check_owner) = (false, false, false);
        let mut handle = ptr::null_mut();
        let mut problem = 0;
        // SAFETY: the memory is as long and as aligned as the plan says and outlives the pool.
        let status = unsafe { ffi::mw_pool_create_in(&raw, &mut handle, &mut problem) };
        if status != ffi::OK {
            return Err(format!("the pool cannot be made: {}", status_text(status)));
        }
        let mut by_size: Vec<usize> = (0..classes.len()).collect();
        by_size.sort_by_key(|&class| classes[class].block_bytes);
        Ok(Pool {
            handle,
            classes: classes.to_vec(),
            by_size,
            _memory: memory,
        })
    }

    fn class_of(&self, bytes: u64) -> Option<usize> {
        let at = self
            .by_size
            .partition_point(|&class| (self.classes[class].block_bytes as u64) < bytes);
        self.by_size.get(at).copied()
    }

    fn allocate(&self, bytes: u64) -> Result<*mut u8, ffi::Status> {
        let mut status = ffi::OK;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the pool lives, and only this thread uses it.
        let block = unsafe { ffi::mw_pool_alloc_status(self.handle, bytes, &mut status) };
        if block.is_null() {
            Err(status)
        } else {
            Ok(block.cast())
        }
    }

    fn used(&self, class: usize) -> u64 {
        // SAFETY: the pool lives.
        unsafe { ffi::mw_pool_used_count(self.handle, class) as u64 }
    }
}

/// A replay in progress.
struct Replay<'a> {
    pool: &'a Pool,
    live: ById<Live>,
    outcome: Outcome,
}

/// Writes the id's bytes to both ends of the block, as far as they fit.
fn mark(block: &Live, id: u64) {
    let bytes = id.to_le_bytes();
    let count = block.bytes.min(bytes.len());
    // SAFETY: the block has `bytes` bytes and is ours.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), block.address, count);
        ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            block.address.add(block.bytes - count),
            count,
        );
    }
}

fn is_marked(block: &Live, id: u64) -> bool {
    let bytes = id.to_le_bytes();
    let count = block.bytes.min(bytes.len());
    // SAFETY: as above; overlapping ends hold the last mark.
    unsafe {
        let end = std::slice::from_raw_parts(block.address.add(block.bytes - count), count);
        let start = std::slice::from_raw_parts(block.address, count);
        end == &bytes[..count] && (block.bytes < 2 * bytes.len() || start == &bytes[..count])
    }
}

impl Replay<'_> {
    fn give_back(&self, block: &Live, id: u64) -> Result<(), String> {
        if !is_marked(block, id) {
            return Err(format!("block {id} was overwritten: blocks overlap"));
        }
        // SAFETY: a live block of the pool.
        let status = unsafe { ffi::mw_pool_free(self.pool.handle, block.address.cast()) };
        match status {
            ffi::OK => Ok(()),
            other => Err(format!(
                "block {id} cannot be freed: {}",
                status_text(other)
            )),
        }
    }

    /// A new block, or a resize of the one that lives under this id.
    fn request(&mut self, id: u64, size: u64, alignment: u64) -> Result<(), String> {
        let bytes = wanted(size, alignment).unwrap_or(u64::MAX);
        let class = self.pool.class_of(bytes);
        self.outcome.requests += 1;
        if let (Some(old), Some(class)) = (self.live.get(&id), class) {
            if old.class == class && (old.address as u64) % alignment == 0 {
                return Ok(());
            }
        }
        let address = match self.pool.allocate(bytes) {
            Ok(address) => address,
            Err(status) => {
                let last = self.outcome.refused.len() - 1;
                self.outcome.refused[class.unwrap_or(last)] += 1;
                self.outcome.reason = Some(status_text(status));
                return Ok(());
            }
        };
        let class = class.ok_or("a request above every class was served")?;
        if (address as u64) % alignment != 0 {
            return Err(format!(
                "block {id} wants an alignment of {alignment}, and class {class} gives {}",
                self.pool.classes[class].alignment_bytes
            ));
        }
        let block = Live {
            address,
            bytes: bytes as usize,
            class,
        };
        mark(&block, id);
        self.outcome.peak[class] = self.outcome.peak[class].max(self.pool.used(class));
        match self.live.insert(id, block) {
            Some(old) => self.give_back(&old, id),
            None => Ok(()),
        }
    }

    fn step(&mut self, operation: Operation, limit: u64) -> Result<(), String> {
        let (id, size, alignment) = match operation {
            Operation::Allocate {
                id,
                size,
                alignment,
                ..
            } => (id, size, alignment),
            Operation::Resize {
                id,
                size,
                failed: false,
            } => (id, size, 1),
            Operation::Free { id } => {
                return match self.live.remove(&id) {
                    Some(block) => self.give_back(&block, id),
                    None => Ok(()), // refused, or above the limit
                };
            }
            _ => return Ok(()),
        };
        if wanted(size, alignment).is_some_and(|bytes| bytes <= limit) {
            return self.request(id, size, alignment);
        }
        self.outcome.passed += 1;
        match self.live.remove(&id) {
            Some(block) => self.give_back(&block, id),
            None => Ok(()),
        }
    }
}

/// Replays the trace; the error is a broken promise of the pool, or of the trace.
pub fn replay(pool: &Pool, trace: Trace, limit: u64) -> Result<Outcome, String> {
    let mut replay = Replay {
        pool,
        live: ById::default(),
        outcome: Outcome {
            refused: vec![0; pool.classes.len() + 1],
            peak: vec![0; pool.classes.len()],
            ..Outcome::default()
        },
    };
    let path = trace.path().display().to_string();
    for event in trace {
        replay
            .step(event?.operation, limit)
            .map_err(|text| format!("{path}: {text}"))?;
    }
    for (id, block) in std::mem::take(&mut replay.live) {
        replay.give_back(&block, id)?;
    }
    for class in 0..pool.classes.len() {
        if pool.used(class) != 0 {
            return Err(format!(
                "class {class} has blocks in use when all were freed"
            ));
        }
    }
    Ok(replay.outcome)
}

fn render(outcome: &Outcome, classes: &[ClassPlan]) -> String {
    let mut table = Table::new([
        "class",
        "block B",
        "blocks",
        "most used",
        "used %",
        "refused",
    ]);
    for (index, class) in classes.iter().enumerate() {
        let capacity = class.capacity_count as u64;
        table.row([
            index.to_string(),
            grouped(class.block_bytes as u64),
            grouped(capacity),
            grouped(outcome.peak[index]),
            format!(
                "{:.1}",
                outcome.peak[index] as f64 * 100.0 / capacity.max(1) as f64
            ),
            grouped(outcome.refused[index]),
        ]);
    }
    let too_big = outcome.refused[classes.len()];
    let refused = outcome.refused_count();
    let mut text = table.render();
    if outcome.passed > 0 {
        text += &format!("left to another allocator: {}\n", grouped(outcome.passed));
    }
    if too_big > 0 {
        text += &format!("larger than every class: {}\n", grouped(too_big));
    }
    text += &format!(
        "{} requests, {} refused ({:.4} %)",
        grouped(outcome.requests),
        grouped(refused),
        refused as f64 * 100.0 / outcome.requests.max(1) as f64
    );
    if let Some(reason) = &outcome.reason {
        text += &format!("; the last: {reason}");
    }
    text + "\n"
}

/// Replays and prints.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = matches.get_one::<PathBuf>("pool").expect("is required");
    let (config, plan, classes) = Config::read_and_plan(path, None, 2)?;
    if config.switches[0] {
        return Err(Failure::usage(format!(
            "{}: fallback=on: replay needs a pool without it, to tell which class refuses",
            path.display()
        )));
    }
    let trace_path = matches.get_one::<PathBuf>("trace").expect("is required");
    let trace = Trace::open(trace_path).map_err(Failure::tool)?;
    if let Some(warning) = trace.warning() {
        eprintln!("{warning}");
    }
    let pool = Pool::new(&config, &plan, &classes).map_err(Failure::tool)?;
    let limit = matches.get_one::<u64>("max-size").copied();
    let outcome = replay(&pool, trace, limit.unwrap_or(u64::MAX)).map_err(Failure::tool)?;
    println!(
        "{} on {}, {} bytes\n",
        trace_path.display(),
        path.display(),
        grouped(plan.pool_bytes as u64)
    );
    print!("{}", render(&outcome, &classes));
    Ok(u8::from(outcome.refused_count() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::job::Job;
    use crate::trace::made::Writer;

    /// Requests and frees at random, resizes among them, and sizes above every class.
    fn random_trace(name: &str, seed: u64) -> PathBuf {
        let mut state = seed * 2 + 1;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % limit
        };
        let mut writer = Writer::default();
        let mut live = Vec::new();
        for _ in 0..20_000 {
            match below(8) {
                0..=3 => live.push(match below(10) {
                    0 => writer.allocate_aligned(below(300), 4 + below(3)),
                    _ => writer.allocate(below(1100)),
                }),
                4 if !live.is_empty() => {
                    let at = below(live.len() as u64) as usize;
                    writer.resize(live[at], below(1100));
                }
                _ if !live.is_empty() => {
                    let at = below(live.len() as u64) as usize;
                    writer.free(live.swap_remove(at));
                }
                _ => {}
            }
            if live.len() > 300 {
                live.drain(..100).for_each(|id| writer.free(id));
            }
        }
        writer.write(name)
    }

    #[test]
    fn the_real_pool_refuses_what_the_counters_say() {
        for seed in 0..8 {
            let path = random_trace(&format!("random-{seed}"), seed);
            let classes = [(16, 0), (128, 64), (512, 64), (1024, 64), (1056, 0)];
            let counts = [20 + seed, 30, 100, 90, 10];
            let config = Config {
                classes: classes
                    .iter()
                    .zip(counts)
                    .map(|(&(size_bytes, alignment_bytes), count)| ffi::Class {
                        size_bytes,
                        alignment_bytes,
                        block_count: count as usize,
                        share_ppm: 0,
                    })
                    .collect(),
                ..Config::default()
            };
            let (plan, planned) = config.plan().unwrap();
            let pool = Pool::new(&config, &plan, &planned).unwrap();
            let real = replay(&pool, Trace::open(&path).unwrap(), 2000).unwrap();
            let job = Job::read(Trace::open(&path).unwrap(), 2000).unwrap();
            let blocks: Vec<u64> = planned.iter().map(|c| c.block_bytes as u64).collect();
            let played = job.play(&blocks, &counts);
            assert!(
                real.refused_count() > 0 && real.refused[5] > 0,
                "seed {seed}: {real:?}"
            );
            assert_eq!(real.refused[..5], played.refused, "seed {seed}");
            assert_eq!(real.refused[5], played.too_big, "seed {seed}");
            assert_eq!(real.peak, played.peak, "seed {seed}");
            assert_eq!(real.requests, job.request_count, "seed {seed}");
        }
    }

    #[test]
    fn marks_tell_an_overwritten_block() {
        let mut bytes = [0u8; 40];
        for length in [1, 7, 8, 12, 16, 40] {
            let block = Live {
                address: bytes.as_mut_ptr(),
                bytes: length,
                class: 0,
            };
            mark(&block, 0x0102_0304_0506_0708);
            assert!(is_marked(&block, 0x0102_0304_0506_0708), "{length}");
            assert!(!is_marked(&block, 0x0102_0304_0506_0709), "{length}");
            // SAFETY: within `bytes`.
            unsafe { *block.address.add(length - 1) ^= 1 };
            assert!(!is_marked(&block, 0x0102_0304_0506_0708), "{length}");
        }
    }
}
