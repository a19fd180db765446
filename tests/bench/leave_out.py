#!/usr/bin/env python3
"""Tests the constants of step times on rows that were not fitted. Each source of dev-cal rows is predicted with a fit to
the other sources, and each GPU with a fit to the other GPUs. Writes the second part of docs/reference/fit.md.

    tests/bench/leave_out.py build/release/tandem RUNS.csv [MORE.csv]
    tests/bench/leave_out.py build/release/tandem --only-more MORE.csv

MORE is the second table. Its parameters are the sustained fraction of Blackwell's peak, which is only reported, and
Megatron-Core's host times. If a table is not given, its lines in the report stay.

Rows, grids and the search are those of fit_runs.py. A GPU's sustained part is fitted to the other rows of its architecture.
If there are none, the other architecture's part is used. Host times are fitted to the other rows of the profile. If there
are none, the host times of a related profile are used (RELATIVE)."""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

import fit_runs as fit

REPORT = os.path.join(fit.ROOT, "docs/reference/fit.md")
MARK = "\n## Without a source, without a GPU\n"
RELATIVE = {"fsdp1": "torchtitan", "torchtitan": "fsdp1", "megatron": "torchtitan", "megatron2022": "megatron",
            "megatron_core": "megatron"}
EVERY_SMALL = 5  # every Nth small Megatron-Core run: each fit predicts the runs of all other GPUs many times
ARCHS = {"A100": "Ampere", "H100": "Hopper"}


