// SPDX-License-Identifier: MIT
//! The dynamic program against all partitions, on random jobs.

use super::*;
use crate::pool::job::Step;

/// Numbers of a fixed sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn random_job(seed: u64, size_count: usize) -> Job {
    let mut random = Random(seed * 2 + 1);
    let mut bytes = 0;
    let sizes: Vec<Size> = (0..size_count)
        .map(|_| {
            bytes += GRANULE * (1 + random.below(9));
            let alignment = match random.below(6) {
                0 => 1 << bytes.trailing_zeros().min(12),
                _ => 1,
            };
            Size { bytes, alignment }
        })
        .collect();
    let slot_count = 40;
    let mut used = vec![false; slot_count];
    let steps = (0..600)
        .map(|_| {
            let slot = random.below(slot_count as u64) as usize;
            let resize = random.below(4) == 0;
            let size = match used[slot] && !resize {
                true => NONE,
                false => random.below(size_count as u64) as u32,
            };
            used[slot] = size != NONE;
            Step {
                slot: slot as u32,
                size,
            }
        })
        .collect();
    Job {
        steps,
        sizes,
        slot_count,
        ..Job::default()
    }
}

/// Bytes of a partition by playing the job with room for everything; None if a class takes sizes that
/// are the next one's.
fn played_bytes(job: &Job, cuts: &[usize]) -> Option<u64> {
    let mut blocks = Vec::new();
    let mut first = 0;
    for &end in cuts {
        let range = &job.sizes[first..end];
        let alignment = range.iter().map(|s| s.alignment).max()?.max(GRANULE);
        let block = range.last()?.bytes.next_multiple_of(alignment);
        if job.sizes.get(end).is_some_and(|next| block >= next.bytes) {
            return None;
        }
        blocks.push(block);
        first = end;
    }
    let played = job.play(&blocks, &vec![u64::MAX; blocks.len()]);
    Some(blocks.iter().zip(&played.peak).map(|(b, p)| b * p).sum())
}

fn best_of_all(job: &Job, class_count: usize) -> Option<u64> {
    let inner = job.sizes.len() - 1;
    (0..1u32 << inner)
        .filter(|mask| mask.count_ones() as usize + 1 <= class_count)
        .filter_map(|mask| {
            let mut cuts: Vec<usize> = (0..inner)
                .filter(|at| mask & (1 << at) != 0)
                .map(|at| at + 1)
                .collect();
            cuts.push(job.sizes.len());
            played_bytes(job, &cuts)
        })
        .min()
}

#[test]
fn the_partition_is_the_best_of_all() {
    for seed in 0..16 {
        let job = random_job(seed, 8);
        let choices = Choices::new(&job, 8);
        for class_count in 1..=8 {
            let best = best_of_all(&job, class_count).unwrap_or(NEVER);
            assert_eq!(
                choices.bytes(class_count),
                Some(best),
                "seed {seed}, {class_count} classes"
            );
        }
    }
}

#[test]
fn the_classes_serve_the_job_and_not_one_block_less_does() {
    for seed in 0..60 {
        let job = random_job(1000 + seed, 30);
        let choices = Choices::new(&job, 6);
        let classes = choices.classes(choices.enough(0.05));
        let blocks: Vec<u64> = classes.iter().map(|c| c.block_bytes).collect();
        let capacities: Vec<u64> = classes.iter().map(|c| c.peak).collect();
        let played = job.play(&blocks, &capacities);
        assert_eq!(played.refused_count(), 0, "seed {seed}");
        assert_eq!(played.peak, capacities, "seed {seed}");
        for class in 0..classes.len() {
            let mut fewer = capacities.clone();
            fewer[class] -= 1;
            assert!(job.play(&blocks, &fewer).refused_count() > 0, "seed {seed}");
        }
        assert!(classes.iter().all(|c| c.block_bytes % c.alignment == 0));
    }
}

#[test]
fn many_sizes_are_merged_and_still_served() {
    for (seed, most) in [(7, 12), (8, 32), (9, 64), (10, 64), (11, 64), (12, 64)] {
        let job = random_job(seed, 500); // some of them aligned: a block may reach into the next bin
        let choices = Choices::new(&job, most);
        let classes = choices.classes(most);
        assert!((2..=most).contains(&classes.len()), "{}", classes.len());
        let blocks: Vec<u64> = classes.iter().map(|c| c.block_bytes).collect();
        let capacities: Vec<u64> = classes.iter().map(|c| c.peak).collect();
        let played = job.play(&blocks, &capacities);
        assert_eq!(played.refused_count(), 0, "seed {seed}");
        for (size, class) in job.sizes.iter().zip(job.classes_of_sizes(&blocks)) {
            let class = &classes[class.unwrap()];
            assert!(class.alignment >= size.alignment, "seed {seed}: {size:?}");
        }
    }
}

#[test]
fn more_classes_never_cost_more() {
    let choices = Choices::new(&random_job(3, 60), 20);
    let bytes: Vec<u64> = (1..=20).map(|n| choices.bytes(n).unwrap()).collect();
    let feasible: Vec<u64> = bytes.into_iter().filter(|&b| b != NEVER).collect();
    assert!(
        feasible.windows(2).all(|pair| pair[1] <= pair[0]),
        "{feasible:?}"
    );
}
