// SPDX-License-Identifier: MIT
//! Links libmallow.so from TEST_LIBRARY_DIR (default: the build folder of this repository).

use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=TEST_LIBRARY_DIR");
    let directory = env::var_os("TEST_LIBRARY_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../build/lib"),
        PathBuf::from,
    );
    let directory = directory.canonicalize().unwrap_or(directory);
    println!("cargo:rustc-link-search=native={}", directory.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", directory.display());
}
