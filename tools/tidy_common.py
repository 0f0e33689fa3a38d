# SPDX-License-Identifier: MIT
"""What the parts of tools/tidy share: findings, the layer table, the tree's files, the ratchet."""

import dataclasses
import json
import pathlib
import re
import subprocess

SOURCE_SUFFIXES = {".c", ".h", ".hpp", ".cc", ".cpp", ".def", ".py", ".sh", ".rs", ".cmake"}
CHECKED_FOLDERS = (
    "src",
    "include",
    "test",
    "bench",
    "tools",
    "cli",
    "cmake",
    "bindings",
    "examples",
)
SKIPPED_FOLDERS = {"build", "target", "__pycache__", ".git"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of output. One with a key may be tolerated by the ratchet, up to a measure."""

    path: str
    line: int
    rule: str
    message: str
    key: str = ""
    measure: int = 0
    warning: bool = False

    def __str__(self):
        grade = "warning: " if self.warning else ""
        return f"{self.path}:{self.line}: {self.rule}: {grade}{self.message}"


def read_layers(path):
    """{layer: set of the layers it may use}, in the file's order, bottom to top."""
    layers = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        name, colon, uses = text.partition(":")
        name = name.strip()
        if not colon or name in layers or not set(uses.split()) <= set(layers):
            raise ValueError(
                f"{path}:{number}: a layer may only use layers that stand above this line"
            )
        layers[name] = set(uses.split())
    return layers


def reachable(layers):
    """{layer: everything it may reach}: what code inlined from the headers below may need."""
    closure = {}
    for layer, uses in layers.items():
        closure[layer] = uses.union(*(closure[used] for used in uses))
    return closure


def layer_of(path):
    """The layer of a path like src/heap/heap.h; None for src/config.h and for files elsewhere."""
    parts = pathlib.PurePath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def tree_files(root, folders=CHECKED_FOLDERS):
    """Every source file below the folders as a path relative to root, sorted."""
    found = []
    for folder in folders:
        for path in (root / folder).rglob("*"):
            relative = path.relative_to(root)
            if SKIPPED_FOLDERS & set(relative.parts) or not path.is_file():
                continue
            if path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt":
                found.append(relative)
    return sorted(found)


def c_files(root, folders=("src", "include")):
    return [
        path for path in tree_files(root, folders) if path.suffix in (".c", ".h", ".hpp", ".cc")
    ]


# ---- The ratchet ---------------------------------------------------------------------------------


def apply_ratchet(findings, ratchet):
    """(findings that count, number tolerated); entries that are wider than needed count too."""
    counted, tolerated, used = [], 0, {}
    for finding in findings:
        limit = ratchet.get(finding.rule, {}).get(finding.key) if finding.key else None
        if limit is not None:
            used[finding.rule, finding.key] = finding.measure
        if limit is not None and finding.measure <= limit:
            tolerated += 1
        else:
            counted.append(finding)
    for rule, entries in ratchet.items():
        for key, limit in entries.items():
            need = used.get((rule, key), 0)
            if need < limit:
                message = f"{rule} of {key} is {limit}, {need} is enough; run tools/tidy --shrink"
                counted.append(Finding("tools/ratchet.json", 1, "ratchet", message))
    return counted, tolerated


def shrink_ratchet(findings, ratchet):
    """The ratchet with every entry lowered to what is needed, and without those that are not."""
    need = {(finding.rule, finding.key): finding.measure for finding in findings if finding.key}
    shrunk = {}
    for rule, entries in ratchet.items():
        kept = {
            key: min(limit, need[rule, key])
            for key, limit in entries.items()
            if (rule, key) in need
        }
        if kept:
            shrunk[rule] = kept
    return shrunk


def ratchet_growth(before, after):
    """Findings for the entries of `after` that are new or wider than in `before`."""
    found = []
    for rule, entries in after.items():
        for key, limit in entries.items():
            allowed = before.get(rule, {}).get(key, 0)
            if limit > allowed:
                message = f"{rule} of {key} grew from {allowed} to {limit}; exceptions only shrink"
                found.append(Finding("tools/ratchet.json", 1, "ratchet", message))
    return found


def committed_ratchet(root, current):
    """The ratchet to compare this one with: HEAD's, or its parent's if HEAD holds this very one."""
    for revision in ("HEAD", "HEAD~1"):
        shown = subprocess.run(
            ["git", "-C", str(root), "show", f"{revision}:tools/ratchet.json"],
            capture_output=True,
            text=True,
        )
        if shown.returncode != 0:
            return None
        before = json.loads(shown.stdout)
        if before != current:
            return before
    return None


def first_line_with(path, word):
    """The number of the first line of the file that has this word; 1 if there is none."""
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return 1
    return next((number for number, line in enumerate(lines, 1) if pattern.search(line)), 1)
