# SPDX-License-Identifier: MIT
"""The rules that look at text alone: sizes, widths, #if in functions, TODO, licence head."""

import pathlib
import re

from tidy_common import Finding, c_files, layer_of, tree_files
from tidy_source import comments, functions

FILE_LINES_AIM, FILE_LINES_MAX = 500, 800
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5
COLUMNS_MAX, PUBLIC_COLUMNS_MAX = 100, 130
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b")
TODO_WITH_ISSUE = re.compile(r"\bTODO\(#\d+\): \S")


def check_file_size(path, lines):
    count = len(lines)
    if count > FILE_LINES_MAX:
        yield Finding(
            str(path),
            count,
            "file-lines",
            f"{count} lines, at most {FILE_LINES_MAX}",
            str(path),
            count,
        )
    elif count > FILE_LINES_AIM:
        yield Finding(
            str(path), count, "file-lines", f"{count} lines, aim at {FILE_LINES_AIM}", warning=True
        )


def check_columns(path, lines):
    limit = PUBLIC_COLUMNS_MAX if path.parts[0] == "include" else COLUMNS_MAX
    for number, line in enumerate(lines, 1):
        if len(line) > limit:
            yield Finding(str(path), number, "columns", f"{len(line)} columns, at most {limit}")


def check_functions(path, text):
    for function in functions(text):
        length = function.last_line - function.first_line + 1
        key = f"{path}:{function.name}"
        if length > FUNCTION_LINES_MAX:
            message = f"{function.name} has {length} lines, at most {FUNCTION_LINES_MAX}"
            yield Finding(str(path), function.first_line, "function-lines", message, key, length)
        if function.parameter_count > PARAMETERS_MAX:
            message = (
                f"{function.name} has {function.parameter_count} parameters, "
                f"at most {PARAMETERS_MAX}"
            )
            yield Finding(
                str(path),
                function.first_line,
                "parameters",
                message,
                key,
                function.parameter_count,
                warning=True,
            )
        if function.conditional_lines and layer_of(path) != "os":
            message = f"{function.name} has #if inside; make it a constant or a file"
            yield Finding(
                str(path),
                function.conditional_lines[0],
                "if-in-function",
                message,
                key,
                len(function.conditional_lines),
            )


def check_todo(path, text):
    if path.suffix in (".c", ".h", ".hpp", ".cc", ".cpp", ".rs", ".def"):
        remarks = comments(text)
    else:
        remarks = (
            (number, line.partition("#")[2]) for number, line in enumerate(text.splitlines(), 1)
        )
    for number, remark in remarks:
        if TODO.search(remark) and not TODO_WITH_ISSUE.search(remark):
            yield Finding(str(path), number, "todo", "write TODO(#issue): reason, or mend it")


def check_spdx(path, lines):
    if lines and not any("SPDX-License-Identifier: MIT" in line for line in lines[:3]):
        yield Finding(str(path), 1, "spdx", "no SPDX-License-Identifier: MIT at the head")


def check_unique_names(paths):
    """A file of src/ is known by its name alone, so no two may share one."""
    seen = {}
    for path in paths:
        other = seen.setdefault(path.name, path)
        if other != path:
            yield Finding(str(path), 1, "file-name", f"also the name of {other}")


def check(root):
    found = []
    for path in tree_files(root):
        text = (root / path).read_text(errors="replace")
        lines = text.splitlines()
        found += check_file_size(path, lines)
        found += check_spdx(path, lines)
        if path.parts[:2] != ("tools", "tests") and path.stem != pathlib.Path(__file__).stem:
            found += check_todo(path, text)
        if (
            path.parts[0] in ("src", "include", "tools") and path.suffix != ".def"
        ):  # a table's row is one line
            found += check_columns(path, lines)
    for path in c_files(root):
        found += check_functions(path, (root / path).read_text(errors="replace"))
    found += check_unique_names(c_files(root, ("src",)))
    return found
