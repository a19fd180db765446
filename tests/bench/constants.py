#!/usr/bin/env python3
"""Writes docs/reference/constants.md: every constant of the library's tables, with its kind. In a table, a line
`-- kind: KIND; WHERE FROM` holds for all lines below it, up to the next such line. In C tables the line is a comment
`/* kind: KIND; WHERE FROM */`, and a row is MACRO(name, .key = number, ...). A
CSV table has the columns column, value, kind and from.

tests/bench/constants.py           writes the page
tests/bench/constants.py --check   fails if the page is not up to date, or a number in a table has no kind"""
import csv
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = "docs/reference/constants.md"
TABLES = ["scripts/tandem/gpus.lua", "scripts/tandem/fitted.lua", "scripts/tandem/fitted_kernels.lua",
          "scripts/tandem/fitted_fabrics.lua", "scripts/tandem/published/catalog.lua",
          "scripts/tandem/published/pages.csv", "sim/compute/kernels_own.def"]
KINDS = ("datasheet", "documented", "source", "fitted", "assumed", "measured")
NUMBER = re.compile(r"\b([a-z_][a-z_0-9]*) = (-?[0-9][0-9.eEx+-]*(?: [*/<]+ [0-9]+)*)", re.I)
NAME = re.compile(r'^\s*(?:\["([^"]+)"\]|\{ "([^"]+)"|(\w+)) ?(?:=|,)')
ROW = re.compile(r"^([A-Z_]+)\(((?:\w+, )*)")


def constants_of(path):
    """Returns (kind, where, name, [(key, value)]) for each line with numbers. kind is "" if no line states it."""
    found, kind, where = [], "", ""
    if path.endswith(".csv"):
        with open(os.path.join(ROOT, path), newline="") as f:
            return [(r["kind"], r["from"], r["table"], [(r["column"], r["value"])]) for r in csv.DictReader(f)
                    if re.fullmatch(r"[0-9]+\.[0-9e-]+", r["value"])]  # other values are words, dates and switches
    with open(os.path.join(ROOT, path)) as f:
        for line in f:
            said = re.match(r"\s*(?:--|/\*) kind: (\w+); (.*?)(?: \*/)?$", line)
            if said:
                kind, where = said.groups()
            if path.endswith(".def"):
                row = ROW.match(line)
                if row and NUMBER.search(line):
                    name = row[2].strip(", ").replace(",", "") or row[1]
                    found.append((kind, where, name, NUMBER.findall(line)))
                continue
            code = re.split(r"(?:^|\s)--(?!\d)", line)[0]
            if code.lstrip().startswith(("local function", "function", "if ", "for ", "return function")):
                kind = "code" if path == "scripts/tandem/gpus.lua" and "function m." in code else kind
            if kind == "code":
                continue
            numbers = NUMBER.findall(code)
            name = NAME.match(code)
            if numbers:
                found.append((kind, where, next((n for n in name.groups() if n), "") if name else "", numbers))
    return found


def tables():
    return TABLES + sorted(os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, "scripts/runtimes/*.lua")))


def rows():
    for path in tables():
        for kind, where, name, numbers in constants_of(path):
            if kind not in KINDS:
                sys.exit(f"{path}: {name or numbers[0][0]} = ... has no kind: write '-- kind: KIND; WHERE FROM' above it")
            yield path, kind, where, name, numbers


def page():
    out = ["<!-- Written by tests/bench/constants.py from the tables that hold the constants. -->",
           "# Constants and their kinds", "",
           "| kind | the constant comes from |", "|---|---|",
           "| datasheet | the maker's page |",
           "| documented | the documentation of a framework or library |",
           "| source | the source code of a framework or library |",
           "| measured | our own measurement |",
           "| fitted | a fit to published rows that are marked dev-cal, or to our own measurements |",
           "| assumed | no source |", ""]
    groups = {}
    for path, kind, where, name, numbers in rows():
        groups.setdefault((path, kind, where), []).append((name, numbers))
    for kind in KINDS:
        mine = {key: value for key, value in groups.items() if key[1] == kind}
        if not mine:
            continue
        out += [f"## {kind.capitalize()}", "", "| table | constants | from |", "|---|---|---|"]
        for (path, _, where), found in mine.items():
            if len(found) > 12:
                keys = sorted({k for _, numbers in found for k, _ in numbers})
                text = f"{len(found)} rows of {', '.join(keys)}"
            else:
                text = "; ".join((f"{name}: " if name and name != numbers[0][0] else "") +
                                 ", ".join(f"{k} {v}" for k, v in numbers) for name, numbers in found)
            out.append(f"| {path} | {text} | {where} |")
        out.append("")
    return "\n".join(out)


def main():
    text, path = page(), os.path.join(ROOT, PAGE)
    if "--check" in sys.argv:
        with open(path) as f:
            if f.read() != text:
                sys.exit(f"{PAGE} is old: run tests/bench/constants.py")
        return
    with open(path, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
