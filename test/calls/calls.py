#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions and system calls of every single allocator call, by callcost under valgrind.

    calls.py table   --directory DIR NAME=LIBRARY...   maxima of each allocator, side by side
    calls.py show    --directory DIR NAME=LIBRARY      one allocator, phase by phase
    calls.py check   --directory DIR NAME=LIBRARY      fails if a call is beyond the limits below
    calls.py worst   --directory DIR NAME=LIBRARY      the functions that the most expensive calls ran through
    calls.py explain --directory DIR NAME=LIBRARY CALL the same of one call, by its number
    calls.py program --directory DIR NAME=LIBRARY -- COMMAND   the calls of any program, the dearest explained
    calls.py self    --directory DIR                   the tool counts what a known program does

DIR holds what the build made: the tool and the program `adversary`. NAME alone is the C library's own
allocator. --program restricts a run to some programs; --scale makes it longer; --json keeps the figures.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

CALLS = ("malloc", "calloc", "realloc", "aligned_alloc", "free")
FIRST = "first call of the process"

# What mallow's calls may cost: any call but the first of the process, the caller's bytes aside.
# The aim is 1,000 and 1 (docs/decisions/0064 has the figures, 0043 what is left out).
INSTRUCTIONS_MAX = {"malloc": 1_000, "calloc": 990, "realloc": 1_000, "aligned_alloc": 1_000, "free": 970}
SYSTEM_CALLS_MAX = {"malloc": 1, "calloc": 1, "realloc": 1, "aligned_alloc": 1, "free": 1}
# Before Linux 6.17, whose mremap refuses ranges of several mappings (docs/decisions/0080).
if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 17):
    INSTRUCTIONS_MAX = {"malloc": 1_300, "calloc": 1_300, "realloc": 1_400, "aligned_alloc": 1_300, "free": 1_250}
    SYSTEM_CALLS_MAX |= {"malloc": 2, "aligned_alloc": 2, "realloc": 2}
# Of heaps by API that grow.
TENANTS_MAX = {"malloc": 1_250, "realloc": 1_450, "free": 1_000}
# The call that starts the background thread blocks signals and lets them through again.
SYSTEM_CALLS_START_MAX = 3
SYSTEM_CALLS_STEADY_MAX = 0
# Programs that ask for growth, each in a process of its own: after others there is memory at hand.
ALONE = ("posts", "rows")
# Orders of the whole program that have found calls beyond the limits.
ORDERS = (16, 48)
# Of "actors", which the seed makes another program each time, some that have found calls beyond the limits.
ACTORS = (1, 9, 18, 23, 24, 33, 37, 40, 41, 54, 144, 181, 220, 249, 304, 323, 328,
          350, 422, 462, 557, 666, 816, 1076, 1565, 1589, 1921, 2197, 4190,
          4502)
# And of "regrown".
REGROWN = (2, 6, 9, 17, 23, 25)
# And of "leavers".
LEAVERS = (2,)
# And of "mortals".
MORTALS = (28, 31, 32, 64, 116, 166, 251, 344)
# And of "giants".
GIANTS = (9, 21, 22, 41, 46, 70)

# Programs that were written without the tool: their calls are bracketed by a library in front.
PYTHON = """
import argparse, ast, inspect, json
tree = [ast.parse(inspect.getsource(argparse)) for _ in range(3)]
many = {str(i): [i] * (i % 50) for i in range(20000)}
text = json.loads(json.dumps(many))
grown = b""
for _ in range(200):
    grown += b"a" * 5000
"""
WRITTEN_WITHOUT = ([sys.executable, "-c", PYTHON], ["perl", "-e", "push @{$h{$_ % 977}}, 'x' x ($_ % 300) for 1 .. 20000"])


def run(directory, library, program, options=(), settings=(), in_front=""):
    """Runs a program under callcost; its figures and what the tool had to say."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "figures.json"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "MALLOW_"))}
        environment.update(VALGRIND_LIB=str(directory / "callcost"), LD_BIND_NOW="1")
        environment.update(setting.split("=", 1) for setting in settings)
        if in_front or library:
            environment["LD_PRELOAD"] = f"{in_front}:{library}".strip(":")
        command = ["valgrind", "--tool=callcost", f"--callcost-out={out}", *options, *program]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if result.returncode != 0 or not out.exists():
            raise RuntimeError(f"{' '.join(program)} failed: {result.stderr}")
        return json.loads(out.read_text()), result.stderr


def adversary(arguments, library, options=()):
    late = ["--late"] if arguments.set else []
    program = [str(arguments.directory / "adversary"), *late, "--scale", str(arguments.scale)]
    program += ["--seed", str(arguments.seed), *arguments.program]
    return run(arguments.directory, library, program, options, arguments.set)


def allocator(text):
    name, _, library = text.partition("=")
    if library and not pathlib.Path(library).is_file():
        raise argparse.ArgumentTypeError(f"no library {library}")
    return name, library


def worst(figures, operation, key, first=False):
    """The record in which `key` is largest, of all phases but the process's first call, or of that alone."""
    found = [
        (phase["operations"][operation], phase["name"])
        for phase in figures["phases"]
        if operation in phase["operations"] and (phase["name"] == FIRST) == first
    ]
    return max(found, key=lambda pair: pair[0][key], default=(None, ""))


