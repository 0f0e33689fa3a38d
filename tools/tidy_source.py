# SPDX-License-Identifier: MIT
"""Just enough of C's syntax for tools/tidy: comments and strings blanked, functions found."""

import dataclasses
import re

DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)", re.M)
TOKEN = re.compile(
    r"//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S
)
NOT_A_FUNCTION = re.compile(
    r"\b(struct|enum|union)\s+\w*\s*$|^\s*(typedef|extern\s*$|namespace|class)\b"
)
ATTRIBUTE = re.compile(r"(__attribute__|_Alignas|alignas|__declspec|[A-Z][A-Z0-9_]*)\s*$")


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    first_line: int
    last_line: int
    parameter_count: int
    conditional_lines: tuple  # lines of #if, #ifdef, #ifndef, #elif and #else in the body


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip_comments(text, keep_strings=False):
    """Same length, same lines; comments, and the contents of strings, are spaces."""
    if keep_strings:
        return TOKEN.sub(lambda m: blank(m) if m.group(0)[0] == "/" else m.group(0), text)
    return TOKEN.sub(blank, text)


def comments(text):
    """(line, text) of every comment."""
    for match in TOKEN.finditer(text):
        if match.group(0)[0] == "/":
            for offset, line in enumerate(match.group(0).splitlines()):
                yield text.count("\n", 0, match.start()) + 1 + offset, line


def parameter_lists(signature):
    """(name before, contents) of each parenthesised group that is not inside another one."""
    depth = start = 0
    for position, letter in enumerate(signature):
        if letter == "(":
            if depth == 0:
                start = position
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                yield signature[:start].rstrip(), signature[start + 1 : position]


def parse_signature(signature):
    """(name, number of parameters) if this text before a brace heads a function, else None."""
    if NOT_A_FUNCTION.search(signature) or "=" in signature:
        return None
    groups = [
        (before, inside)
        for before, inside in parameter_lists(signature)
        if re.search(r"\w$", before) and not ATTRIBUTE.search(before)
    ]
    if not groups:
        return None
    before, inside = groups[-1]
    name = re.search(r"\w+$", before).group(0)
    if inside.strip() in ("", "void"):
        return name, 0
    depth = commas = 0
    for letter in inside:
        depth += letter in "(["
        depth -= letter in ")]"
        commas += letter == "," and depth == 0
    return name, commas + 1


class _Scanner:
    """One pass over the lines: braces, statements at file scope, directives inside functions."""

    def __init__(self):
        self.depth = 0
        self.statement = ""
        self.statement_line = 0
        self.open = None  # (signature, first line) of the function we are in
        self.conditionals = []
        self.saved_depths = []
        self.functions = []

    def directive(self, word, number):
        if word in ("if", "ifdef", "ifndef"):
            self.saved_depths.append(self.depth)
        elif word in ("else", "elif") and self.saved_depths:
            self.depth = self.saved_depths[-1]
        elif word == "endif" and self.saved_depths:
            self.saved_depths.pop()
        if self.open and word in ("if", "ifdef", "ifndef", "elif", "else"):
            self.conditionals.append(number)

    def brace_open(self):
        if self.depth == 0:
            if re.fullmatch(r"\s*extern\s*", self.statement) or "namespace" in self.statement:
                self.statement = ""
                return  # extern "C" { ... }: what is inside is at file scope
            signature = parse_signature(self.statement)
            self.open = (signature, self.statement_line) if signature else None
            self.conditionals = []
        self.depth += 1

    def brace_close(self, number):
        if self.depth == 0:
            return
        self.depth -= 1
        if self.depth == 0:
            if self.open:
                (name, count), first = self.open
                self.functions.append(
                    Function(name, first, number, count, tuple(self.conditionals))
                )
            self.open = None
            self.statement = ""

    def code(self, line, number):
        for letter in line + "\n":
            if letter == "{":
                self.brace_open()
            elif letter == "}":
                self.brace_close(number)
            elif self.depth == 0:
                if letter == ";":
                    self.statement = ""
                else:
                    if not self.statement.strip():
                        self.statement_line = number
                    self.statement += letter


def functions(text):
    """The functions defined in this text of a C file."""
    scanner = _Scanner()
    continued = False
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        match = DIRECTIVE.match(line)
        if continued or match:
            if match and not continued:
                scanner.directive(match.group(1), number)
            continued = line.rstrip().endswith("\\")
        else:
            scanner.code(line, number)
    return scanner.functions
