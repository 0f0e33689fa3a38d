# SPDX-License-Identifier: MIT
# A thin front of CMake: `make` leaves build/lib/libmallow.{so,a}, lib/mallow.o and bin/mallow.
#
#   make lib           the library alone, no Rust     make bench            every benchmark and peer
#   make demo          a real program on mallow        make bench-quick      the short ones, once
#   make test          every test                      make bench-classics   the field's classics
#   make test-arm64    the arm64 build, by qemu        make peers            newest peers, crates.io
#   make tidy          the code's own rules           make amalgamation     build/mallow.c, one file
#   make install       PREFIX=/usr/local DESTDIR=      make bench-pages      user-mode page experiment
#   make clean                                         make bench-latency    tails; -latency-quick
#   make bench-dispatch   routing over pools          make bench-long       20 minutes of RSS over time
#
# What a target needs beyond a C compiler, CMake, Ninja, Python and cargo: tools/bootstrap.sh.
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local

configure = @mkdir -p build; cmake --preset $(1) $(2) > build/configure-$(1).log 2>&1 \
            || { cat build/configure-$(1).log; exit 1; }
compile   = @cmake --build $(1) -j $(JOBS) $(if $(2),--target $(2))

.PHONY: calls all lib cli demo test test-arm64 bench bench-quick bench-classics bench-pages bench-dispatch \
        bench-latency bench-latency-quick bench-long bench-huge bench-programs peers tidy amalgamation install clean
.NOTPARALLEL:

all:
	$(call configure,release)
	$(call compile,build,lib cli)

lib:
	$(call configure,release)
	$(call compile,build,lib)

cli:
	$(call configure,release)
	$(call compile,build,cli)

demo: all
	tools/demo.sh

test:
	python3 tools/check.py test -j $(JOBS)

test-arm64:
	python3 tools/check.py test-arm64 -j $(JOBS)

# What every single call costs, mallow's and the peers' (those of build/peers that run under valgrind).
calls:
	$(call configure,release,-DMALLOW_TESTS=ON)
	$(call compile,build,lib adversary callcost_tool)
	python3 test/calls/calls.py table --directory build/test mallow=build/lib/libmallow.so glibc \
	    $(foreach peer,mi mi2 je tcg tbb rp,$(patsubst %,$(peer)=%,$(wildcard build/peers/$(peer).so)))

bench-programs:
	$(call configure,release,-DMALLOW_BENCH=ON)
	$(call compile,build,lib cli bench-programs)

bench bench-quick bench-classics bench-pages bench-dispatch bench-latency bench-latency-quick \
        bench-long bench-huge: bench-programs
	tools/bench.sh $@

peers:
	bench/peers/build.sh

tidy:
	$(call configure,release)
	$(call compile,build,lib separate)
	tools/tidy

amalgamation:
	$(call configure,release)
	$(call compile,build,amalgamation)

install: lib
	cmake --install build --prefix "$(PREFIX)"

clean:
	rm -rf build
