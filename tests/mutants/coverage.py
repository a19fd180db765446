#!/usr/bin/env python3
"""Prints which share of the lines and branches of each folder the tests run, and the lines and branches that none runs.

    coverage.py [--jobs N] [--lines] [--tests REGEX] [FOLDER ...]

A branch is one way out of a condition. Conditions of assertions are left out: no test may break one. Tests run with
the library that mutants.py uses to see which test reaches a line, and both keep the result: a test runs again only if
it or the code changed. --tests runs only some of them. With FOLDERs, only their files are listed."""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from mutants import FOLDERS, KINDS, sources  # noqa: E402
from reach import Reach  # noqa: E402
from tree import HERE, Tree  # noqa: E402


def asserted(text):
    """Returns the lines of assertions, and lines that no program can reach."""
    lines, inside = set(), 0
    for number, line in enumerate(text.splitlines(), 1):
        if inside == 0 and not re.search(r"\bassert\(|\bunreachable\(", line):
            continue
        lines.add(number)
        inside = max(0, inside + line.count("(") - line.count(")"))
    return lines


def runs(numbers):
    """Returns sorted numbers as in "3, 7-9"."""
    parts, first = [], None
    for i, n in enumerate(numbers):
        first = n if first is None else first
        if i + 1 == len(numbers) or numbers[i + 1] != n + 1:
            parts.append(str(n) if n == first else f"{first}-{n}")
            first = None
    return ", ".join(parts)


def measure(reach, texts):
    """Returns {file: (lines, lines that ran, branches, branches taken)}, without assertions."""
    found = {}
    for name, (lines, ways) in reach.there_is().items():
        if name not in texts:
            continue
        left_out = asserted(texts[name][0])
        ran, taken = set(), set()
        for test in reach.tests.values():
            of = test["files"].get(name)
            if of:
                ran.update(of[0])
                taken.update(tuple(b) for b in of[2])
        ways = {w for w in ways if w[0] not in left_out}
        found[name] = (lines - left_out, (ran & lines) - left_out, ways, taken & ways)
    return found


def share(part, whole):
    return 100.0 * part / whole if whole else 100.0


KINDS_OF_LINES = [
    ("a proof refuses a program", r"^planner/verify/", r""),
    ("memory, a process, a file or a pipe fails", r"",
     r"FAULT_internal|abort\(|_exit\(|strerror|arena_full|errno|damaged"),
    ("a plan, a script or a setting is refused", r"",
     r"diag_(error|hint|warning|note)|child_raise|complain|fail\(|bad\("),
    ("other lines", r"", r""),
]


def kinds(found, texts):
    """Returns {kind: lines that no test runs}. The words of a line and its neighbours decide its kind."""
    count = {kind: 0 for kind, _, _ in KINDS_OF_LINES}
    for name, (lines, ran, _, _) in found.items():
        text = texts[name][0].splitlines()
        for line in lines - ran:
            near = " ".join(text[max(0, line - 2):line + 2])
            count[next(k for k, of, words in KINDS_OF_LINES if re.search(of, name) and re.search(words, near))] += 1
    return count


def listing(found, texts, say):
    """Prints for each file the lines that no test runs. For the other lines, prints the ways out that no test takes."""
    for name, (lines, ran, ways, taken) in sorted(found.items()):
        missed, all_ways = {}, {}
        for line, _ in ways:
            all_ways[line] = all_ways.get(line, 0) + 1
        for line, _ in ways - taken:
            missed[line] = missed.get(line, 0) + 1
        missed = [f"{line} ({n} of {all_ways[line]})" for line, n in sorted(missed.items()) if line in ran]
        if lines - ran or missed:
            say(f"\n{name}")
        if lines - ran:
            say(f"  lines that no test runs: {runs(sorted(lines - ran))}")
        if missed:
            say(f"  branches that no test takes, by line: {', '.join(missed)}")
    say("\nlines that no test runs, by kind:")
    for kind, n in kinds(found, texts).items():
        say(f"  {kind:42} {n:6}")


def report(found, texts, with_lines, say):
    folders = {}
    for name, counts in found.items():
        top = name.split("/")[0]
        for folder in {os.path.dirname(name), top}:
            total = folders.setdefault(folder, [0, 0, 0, 0])
            for i, c in enumerate(counts):
                total[i] += len(c)
    say(f"{'folder':28} {'lines':>7} {'run':>8}   {'branches':>8} {'taken':>8}")
    for folder, (lines, ran, ways, taken) in sorted(folders.items()):
        say(f"{folder:28} {lines:7} {share(ran, lines):6.1f} %   {ways:8} {share(taken, ways):6.1f} %")
    if with_lines:
        listing(found, texts, say)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build/mutants")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--lines", action="store_true")
    p.add_argument("--tests", default="")
    p.add_argument("folders", nargs="*")
    options = p.parse_args()
    os.nice(10)

    def say(text):
        print(text, flush=True)
    source = os.path.dirname(os.path.dirname(HERE))
    tree = Tree(source, os.path.join(source, options.build), KINDS)
    tree.tests = [t for t in tree.tests if re.search(options.tests, t.name)]
    texts = sources(tree, FOLDERS)
    reach = Reach(tree, texts, options.jobs)
    reach.measure(say)
    found = measure(reach, texts)
    wanted = [os.path.normpath(f) for f in options.folders]
    report({n: c for n, c in found.items() if not wanted or any(n == f or n.startswith(f + "/") for f in wanted)},
           texts, options.lines, say)


if __name__ == "__main__":
    main()