def steady_system_calls(figures):
    return sum(
        record["system_calls"]
        for phase in figures["phases"]
        if phase["steady"]
        for record in phase["operations"].values()
    )


def rare(figures, bound):
    """Calls of more than `bound` (a power of two) instructions, in a million."""
    bucket = bound.bit_length()
    calls = beyond = 0
    for phase in figures["phases"]:
        for operation in CALLS:
            record = phase["operations"].get(operation)
            if record:
                calls += record["calls"]
                beyond += sum(record["histogram"][bucket:])
    return 1e6 * beyond / calls


def table(arguments):
    results = {}
    for name, library in arguments.allocators:
        try:
            results[name] = adversary(arguments, library)[0]
        except RuntimeError as error:  # some reserve more address space than valgrind has
            print(f"{name}: does not run under valgrind: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    print("Instructions of the most expensive call (system calls of the call with most of them):\n")
    print("| allocator | " + " | ".join(CALLS) + " | above 1,024, ppm | steady state, system calls | first call |")
    print("|---" * (len(CALLS) + 4) + "|")
    for name, figures in results.items():
        cells = []
        for operation in CALLS:
            steps = worst(figures, operation, "max_instructions")[0]["max_instructions"]
            kernel = worst(figures, operation, "max_system_calls")[0]["max_system_calls"]
            cells.append(f"{steps:,} ({kernel})")
        first = worst(figures, "malloc", "max_instructions", True)[0]
        cells += [f"{rare(figures, 1024):,.1f}", f"{steady_system_calls(figures):,}"]
        cells.append(f"{first['max_instructions']:,} ({first['max_system_calls']})")
        print(f"| {name} | " + " | ".join(cells) + " |")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def show(arguments):
    figures, _ = adversary(arguments, arguments.allocators[0][1])
    print_phases(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def print_phases(figures):
    print(f"{'phase':40} {'call':14} {'calls':>9} {'mean':>7} {'max':>7} {'of size':>10} {'no.':>9}  system calls")
    for phase in figures["phases"]:
        for operation, record in phase["operations"].items():
            mean = record["instructions"] / record["calls"]
            print(
                f"{phase['name']:40.40} {operation:14} {record['calls']:9} {mean:7.1f} "
                f"{record['max_instructions']:7} {record['max_size']:10} {record['max_call']:9}  "
                f"{record['system_calls']} at most {record['max_system_calls']} "
                f"(size {record['system_calls_size']}, no. {record['system_calls_call']})"
            )


def check(arguments):
    figures, _ = adversary(arguments, arguments.allocators[0][1])
    faults = check_limits(figures)
    steady = steady_system_calls(figures)
    print(f"system calls in steady states: {steady} (limit {SYSTEM_CALLS_STEADY_MAX})")
    if steady > SYSTEM_CALLS_STEADY_MAX:
        faults.append(f"{steady} system calls in steady states")
    if not arguments.program:
        runs = [([program], arguments.seed) for program in ALONE]
        runs += [([], seed) for seed in ORDERS]
        runs += [(["actors"], seed) for seed in ACTORS]
        runs += [(["mortals"], seed) for seed in MORTALS]
        runs += [(["giants"], seed) for seed in GIANTS]
        runs += [(["regrown"], seed) for seed in REGROWN]
        runs += [(["leavers"], seed) for seed in LEAVERS]
        for arguments.program, arguments.seed in runs:
            faults += check_limits(adversary(arguments, arguments.allocators[0][1])[0])
        faults += check_tenants(arguments)
        faults += check_helper(arguments)
        faults += check_realtime(arguments)
        for command in WRITTEN_WITHOUT:
            print("written without the tool:", pathlib.Path(command[0]).name)
            faults += check_limits(written_without(arguments, command)[0])
    for fault in faults:
        print("beyond its limit:", fault)
    return 1 if faults else 0


def check_limits(figures, system_calls_max=None, instructions_max=None):
    system_calls_max = system_calls_max or SYSTEM_CALLS_MAX
    instructions_max = instructions_max or INSTRUCTIONS_MAX
    faults = []
    for operation in CALLS:
        for key, limit in (("max_instructions", instructions_max), ("max_system_calls", system_calls_max)):
            record, phase = worst(figures, operation, key)
            if record is None:
                continue
            number = record["max_call" if key == "max_instructions" else "system_calls_call"]
            size = record["max_size" if key == "max_instructions" else "system_calls_size"]
            text = f"{operation}: {key} {record[key]} (limit {limit[operation]}), in '{phase}', size {size}, no. {number}"
            print(text)
            if record[key] > limit[operation]:
                faults.append(text)
    return faults


def check_helper(arguments):
    """The program in which the background thread is really started."""
    program = [str(arguments.directory / "adversary"), "helper"]
    figures, said = run(arguments.directory, arguments.allocators[0][1], program, (), arguments.set)
    faults = check_limits(figures, dict.fromkeys(CALLS, SYSTEM_CALLS_START_MAX))
    return faults + ([] if "helper: 2 threads" in said else ["the background thread has not started"])


def check_tenants(arguments):
    """Heaps by API that grow, whose calls have bounds of their own (docs/decisions/0043)."""
    print("heaps by API:")
    program = [str(arguments.directory / "adversary"), "tenants"]
    figures, _ = run(arguments.directory, arguments.allocators[0][1], program, (), arguments.set)
    return check_limits(figures, None, TENANTS_MAX)


def check_realtime(arguments):
    """A span out of a reserve of many chunks, of which nearly all are in use."""
    program = [str(arguments.directory / "adversary"), "--late", "reserve"]
    settings = ("MALLOW_MODE=realtime", "MALLOW_REALTIME_RESERVE=256M")
    print("realtime:")
    return check_limits(run(arguments.directory, arguments.allocators[0][1], program, (), settings)[0], dict.fromkeys(CALLS, 0))


def worst_calls(arguments):
    """Of each kind the most expensive call, and those with more than one system call."""
    text = explanations(arguments, [f"--callcost-explain-above={arguments.above}"])
    found = {}
    for part in text.split("call ")[1:]:
        number, operation, instructions, kernel = re.match(
            r"(\d+) is (\w+)\(.*: (\d+) instructions, (\d+) system", part
        ).groups()
        del number
        for key, value in ((operation, int(instructions)), (operation + " kernel", int(kernel))):
            if value >= found.get(key, (0, ""))[0]:
                found[key] = (value, part)
    print("".join(dict.fromkeys("call " + part for _, part in found.values())))
    return 0


def explain(arguments):
    print(explanations(arguments, [f"--callcost-explain={arguments.call}"]))
    return 0


def written_without(arguments, command, options=()):
    in_front = arguments.directory / "callcost" / "libcallcost_preload.so"
    return run(arguments.directory, arguments.allocators[0][1], command, options, arguments.set, in_front)


def any_program(arguments):
    """What a call was waiting for, while another thread ran, is in its figures; it is not explained."""
    figures, text = written_without(arguments, arguments.run, [f"--callcost-explain-above={arguments.above}"])
    print_phases(figures)
    print("\n" + said_of_calls(text), end="")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def explanations(arguments, options):
    """What the tool says about calls, a line a function: those with the most instructions first."""
    _, text = adversary(arguments, arguments.allocators[0][1], ["--read-inline-info=yes", *options])
    return said_of_calls(text)


def said_of_calls(text):
    lines = [line.partition("callcost: ")[2] for line in text.splitlines() if "callcost: " in line]
    return "".join(line + "\n" for line in lines)


def self_test(arguments):
    """Each phase of the program is named after what it is to be counted as."""
    figures, _ = run(arguments.directory, "", [str(arguments.directory / "callcost_self")])
    faults = 0
    for phase in figures["phases"]:
        expected = json.loads(phase["name"].replace("'", '"'))
        record = next(iter(phase["operations"].values()))
        for key, value in expected.items():
            low, high = value if isinstance(value, list) else (value, value)
            if not low <= record[key] <= high:
                print(f"{key} is {record[key]}, not {value}: {phase['name']}")
                faults += 1
    print(f"{len(figures['phases'])} known calls, {faults} faults")
    return 1 if faults or not figures["phases"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    functions = {
        "table": table,
        "show": show,
        "check": check,
        "worst": worst_calls,
        "explain": explain,
        "program": any_program,
        "self": self_test,
    }
    for name, function in functions.items():
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--directory", type=lambda text: pathlib.Path(text).resolve(), required=True)
        command.add_argument("--program", action="append", default=[])
        command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the environment")
        command.add_argument("--scale", type=int, default=1)
        command.add_argument("--seed", type=int, default=0, help="another order of what is random")
        command.add_argument("--json", type=pathlib.Path)
        if name != "self":
            command.add_argument("allocators", type=allocator, nargs="+" if name == "table" else 1)
        if name in ("worst", "program"):
            command.add_argument("--above", type=int, default=500)
        if name == "explain":
            command.add_argument("call", type=int)
        if name == "program":
            command.add_argument("run", nargs="+", metavar="COMMAND")
    arguments = parser.parse_args()
    return arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
