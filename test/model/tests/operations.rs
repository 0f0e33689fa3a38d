// SPDX-License-Identifier: MIT
//! Random operation sequences of 1 to 4 threads against the model. A failing sequence, a crash of the
//! allocator included (cases run in a child process), is shrunk by proptest and its seed saved in
//! operations.proptest-regressions beside this file.
//!
//! TEST_SEED=<number> repeats a run; TEST_MODEL_OPERATIONS=<number> sets its length (default 1,000,000).

use mallow_model_test::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use std::env;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const SLOTS: usize = 48;
const OPERATIONS_A_CASE: usize = 3000;

#[derive(Clone, Debug)]
enum Operation {
    Malloc { slot: usize, size: usize },
    Calloc { slot: usize, count: usize, size: usize },
    Zalloc { slot: usize, size: usize },
    Aligned { slot: usize, size: usize, shift: u32, offset: usize },
    Realloc { slot: usize, size: usize },
    Rezalloc { slot: usize, size: usize },
    Expand { slot: usize, size: usize },
    Free { slot: usize, sized: bool },
    FreeElsewhere { slot: usize, thread: usize },
    UsableSize { slot: usize },
    Collect { force: bool },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        60 => 0..520usize,
        25 => 0..9000usize,
        10 => 0..70_000usize,
        4 => 0..600_000usize,
        1 => 0..5_000_000usize,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let slot = 0..SLOTS;
    prop_oneof![
        30 => (slot.clone(), size()).prop_map(|(slot, size)| Operation::Malloc { slot, size }),
        6 => (slot.clone(), 0..60usize, 0..900usize)
            .prop_map(|(slot, count, size)| Operation::Calloc { slot, count, size }),
        6 => (slot.clone(), size()).prop_map(|(slot, size)| Operation::Zalloc { slot, size }),
        6 => (slot.clone(), size(), 0..17u32, prop_oneof![3 => Just(0usize), 1 => 0..5000usize])
            .prop_map(|(slot, size, shift, offset)| Operation::Aligned { slot, size, shift, offset }),
        12 => (slot.clone(), size()).prop_map(|(slot, size)| Operation::Realloc { slot, size }),
        8 => (slot.clone(), size()).prop_map(|(slot, size)| Operation::Rezalloc { slot, size }),
        4 => (slot.clone(), size()).prop_map(|(slot, size)| Operation::Expand { slot, size }),
        22 => (slot.clone(), any::<bool>()).prop_map(|(slot, sized)| Operation::Free { slot, sized }),
        10 => (slot.clone(), 0..4usize)
            .prop_map(|(slot, thread)| Operation::FreeElsewhere { slot, thread }),
        4 => slot.prop_map(|slot| Operation::UsableSize { slot }),
        1 => (0..20u8).prop_map(|chance| Operation::Collect { force: chance == 0 }),
    ]
}

/// One thread of a case: its blocks, and the blocks that others left for it to free.
struct Worker {
    model: Arc<Model>,
    slots: Vec<Option<Block>>,
    inbox: Receiver<Block>,
    outboxes: Vec<Sender<Block>>,
    next_tag: u8,
}

impl Worker {
    fn replace(&mut self, slot: usize, block: Option<Block>) {
        if let Some(old) = std::mem::replace(&mut self.slots[slot], block) {
            self.model.free(old, false);
        }
    }

    fn admit(&mut self, slot: usize, pointer: *mut std::os::raw::c_void, size: usize, zeroed: bool) {
        self.next_tag = self.next_tag.wrapping_add(1);
        let block = self.model.admit(pointer, size, self.next_tag, zeroed);
        self.replace(slot, Some(block));
    }

    fn resize(&mut self, slot: usize, size: usize, preserve_zero: bool) {
        if let Some(block) = self.slots[slot].take() {
            self.next_tag = self.next_tag.wrapping_add(1);
            self.slots[slot] = Some(self.model.resize(block, size, self.next_tag, preserve_zero));
        }
    }

