// SPDX-License-Identifier: MIT
//! `<mallow/pool.h>` as Rust sees it. Layouts are compared with the header's by a test.

use std::ffi::{c_char, c_int, c_void};

/// `enum mw_pool_status`.
pub type Status = c_int;
/// `MW_POOL_OK`.
pub const OK: Status = 0;
/// `MW_POOL_TEXT_NO_SIZE`.
pub const TEXT_NO_SIZE: Status = 68;
/// `MW_POOL_CLASSES_MAX`.
pub const CLASSES_MAX: usize = 256;
/// `MW_POOL_WHOLE`.
pub const WHOLE: u32 = 1_000_000;
/// `MW_POOL_NO_CLASS`.
pub const NO_CLASS: usize = usize::MAX;

/// `struct mw_pool_class`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Bytes of a block before it is rounded up to the alignment.
    pub size_bytes: usize,
    /// A power of two, or 0 for the default.
    pub alignment_bytes: usize,
    /// Blocks, or 0 where a share is given.
    pub block_count: usize,
    /// Parts per million of the pool.
    pub share_ppm: u32,
}

/// `struct mw_pool_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The classes.
    pub classes: *const Class,
    /// How many.
    pub class_count: usize,
    /// All memory.
    pub pool_bytes: usize,
    /// The caller's memory.
    pub memory: *mut c_void,
    /// Bigger classes serve what an exhausted one cannot.
    pub fallback: bool,
    /// Every page touched at the start.
    pub prefault: bool,
    /// Every page locked.
    pub lock: bool,
    /// Other threads may free.
    pub remote: bool,
    /// The calling thread is compared with the owner.
    pub check_owner: bool,
}

/// `struct mw_pool_planned`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Memory used, all in all.
    pub pool_bytes: usize,
    /// Of these, in blocks.
    pub payload_bytes: usize,
    /// The rest.
    pub overhead_bytes: usize,
    /// Of the rest, bookkeeping.
    pub metadata_bytes: usize,
    /// Overhead per million bytes of payload.
    pub overhead_ppm: usize,
    /// What the memory must be aligned to.
    pub alignment_bytes: usize,
    /// The class that the status is about.
    pub problem_class: usize,
    /// Bound of `mw_pool_alloc`.
    pub alloc_instructions: u32,
    /// Bound of `mw_pool_alloc_class`.
    pub alloc_class_instructions: u32,
    /// Bound of `mw_pool_free`.
    pub free_instructions: u32,
    /// Bound of `mw_pool_free_remote`.
    pub remote_instructions: u32,
}

/// `struct mw_pool_class_plan`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassPlan {
    /// Usable bytes of a block.
    pub block_bytes: usize,
    /// Alignment of a block.
    pub alignment_bytes: usize,
    /// Blocks.
    pub capacity_count: usize,
    /// Bookkeeping of this class alone.
    pub metadata_bytes: usize,
}

/// `struct mw_pool_preset`.
#[repr(C)]
pub struct Preset {
    /// Its name.
    pub name: *const c_char,
    /// What it is for.
    pub text: *const c_char,
    /// Its classes.
    pub classes: *const Class,
    /// How many.
    pub class_count: usize,
}

/// `struct mw_pool_text_error`.
#[repr(C)]
#[derive(Default)]
pub struct TextError {
    /// From 1.
    pub line: usize,
}

extern "C" {
    pub fn mw_pool_status_text(status: Status) -> *const c_char;
    pub fn mw_pool_plan(config: *const Config, plan: *mut Plan, classes: *mut ClassPlan) -> Status;
    pub fn mw_pool_create_in(
        config: *const Config,
        pool: *mut *mut c_void,
        problem_class: *mut usize,
    ) -> Status;
    pub fn mw_pool_alloc_status(pool: *mut c_void, size: usize, status: *mut Status)
        -> *mut c_void;
    pub fn mw_pool_free(pool: *mut c_void, block: *mut c_void) -> Status;
    pub fn mw_pool_used_count(pool: *const c_void, class_index: usize) -> usize;
    pub fn mw_pool_preset_at(preset_index: usize) -> *const Preset;
    pub fn mw_pool_config_parse(
        text: *const c_char,
        length: usize,
        config: *mut Config,
        classes: *mut Class,
        limit: usize,
        error: *mut TextError,
    ) -> Status;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    extern "C" {
        static mallow_tool_layout: [usize; 14];
    }

    #[test]
    fn layouts_are_the_headers() {
        let here = [
            size_of::<Class>(),
            offset_of!(Class, share_ppm),
            size_of::<Config>(),
            offset_of!(Config, memory),
            offset_of!(Config, fallback),
            offset_of!(Config, check_owner),
            size_of::<Plan>(),
            offset_of!(Plan, alloc_instructions),
            offset_of!(Plan, remote_instructions),
            size_of::<ClassPlan>(),
            offset_of!(ClassPlan, metadata_bytes),
            size_of::<Preset>(),
            CLASSES_MAX,
            WHOLE as usize,
        ];
        // SAFETY: a constant of src/pool/layout.c, which build.rs compiles.
        assert_eq!(here, unsafe { mallow_tool_layout });
    }
}
