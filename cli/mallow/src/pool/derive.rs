// SPDX-License-Identifier: MIT
//! Classes for a job: the partition of its sizes that needs the fewest bytes, by dynamic programming.
//!
//! A class holds the sizes of an interval. It costs its block's bytes times the most blocks of these
//! sizes that ever lived at once: the peak of the interval, which is less than the sum of its sizes'
//! peaks, as they need not fall together. So the job is played once with a counter an interval. Where
//! there are more distinct sizes than `BIN_COUNT_MAX`, neighbours are merged first, those that lose
//! least; over the bins that are left the partition is the best there is.

use super::job::{Job, Size, GRANULE, NONE};

/// Sizes told apart.
pub const BIN_COUNT_MAX: usize = 64;
const NEVER: u64 = u64::MAX;

/// A class of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Bytes of a block, a multiple of the alignment.
    pub block_bytes: u64,
    /// Alignment of a block.
    pub alignment: u64,
    /// Most blocks in use at once.
    pub peak: u64,
}

/// Intervals of bins, peaks and costs: what partitions are chosen from.
pub struct Choices {
    bins: Vec<Size>,
    least: Vec<u64>,       // bytes of each bin's smallest size
    peaks: Vec<u32>,       // of the interval (first, last), at first * bins + last
    best: Vec<Vec<u64>>,   // [classes - 1][last]: fewest bytes for bins 0 ..= last
    from: Vec<Vec<usize>>, // the first bin of the last class there
}

/// Most blocks of each size alive at once.
fn peaks_of_sizes(job: &Job) -> Vec<u64> {
    let mut live = vec![0u64; job.sizes.len()];
    let mut peaks = live.clone();
    let mut slots = vec![NONE; job.slot_count];
    for step in &job.steps {
        let old = std::mem::replace(&mut slots[step.slot as usize], step.size);
        if step.size != NONE {
            let new = step.size as usize;
            live[new] += 1;
            peaks[new] = peaks[new].max(live[new]);
        }
        if old != NONE {
            live[old as usize] -= 1;
        }
    }
    peaks
}

/// The bin of each size, and the bins, each as its largest size: at most `most`, merged where that costs
/// fewest bytes.
fn merge(sizes: &[Size], peaks: &[u64], most: usize) -> (Vec<u8>, Vec<Size>) {
    struct Bin {
        last: usize, // index of its largest size
        peak: u64,
    }
    let mut bins: Vec<Bin> = peaks
        .iter()
        .enumerate()
        .map(|(last, &peak)| Bin { last, peak })
        .collect();
    while bins.len() > most {
        let loss = |at: usize| {
            let step = sizes[bins[at + 1].last].bytes - sizes[bins[at].last].bytes;
            bins[at].peak.saturating_mul(step)
        };
        let at = (0..bins.len() - 1).min_by_key(|&at| loss(at)).unwrap_or(0);
        bins[at + 1].peak += bins[at].peak;
        bins.remove(at);
    }
    let mut bin_of = Vec::with_capacity(sizes.len());
    let mut merged: Vec<Size> = Vec::with_capacity(bins.len());
    let mut first = 0;
    for (at, bin) in bins.iter().enumerate() {
        let range = &sizes[first..=bin.last];
        bin_of.extend(range.iter().map(|_| at as u8));
        merged.push(Size {
            bytes: sizes[bin.last].bytes,
            alignment: range.iter().map(|s| s.alignment).max().unwrap_or(1),
        });
        first = bin.last + 1;
    }
    (bin_of, merged)
}

/// The peak of every interval of bins. A resize within an interval keeps its block; into it, it comes
/// while the old block is still there.
fn peaks_of_intervals(job: &Job, bin_of: &[u8], count: usize) -> Vec<u32> {
    let mut below = vec![0u32; count + 1]; // live blocks in bins before this one
    let mut peaks = vec![0u32; count * count];
    let mut slots = vec![u8::MAX; job.slot_count];
    for step in &job.steps {
        let old = slots[step.slot as usize];
        let new = match step.size {
            NONE => u8::MAX,
            size => bin_of[size as usize],
        };
        if old == new {
            continue;
        }
        slots[step.slot as usize] = new;
        if old != u8::MAX {
            below[usize::from(old) + 1..]
                .iter_mut()
                .for_each(|n| *n -= 1);
        }
        if new != u8::MAX {
            let new = usize::from(new);
            below[new + 1..].iter_mut().for_each(|n| *n += 1);
            for first in 0..=new {
                let base = below[first];
                let row = &mut peaks[first * count + new..(first + 1) * count];
                for (peak, &upto) in row.iter_mut().zip(&below[new + 1..]) {
                    *peak = (*peak).max(upto - base);
                }
            }
        }
    }
    peaks
}

