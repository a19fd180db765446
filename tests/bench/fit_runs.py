#!/usr/bin/env python3
"""Fits the constants of step times to the dev-cal rows of a table of published runs. It predicts them by `tandem accuracy
--set`, and writes scripts/tandem/fitted.lua and the report docs/reference/fit.md. Rows of other splits are dropped before
anything is predicted. The fit changes one parameter at a time, along a fixed grid, as long as the error falls. It goes
through all parameters twice. The error is the mean of |ln(predicted / measured)|, so a single bad row has little effect.

    tests/bench/fit_runs.py build/release/tandem RUNS.csv [MORE.csv] [--only NAME...]

MORE is the second table. Without it, the constants that come from it stay as they are. --only fits only the named parameters
("Blackwell", "megatron_core", "hosts"). If a framework has many rows, every Nth row is used (EVERY)."""
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
US = 1e-6
# For each profile: the beginning of the cell `framework` of its rows, and for each parameter the --set key and the grid.
HOST = [u * US for u in (2, 4, 6, 8, 11, 15, 20, 26, 33)]
COMM = [u * US for u in (10, 20, 40, 80, 150)]
UNIT = [50 * US, 150 * US, 300 * US, 600 * US, 1000 * US]
STEP = [1e-3, 5e-3, 10e-3, 20e-3, 40e-3, 80e-3]
SUSTAINED = [0.60, 0.64, 0.68, 0.72, 0.75, 0.78, 0.81, 0.84, 0.87, 0.90, 0.93, 0.96, 1.0]
PROFILES = [
    ("fsdp1", "composer", {"kernel_s": HOST, "collective_s": COMM, "unit_s": UNIT, "step_s": STEP}),
    ("torchtitan", "torchtitan", {"kernel_s": HOST, "compiled_s": HOST, "tensor_s": [0] + COMM}),
    ("megatron", "NeMo", {"kernel_s": HOST, "collective_s": COMM}),
    ("megatron2022", "Megatron-DeepSpeed", {"kernel_s": HOST, "collective_s": COMM, "step_s": STEP}),
    ("megatron_core", "Megatron-Core", {
        "kernel_s": [u * US for u in (40, 50, 56, 60, 63, 66, 70, 80, 100)], "call_s": [u * US for u in (2, 4, 6, 8, 11, 15, 20)],
        "collective_s": [u * US for u in (7, 15, 30, 60, 120)],
        "tensor_s": [u * US for u in (0, 15, 22, 30, 40, 60)], "message_s": [u * US for u in (100, 250, 500, 700, 900, 1400)],
        "pass_s": [u * US for u in (0, 200, 360, 600, 900, 1500)], "step_s": [u * 1e-3 for u in (5, 10, 18, 25, 35)]}),
    ("megatron_core_single", "Megatron-Core", {"message_s": [u * US for u in (100, 200, 300, 400, 500, 600, 700, 900)]}),
]
# For each CPU: the beginning of the cell `gpu` of rows on systems with this CPU. The 8480C of DGX H100 has the factor 1.
CPUS = [("epyc_7742", "A100"), ("grace", "GB200")]
FACTORS = [1 + 0.04 * i for i in range(-8, 26)]
# Profiles whose rows are in the second table.
IN_MORE = ("megatron_core", "megatron_core_single")
# GPUs whose sustained part of the peak is fitted, with the beginning of the cell `gpu`. Rows of all profiles are used except
# vTrain's, whose steps the host determines.
DEVICES = [("Hopper", "H100-SXM"), ("Ampere", "A100"), ("H100_at_500_W", "H100-96GB")]
# The same, fitted to runs of large models in the second table whose precision is stated. It is only reported, because its
# rows have one source, and the other rows on Blackwell get worse with its value (docs/explanation/accuracy.md).
MORE_DEVICES = [("Blackwell", "NVIDIA Blackwell")]
ONLY_REPORTED = ("Blackwell",)
MOST_GPUS = 64  # largest number of GPUs: the step of a larger run depends more on the network
# The power of the cores without products, relative to their power in large products. Rows with many sequence lengths are
# needed to separate attention from products.
LIGHT = [1.0, 0.3, 0.1]
LEAST_GAIN = 1e-3  # a parameter that lowers the error by less keeps its value
EVERY = {"composer": 12, "NeMo": 4, "Megatron-DeepSpeed": 96}
KEY = "cluster.device.sustained"
EVERY_DEVICE = {"composer": 4, "NeMo": 2}  # ... for the parts of a GPU's peak