class Predictions:
    """Ratios of rows under settings. Each is predicted once."""

    def __init__(self, tandem, head):
        self.tandem, self.head, self.known = tandem, head, {}

    def ratios(self, rows, sets):
        key = tuple(sorted(sets.items()))
        missing = [r for r in rows if (r[0], key) not in self.known]
        if missing:
            with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as f:
                csv.writer(f).writerows([self.head] + missing)
            command = [self.tandem, "accuracy", "--runs", f.name, "--json", "--jobs", "2"]
            for name, value in sets.items():
                command += ["--set", f"{name}={value:.9g}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            os.unlink(f.name)
            self.known.update({(r[0], key): None for r in missing})
            for s in json.loads(done.stdout)["runs"]["scores"]:
                if s["what"].startswith("step time"):
                    self.known[s["row"], key] = s["predicted"] / s["measured"]
        found = [self.known[r[0], key] for r in rows]
        return [ratio for ratio in found if ratio is not None]


def main():
    args = sys.argv[1:]
    if len(args) < 2:
        sys.exit(__doc__)
    with open(os.path.join(fit.ROOT, "scripts/tandem/fitted.lua")) as f:
        old = f.read()
    lines = [] if args[1] == "--only-more" else first_table(args[0], args[1], old)
    if len(args) > 2:
        lines += second_table(args[0], args[2], old)
    write_report(lines)


class Second:
    """The rows of the second table to which constants are fitted, and the fits to a part of them."""

    def __init__(self, tandem, path, old):
        self.table = fit.Table(path)
        self.predictions = Predictions(tandem, self.table.head)
        self.old = old
        self.lines, self.errors = [], []

    def least(self, rows, grids, start, prefix):
        """Returns the constants with the least error on these rows."""
        def evaluate(values):
            return fit.loss(self.predictions.ratios(rows, {prefix + key: v for key, v in values.items()}))
        return {prefix + key: v for key, v in fit.descend(evaluate, grids, start)[0].items()}

    def line(self, label, gone, sets):
        inside = sorted(abs(r - 1) for r in self.predictions.ratios(gone, {}))
        outside = sorted(abs(r - 1) for r in self.predictions.ratios(gone, sets))
        if not inside:
            return
        self.lines.append(f"| {label} | {len(inside)} | {middle(inside):.1%} | {tenth(inside):.1%} | {middle(outside):.1%} | "
                          f"{tenth(outside):.1%} |")
        print(self.lines[-1], flush=True)
        if not label.startswith("GPU"):
            self.errors += outside

    def groups(self, rows, name_of):
        found = {}
        for r in rows:
            found.setdefault(name_of(r[self.table.at["gpu"]]), []).append(r)
        return sorted(found.items())


def chip(gpu):
    """Returns one name for a chip, with any memory that a row states."""
    inside = re.search(r"^NVIDIA Blackwell.*\((\w+)", gpu)
    return re.split(r"[-_ ]", inside.group(1) if inside else gpu)[0]


def second_table(tandem, path, old):
    s = Second(tandem, path, old)
    hopper = float(re.search(r"Hopper = ([0-9.]+)", old).group(1))
    for label, gpu in fit.MORE_DEVICES:
        rows = s.table.large(gpu)
        for name, gone in s.groups(rows, chip):
            left = [r for r in rows if r not in gone]
            s.line(f"GPU {name}, large models{fit.note(label)}", gone,
                   s.least(left, {"sustained": fit.SUSTAINED}, {"sustained": hopper}, "cluster.device."))
        if label not in fit.ONLY_REPORTED:
            s.line("large models on " + label, rows, {"cluster.device.sustained": hopper})
    name, framework, grids = next(p for p in fit.PROFILES if p[0] == "megatron_core")
    rows = s.table.small_megatron(framework)
    rows = rows[::EVERY_SMALL]
    now = fit.kept(old, name)
    start = {key: now.get(key, grid[len(grid) // 2]) for key, grid in grids.items()}
    for chip_name, gone in s.groups(rows, chip):
        left = [r for r in rows if r not in gone]
        if left:
            s.line("GPU " + chip_name + ", small Megatron-Core runs", gone, s.least(left, grids, start, "runtime."))
    relative = fit.kept(old, RELATIVE[name])
    s.line("Megatron-LM functional tests, small runs", rows, {f"runtime.{k}": relative[k] for k in grids if k in relative})
    return s.lines


def write_report(lines):
    """Keeps the lines of rows that were not predicted this time."""
    with open(REPORT) as f:
        before, _, after = f.read().partition(MARK)
    rows = after.partition(TABLE)[2]
    kept = {line.split("|")[1]: line for line in rows.splitlines() if line.startswith("| ")}
    kept.update({line.split("|")[1]: line for line in lines})
    with open(REPORT, "w") as f:
        f.write(before + MARK + TEXT + TABLE + "\n".join(kept.values()) + "\n")


def first_table(tandem, path, old):
    with open(path, newline="") as f:
        table = list(csv.reader(f))
    head, at = table[0], {name: i for i, name in enumerate(table[0])}
    assert head[0] == "id"
    cal = [r for r in table[1:] if r[at["split"]] == "dev-cal"]
    limited_now = float(re.search(r"H100_at_500_W = ([0-9.]+)", old).group(1))
    now = {arch: float(re.search(rf"{arch} = ([0-9.]+)", old).group(1)) for arch in ARCHS.values()}
    host = {name: fit.kept(old, name) for name, _, _ in fit.PROFILES}
    rows = {name: [] if name in fit.IN_MORE else fit.rows_for(cal, at, framework) for name, framework, _ in fit.PROFILES}
    profile_of = {r[0]: name for name, found in rows.items() for r in found}
    every = [r for found in rows.values() for r in found]
    steady = [r for name, found in rows.items() if name != "megatron2022" for r in found]
    predictions = Predictions(tandem, head)

    def arch_of(row):
        return next((arch for gpu, arch in ARCHS.items() if row[at["gpu"]].startswith(gpu)), "Hopper")

    def lasts(row, of_arch, knows_limit):
        limited = row[at["gpu"]].startswith("H100-96GB")
        return limited_now if limited and knows_limit else of_arch

    def settings(row, of_arch, knows_limit, times):
        sets = {"cluster.device.sustained": lasts(row, of_arch, knows_limit)}
        return dict(sets, **{f"runtime.{k}": v for k, v in times.items()})

    def ratios(subset, of_arch, knows_limit, times_of):
        out = []
        for r in subset:
            out += predictions.ratios([r], settings(r, of_arch[arch_of(r)], knows_limit, times_of[profile_of[r[0]]]))
        return out

    def batch(subset, of_arch, knows_limit, times_of):
        """Does the same with one command for each kind of settings instead of one for each row."""
        kinds = {}
        for r in subset:
            sets = settings(r, of_arch[arch_of(r)], knows_limit, times_of[profile_of[r[0]]])
            kinds.setdefault(tuple(sorted(sets.items())), []).append(r)
        for sets, kind in kinds.items():
            predictions.ratios(kind, dict(sets))
        return ratios(subset, of_arch, knows_limit, times_of)

    def without(gone):
        """Returns the constants of a fit to all other rows."""
        left = [r for r in steady if r not in gone]
        of_arch, times_of = dict(now), {name: dict(times) for name, times in host.items()}
        archs = {arch_of(r) for r in gone}
        knows_limit = any(r[at["gpu"]].startswith("H100-96GB") for r in left)
        for arch in archs:
            own = [r for r in left if arch_of(r) == arch]
            if own:
                found, _ = fit.descend(lambda v: fit.loss(batch(own, dict(of_arch, **{arch: v["s"]}), knows_limit, times_of)),
                                       {"s": fit.SUSTAINED}, {"s": now[arch]})
                of_arch[arch] = found["s"]
            else:
                of_arch[arch] = next(v for k, v in now.items() if k != arch)
        for name, _, grids in fit.PROFILES:
            mine = [r for r in rows[name] if r not in gone]
            if len(mine) == len(rows[name]):
                continue
            if not mine:
                times_of[name] = dict(host[RELATIVE[name]])
                continue
            start = {key: host[name].get(key, grid[len(grid) // 2]) for key, grid in grids.items()}

            def evaluate(values):
                return fit.loss(batch(mine, of_arch, knows_limit, dict(times_of, **{name: dict(host[name], **values)})))

            best, _ = fit.descend(evaluate, grids, start)
            times_of[name] = dict(host[name], **best)
        return of_arch, knows_limit, times_of

    def line(label, gone):
        inside = sorted(abs(r - 1) for r in batch(gone, now, True, host))
        outside = sorted(abs(r - 1) for r in batch(gone, *without(gone)))
        if not inside:
            return None
        text = (f"| {label} | {len(inside)} | {middle(inside):.1%} | {tenth(inside):.1%} | {middle(outside):.1%} | "
                f"{tenth(outside):.1%} |")
        print(text, flush=True)
        return text, outside

    lines, errors = [], []
    for source in sorted({r[at["source"]] for r in every}):
        done = line(source, [r for r in every if r[at["source"]] == source])
        if done:
            lines.append(done[0])
            errors += done[1]
    errors.sort()
    lines.append(f"| all, each without its source | {len(errors)} | | | {middle(errors):.1%} | {tenth(errors):.1%} |")
    gpus = sorted({r[at["gpu"]] for r in steady})
    for gpu in gpus:
        done = line("GPU " + gpu, [r for r in steady if r[at["gpu"]] == gpu])
        if done:
            lines.append(done[0])
    return lines


TEXT = f"""
Written by `tests/bench/leave_out.py`. Each source, and each GPU, is left out in turn. The table has the
errors of step times of its rows: with all constants, and with constants that were fitted without it.
Of the second table's small Megatron-Core runs, every {EVERY_SMALL}th is used.

If all rows of a profile are left out, it takes the host times of another profile:

| profile | takes the host times of |
|---|---|
{"".join(f"| {name} | {other} |" + chr(10) for name, other in RELATIVE.items())}
An architecture without rows takes the sustained fraction of the other one. Without rows at 500 W, a
power limit changes nothing.

Rows marked "not used" are on Blackwell, which takes Hopper's sustained fraction. Their first two errors
are those of the library. The last two come from a fit to the other GPUs of Blackwell.

"""
TABLE = """| without | rows | in the fit: median | ninth decile | without it: median | ninth decile |
|---|---|---|---|---|---|
"""


def middle(errors):
    return (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2


def tenth(errors):
    place = 0.9 * (len(errors) - 1)
    low = int(place)
    return errors[low] + (place - low) * (errors[min(low + 1, len(errors) - 1)] - errors[low])


if __name__ == "__main__":
    main()
