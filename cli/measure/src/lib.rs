// SPDX-License-Identifier: MIT
//! What `mallow` and `mallow-bench` share: the allocators that can be preloaded, a launcher that runs
//! a command under one of them and measures it, statistics over the runs, tables and pictures.

pub mod allocators;
pub mod chart;
pub mod elf;
pub mod exec;
pub mod inherited;
mod known;
pub mod launch;
mod launcher;
pub mod library;
pub mod machine;
pub mod measured;
pub mod output;
pub mod panels;
mod passing;
pub mod progress;
pub mod scratch;
pub mod session;
pub mod stats;
pub mod strips;
pub mod table;
pub mod timeline;
pub mod trend;
