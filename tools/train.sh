#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs benchmark programs, shortened, on an instrumented library, so that gcc can use the profile:
# train.sh LIBRARY BUILD_DIRECTORY. The mix is one of many: what it weighs, the build is tuned to.
set -euo pipefail

library=$1
programs=$2/bench

train() {
    LD_PRELOAD=$library "$programs/$1" "${@:2}" > /dev/null
}

train pair count=2m
train batch count=4m
train batch count=2m batch=16384
train calloc_pair count=1m
train larson threads=1 ops=2m
train larson threads=2 ops=2m
train alloc_test threads=1 steps=3m
train mstress threads=2 blocks=600k
train cfrac
train espresso functions=4
train sh6bench waves=150
train rptest threads=2 runs=2000
train xmalloc_test blocks=1500k
train json rounds=1
train game frames=15