impl Choices {
    /// All partitions of a job into at most `most` classes.
    pub fn new(job: &Job, most: usize) -> Choices {
        let (bin_of, bins) = merge(&job.sizes, &peaks_of_sizes(job), BIN_COUNT_MAX);
        let peaks = peaks_of_intervals(job, &bin_of, bins.len());
        let least = (0..bins.len())
            .filter_map(|bin| bin_of.iter().position(|&of| usize::from(of) == bin))
            .map(|first| job.sizes[first].bytes)
            .collect();
        let mut choices = Choices {
            bins,
            least,
            peaks,
            best: Vec::new(),
            from: Vec::new(),
        };
        for _ in 0..most.min(choices.bins.len()) {
            choices.add_class();
        }
        choices
    }

    fn class(&self, first: usize, last: usize) -> Class {
        let range = &self.bins[first..=last];
        let alignment = range.iter().map(|b| b.alignment).max().unwrap_or(1);
        let alignment = alignment.max(GRANULE);
        Class {
            block_bytes: self.bins[last].bytes.next_multiple_of(alignment),
            alignment,
            peak: u64::from(self.peaks[first * self.bins.len() + last]),
        }
    }

    /// Bytes of the class of these bins; NEVER where its rounded block would hold the next bin's sizes
    /// as well, so that a pool would not keep them apart.
    fn cost(&self, first: usize, last: usize) -> u64 {
        let class = self.class(first, last);
        match self.least.get(last + 1) {
            Some(&next) if class.block_bytes >= next => NEVER,
            _ => class.block_bytes.saturating_mul(class.peak),
        }
    }

    /// One class more: best[k][last] = min over first of best[k - 1][first - 1] + cost(first, last), where
    /// nothing comes before first 0: at most k classes.
    fn add_class(&mut self) {
        let count = self.bins.len();
        let mut best = vec![NEVER; count];
        let mut from = vec![0; count];
        for last in 0..count {
            for first in 0..=last {
                let before = match (first, self.best.last()) {
                    (0, _) => 0,
                    (_, None) => NEVER,
                    (_, Some(fewer)) => fewer[first - 1],
                };
                let bytes = before.saturating_add(self.cost(first, last));
                if bytes < best[last] {
                    best[last] = bytes;
                    from[last] = first;
                }
            }
        }
        self.best.push(best);
        self.from.push(from);
    }

    /// Bytes in blocks of at most `class_count` classes; None if there cannot be so many.
    pub fn bytes(&self, class_count: usize) -> Option<u64> {
        let row = self.best.get(class_count.checked_sub(1)?)?;
        row.last().copied()
    }

    /// Most classes there can be.
    pub fn class_count_max(&self) -> usize {
        self.best.len()
    }

    /// The fewest classes that need at most 1 + `slack` times the bytes of the most.
    pub fn enough(&self, slack: f64) -> usize {
        let least = self.bytes(self.class_count_max()).unwrap_or(0) as f64;
        (1..=self.class_count_max())
            .find(|&n| self.bytes(n).unwrap_or(NEVER) as f64 <= least * (1.0 + slack))
            .unwrap_or(1)
    }

    /// The best classes of at most this number, ascending.
    pub fn classes(&self, class_count: usize) -> Vec<Class> {
        let mut classes = Vec::new();
        let mut end = self.bins.len();
        let mut left = class_count.min(self.class_count_max());
        while end > 0 && left > 0 {
            let first = self.from[left - 1][end - 1];
            classes.push(self.class(first, end - 1));
            end = first;
            left -= 1;
        }
        classes.reverse();
        classes
    }
}

#[cfg(test)]
#[path = "derive_tests.rs"]
mod tests;
