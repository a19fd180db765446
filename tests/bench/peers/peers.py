#!/usr/bin/env python3
"""Runs other simulators and Tandem on the same cases, and prints both columns as Markdown.

    tests/bench/peers/peers.py BUILD [--calculon DIR] [--simumax DIR]

BUILD holds tandem and its libraries. SimGrid takes part where g++ finds libsimgrid-dev. Calculon and
SimuMax take part where DIR is a clone of their repository, and their Python modules are installed.
"""
import argparse
import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
TABLE5 = os.path.join(HERE, "table5.csv")
MIB_256 = str(256 << 20)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(argv, **more):
    """Returns the standard output and the CPU time of a command, which must succeed."""
    begin = cpu_seconds()
    result = subprocess.run(argv, capture_output=True, text=True, check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{argv[0]}: code {result.returncode}\n{result.stderr}")
    return result.stdout, cpu_seconds() - begin


def exchanges(build, work):
    """Runs the same messages through the same network, in Tandem's engine and in SimGrid's."""
    ours, theirs = os.path.join(work, "ours"), os.path.join(work, "theirs")
    source = os.path.join(HERE, "exchange_simgrid.cpp")
    made = subprocess.run(["g++", "-O2", "-o", theirs, source, "-lsimgrid"], capture_output=True,
                          check=False)
    if made.returncode != 0:
        print("SimGrid: not run; g++ needs libsimgrid-dev.\n")
        return
    libraries = [f"{build}/libtandem_{name}.a" for name in ("sim", "store", "ir", "base")]
    run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-ffp-contract=off", "-I.", "-o", ours,
         os.path.join(HERE, "exchange.c"), "-Wl,--start-group", *libraries, "-Wl,--end-group",
         "-lsqlite3", "-lz", "-lm"], cwd=ROOT)
    print("## SimGrid: exchanges of 256 MiB\n")
    print("| exchange | nodes x devices | Tandem | SimGrid | difference | CPU, Tandem | SimGrid |")
    print("|---|---|---|---|---|---|---|")
    worst = 0
    for name, nodes, devices in (("ring", 16, 1), ("ring", 256, 1), ("tree", 15, 1), ("tree", 255, 1),
                                 ("ring", 8, 4), ("ring", 32, 8)):
        case = [name, str(nodes), str(devices), MIB_256]
        out, wall = run([ours, *case])
        step, latency, rate, nic, _ = out.split()
        other, other_wall = run([theirs, *case, latency, rate, nic])
        difference = float(step) / float(other) - 1
        worst = max(worst, abs(difference))
        print(f"| {name} | {nodes} x {devices} | {1e3 * float(step):.3f} ms | "
              f"{1e3 * float(other):.3f} ms | {100 * difference:+.4f} % | {wall:.2f} s | "
              f"{other_wall:.2f} s |")
    print(f"\nThe largest difference is {100 * worst:.4f} %; 2 % is allowed.\n")
    if worst > .02:
        sys.exit("the exchanges differ by more than 2 %")


def predicted(build, table):
    """Returns Tandem's prediction of each row of a table of runs, and the CPU time."""
    out, wall = run([f"{build}/tandem", "accuracy", "--runs", table, "--json"], cwd=ROOT)
    scores = json.loads(out)["runs"]["scores"]
    return {s["row"]: s["predicted"] for s in scores if s["what"] == "step time"}, wall


def error_line(name, pairs, wall):
    errors = [abs(p / m - 1) for p, m in pairs]
    print(f"{name}: mean error {100 * sum(errors) / len(errors):.2f} %, largest "
          f"{100 * max(errors):.2f} %; {wall:.1f} s of CPU for {len(errors)} rows.")


