# SPDX-License-Identifier: MIT
"""The layer rules: includes, the order of src/all.c, calls between objects of the separate build.

Objects are read by `nm`: an edge goes from an object to the object that defines a symbol it needs.
"""

import dataclasses
import os
import pathlib
import re
import subprocess

from tidy_common import Finding, c_files, first_line_with, layer_of, reachable, tree_files
from tidy_source import strip_comments

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
SHARED_LAYER = "preload"  # compiled for libmallow.so alone
OBJECT = re.compile(r"CMakeFiles/layer_\w+\.dir/(src/.+\.c)\.o$")


@dataclasses.dataclass(frozen=True)
class Symbol:
    name: str
    letter: str  # nm's class: T, t, B, b, U ...
    kind: str  # FUNC, OBJECT, TLS, NOTYPE
    section: str


def line_of(text, position):
    return text.count("\n", 0, position) + 1


# ---- Text: includes and all.c --------------------------------------------------------------------


def includes(root, path):
    """(line, path below src/) of each project header that this file includes."""
    text = strip_comments((root / path).read_text(errors="replace"), keep_strings=True)
    for match in INCLUDE.finditer(text):
        name = match.group(1)
        near = pathlib.Path(os.path.normpath(path.parent / name))
        places = (near, pathlib.Path("src") / name, pathlib.Path("include") / name)
        target = next((place for place in places if (root / place).is_file()), places[1])
        yield line_of(text, match.start()), target


def check_includes(root, layers):
    """(findings, number of upward includes)."""
    found, upward = [], 0
    for path in tree_files(root, ("src",)):
        layer = layer_of(path)
        if path == pathlib.Path("src/all.c") or path.suffix not in (".c", ".h", ".def"):
            continue
        if layer is not None and layer not in layers:
            found.append(Finding(str(path), 1, "layer", f"folder {layer} is not in src/LAYERS"))
            continue
        for number, target in includes(root, path):
            used = layer_of(target)
            if target.suffix == ".c":
                found.append(
                    Finding(str(path), number, "include", "only src/all.c includes a .c file")
                )
            if used is None or used == layer or used in layers.get(layer, ()):
                continue
            upward += 1
            message = (
                f"{layer or 'src'} may not include {target} ({used} is not below it in src/LAYERS)"
            )
            found.append(Finding(str(path), number, "upward-include", message))
    return found, upward


def check_unity_order(root, layers):
    """src/all.c includes every source once, in the order of the layers; but for SHARED_LAYER."""
    all_c = pathlib.Path("src/all.c")
    order = {layer: rank for rank, layer in enumerate(layers)}
    found, seen, highest = [], {}, -1
    for number, target in includes(root, all_c):
        if target.suffix != ".c":
            continue
        rank = order.get(layer_of(target), -1)
        if target in seen:
            found.append(Finding(str(all_c), number, "unity", f"{target} is included twice"))
        if rank < highest:
            found.append(
                Finding(str(all_c), number, "unity", f"{target} stands after a higher layer")
            )
        highest = max(highest, rank)
        seen[target] = number
    for path in c_files(root, ("src",)):
        if path.suffix != ".c" or path == all_c or "fake" in path.parts or path in seen:
            continue
        if layer_of(path) != SHARED_LAYER:
            found.append(Finding(str(all_c), 1, "unity", f"{path} is not included"))
    return found


# ---- Objects -------------------------------------------------------------------------------------


def read_symbols(path):
    output = subprocess.run(
        ["nm", "-f", "sysv", str(path)], check=True, capture_output=True, text=True
    ).stdout
    symbols = []
    for line in output.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 7 and columns[0] != "Name":
            symbols.append(Symbol(columns[0], columns[2], columns[3], columns[6]))
    return symbols


def find_objects(root, build):
    """{source path: symbols} of the separate build; sources that are gone are left out."""
    objects = {}
    for path in sorted(build.glob("CMakeFiles/layer_*.dir/src/**/*.o")):
        match = OBJECT.search(str(path))
        if match and (root / match.group(1)).is_file():
            objects[match.group(1)] = read_symbols(path)
    return objects


def object_graph(objects):
    """{source: {source it needs: a symbol that shows it}}."""
    home = {}
    for source, symbols in objects.items():
        for symbol in symbols:
            if symbol.letter in "TDBRVWC":
                home[symbol.name] = source
    return {
        source: {
            home[symbol.name]: symbol.name
            for symbol in symbols
            if symbol.letter in "Uwv" and home.get(symbol.name, source) != source
        }
        for source, symbols in objects.items()
    }


def largest_component(graph):
    """The largest strongly connected component, sorted (Tarjan 1972, without recursion)."""
    index, low, stack, largest = {}, {}, [], []
    for start in graph:
        if start in index:
            continue
        work = [(start, iter(graph[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, below = work[-1]
            following = next((n for n in below if n not in index or n in stack), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    position = stack.index(node)
                    component, stack = stack[position:], stack[:position]
                    largest = max(largest, component, key=len)
            elif following in index:
                low[node] = min(low[node], index[following])
            else:
                index[following] = low[following] = len(index)
                stack.append(following)
                work.append((following, iter(graph[following])))
    return sorted(largest)


def check_calls(root, graph, layers):
    """(findings, number of upward calls, size of the largest cycle)."""
    found, upward, below = [], 0, reachable(layers)
    for source, needs in graph.items():
        layer = layer_of(source)
        for target, symbol in sorted(needs.items()):
            used = layer_of(target)
            if used != layer and used not in below.get(layer, ()):
                upward += 1
                line = first_line_with(root / source, symbol)
                message = (
                    f"{layer} needs {symbol} of {target} ({used} is not below it in src/LAYERS)"
                )
                found.append(Finding(source, line, "upward-call", message))
    cycle = largest_component(graph)
    if len(cycle) > 1:
        edges = [
            f"{source} needs {symbol} of {target}"
            for source in cycle
            for target, symbol in sorted(graph[source].items())
            if target in cycle
        ]
        message = f"{len(cycle)} objects need each other: {'; '.join(edges)}"
        found.append(Finding(cycle[0], 1, "cycle", message))
    return found, upward, len(cycle)
