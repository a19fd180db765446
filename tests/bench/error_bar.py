#!/usr/bin/env python3
"""Makes the error bars that are printed with predictions, from the scores of `tandem accuracy`. It writes

    cli/report/error_bar.def         bars of runs
    cli/report/error_bar_net.def     bars of collectives
    tests/data/predicted_runs.csv    the predictions from which the bars of runs come

tests/unit/cli/test_error_bar.c compares these files with each other and with predictions of today. One command does all
of it, in some 5 minutes for each table:

    make error-bar RUNS=RUNS.csv MORE=MORE.csv COMM=COMM.csv

It calls
    tests/bench/error_bar.py [--day DAY] SCORES.json...      makes the bars from `tandem accuracy --runs ... --json`
    tests/bench/error_bar.py --check SCORES.json...          checks that the bars cover the stated parts of the rows

A bar is for one profile on one GPU. It counts only rows of split dev-val, to which no constant was fitted. All sources of
its rows have the same weight. A user's run comes from another source, so a bar with a single source is widened. Its factors
WIDER(kind, p50, p90) come from a test: every source is predicted by the bar of the other sources of its profile. The factors
make these bars cover one half, and 9 of 10, of the rows that were left out.

The command fails if, on sources that are not in them, the printed bars cover fewer rows than they state by more than 5
points. --check takes any scores, and leaves out rows of the sources that are in the bars.

DAY is the day of the costs, as in 2026-11-22; the default is today. Bars of collectives within a node come from dev-cal. A
user's network is not in the tables. So the bar between nodes comes from networks that a fit left out
(tests/bench/leave_out_net.py) and from networks without a fit (dev-val)."""
import csv
import datetime
import json
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEF = os.path.join(ROOT, "cli/report/error_bar.def")
ROWS = os.path.join(ROOT, "tests/data/predicted_runs.csv")
HEAD = """/* Errors of predictions against published runs to which no number was fitted (dev-val), by profile
 * and GPU: number of rows, median, ninth decile. Each source of rows has the same weight. WIDER
 * gives the factors by which the bars of a single source are widened. They come from predicting
 * each source by the bars of the others. tests/bench/error_bar.py writes this file from the scores
 * of `tandem accuracy`. */
"""
GRID = 20      # quantiles that stand for a source
ENOUGH = 5     # rows of a class
SLACK = .05    # of coverage
NET_HEAD = """/* Errors of predicted times of collectives. First row: within a node, from dev-cal rows; most of them were used in the
 * fit. Second row: between nodes. Each fitted network was predicted by the fits of the others, and a network of dev-val has
 * no fit. Each network of 5 rows or more has the same weight. Columns: day, number of rows, median, ninth decile.
 * tests/bench/error_bar.py writes this file. */
"""
KINDS = {"step time": "step", "memory allocated": "allocated", "memory reserved": "reserved"}
# Rows that do not state their power limit have a bar of their own. It is used, with a mark, if too few rows state the limit.
ASSUMED = {"step time, power not stated": "step_assumed"}


def at(errors, part):
    """Returns a quantile as `tandem accuracy` computes it: interpolated between the two nearest errors."""
    place = part * (len(errors) - 1)
    low = int(place)
    high = min(low + 1, len(errors) - 1)
    return errors[low] + (place - low) * (errors[high] - errors[low])


def summary(scores):
    errors = sorted(abs(s["predicted"] / s["measured"] - 1) for s in scores)
    return f"{len(errors)}, {at(errors, .5):.3f}, {at(errors, .9):.3f}"


