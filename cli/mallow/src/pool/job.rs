// SPDX-License-Identifier: MIT
//! A trace as a pool sees it: requests by rounded size, blocks by slot.
//!
//! A request for `size` bytes at alignment `a` asks a pool for `size` rounded up to a multiple of `a`,
//! at least 1: the class that holds as much is the one whose alignment must be `a`. A resize whose size
//! belongs to another class takes a block there, copies, and frees the old one; within a class the
//! block stays.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::trace::{Operation, Trace};

/// What blocks of a pool are aligned to where no more is asked for.
pub const GRANULE: u64 = 16;
/// The size of a step that frees.
pub const NONE: u32 = u32::MAX;

/// Ids are consecutive: their low bits are hash enough, spread by an odd factor.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are u64");
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A map by block id.
pub type ById<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

/// What a request asks a pool for.
pub fn wanted(size: u64, alignment: u64) -> Option<u64> {
    size.max(1).checked_next_multiple_of(alignment.max(1))
}

/// One distinct rounded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// A multiple of the granule.
    pub bytes: u64,
    /// The largest alignment asked for with it.
    pub alignment: u64,
}

/// A request (a size's index) or, with NONE, a free, of the block in a slot. A request for a slot that
/// is in use resizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which block.
    pub slot: u32,
    /// Index in `Job::sizes`.
    pub size: u32,
}

/// All requests of a trace.
#[derive(Debug, Default)]
pub struct Job {
    /// In the order of the trace.
    pub steps: Vec<Step>,
    /// Distinct sizes, ascending.
    pub sizes: Vec<Size>,
    /// Most blocks alive at once.
    pub slot_count: usize,
    /// Requests, resizes included.
    pub request_count: u64,
    /// Bytes that these asked for.
    pub requested_bytes: u64,
    /// Requests above the limit, left to another allocator.
    pub passed_count: u64,
    /// Of these, most bytes alive at once.
    pub passed_bytes_peak: u64,
    /// Most bytes alive at once of what is not above the limit, as they were asked for.
    pub live_bytes_peak: u64,
}

/// What is gathered while a trace is read.
#[derive(Default)]
struct Reading {
    job: Job,
    index: HashMap<u64, u32>,
    live: ById<Live>,
    free_slots: Vec<u32>,
    live_bytes: u64,
    passed_bytes: u64,
}

struct Live {
    slot: Option<u32>, // None: above the limit
    bytes: u64,
}

impl Reading {
    fn size_index(&mut self, wanted: u64, alignment: u64) -> u32 {
        let bytes = wanted.next_multiple_of(GRANULE);
        let sizes = &mut self.job.sizes;
        let index = *self.index.entry(bytes).or_insert_with(|| {
            sizes.push(Size {
                bytes,
                alignment: 1,
            });
            sizes.len() as u32 - 1
        });
        let size = &mut sizes[index as usize];
        size.alignment = size.alignment.max(alignment);
        index
    }

    fn request(&mut self, id: u64, bytes: u64, alignment: u64, limit: u64) {
        let old = self.live.remove(&id);
        if let Some(old) = &old {
            self.forget_bytes(old);
        }
        let old_slot = old.and_then(|old| old.slot);
        let wanted = wanted(bytes, alignment).filter(|&wanted| wanted <= limit);
        let slot = wanted.map(|wanted| {
            let size = self.size_index(wanted, alignment);
            let slot = old_slot
                .or_else(|| self.free_slots.pop())
                .unwrap_or_else(|| {
                    self.job.slot_count += 1;
                    self.job.slot_count as u32 - 1
                });
            self.job.steps.push(Step { slot, size });
            self.job.request_count += 1;
            self.job.requested_bytes = self.job.requested_bytes.saturating_add(bytes);
            self.live_bytes += bytes;
            self.job.live_bytes_peak = self.job.live_bytes_peak.max(self.live_bytes);
            slot
        });
        if slot.is_none() {
            self.job.passed_count += 1;
            self.passed_bytes += bytes;
            self.job.passed_bytes_peak = self.job.passed_bytes_peak.max(self.passed_bytes);
            if let Some(slot) = old_slot {
                self.give_back(slot);
            }
        }
        self.live.insert(id, Live { slot, bytes });
    }

    fn forget_bytes(&mut self, block: &Live) {
        match block.slot {
            Some(_) => self.live_bytes -= block.bytes,
            None => self.passed_bytes -= block.bytes,
        }
    }

    fn give_back(&mut self, slot: u32) {
        self.job.steps.push(Step { slot, size: NONE });
        self.free_slots.push(slot);
    }

    fn free(&mut self, id: u64) {
        let Some(live) = self.live.remove(&id) else {
            return;
        };
        self.forget_bytes(&live);
        if let Some(slot) = live.slot {
            self.give_back(slot);
        }
    }

    /// The job with its sizes in ascending order.
    fn sorted(self) -> Job {
        let mut job = self.job;
        let mut order: Vec<u32> = (0..job.sizes.len() as u32).collect();
        order.sort_by_key(|&index| job.sizes[index as usize].bytes);
        let mut rank = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            rank[old as usize] = new as u32;
        }
        for step in &mut job.steps {
            if step.size != NONE {
                step.size = rank[step.size as usize];
            }
        }
        job.sizes = order.iter().map(|&old| job.sizes[old as usize]).collect();
        job
    }
}

