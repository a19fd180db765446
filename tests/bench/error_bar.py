#!/usr/bin/env python3
"""The error bar that is printed with every prediction: writes cli/error_bar.def, and the predictions it comes from to
tests/data/predicted_runs.csv, from the scores of `tandem accuracy`. Only rows of split dev-val count, which nothing
was fitted to. tests/unit/test_error_bar.c holds the two files against each other, and against predictions of today.

    build/release/tandem accuracy --runs RUNS.csv --comm COMM.csv --json | tests/bench/error_bar.py DAY

Collectives go to cli/error_bar_net.def: those of dev-cal, and those of dev-val, all of which are between nodes.

DAY is the day of the costs, as 2026-11-22."""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = """/* Errors of predicted step times against published runs that nothing was fitted to (dev-val): day, rows,
 * median, ninth decile. Written by tests/bench/error_bar.py from the scores of `tandem accuracy`. */
"""


def at(errors, part):
    """The quantile that `tandem accuracy` prints: between the two errors beside it."""
    place = part * (len(errors) - 1)
    low = int(place)
    high = min(low + 1, len(errors) - 1)
    return errors[low] + (place - low) * (errors[high] - errors[low])


NET_HEAD = """/* Errors of predicted times of collectives: in a node (dev-cal, most of them fitted to), between nodes
 * (dev-val, nothing was fitted to them): day, rows, median, ninth decile. By tests/bench/error_bar.py. */
"""


def write_net(scores, day):
    with open(os.path.join(ROOT, "cli/error_bar_net.def"), "w") as f:
        f.write(NET_HEAD)
        for split in "dev-cal", "dev-val":
            errors = sorted(abs(s["predicted"] / s["measured"] - 1) for s in scores
                            if s["what"] == "collectives, all" and s["split"] == split)
            f.write(f'NET_FIT("{day}", {len(errors)}, {at(errors, .5):.3f}, {at(errors, .9):.3f})\n')


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    document = json.load(sys.stdin)
    if "comm" in document:
        write_net(document["comm"]["scores"], sys.argv[1])
    if "runs" not in document:
        return
    scores = document["runs"]["scores"]
    scores = [s for s in scores if s["what"] == "step time" and s["split"] == "dev-val"]
    errors = sorted(abs(s["predicted"] / s["measured"] - 1) for s in scores)
    if not errors:
        sys.exit("error_bar: no row of split dev-val was predicted")
    with open(os.path.join(ROOT, "cli/error_bar.def"), "w") as f:
        f.write(HEAD + f'FIT("{sys.argv[1]}", {len(errors)}, {at(errors, .5):.3f}, {at(errors, .9):.3f})\n')
    with open(os.path.join(ROOT, "tests/data/predicted_runs.csv"), "w") as f:
        f.write("id,measured_s,predicted_s\n")
        f.writelines(f"{s['row']},{s['measured']:.6g},{s['predicted']:.6g}\n" for s in scores)


if __name__ == "__main__":
    main()
