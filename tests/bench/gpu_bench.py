"""gpu_bench.py BUILD [--ours | --torch] [--out FOLDER] [PLAN...]: measures training steps of scripts/plans/one_gpu on this
machine's GPU, and the same steps in PyTorch.

It prints a short table, and writes gpu-bench.json into FOLDER (default: BUILD). The table has predicted and measured steps,
the part of the ceilings that kernels reach (the ceilings are measured first), and the verdict on each target: met, missed
or not measured. A step's time is the median of three steps after two that warm up, on both sides. Our traced step is not
among them. Predictions are made before anything is measured, with a new store.

Our measurements come first, PyTorch's after them. --ours measures only ours. --torch measures only PyTorch's, and adds
them to the rows that gpu-bench.json has already. A plan that the device cannot hold is skipped and reported.

It takes about 8 minutes. After --limit SECONDS (default: LIMIT_S) at the latest, programs are killed. A plan for which no time is left is left out
and reported. Exit code 1: a plan did not run, or its loss did not fall. 6: there is no GPU here."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

from gpu_judge import THROUGHPUT, Deadline, busy, exit_code, finite, fractions, judge, ran, too_large_for, torch_exit_code

PLANS = ["gpt2_124m", "gpt2_1_5b", "llama_1b", "llama_8b", "llama_8b_fp8", "llama_8b_bf16"]
LIMIT_S, LEAST_S, CHILD_S = 480, 15, 240
STEPS = 6  # two steps warm up and one is traced: three are left, as many as PyTorch's
NO_TORCH = {"llama_8b_fp8": "no comparison: PyTorch has no 8-bit linear of its own, and torchao is not used"}


def refuse(out, why):
    print("gpu-bench: not run: " + why, file=sys.stderr)
    with open(os.path.join(out, "gpu-bench.json"), "w") as f:
        json.dump({"schema": "tandem.gpu-bench/1", "run": False, "why": why}, f)  # nothing else is known
    sys.exit(6)


def kill_with_children(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def output(deadline, *command):
    limit = deadline.allow(CHILD_S)
    if limit < 1:
        return None, "left out: the time is up"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        kill_with_children(process)
        process.wait()
        process.stdout.close()
        process.stderr.close()
        return None, "ended after %.0f s" % limit
    if process.returncode == 0:
        return out, err.strip()
    return None, told_error(out, err) or "it ended with code %d" % process.returncode


def told_error(out, err):
    """Returns the first error among a document's diagnostics, otherwise the first error line of standard error."""
    try:
        errors = [d for d in json.loads(out)["diagnostics"] if d["severity"] == "error"]
        return "%s: %s" % (errors[0]["rule"], errors[0]["text"])
    except (KeyError, IndexError, TypeError, ValueError):
        lines = [line for line in err.strip().split("\n") if line.strip()]
        return next((line for line in lines if "rror" in line), lines[-1] if lines else "")


def document(deadline, *command):
    """Returns the JSON document: the whole output, or its last line, because libraries may print before it."""
    text, why = output(deadline, *command)
    for part in (text, (text or "").strip().split("\n")[-1]):
        try:
            found = json.loads(part)
            if isinstance(found, dict):
                return found, ""
        except (TypeError, ValueError):
            pass
    return None, why.split("\n")[0] if why else "it printed no JSON"


def find_gpu(build, out, tandem, deadline):
    if not os.path.exists(os.path.join(build, "tandem_cuda.so")):
        refuse(out, "there is no tandem_cuda.so: build where nvcc, cuBLAS and NCCL are installed")
    found, why = document(deadline, tandem, "doctor", "--json")
    rows = found["findings"] if found else []
    if not any(r["name"].startswith("gpu ") and r["state"] == "ok" for r in rows):
        told = [r["text"] for r in rows if r["name"] in ("gpu", "driver", "cuda") and r["state"] != "ok"]
        refuse(out, told[-1] if told else why or "no GPU")
    return next(r["text"] for r in rows if r["name"].startswith("gpu "))