impl Job {
    /// Reads a trace. Requests that want more than `limit` bytes are only counted.
    pub fn read(trace: Trace, limit: u64) -> Result<Job, String> {
        let mut reading = Reading::default();
        for event in trace {
            match event?.operation {
                Operation::Allocate {
                    id,
                    size,
                    alignment,
                    ..
                } => reading.request(id, size, alignment, limit),
                Operation::Resize {
                    id,
                    size,
                    failed: false,
                } => reading.request(id, size, 1, limit),
                Operation::Free { id } => reading.free(id),
                _ => {}
            }
        }
        Ok(reading.sorted())
    }

    /// Which class each size belongs to: the first, in ascending order of `blocks`, that holds it.
    pub fn classes_of_sizes(&self, blocks: &[u64]) -> Vec<Option<usize>> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&class| blocks[class]);
        self.sizes
            .iter()
            .map(|size| order.iter().copied().find(|&c| blocks[c] >= size.bytes))
            .collect()
    }

    /// Plays the job on counters: which requests a pool of these classes would refuse.
    pub fn play(&self, blocks: &[u64], capacities: &[u64]) -> Played {
        let class_of = self.classes_of_sizes(blocks);
        let mut slots: Vec<Option<usize>> = vec![None; self.slot_count];
        let mut played = Played {
            refused: vec![0; blocks.len()],
            peak: vec![0; blocks.len()],
            too_big: 0,
        };
        let mut used = vec![0; blocks.len()];
        for step in &self.steps {
            let old = &mut slots[step.slot as usize];
            if step.size == NONE {
                if let Some(class) = old.take() {
                    used[class] -= 1;
                }
                continue;
            }
            let Some(class) = class_of[step.size as usize] else {
                played.too_big += 1;
                continue;
            };
            if *old == Some(class) {
                continue; // resized within its class
            }
            if used[class] == capacities[class] {
                played.refused[class] += 1; // a block that was to be resized stays as it was
                continue;
            }
            used[class] += 1;
            played.peak[class] = played.peak[class].max(used[class]);
            if let Some(class) = old.replace(class) {
                used[class] -= 1;
            }
        }
        played
    }
}

/// What came of playing a job.
#[derive(Debug, PartialEq, Eq)]
pub struct Played {
    /// Requests refused, by class.
    pub refused: Vec<u64>,
    /// Most blocks in use, by class.
    pub peak: Vec<u64>,
    /// Requests larger than every class.
    pub too_big: u64,
}

impl Played {
    /// All refusals.
    pub fn refused_count(&self) -> u64 {
        self.too_big + self.refused.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::made::Writer;

    fn job(writer: &Writer, name: &str, limit: u64) -> Job {
        Job::read(Trace::open(&writer.write(name)).unwrap(), limit).unwrap()
    }

    #[test]
    fn sizes_are_rounded_and_alignment_is_part_of_what_is_wanted() {
        assert_eq!(wanted(0, 1), Some(1));
        assert_eq!(wanted(100, 64), Some(128));
        assert_eq!(wanted(u64::MAX, 64), None);
        let mut writer = Writer::default();
        writer.allocate(0);
        writer.allocate(17);
        writer.allocate_aligned(10, 12);
        let job = job(&writer, "rounded", u64::MAX);
        let size = |bytes, alignment| Size { bytes, alignment };
        assert_eq!(job.sizes, [size(16, 1), size(32, 1), size(4096, 4096)]);
        assert_eq!(job.live_bytes_peak, 27);
    }

    #[test]
    fn a_resize_needs_both_blocks_for_a_moment() {
        let mut writer = Writer::default();
        let first = writer.allocate(16);
        writer.resize(first, 100);
        writer.resize(first, 112);
        writer.free(first);
        let job = job(&writer, "resize", u64::MAX);
        assert_eq!(job.request_count, 3);
        let played = job.play(&[16, 112], &[1, 1]);
        assert_eq!((played.refused_count(), played.peak), (0, vec![1, 1]));
        // Without room in the other class the block stays where it is, and is freed from there.
        let played = job.play(&[16, 112], &[1, 0]);
        assert_eq!((played.refused, played.peak), (vec![0, 2], vec![1, 0]));
    }

    #[test]
    fn a_refused_block_is_not_freed_later() {
        let mut writer = Writer::default();
        let blocks: Vec<u64> = (0..3).map(|_| writer.allocate(64)).collect();
        blocks.iter().rev().for_each(|&id| writer.free(id));
        writer.allocate(64);
        let played = job(&writer, "refused", u64::MAX).play(&[64], &[2]);
        assert_eq!(
            (played.refused, played.peak, played.too_big),
            (vec![1], vec![2], 0)
        );
    }

    #[test]
    fn what_is_above_the_limit_is_left_to_another() {
        let mut writer = Writer::default();
        let small = writer.allocate(64);
        let big = writer.allocate(5000);
        writer.resize(small, 6000);
        writer.resize(big, 32);
        writer.free(small);
        writer.free(big);
        let job = job(&writer, "limit", 4096);
        assert_eq!((job.passed_count, job.passed_bytes_peak), (2, 11_000));
        assert_eq!((job.request_count, job.live_bytes_peak), (2, 64));
        let played = job.play(&[32, 64], &[1, 1]);
        assert_eq!((played.refused_count(), played.peak), (0, vec![1, 1]));
    }
}