    fn perform(&mut self, operation: &Operation) {
        match *operation {
            Operation::Malloc { slot, size } => {
                let pointer = unsafe { mw_malloc(size) };
                assert_eq!(pointer as usize % 16, 0);
                // At most the next power of two, where many threads have allocated.
                let (usable, good) = unsafe { (mw_usable_size(pointer), mw_good_size(size)) };
                let shared = good <= 1024 || (8192 < good && good <= 65536);
                assert!(usable == good || (shared && usable == good.next_power_of_two()));
                self.admit(slot, pointer, size, false);
            }
            Operation::Calloc { slot, count, size } => {
                let pointer = unsafe { mw_calloc(count, size) };
                self.admit(slot, pointer, count * size, true);
            }
            Operation::Zalloc { slot, size } => {
                let pointer = unsafe { mw_zalloc(size) };
                self.admit(slot, pointer, size, true);
            }
            Operation::Aligned { slot, size, shift, offset } => {
                let pointer = unsafe { mw_malloc_aligned_at(size, 1 << shift, offset) };
                assert_eq!((pointer as usize + offset) % (1 << shift), 0);
                self.admit(slot, pointer, size, false);
                self.slots[slot].as_mut().unwrap().may_free_sized = false;
            }
            Operation::Realloc { slot, size } => self.resize(slot, size, false),
            Operation::Rezalloc { slot, size } => {
                let zero_tail = self.slots[slot].as_ref().is_some_and(|block| block.zero_tail);
                self.resize(slot, size, zero_tail);
            }
            Operation::Expand { slot, size } => {
                if let Some(block) = &mut self.slots[slot] {
                    self.model.expand(block, size);
                }
            }
            Operation::Free { slot, sized } => {
                if let Some(block) = self.slots[slot].take() {
                    self.model.free(block, sized);
                }
            }
            Operation::FreeElsewhere { slot, thread } => {
                if let Some(block) = self.slots[slot].take() {
                    let to = thread % self.outboxes.len();
                    self.outboxes[to].send(block).unwrap();
                }
            }
            Operation::UsableSize { slot } => {
                if let Some(block) = &self.slots[slot] {
                    block.verify();
                    assert!(unsafe { mw_usable_size(block.address as *const _) } >= block.size);
                }
            }
            Operation::Collect { force } => {
                unsafe { mw_collect(force) };
            }
        }
        while let Ok(block) = self.inbox.try_recv() {
            self.model.free(block, false);
        }
    }
}

/// Deals the operations out to the threads in turn, runs them, and frees all that is left.
fn run_case(threads: usize, operations: &[Operation]) {
    let model = Arc::new(Model::default());
    let (outboxes, inboxes): (Vec<_>, Vec<_>) = (0..threads).map(|_| channel()).unzip();
    std::thread::scope(|scope| {
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let mut worker = Worker {
                model: Arc::clone(&model),
                slots: (0..SLOTS).map(|_| None).collect(),
                inbox,
                outboxes: outboxes.clone(),
                next_tag: index as u8 * 60,
            };
            let life = move || {
                for operation in operations.iter().skip(index).step_by(threads) {
                    worker.perform(operation);
                }
                for slot in 0..SLOTS {
                    worker.replace(slot, None);
                }
                worker.outboxes.clear();
                while let Ok(block) = worker.inbox.recv() {
                    worker.model.free(block, false); // until all others have hung up
                }
            };
            scope.spawn(life);
        }
        drop(outboxes);
    });
    assert_eq!(model.live_count(), 0);
}

fn seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    env::var("TEST_SEED").map_or(clock, |text| text.parse().expect("TEST_SEED is a number"))
}

fn check(name: &'static str, threads: std::ops::RangeInclusive<usize>) {
    let total: usize = env::var("TEST_MODEL_OPERATIONS")
        .map_or(1_000_000, |text| text.parse().expect("TEST_MODEL_OPERATIONS is a number"));
    let seed = seed();
    env::set_var("TEST_SEED", seed.to_string()); // for the child process that runs the cases
    eprintln!("TEST_SEED={seed} ({name})");
    let mut seed_bytes = [0u8; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: (total / OPERATIONS_A_CASE) as u32, // two tests, cases of half the length on average
        test_name: Some(name),
        source_file: Some(file!()),
        fork: true,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes);
    let case = (threads, prop::collection::vec(operation(), 1..OPERATIONS_A_CASE));
    let outcome = TestRunner::new_with_rng(config, rng).run(&case, |(threads, operations)| {
        run_case(threads, &operations);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}\n(repeat with TEST_SEED={seed})");
    }
}

#[test]
fn one_thread_agrees_with_the_model() {
    check("one_thread_agrees_with_the_model", 1..=1);
}

#[test]
fn threads_with_remote_frees_agree_with_the_model() {
    check("threads_with_remote_frees_agree_with_the_model", 2..=4);
}