def write_net(comm, left_out, day):
    within = [s for s in comm if s["what"] == "collectives, all" and s["split"] == "dev-cal"]
    outside = [dict(s, source=s["network"]) for s in left_out]
    outside += [s for s in comm if s["what"] == "collectives, all" and s["split"] == "dev-val"]
    by_network = {}
    for s in outside:
        by_network.setdefault(s["source"], []).append(abs(s["predicted"] / s["measured"] - 1))
    by_network = {name: errors for name, errors in by_network.items() if len(errors) >= ENOUGH}
    errors, n = sorted(pooled(by_network)), sum(map(len, by_network.values()))
    with open(os.path.join(ROOT, "cli/report/error_bar_net.def"), "w") as f:
        f.write(NET_HEAD)
        f.write(f'NET_FIT("{day}", {summary(within)})\n')
        f.write(f'NET_FIT("{day}", {n}, {at(errors, .5):.3f}, {at(errors, .9):.3f})\n')


def quoted(text):
    return "ANY" if text is None else f'"{text}"'


def pooled(by_source):
    """Returns errors in which each source has the same weight."""
    return [at(sorted(errors), (i + .5) / GRID) for errors in by_source.values() for i in range(GRID)]


def sources_of(rows):
    by_source = {}
    for r in rows:
        by_source.setdefault(r["source"], []).append(r["error"])
    return by_source


def wider(rows):
    """Returns the factors of median and ninth decile with which a bar covers rows of a source that was left out."""
    left_out = {}
    for source in sorted({r["source"] for r in rows}):
        for r in rows:
            others = [x for x in rows if x["profile"] == r["profile"] and x["source"] != source]
            if r["source"] == source and len(others) >= ENOUGH:
                errors = sorted(pooled(sources_of(others)))
                left_out.setdefault(source, []).append((r["error"] / at(errors, .5), r["error"] / at(errors, .9)))
    if not left_out:
        return 1., 1.
    return tuple(max(1., at(sorted(pooled({s: [e[k] for e in errors] for s, errors in left_out.items()})), part))
                 for k, part in enumerate((.5, .9)))


def printed_factor(factor):
    """Rounds up, so that the row that determines the factor is covered."""
    return math.ceil(1000 * factor - 1e-9) / 1000


def bar_of(rows, factors):
    by_source = sources_of(rows)
    errors, alone = sorted(pooled(by_source)), len(by_source) == 1
    return tuple(at(errors, part) * (factor if alone else 1) for part, factor in zip((.5, .9), factors))


def read_scores(paths):
    """Returns scores of runs. The source of a row comes from its table, because the JSON does not name it."""
    scores, comm, left_out = [], [], []
    for path in paths:
        with open(path) as f:
            document = json.load(f)
        comm += document.get("comm", {}).get("scores", [])
        left_out += document.get("left_out", [])
        for s in document.get("runs", {}).get("scores", []):
            if s["what"] in KINDS or s["what"] in ASSUMED:
                scores.append({**s, "what": {**KINDS, **ASSUMED}[s["what"]], "error": abs(s["predicted"] / s["measured"] - 1),
                               "source": s["source"].replace(",", ";").replace(" ", "_")[:60]})
    return scores, comm, left_out


def write_runs(scores, day):
    rows = [s for s in scores if s["split"] == "dev-val"]
    kinds = list(dict.fromkeys(KINDS.values()))
    with open(DEF, "w") as f:
        f.write(HEAD + f'MADE("{day}")\n')
        for what in kinds:
            own = [s for s in rows if s["what"] == what]
            if not own:
                sys.exit(f"error_bar: no {what} of split dev-val was predicted")
            # rounded as they are printed, because the test makes bars of the printed factors
            factors = tuple(printed_factor(factor) for factor in wider(own))
            f.write(f"WIDER({what}, {factors[0]:.3f}, {factors[1]:.3f})\n")
            for mark, kind in ("BAR", what), ("ASSUMED", what + "_assumed"):
                of_kind = [s for s in rows if s["what"] == kind]
                for profile, gpu in sorted({(s["profile"], s["gpu"]) for s in of_kind}):
                    own_class = [s for s in of_kind if (s["profile"], s["gpu"]) == (profile, gpu)]
                    p50, p90 = bar_of(own_class, factors)
                    f.write(f"{mark}({what}, {quoted(profile)}, {quoted(gpu)}, {len(own_class)}, {p50:.3f}, {p90:.3f})\n")
    with open(ROWS, "w") as f:
        f.write("id,what,profile,gpu,source,measured,predicted\n")
        f.writelines(f"{s['row']},{s['what']},{s['profile']},{s['gpu']},{s['source']},{s['measured']:.6g},{s['predicted']:.6g}\n"
                     for s in rows)


