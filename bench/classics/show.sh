#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints the classics with the published figures beside: each program under mallow, under the system's
# malloc, and under every peer found in build/peers (or those given: je mi ...).
#
# usage: bench/classics/show.sh [PEER...]        after `make bench-programs`
set -eu
cd "$(dirname "$0")/../.."

peers=$*
if [ -z "$peers" ]; then
    for name in mi je rp sn; do
        [ -e "build/peers/$name.so" ] && peers="$peers $name"
    done
fi
for program in unalloc_test unalloc_fill cpe357 nedmalloc_pairs; do
    for allocator in mallow system $peers; do
        case $allocator in
        mallow) library=build/lib/libmallow.so ;;
        system) library= ;;
        *) library=build/peers/$allocator.so ;;
        esac
        if [ -n "$library" ] && [ ! -e "$library" ]; then
            echo "show.sh: $library does not exist (make, make peers)" >&2
            exit 1
        fi
        printf '== %s under %s\n' "$program" "$allocator"
        env ${library:+LD_PRELOAD="$PWD/$library"} "build/bench/$program"
        echo
    done
done
