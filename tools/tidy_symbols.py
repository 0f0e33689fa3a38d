# SPDX-License-Identifier: MIT
"""The symbol rules: where writable state may live, and what libmallow.so exports."""

import re
import subprocess

from tidy_common import Finding, first_line_with, layer_of
from tidy_source import strip_comments

PUBLIC_NAME = re.compile(r"\b(mw_[a-z0-9_]+)\s*\(")
# Compiled into the program that includes the header, so nothing to export.
INLINE_NAME = re.compile(r"\bstatic inline\b[^;{(]*?\b(mw_[a-z0-9_]+)\s*\(")
# The one thread-local pointer to a thread's heap may live in heap or in process.
THREAD_LOCAL_LAYERS = ("heap", "process")
THREAD_LOCAL_COUNT = 1


def is_writable(symbol):
    return symbol.letter in "dDbBsSgGC" and not symbol.section.startswith(".data.rel.ro")


def check_state(root, objects):
    """Every writable variable is in process; the one thread-local in heap or process."""
    found, thread_local = [], []
    for source, symbols in objects.items():
        for symbol in filter(is_writable, symbols):
            name = symbol.name.split(".")[0]
            line = first_line_with(root / source, name)
            if symbol.kind == "TLS":
                thread_local.append((source, line, symbol.name))
                if layer_of(source) in THREAD_LOCAL_LAYERS:
                    continue
            elif layer_of(source) == "process":
                continue
            message = f"{symbol.name} is writable; state lives in src/process alone"
            found.append(Finding(source, line, "writable", message))
    if len(thread_local) > THREAD_LOCAL_COUNT:
        for source, line, name in thread_local:
            message = (
                f"{name} is one of {len(thread_local)} thread-local variables, at most "
                f"{THREAD_LOCAL_COUNT}"
            )
            found.append(Finding(source, line, "thread-local", message))
    return found


def public_names(root):
    """{name: (header, line)} of every function that the public headers declare."""
    names = {}
    for path in sorted((root / "include/mallow").glob("*.h")):
        text = strip_comments(path.read_text())
        text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
        inline = set(INLINE_NAME.findall(text))
        for match in PUBLIC_NAME.finditer(text):
            if match.group(1) not in inline:
                names[match.group(1)] = str(path.relative_to(root))
    return names


def override_names(path):
    lines = (line.split("#", 1)[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line}


def exported_names(library):
    output = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in output.splitlines() if line.split()}


def compare_exports(exported, public, override):
    listing = "tools/override_symbols.txt"
    for name in sorted(exported - set(public) - override):
        yield Finding(
            "build/lib/libmallow.so",
            1,
            "exports",
            f"exports {name}, which no public header declares and {listing} does not name",
        )
    for name in sorted(set(public) - exported):
        yield Finding(public[name], 1, "exports", f"{name} is declared but libmallow.so has it not")
    for name in sorted(override - exported):
        yield Finding(listing, 1, "exports", f"libmallow.so does not define {name}")


def check_exports(root, library):
    public = public_names(root)
    override = override_names(root / "tools/override_symbols.txt")
    found = []
    for finding in compare_exports(exported_names(library), public, override):
        name = re.search(r"\b(?:exports |define )?(mw_\w+)", finding.message)
        line = first_line_with(root / finding.path, name.group(1)) if name else 1
        found.append(Finding(finding.path, line, finding.rule, finding.message))
    return found