def torch_of(source, plan, batch, deadline):
    if plan in NO_TORCH:
        return {"run": False, "why": NO_TORCH[plan]}
    torch, why = document(
        deadline, sys.executable, os.path.join(source, "tests/bench/gpu_torch.py"), plan, "--micro",
        str(batch["micro"]), "--seq", str(batch["seq"]), "--microbatches", str(batch["global"] // batch["micro"]),
        "--steps", str(STEPS - 1))
    return torch or {"run": False, "why": why}


def batch_of(path):
    with open(path) as f:
        return {k: int(v) for k, v in re.findall(r"(global|micro|seq) = (\d+)", f.read())}


def measure(row, path, tandem, db, ceilings, settings, deadline):
    sim, why = document(deadline, tandem, "sim", path, "--db", db, "--json", "--quiet", *settings)
    too_large = sim and too_large_for(ceilings.get("device_bytes"), sim)
    if too_large:
        row["skipped"] = too_large
        return
    run, why = document(deadline, tandem, "run", path, "--backend", "cuda", "--db", db, "--steps", str(STEPS),
                        *settings, "--set", "optimizer.warmup_steps=1",  # so that few steps can learn
                        "--json", "--quiet")
    if run is None:
        row["why"] = why
        return
    batch = batch_of(path)
    row["steps"], row["predicted_s"] = run["steps"], run["predicted_step_ps"] / 1e12
    row["calibrated"] = not any(d["rule"] == "not-calibrated" for d in run["diagnostics"])
    row["first_loss"], row["last_loss"] = run["first_loss"], run["last_loss"]
    row["tokens_per_s"] = batch["global"] * batch["seq"] * 1e12 / run["step_ps"]
    row["arena_bytes"], row["written_bytes"] = run["arena_bytes"], run["written_bytes"]
    row["touched_bytes"], row["outside_bytes"] = run["highest_byte_touched"], run["outside_bytes"]
    row["total_bytes"] = run["arena_bytes"] + run["outside_bytes"]
    row["step_s"] = run["step_ps"] / 1e12  # from here on, the plan has run
    why = busy(ceilings.get("held_bytes"))
    if why:
        row["why_no_memory"] = why
    compared, _ = document(deadline, tandem, "compare", "--db", db, "--json")
    if compared:
        row["fractions"] = fractions(compared["ops"], ceilings)
    if sim:
        row["predicted_total_bytes"] = sim["peak_bytes"] + sim["reserved_bytes"]
        row["predicted_outside_bytes"] = sim["peak_bytes"] + sim["reserved_bytes"] - run["arena_bytes"]
    if sim and sim.get("mfu"):  # of the model's arithmetic, which is the same however long a step takes
        row["mfu"] = sim["mfu"] * sim["step_ps"] / 1e12 / row["step_s"]


def settings_of(gpu):
    """Returns the settings for this GPU. The plans name an H200; for another GPU, the driver's name contains the name."""
    found = re.search(r"\b(H100|H200|H800|H20|B200|B300|GB200|GB300|A100)\b", gpu)
    if not found or re.search(r"PCIe|NVL", gpu):
        return []
    return ["--set", "gpu=" + found.group(1)]


def plan_path(source, plan):
    return os.path.join(source, "scripts/plans/one_gpu", plan + ".lua")


def bench(tandem, source, out, plan, ceilings, settings, deadline):
    """Measures a plan. If our command fails, there is a row, too, and the next plan follows."""
    row = {"plan": plan}
    try:
        measure(row, plan_path(source, plan), tandem, os.path.join(out, "gpu-bench.db"), ceilings, settings,
                deadline)
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        row = {"plan": plan, "why": "what it printed is not as expected: %s: %s" % (type(error).__name__, error)}
    return row


def bench_ours(tandem, source, out, plans, ceilings, settings, deadline):
    for old in (".db", ".db-wal", ".db-shm"):
        if os.path.exists(os.path.join(out, "gpu-bench" + old)):
            os.remove(os.path.join(out, "gpu-bench" + old))
    rows = []
    for plan in plans:
        if deadline.left() < LEAST_S:
            rows.append({"plan": plan, "why": "left out: the time is up"})
        else:
            rows.append(bench(tandem, source, out, plan, ceilings, settings, deadline))
        print(show(rows[-1]), flush=True)
        if rows[-1].get("fractions"):
            print("               " + ", ".join(
                "%s %.0f %%" % (k, 100 * v) for k, v in rows[-1]["fractions"].items()), "of the ceiling")
    return rows


def bench_torch(source, rows, deadline):
    """Measures PyTorch's side, after all of ours. Plans that a target names come first."""
    named = [base for _, base, _, _ in THROUGHPUT]
    for row in sorted(rows, key=lambda row: row["plan"] not in named):
        if "skipped" not in row:
            batch = batch_of(plan_path(source, row["plan"]))
            row["torch"] = torch_of(source, row["plan"], batch, deadline)
            print("%-14s %s" % (row["plan"], show_torch(row)), flush=True)


def show_torch(row):
    torch = row.get("torch")
    if torch is None:
        return ""
    if not torch["run"]:
        return "torch   (%s)" % torch["why"]
    ratio = "  x %.2f" % (row["tokens_per_s"] / torch["tokens_per_s"]) if ran(row) else ""
    return "torch %9.0f%s" % (torch["tokens_per_s"], ratio)


def show(row):
    if not ran(row):
        return "%-14s %s" % (row["plan"], "skipped: " + row["skipped"] if "skipped" in row else row["why"])
    outside = "%.0f MiB" % (row["outside_bytes"] / 2**20)
    if "predicted_outside_bytes" in row:
        outside += ", predicted %.0f" % (row["predicted_outside_bytes"] / 2**20)
    return "%-14s %9.0f tok/s  MFU %4.1f %%  step %6.3f s, predicted %6.3f (%+.1f %%)  %5.1f GiB (outside %s)  %s" % (
        row["plan"], row["tokens_per_s"], 100 * row.get("mfu", 0), row["step_s"], row["predicted_s"],
        100 * (row["predicted_s"] / row["step_s"] - 1), row["total_bytes"] / 2**30, outside, show_torch(row))


def show_ceilings(ceilings):
    eight = ", 8-bit %.0f" % (ceilings["flops_fp8"] / 1e12) if ceilings.get("flops_fp8") else ""
    print("ceilings       copies %.0f GB/s, products in TFLOP/s: bf16 %.0f%s" % (
        ceilings["bytes"] / 1e9, ceilings["flops"] / 1e12, eight))


def show_targets(targets):
    for t in targets:
        value = "%.4f" % t["value"] if "value" in t else t.get("why", "")
        if "against_best" in t:
            value += ", %.4f against PyTorch's fastest" % t["against_best"]
        print("%-13s  %-44s %s%s" % (t["verdict"], t["target"], value, " (%s)" % t["plan"] if "plan" in t else ""))


def earlier(out, plans):
    """Returns the rows and ceilings of our earlier measurement, to which PyTorch's rows are added. A plan without
    one gets an empty row."""
    try:
        with open(os.path.join(out, "gpu-bench.json")) as f:
            found = json.load(f)
        rows, ceilings = {row["plan"]: row for row in found["plans"]}, found["ceilings"]
    except (KeyError, OSError, TypeError, ValueError):
        rows, ceilings = {}, {}
    return [rows.get(plan, {"plan": plan, "why": "only PyTorch was measured"}) for plan in plans], ceilings


def ceilings_of(build, deadline):
    ceilings, why = document(deadline, os.path.join(build, "tests", "gpu_ceilings"))
    if ceilings:
        show_ceilings(ceilings)
        return ceilings
    print("gpu-bench: no ceilings: " + why, file=sys.stderr)
    return {}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("plans", nargs="*")
    parser.add_argument("--out")
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--ours", action="store_true")
    side.add_argument("--torch", action="store_true")
    o = parser.parse_intermixed_args()
    o.build = os.path.realpath(o.build)
    o.out = os.path.realpath(o.out or o.build)
    return o


def main():
    o = arguments()
    source = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
    tandem = os.path.join(o.build, "tandem")
    deadline = Deadline(o.limit, time.monotonic)
    gpu = find_gpu(o.build, o.out, tandem, deadline)
    print(gpu)
    plans = o.plans or PLANS
    if o.torch:
        rows, ceilings = earlier(o.out, plans)
    else:
        ceilings = ceilings_of(o.build, deadline)
        rows = bench_ours(tandem, source, o.out, plans, ceilings, settings_of(gpu), deadline)
    if not o.ours:
        bench_torch(source, rows, deadline)
    targets = judge(rows)
    show_targets(targets)
    seconds = o.limit - deadline.left()
    result = {"schema": "tandem.gpu-bench/1", "run": True, "gpu": gpu, "ceilings": ceilings, "plans": rows,
              "targets": targets, "seconds": seconds}
    with open(os.path.join(o.out, "gpu-bench.json"), "w") as f:
        json.dump(finite(result), f, indent=1, allow_nan=False)
    print("gpu-bench: %d of %d plans run, %.0f s, %s" % (
        sum(ran(r) for r in rows), len(rows), seconds, os.path.join(o.out, "gpu-bench.json")))
    sys.exit(torch_exit_code(rows, NO_TORCH) if o.torch else exit_code(rows))


if __name__ == "__main__":
    main()
