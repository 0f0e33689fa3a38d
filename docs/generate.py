#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what the documents repeat of the code, and checks what they say of it.

    docs/generate.py            writes docs/guide/options.md, docs/guide/symbols.md and the README's table
    docs/generate.py --check    writes nothing; status 1 if one of them differs from the code, a layer's page
                                lacks a heading, a page is too long, a link leads nowhere, a script of ours that
                                a page calls cannot be executed, or a page names a function that is not there
"""

import argparse
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTE = "<!-- written by docs/generate.py: change {source} instead -->\n\n"
ROW = re.compile(
    r"^MALLOW_OPTION\((?P<name>\w+),\s*(?P<type>\w+),\s*\"(?P<default>[^\"]*)\",\s*"
    r"\"(?P<unit>[^\"]*)\",\s*(?P<settable>\w+),\s*\"(?P<help>[^\"]*)\"\)$",
    re.M,
)
VALUES = {
    "SWITCH": "`0` or `1`, `on`, `off`, `yes`, `no`, `true`, `false`",
    "SIZE": "a number, with an optional `K`, `M`, `G` or `T` (powers of 1,024; `KiB` and `KB` say the same)",
    "TEXT": "text, at most 255 bytes",
    "LIMIT": "`0` (none), a size as above from `4M` on, or a share from `1%` to `100%`",
    "PERCENT": "a percentage from `0` to `100`",
}
WORDS = re.compile(r"\w+(\|\w+)+")  # the unit of an option that takes only these
RANGE = re.compile(r"(\w+)\.\.(\w+)")  # of one that takes only sizes in between
WHEN = {"ALWAYS": "always", "START": "at start"}
HEADINGS = (
    "Purpose",
    "Data",
    "Invariants",
    "Concurrency",
    "Life of one operation",
    "Alternatives refused",
    "Open questions",
)
LINES_MAX = {"ARCHITECTURE.md": 400, "STYLE.md": 400, "HACKING.md": 150}
DESIGN_LINES_MAX = 120
README_PART = re.compile(r"(<!-- options:[^\n]*-->\n).*?(<!-- /options -->)", re.S)
# A command of a page: an indented line that begins with a script of ours.
COMMAND = re.compile(r"^    ((?:\.ci|bench|cli|docs|test|tools)/[\w./-]+)", re.M)
# A name of the code. Decisions and the changelog tell what was; STYLE.md makes names up.
SPAN = re.compile(r"`[^`\n]+`")
NAME = re.compile(r"(?<![\w/])(?:api|arena|chunk|heap|huge|meta|mw|os|process|slab|thin)_[a-z0-9_]+\b")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def read_options():
    text = (ROOT / "src/options.def").read_text()
    rows = [match.groupdict() for match in ROW.finditer(text)]
    if len(rows) != len(re.findall(r"^MALLOW_OPTION\(", text, re.M)):
        sys.exit("docs/generate.py: a row of src/options.def has a form that is not understood")
    return rows


def option_table(rows):
    lines = ["| variable | default | settable | what it does |", "|---|---|---|---|"]
    for row in rows:
        default = f"`{row['default']}`" if row["default"] else "none"
        lines.append(
            f"| `MALLOW_{row['name'].upper()}` | {default} | {WHEN[row['settable']]} | {row['help']} |"
        )
    return "\n".join(lines) + "\n"


def values(row):
    """Which values an option takes, in words."""
    if WORDS.fullmatch(row["unit"]):
        return "`" + row["unit"].replace("|", "` or `") + "`"
    if limits := RANGE.fullmatch(row["unit"]):
        return f"{VALUES[row['type']]}, from `{limits[1]}` to `{limits[2]}`"
    return VALUES[row["type"]]


def options_page(rows):
    parts = [
        "# Options\n\n" + NOTE.format(source="src/options.def"),
        "Each is set as `MALLOW_<NAME>` in the environment, as a flag of `mallow run` (`--huge-cache 64M`), or by\n"
        "`mw_option_set(\"huge_cache\", \"64M\")` of `<mallow/options.h>` if it is settable *always*; that call returns\n"
        "`EBUSY` for one that is only read at start, `EINVAL` for a bad value and `ENOENT` for an unknown name.\n"
        "A program that mallow is linked to gives defaults of its own by `mw_option_set_default`, which leaves what its\n"
        "user has set in the environment.\n\n"
        "The environment is not looked at in setuid and setgid programs. An unknown `MALLOW_` variable, or a bad\n"
        "value, costs one line on stderr that names it; the default stays, and the program runs on.\n",
    ]
    for row in rows:
        default = f"`{row['default']}`" if row["default"] else "none"
        parts.append(
            f"\n## `MALLOW_{row['name'].upper()}`\n\n{row['help'][0].upper()}{row['help'][1:]}.\n\n"
            f"- Values: {values(row)}\n- Default: {default}\n"
            f"- Settable: {WHEN[row['settable']]}\n"
        )
    return "".join(parts)


def public_functions(header):
    text = re.sub(r"//[^\n]*", "", header.read_text())
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    names = []
    for declaration in re.findall(r"\bMW_API\b[^;]*;", text):
        names.append(re.search(r"\b(mw_\w+)\s*\(", declaration)[1])
    return names


def symbols_page():
    parts = [
        "# Exported names\n\n"
        + NOTE.format(source="include/mallow/*.h or tools/override_symbols.txt"),
        "What `libmallow.so` defines for others. `tools/tidy` compares the library with the same sources.\n",
    ]
    for header in sorted((ROOT / "include/mallow").glob("*.h")):
        if names := public_functions(header):
            parts.append(f"\n## `<mallow/{header.name}>`: {len(names)} functions\n\n")
            parts.append("".join(f"- `{name}`\n" for name in names))
    parts.append("\n## The names of others\n")
    for line in (ROOT / "tools/override_symbols.txt").read_text().splitlines()[1:]:
        if line.startswith("#"):
            parts.append(f"\n{line[1:].strip()}:\n\n")
        elif line.strip():
            parts.append(f"- `{line.strip()}`\n")
    return "".join(parts)


def generated():
    """{path: the text it should have}."""
    rows = read_options()
    readme = ROOT / "README.md"
    new_readme, count = README_PART.subn(
        lambda match: match[1] + option_table(rows) + match[2], readme.read_text()
    )
    if count != 1:
        sys.exit("docs/generate.py: README.md needs one part between the options marks")
    return {
        ROOT / "docs/guide/options.md": options_page(rows),
        ROOT / "docs/guide/symbols.md": symbols_page(),
        readme: new_readme,
    }


def pages():
    return sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))


def check_layers():
    for line in (ROOT / "src/LAYERS").read_text().splitlines():
        layer = line.split("#")[0].partition(":")[0].strip()
        if not layer:
            continue
        page = ROOT / f"docs/design/{layer}.md"
        if not page.exists():
            yield f"{page.relative_to(ROOT)}: missing, and {layer} is a layer"
            continue
        text = page.read_text()
        found = tuple(re.findall(r"^## (.*)$", text, re.M))
        if found != HEADINGS:
            yield f"{page.relative_to(ROOT)}: headings are {found}, not {HEADINGS}"


def check_pages():
    for page in pages():
        name = page.relative_to(ROOT)
        text = page.read_text()
        limit = DESIGN_LINES_MAX if name.parts[:2] == ("docs", "design") else LINES_MAX.get(str(name))
        if limit is not None and text.count("\n") > limit:
            yield f"{name}: {text.count(chr(10))} lines, at most {limit}"
        prose = re.sub(r"```.*?```", "", text, flags=re.S)
        for script in COMMAND.findall(text):
            if not os.access(ROOT / script, os.X_OK):
                yield f"{name}: the command {script} cannot be executed"
        for target in LINK.findall(prose):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{name}: the link to {target} leads nowhere"


def check_names():
    sources = [path for folder in ("src", "include") for path in (ROOT / folder).rglob("*") if path.is_file()]
    names = set(re.findall(r"\w+", " ".join(path.read_text() for path in sources)))
    for page in pages():
        name = page.relative_to(ROOT)
        if "decisions" in name.parts or name.name in ("CHANGELOG.md", "STYLE.md"):
            continue
        for span in SPAN.findall(page.read_text()):
            for word in NAME.findall(span):
                if word not in names and not word.endswith("_"):
                    yield f"{name}: there is no {word} in the code"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; report what differs")
    arguments = parser.parse_args()
    findings = []
    for path, text in generated().items():
        if path.exists() and path.read_text() == text:
            continue
        if arguments.check:
            findings.append(f"{path.relative_to(ROOT)}: differs from the code; run docs/generate.py")
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    if arguments.check:
        findings += [*check_layers(), *check_pages(), *check_names()]
        print("\n".join([*findings, f"docs: {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
