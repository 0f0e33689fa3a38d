// SPDX-License-Identifier: MIT
//! Empty on purpose: the manifest beside this names the crates whose sources build.sh compiles.