def calculon(build, folder):
    """Compares on Table 5 of Korthikanti et al. 2022, with the predictions of Calculon's own validation."""
    out, wall = run([sys.executable, "bin/calculon", "llm-validation"], cwd=folder,
                    env={**os.environ, "PYTHONPATH": f".:{os.environ.get('PYTHONPATH', '')}"})
    part = out[out.index("End-to-end"):]
    theirs = {}
    for line in part.splitlines()[2:6]:
        cells = [c.strip() for c in line.split(",")]
        theirs[cells[0].split("-")[-1], "full"] = float(cells[3])
        theirs[cells[0].split("-")[-1], "selective"] = float(cells[8])
    ours, our_wall = predicted(build, TABLE5)
    print("## Calculon: Table 5 of Korthikanti et al. 2022 (A100)\n")
    print("| model | recomputation | measured | Tandem | Calculon |\n|---|---|---|---|---|")
    pairs = ([], [])
    with open(TABLE5, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            size, mode = row["model"].split("-")[-1], row["ac"].split("(")[0]
            real, other = float(row["step_time_s"]), theirs[size, mode]
            mine = ours[row["id"]]
            pairs[0].append((mine, real))
            pairs[1].append((other, real))
            print(f"| {size} | {mode} | {real:.2f} s | {mine:.2f} s | {other:.2f} s |")
    print()
    error_line("Tandem", pairs[0], our_wall)
    error_line("Calculon", pairs[1], wall)
    print()


DIMENSIONS = {"llama3-70b": (8192, 64, 28672), "llama3-405b": (16384, 128, 53248)}
DENSE = re.compile(r"tp(\d+)pp(\d+)")


def simumax_rows(folder):
    """Returns the dense runs of SimuMax's B200 release without context ranks."""
    path = os.path.join(folder, "docs/b200/b200_release_v1.2_summary.json")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    return [r for r in rows if r["model"] in DIMENSIONS and "_cp" not in r["case"]]


def as_published(row):
    """Returns a row of SimuMax's table in the columns of tests/data/published_runs.csv."""
    tp, pp = (int(n) for n in DENSE.match(row["parallel"]).groups())
    width, heads, hidden = DIMENSIONS[row["model"]]
    copies = 8 // tp // pp
    return {"id": row["case"], "source": "SimuMax B200", "model": row["model"],
            "n_layers": row["layer_num"], "d_model": width, "n_heads": heads, "n_kv_heads": 8,
            "d_ff": hidden, "vocab": 128256, "gpu": "B200", "n_gpus": 8, "gpus_per_node": 8,
            "interconnect": "NVSwitch", "framework": "Megatron-Core", "tp": tp, "sp": int(tp > 1),
            "pp": pp, "vp": 1, "cp": 1, "ep": 1, "dp_replicate": copies, "zero_stage": 1,
            "micro_batch": 1, "global_batch_seqs": row["mbc"] * copies, "seq": 4096,
            "precision": "bf16", "ac": "none", "compile": "no",
            "step_time_s": row["real_ms"] / 1e3, "step_time_from": "measured", "split": "peer"}


SIMUMAX = """
import sys
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM
from simumax.utils import get_simu_model_config, get_simu_strategy_config
import time
model, strategy, layers, batches = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
perf = PerfLLM()
how = StrategyConfig.init_from_config_file(get_simu_strategy_config(strategy))
how.micro_batch_num = batches
what = ModelConfig.init_from_config_file(get_simu_model_config(model))
what.layer_num = layers
perf.configure(strategy_config=how, model_config=what,
               system_config=SystemConfig.init_from_config_file("configs/system/b200_bf16_ceperm.json"))
begin = time.process_time()
perf.run_estimate()
perf.analysis_cost()
print("seconds", time.process_time() - begin)
"""


def simumax(build, folder, work):
    """Compares SimuMax's published predictions of its own B200 runs with Tandem's."""
    rows = simumax_rows(folder)
    table = os.path.join(work, "simumax.csv")
    with open(os.path.join(ROOT, "tests/data/published_runs.csv"), encoding="utf-8") as file:
        head = next(csv.reader(file))
    with open(table, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, head, restval="")
        out.writeheader()
        out.writerows(as_published(r) for r in rows)
    ours, wall = predicted(build, table)
    print("## SimuMax: its B200 runs of dense models\n")
    print("| run | measured | Tandem | SimuMax, as published |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['case']} | {row['real_ms']:.0f} ms | {1e3 * ours[row['case']]:.0f} ms | "
              f"{row['perf_ms']:.0f} ms |")
    print()
    error_line("Tandem", [(1e3 * ours[r["case"]], r["real_ms"]) for r in rows], wall)
    errors = [abs(r["perf_ms"] / r["real_ms"] - 1) for r in rows]
    print(f"SimuMax, as published: mean error {100 * sum(errors) / len(errors):.2f} %, largest "
          f"{100 * max(errors):.2f} %.")
    result = subprocess.run([sys.executable, "-c", SIMUMAX, "llama3-70b", "tp2_pp1_dp4_mbs1", "12",
                             "8"], cwd=folder, capture_output=True, text=True, check=False,
                            env={**os.environ,
                                 "PYTHONPATH": f".:{os.environ.get('PYTHONPATH', '')}"})
    found = re.search(r"seconds ([\d.]+)", result.stdout)
    if found:
        print(f"SimuMax takes {1e3 * float(found[1]):.0f} ms of CPU for one of them, in its own process.")
    else:
        print("SimuMax itself was not run: "
              + (result.stderr.strip().splitlines() or ["no output"])[-1])
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--calculon")
    parser.add_argument("--simumax")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    print("# Other simulators on the same cases\n")
    print(f"Load average when it began: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n")
    with tempfile.TemporaryDirectory() as work:
        exchanges(build, work)
        if options.calculon:
            calculon(build, options.calculon)
        else:
            print("Calculon: not run; --calculon names a clone.\n")
        if options.simumax:
            simumax(build, options.simumax, work)
        else:
            print("SimuMax: not run; --simumax names a clone.\n")


main()
