#!/usr/bin/env python3
"""The error bars that are printed with predictions: writes cli/report/error_bar.def, and the predictions they come from to
tests/data/predicted_runs.csv, from the scores of `tandem accuracy`; of collectives, cli/report/error_bar_net.def. Of runs only
rows of split dev-val count, which nothing was fitted to. tests/unit/cli/test_error_bar.c holds the files against each other,
and against predictions of today. All of it, in one command that takes some 5 minutes:

    make error-bar RUNS=RUNS.csv COMM=COMM.csv

which is
    build/release/tandem accuracy --runs RUNS.csv --comm COMM.csv --json | tests/bench/error_bar.py [DAY]

DAY is the day of the costs, as 2026-11-22; without one, today. Collectives are those of dev-cal, and those of dev-val,
all of which are between nodes."""
import datetime
import itertools
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = """/* Errors of predictions against published runs that no number was fitted to (dev-val), by profile and GPU: rows, median,
 * ninth decile. Profiles of frameworks that have no other rows were completed because of them (docs/explanation/accuracy.md).
 * Written by tests/bench/error_bar.py from the scores of `tandem accuracy`. */
"""
NET_HEAD = """/* Errors of predicted times of collectives: in a node (dev-cal, most of them fitted to), between nodes
 * (dev-val, nothing was fitted to them): day, rows, median, ninth decile. By tests/bench/error_bar.py. */
"""
KINDS = {"step time": "step", "memory allocated": "allocated", "memory reserved": "reserved"}


def at(errors, part):
    """The quantile that `tandem accuracy` prints: between the two errors beside it."""
    place = part * (len(errors) - 1)
    low = int(place)
    high = min(low + 1, len(errors) - 1)
    return errors[low] + (place - low) * (errors[high] - errors[low])


def summary(scores):
    errors = sorted(abs(s["predicted"] / s["measured"] - 1) for s in scores)
    return f"{len(errors)}, {at(errors, .5):.3f}, {at(errors, .9):.3f}"


def write_net(scores, day):
    with open(os.path.join(ROOT, "cli/report/error_bar_net.def"), "w") as f:
        f.write(NET_HEAD)
        for split in "dev-cal", "dev-val":
            rows = [s for s in scores if s["what"] == "collectives, all" and s["split"] == split]
            f.write(f'NET_FIT("{day}", {summary(rows)})\n')


def quoted(text):
    return "ANY" if text is None else f'"{text}"'


def write_runs(scores, day):
    scores = [s for s in scores if s["what"] in KINDS and s["split"] == "dev-val"]
    for what in KINDS:
        if not any(s["what"] == what for s in scores):
            sys.exit(f"error_bar: no {what} of split dev-val was predicted")
    with open(os.path.join(ROOT, "cli/report/error_bar.def"), "w") as f:
        f.write(HEAD + f'MADE("{day}")\n')
        profiles = [None] + sorted({s["profile"] for s in scores})
        gpus = [None] + sorted({s["gpu"] for s in scores})
        for what, profile, gpu in itertools.product(KINDS, profiles, gpus):
            rows = [s for s in scores if s["what"] == what and profile in (None, s["profile"]) and gpu in (None, s["gpu"])]
            if rows:
                f.write(f"BAR({KINDS[what]}, {quoted(profile)}, {quoted(gpu)}, {summary(rows)})\n")
    with open(os.path.join(ROOT, "tests/data/predicted_runs.csv"), "w") as f:
        f.write("id,what,profile,gpu,measured,predicted\n")
        f.writelines(f"{s['row']},{KINDS[s['what']]},{s['profile']},{s['gpu']},{s['measured']:.6g},{s['predicted']:.6g}\n"
                     for s in scores)


def main():
    if len(sys.argv) > 2 or sys.stdin.isatty():
        sys.exit(__doc__)
    day = sys.argv[1] if len(sys.argv) == 2 else datetime.date.today().isoformat()
    document = json.load(sys.stdin)
    if "comm" in document:
        write_net(document["comm"]["scores"], day)
    if "runs" in document:
        write_runs(document["runs"]["scores"], day)


if __name__ == "__main__":
    main()