def note(label):
    return ", not used" if label in ONLY_REPORTED else ""


def predictions(tandem, rows, head, sets):
    """Returns {row: (GPU, predicted, predicted / measured)} of step times."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as f:
        csv.writer(f).writerows([head] + rows)
    command = [tandem, "accuracy", "--runs", f.name, "--json", "--jobs", "2"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value:.9g}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    os.unlink(f.name)
    scores = json.loads(done.stdout)["runs"]["scores"]
    return {s["row"]: (s["gpu"], s["predicted"], s["predicted"] / s["measured"])
            for s in scores if s["what"].startswith("step time")}


class Predictor:
    """Ratios of the rows under any constants. Repeated runs of a configuration have the same plan. So after the first
    prediction, only one of the rows with equal predictions is predicted again."""

    def __init__(self, tandem, rows, head):
        self.tandem, self.rows, self.head, self.like = tandem, rows, head, None

    def __call__(self, sets):
        found = predictions(self.tandem, self.rows, self.head, sets)
        for _ in range(3):  # on a busy machine a script can run out of time
            missing = [r for r in self.rows if r[self.head.index("id")] not in found]
            if not missing:
                break
            found.update(predictions(self.tandem, missing, self.head, sets))
        if self.like is None:
            first = {}
            self.like = [(first.setdefault((gpu, predicted), row), predicted / ratio)
                         for row, (gpu, predicted, ratio) in found.items()]
            used = set(first.values())
            self.rows = [r for r in self.rows if r[self.head.index("id")] in used]
        return [found[row][1] / measured for row, measured in self.like]


def loss(ratios):
    return sum(abs(math.log(r)) for r in ratios) / len(ratios) if ratios else 0.0


def descend(evaluate, grids, start):
    best = dict(start)
    least = evaluate(best)
    for _ in range(2):
        before = dict(best)
        for key, grid in grids.items():
            at = min(range(len(grid)), key=lambda i: abs(grid[i] - best[key]))
            for step in (1, -1):  # walk while the error falls
                i = at + step
                while 0 <= i < len(grid):
                    now = evaluate(dict(best, **{key: grid[i]}))
                    if now >= least - LEAST_GAIN:
                        break
                    least, best = now, dict(best, **{key: grid[i]})
                    i += step
        if best == before:
            break
    return best, least


def rows_for(cal, at, framework, gpu="", every=None):
    """Returns the rows to which a profile is fitted."""
    found = [r for r in cal if r[at["framework"]].startswith(framework) and r[at["gpu"]].startswith(gpu)]
    # If a row with a pipeline does not state the number of stages of a rank, it may have had several.
    found = [r for r in found if r[at["pp"]] in ("", "1") or r[at["vp"]] != ""]
    return found[:: (every or EVERY).get(framework, 1)]


class Table:
    """Returns the dev-cal rows of a table; an empty list without a path."""

    def __init__(self, path):
        self.head, self.cal, self.at = [], [], {}
        if path is None:
            return
        with open(path, newline="") as f:
            table = list(csv.reader(f))
        self.head, self.at = table[0], {name: i for i, name in enumerate(table[0])}
        self.cal = [r for r in table[1:] if r[self.at["split"]] == "dev-cal"]

    def rows(self, framework, gpu="", every=None):
        return rows_for(self.cal, self.at, framework, gpu, every)

    def steady(self, gpu):
        """Returns the rows whose steps the device determines. Rows with cp are left out, because PyTorch
        calls attention once for each rank, and that is not modelled."""
        return [r for name, framework, _ in PROFILES if name not in ("megatron2022",) + IN_MORE
                for r in self.rows(framework, gpu, EVERY_DEVICE) if r[self.at["cp"]] in ("", "1")]

    def small_megatron(self, framework):
        """Returns the runs of 12 layers of width 512. The host determines their steps, and repeated runs agree. They
        may be on any CPU, because each CPU has a factor (scripts/tandem/gpus.lua). Runs on one tray of GB200 are left
        out: they wait for their loader."""
        at, found = self.at, []
        for r in self.cal:
            small = (r[at["n_layers"]], r[at["d_model"]]) == ("12", "512")
            tray = r[at["gpu"]].startswith("GB200") and r[at["n_gpus"]] == "4"
            if r[at["framework"]].startswith(framework) and small and r[at["flag"]] == "" and not tray:
                found.append(r)
        return found

    def large(self, gpu):
        at = self.at
        return [r for r in self.cal if r[at["gpu"]].startswith(gpu) and r[at["precision"]] == "fp8" and
                0 < int(r[at["n_gpus"]] or 0) <= MOST_GPUS and int(r[at["d_model"]] or 0) >= 4096]


# A script that ends with the ids of the rows that published/releases.lua takes for senders of single messages.
SINGLY = """local releases = require "tandem.published.releases"
local found = {}
for _, row in ipairs { %s } do
  if releases.sends_singly(row) then found[#found + 1] = row.id end
end
error("singly: " .. table.concat(found, " "), 0)
"""


def single_senders(tandem, table, rows):
    """Returns the ids of the rows whose stages send single messages, as tandem itself reads them."""
    columns = [c for c in ("id", "framework", "vp", "flag", "notes", "pp_schedule") if c in table.at]
    cells = ["{" + ", ".join(f"{c} = [==[{r[table.at[c]]}]==]" for c in columns) + "}" for r in rows]
    with tempfile.NamedTemporaryFile("w", suffix=".lua", delete=False) as f:
        f.write(SINGLY % ", ".join(cells))
    done = subprocess.run([tandem, "show", f.name, "--db", "none"], capture_output=True, text=True)
    os.unlink(f.name)
    return set(re.search(r"singly: ([^\n]*)", done.stdout + done.stderr).group(1).split())


def old_value(old, block, key, default):
    line = re.search(rf"{block} = {{([^}}]*)}}", old)
    found = re.search(rf"\b{key} = ([0-9.e-]+)", line.group(1)) if line else None
    return float(found.group(1)) if found else default


def fit_devices(tandem, runs, more, old, wanted):
    """Returns the sustained part of each architecture's peak, the parts of power, and lines of the report."""
    report, sustained, light = [], kept(old, "sustained"), kept(old, "light")
    todo = [(label, runs, runs.steady(gpu)) for label, gpu in DEVICES]
    todo += [(label, more, more.large(gpu)) for label, gpu in MORE_DEVICES]
    for label, table, own in todo:
        if not own or not wanted(label):
            continue
        predict = Predictor(tandem, own, table.head)
        # Both numbers have nearly the same effect on many rows, so that a search along one of them stops too early.
        tried = []
        for part in LIGHT if label in light else [light["Hopper"]]:
            best, least = descend(lambda v: loss(predict({"cluster.device.light_power": part, **v})), {KEY: SUSTAINED},
                                  {KEY: sustained.get(label, sustained["Hopper"])})
            tried.append((least, part, best[KEY]))
        least, part, lasts = min(tried)
        both = f", without products {part:g} of the power" if label in light else ""
        report.append(f"| sustained fraction: {label}{note(label)} | {len(own)} | {lasts:g}{both} | {math.expm1(least):.1%} |")
        if label in light:
            light[label] = part
        if label not in ONLY_REPORTED:
            sustained[label] = lasts
        print(report[-1], flush=True)
    return sustained, light, report


def fit_profile(tandem, table, rows, name, grids, old):
    start = {key: old_value(old, name, key, grid[len(grid) // 2]) for key, grid in grids.items()}

    predict = Predictor(tandem, rows, table.head)

    def evaluate(values):
        return loss(predict({f"runtime.{k}": v for k, v in values.items()}))

    before = evaluate(start)
    best, least = descend(evaluate, grids, start)
    text = ", ".join(f"{k} {v * 1e6:g} us" for k, v in best.items())
    line = f"| {name} | {len(rows)} | {text} | {math.expm1(before):.1%} -> {math.expm1(least):.1%} |"
    print(line, flush=True)
    return dict(kept(old, name), **best), line


def fit_hosts(tandem, table, old):
    """Fits how much longer each CPU takes than an 8480C, with the constants that the file has now."""
    hosts, report = kept(old, "hosts"), []
    for name, gpu in CPUS:
        rows = [r for r in table.small_megatron("Megatron-Core") if r[table.at["gpu"]].startswith(gpu)]
        predict = Predictor(tandem, rows, table.head)
        best, least = descend(lambda v: loss(predict({"runtime.host_factor": v["f"]})), {"f": FACTORS},
                              {"f": min(FACTORS, key=lambda f: abs(f - hosts[name]))})
        hosts[name] = best["f"]
        report.append(f"| CPU: {name} ({gpu}'s rows) | {len(rows)} | {best['f']:.3g} | {math.expm1(least):.1%} |")
        print(report[-1], flush=True)
    return hosts, report


def main():
    names = sys.argv[sys.argv.index("--only") + 1:] if "--only" in sys.argv else []
    paths = sys.argv[2:sys.argv.index("--only")] if names else sys.argv[2:]
    tandem, runs, more = sys.argv[1], Table(paths[0]), Table(paths[1] if len(paths) > 1 else None)
    with open(os.path.join(ROOT, "scripts/tandem/fitted.lua")) as f:
        old = f.read()

    def wanted(name):
        return not names or name in names

    sustained, light, report = fit_devices(tandem, runs, more, old, wanted)
    fitted, hosts = {}, kept(old, "hosts")
    write(fitted, sustained, light, hosts, old)  # the later steps use it
    for name, framework, grids in PROFILES:
        table = more if name in IN_MORE else runs
        rows = table.small_megatron(framework) if name in IN_MORE else table.rows(framework)
        if name in IN_MORE:
            single = single_senders(tandem, table, rows)
            rows = [r for r in rows if (r[table.at["id"]] in single) == (name == "megatron_core_single")]
        if not rows or not wanted(name):
            continue
        fitted[name], line = fit_profile(tandem, table, rows, name, grids, old)
        report.append(line)
        write(fitted, sustained, light, hosts, old)
    if more.cal and wanted("hosts"):
        hosts, lines = fit_hosts(tandem, more, old)
        report += lines
        write(fitted, sustained, light, hosts, old)
    write_report(report)


def write_report(report):
    """Keeps the lines of parameters that were not fitted this time."""
    path = os.path.join(ROOT, "docs/reference/fit.md")
    with open(path) as f:
        before, mark, after = f.read().partition("\n## ")  # leave_out.py writes what follows
    lines = {line.split("|")[1]: line for line in before.splitlines() if line.startswith("| ") and "---" not in line}
    lines.pop(" parameter ", None)
    lines.update({line.split("|")[1]: line for line in report})
    with open(path, "w") as f:
        f.write("# What was fitted\n\nWritten by `tests/bench/fit_runs.py` from the rows marked dev-cal of the tables of\n"
                "published runs (every 12th row of llm-foundry, every 4th of NeMo, every 96th of vTrain's single-node\n"
                "runs; for fractions every 4th of llm-foundry and every 2nd of NeMo, without cp; of the second\n"
                "table the small Megatron-Core runs, and runs of large models on\n"
                "Blackwell). The error is the mean of |ln(predicted / measured)| of step times, as a percentage.\n"
                "\n| parameter | rows | value | error |\n|---|---|---|---|\n")
        f.write("\n".join(lines.values()) + "\n" + mark + after)


def kept(old, name):
    """Returns the numbers that the file has for this profile and that are not fitted."""
    line = re.search(rf"  {name} = {{([^}}]*)}}", old)
    return {k: float(v) for k, v in re.findall(r"(\w+) = ([0-9.e-]+)", line.group(1))} if line else {}


def write(fitted, sustained, light, hosts, old):
    lines = ["-- Written by tests/bench/fit_runs.py, only from rows marked dev-cal; docs/reference/fit.md is its report.", "return {",
             "  -- kind: fitted; dev-cal rows by framework and GPU, as docs/reference/fit.md lists them",
             "  -- the fraction of their rate in short measurements that large products keep in a long run; by architecture, or for one GPU",
             "  sustained = { %s }," % ", ".join(f"{k} = {v:g}" for k, v in sorted(sustained.items())),
             "  -- the power that a GPU's cores draw in other kernels, as a fraction of their power in large products (sim/compute/power.c)",
             "  light = { %s }," % ", ".join(f"{k} = {v:g}" for k, v in sorted(light.items())),
             "  -- a CPU's time to issue an op, relative to the Xeon 8480C of a DGX H100. epyc_7742 is the CPU of a DGX A100",
             "  hosts = { %s }," % ", ".join(f"{k} = {v:.3g}" for k, v in hosts.items()),
             "  -- the host times of each profile in seconds (docs/reference/plan.md, runtime, explains the keys)"]
    for name, _, _ in PROFILES:
        if name in fitted:
            values = ", ".join(f"{k} = {v:g}" for k, v in fitted[name].items())
            lines.append(f"  {name} = {{ {values} }},")
        else:
            lines += [line for line in old.splitlines() if line.startswith(f"  {name} = ")]
    with open(os.path.join(ROOT, "scripts/tandem/fitted.lua"), "w") as f:
        f.write("\n".join(lines + ["}", ""]))


if __name__ == "__main__":
    main()