def printed():
    bars = {}
    with open(DEF) as f:
        for what, profile, gpu, n, p50, p90 in re.findall(r'BAR\((\w+), "(.*?)", "(.*?)", (\d+), ([\d.]+), ([\d.]+)\)', f.read()):
            if int(n) >= ENOUGH:
                bars[what, profile, gpu] = float(p50), float(p90)
    return bars


def coverage(name, inside):
    """Returns False if the bars cover fewer rows than they state. inside: for each row, whether it is within the
    median, and within the ninth decile."""
    parts = [sum(each[k] for each in inside) / len(inside) for k in range(2)]
    good = parts[0] >= .5 - SLACK and parts[1] >= .9 - SLACK
    print(f"{name}: {len(inside)} rows, {100 * parts[0]:.0f} % within the half, {100 * parts[1]:.0f} % within 9 of 10"
          + ("" if good else ": LESS THAN THE BARS SAY"))
    return good


def check(scores, known):
    """Compares rows of sources that are not in the bars with the printed bars."""
    bars, good = printed(), True
    for what in dict.fromkeys(KINDS.values()):
        rows = [s for s in scores if s["what"] == what and s["source"] not in known]
        inside = [tuple(s["error"] <= p for p in bars[what, s["profile"], s["gpu"]]) for s in rows
                  if (what, s["profile"], s["gpu"]) in bars]
        print(f"{what}: {len(rows) - len(inside)} rows of other sources have no bar (unknown)")
        good = (not inside or coverage(what, inside)) and good
    return good


def check_left_out(scores):
    """Compares each source with bars made without it, widened as printed."""
    good = True
    with open(DEF) as f:
        factors = {what: (float(a), float(b)) for what, a, b in re.findall(r"WIDER\((\w+), ([\d.]+), ([\d.]+)\)", f.read())}
    for what in dict.fromkeys(KINDS.values()):
        rows = [s for s in scores if s["what"] == what and s["split"] == "dev-val"]
        by_source = {}
        for r in rows:
            others = [x for x in rows if x["profile"] == r["profile"] and x["source"] != r["source"]]
            if len(others) >= ENOUGH:
                bar = at(sorted(pooled(sources_of(others))), .5) * factors[what][0], \
                    at(sorted(pooled(sources_of(others))), .9) * factors[what][1]
                by_source.setdefault(r["source"], []).append(tuple(r["error"] <= p for p in bar))
        weighed = [each[i * len(each) // GRID] for each in by_source.values() for i in range(GRID)]
        good = (not weighed or coverage(f"{what}, each of {len(by_source)} sources left out", weighed)) and good
    return good


def main():
    args = sys.argv[1:]
    if not args or args[0].startswith("--h"):
        sys.exit(__doc__)
    if args[0] == "--check":
        scores, _, _ = read_scores(args[1:])
        with open(ROWS) as f:
            known = {r["source"] for r in csv.DictReader(f)}
        sys.exit(0 if check(scores, known) else 5)
    day = args[1] if args[0] == "--day" else datetime.date.today().isoformat()
    scores, comm, left_out = read_scores(args[2:] if args[0] == "--day" else args)
    if comm:
        write_net(comm, left_out, day)
    if scores:
        write_runs(scores, day)
        sys.exit(0 if check_left_out(scores) else 5)


if __name__ == "__main__":
    main()
