"""Reads the faults of faults.txt, finds their places in the files, and tries them with the tests that they name."""
import os
import re
from collections import namedtuple

from draw import Site
from tree import HERE

PATH = os.path.join(HERE, "faults.txt")

Fault = namedtuple("Fault", "file tests old new why")


def read(path=PATH):
    with open(path) as f:
        blocks = re.split(r"\n\s*\n", f.read())
    found = []
    for block in blocks:
        lines = [x for x in block.splitlines() if not x.startswith("#")]
        if not lines:
            continue
        name, _, tests = lines[0].partition(":")
        old = "\n".join(x[2:] for x in lines[1:] if x.startswith("- "))
        new = "\n".join(x[2:] for x in lines[1:] if x.startswith("+ "))
        why = " ".join(x for x in lines[1:] if x[:1] not in "-+")
        found.append(Fault(name, tests.split(), old, new, why))
    return found


def site(fault, text):
    """Returns the place of the old text in the file. The text must occur once."""
    pattern = r"\s+".join(re.escape(word) for word in fault.old.split())
    at = list(re.finditer(pattern, text))
    if len(at) != 1:
        raise SystemExit(f"faults.txt: {fault.file} has `{fault.old}` {len(at)} times")
    start, end = at[0].span()
    return Site("fault", start, end, fault.new, text.count("\n", 0, start) + 1)
