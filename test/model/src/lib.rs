// SPDX-License-Identifier: MIT
//! The allocator under test, and a naive model of what any allocator must do.
//!
//! The model knows every live block as an interval. A block enters after it was allocated and leaves
//! before it is freed, so two live blocks that overlap are seen whatever the threads do.

use std::collections::BTreeMap;
use std::os::raw::c_void;
use std::sync::Mutex;

#[link(name = "mallow")]
extern "C" {
    pub fn mw_malloc(size: usize) -> *mut c_void;
    pub fn mw_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn mw_zalloc(size: usize) -> *mut c_void;
    pub fn mw_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn mw_rezalloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn mw_expand(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn mw_malloc_aligned_at(size: usize, alignment: usize, offset: usize) -> *mut c_void;
    pub fn mw_free(block: *mut c_void);
    pub fn mw_free_sized(block: *mut c_void, size: usize);
    pub fn mw_usable_size(block: *const c_void) -> usize;
    pub fn mw_good_size(size: usize) -> usize;
    pub fn mw_is_owned(block: *const c_void) -> bool;
    pub fn mw_collect(force: bool) -> usize;
}

/// One live block, as the program that holds it knows it.
#[derive(Debug)]
pub struct Block {
    pub address: usize,
    pub size: usize,
    pub tag: u8,
    /// Allocated zeroed and only resized by zero-preserving calls.
    pub zero_tail: bool,
    /// The size is what malloc, calloc or realloc was asked for, as free_sized wants it.
    pub may_free_sized: bool,
}

/// Live intervals: start -> end.
#[derive(Default)]
pub struct Model {
    live: Mutex<BTreeMap<usize, usize>>,
}

impl Model {
    fn enter(&self, address: usize, usable: usize) {
        let mut live = self.live.lock().unwrap();
        let end = address + usable.max(1);
        if let Some((&start, &other_end)) = live.range(..end).next_back() {
            assert!(other_end <= address, "{address:#x}..{end:#x} overlaps {start:#x}..{other_end:#x}");
        }
        live.insert(address, end);
    }

    fn leave(&self, address: usize) {
        let known = self.live.lock().unwrap().remove(&address);
        assert!(known.is_some(), "the model does not know {address:#x}");
    }

    pub fn live_count(&self) -> usize {
        self.live.lock().unwrap().len()
    }

    /// Takes over a fresh result of the allocator and fills it.
    pub fn admit(&self, pointer: *mut c_void, size: usize, tag: u8, zeroed: bool) -> Block {
        let address = pointer as usize;
        assert!(address != 0, "NULL for {size} bytes");
        let usable = unsafe { mw_usable_size(pointer) };
        assert!(usable >= size, "usable size {usable} of a block of {size}");
        assert!(unsafe { mw_is_owned(pointer) }, "a live block of {size} is not owned");
        self.enter(address, usable);
        if zeroed {
            expect_zero(address, 0, usable);
        }
        let block = Block { address, size, tag, zero_tail: zeroed, may_free_sized: true };
        block.fill();
        block
    }

    pub fn free(&self, block: Block, sized: bool) {
        block.verify();
        self.leave(block.address);
        unsafe {
            if sized && block.may_free_sized {
                mw_free_sized(block.address as *mut c_void, block.size);
            } else {
                mw_free(block.address as *mut c_void);
            }
        }
    }

    /// Resizes by realloc, or by rezalloc where the block's zero tail is to be kept.
    pub fn resize(&self, block: Block, size: usize, tag: u8, preserve_zero: bool) -> Block {
        block.verify();
        self.leave(block.address);
        let pointer = block.address as *mut c_void;
        let moved = unsafe { if preserve_zero { mw_rezalloc(pointer, size) } else { mw_realloc(pointer, size) } };
        assert!(!moved.is_null(), "resize to {size}");
        let usable = unsafe { mw_usable_size(moved) };
        assert!(usable >= size, "usable size {usable} after a resize to {size}");
        self.enter(moved as usize, usable);
        let kept = Block { address: moved as usize, size: block.size.min(size), ..block };
        kept.verify();
        if preserve_zero && block.zero_tail && size > block.size {
            expect_zero(moved as usize, block.size, size);
        }
        let resized = Block {
            size,
            tag,
            zero_tail: block.zero_tail && preserve_zero,
            may_free_sized: true,
            ..kept
        };
        resized.fill();
        resized
    }

    /// In place or not at all.
    pub fn expand(&self, block: &mut Block, size: usize) {
        block.verify();
        self.leave(block.address); // before the call: a shrunken block's tail may be another's at once
        let pointer = block.address as *mut c_void;
        let grown = unsafe { mw_expand(pointer, size) };
        self.enter(block.address, unsafe { mw_usable_size(pointer) });
        if grown.is_null() {
            block.verify();
            return;
        }
        assert_eq!(grown, pointer, "expand moved the block");
        assert!(unsafe { mw_usable_size(grown) } >= size);
        block.size = block.size.min(size);
        block.verify();
        block.size = size;
        block.zero_tail = false;
        block.may_free_sized = false;
        block.fill();
    }
}

impl Block {
    fn byte(&self, offset: usize) -> u8 {
        self.tag.wrapping_add((offset as u8).wrapping_mul(31)) ^ (offset >> 8) as u8
    }

    /// The bytes that carry the tag: the first 4 KiB and a comb beyond. What is left of a block after a
    /// resize carries it in the same places.
    fn tagged_offsets(&self) -> impl Iterator<Item = usize> {
        (0..self.size.min(4096)).chain((4096..self.size).step_by(509))
    }

    fn fill(&self) {
        let last_bytes = self.size.saturating_sub(16).max(4096)..self.size;
        for offset in last_bytes.chain(self.tagged_offsets()) {
            unsafe { *((self.address + offset) as *mut u8) = self.byte(offset) };
        }
    }

    pub fn verify(&self) {
        for offset in self.tagged_offsets() {
            let found = unsafe { *((self.address + offset) as *const u8) };
            assert_eq!(found, self.byte(offset), "byte {offset} of {} at {:#x} changed", self.size, self.address);
        }
    }
}

fn expect_zero(address: usize, from: usize, to: usize) {
    let comb = if to - from > 65536 { 61 } else { 1 };
    for offset in (from..to).step_by(comb) {
        let found = unsafe { *((address + offset) as *const u8) };
        assert_eq!(found, 0, "byte {offset} of a zeroed block is {found:#x}");
    }
}
