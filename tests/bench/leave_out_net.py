#!/usr/bin/env python3
"""Predicts the collectives of each fitted network as if it had no fit. Its corrections are the means of those of the other
fitted networks; scripts/clusters/fabrics.lua does the same for networks without rows. Writes scores in the form of
`tandem accuracy --comm --json`. tests/bench/error_bar.py makes the bar of collectives between nodes from them.

    tests/bench/leave_out_net.py build/release/tandem COMM.csv SCORES.json"""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# For each network: the GB/s of NICs for each rank, and a pattern of the cell `interconnect` of its rows.
NETWORKS = {"efa1": (12.5, r"EFA 4x100Gb"), "efa2": (50, r"EFA 3200Gb"), "efa4": (50, r"EFAv4")}


def fitted():
    with open(os.path.join(ROOT, "scripts/tandem/fitted_fabrics.lua")) as f:
        text = f.read()
    found = {}
    for name in NETWORKS:
        line = re.search(rf"{name} = {{([^}}]*)}}", text).group(1).replace(" * 1048576", "e0")
        found[name] = {k: float(v) for k, v in re.findall(r"(\w+) = ([0-9.e-]+)", line)}
    return found


def as_others(name, numbers):
    """Returns the corrections of this network as Lua text: the means of the other networks. The bytes of each NIC
    that fill the pipeline are assumed equal."""
    others = [n for n in numbers if n != name]

    def mean(value):
        return sum(value(n) for n in others) / len(others)

    fill = mean(lambda n: numbers[n]["ramp_s"] * numbers[n]["achieved"] * NETWORKS[n][0])
    return ("{ message_s = %g, achieved = %g, ramp_s = %g, ramp_bytes = %g * 1048576, spread_s = %g }" % (
        mean(lambda n: numbers[n]["message_s"]), mean(lambda n: numbers[n]["achieved"]), fill / NETWORKS[name][0],
        mean(lambda n: numbers[n]["ramp_bytes"]), mean(lambda n: numbers[n]["spread_s"])))


def scores_without(tandem, name, numbers, head, rows):
    folder = tempfile.mkdtemp()
    scripts = os.path.join(folder, "scripts")
    shutil.copytree(os.path.join(ROOT, "scripts"), scripts)
    path = os.path.join(scripts, "tandem/fitted_fabrics.lua")
    with open(path) as f:
        text = re.sub(rf"{name} = {{[^}}]*}}", lambda _: f"{name} = {as_others(name, numbers)}", f.read())
    with open(path, "w") as f:
        f.write(text)
    table = os.path.join(folder, "rows.csv")
    with open(table, "w", newline="") as f:
        csv.writer(f).writerows([head] + rows)
    done = subprocess.run([tandem, "accuracy", "--comm", table, "--json"], capture_output=True, text=True, check=True,
                          env=dict(os.environ, TANDEM_SCRIPTS=scripts))
    shutil.rmtree(folder)
    return [dict(s, network=name) for s in json.loads(done.stdout)["comm"]["scores"] if s["what"] == "collectives, all"]


def main():
    tandem, path, out = sys.argv[1:4]
    with open(path, newline="") as f:
        table = list(csv.reader(f))
    head, at = table[0], {name: i for i, name in enumerate(table[0])}
    numbers, scores = fitted(), []
    for name, (_, pattern) in NETWORKS.items():
        rows = [r for r in table[1:] if r[at["split"]] == "dev-cal" and re.search(pattern, r[at["interconnect"]])]
        own = scores_without(tandem, name, numbers, head, rows)
        errors = sorted(abs(s["predicted"] / s["measured"] - 1) for s in own)
        print(f"without {name}: {len(own)} rows, median {errors[len(errors) // 2]:.1%}, "
              f"p90 {errors[int(.9 * (len(errors) - 1))]:.1%}", flush=True)
        scores += own
    with open(out, "w") as f:
        json.dump({"left_out": scores}, f)


if __name__ == "__main__":
    main()
