"""gpu_bench.py BUILD [PLAN...]: training steps of scripts/plans/one_gpu on this machine's GPU, predicted
against measured, with PyTorch's on the same GPU in the same run where PyTorch is there, how near the
kernels come to ceilings that are measured first, and what that means for each target: met, missed or not
measured. A short table, and BUILD/gpu-bench.json. Exit code 1: a plan did not run, or its loss did not fall;
6: there is no GPU here. In all less than 8 minutes: every program that it starts is killed at LIMIT_S at the
latest, and a plan that would begin later is left out and told. Predictions are made before anything was measured
here: the store is a new one. A step's time is the median of three steps
after two that warm up, on both sides; the traced step is not among ours."""
import json
import os
import re
import signal
import subprocess
import sys
import time

from gpu_judge import THROUGHPUT, Deadline, busy, exit_code, finite, fractions, judge, ran

PLANS = ["gpt2_124m", "gpt2_1_5b", "llama_8b", "llama_8b_fp8", "llama_8b_bf16", "llama_1b"]  # targets' first
LIMIT_S, LEAST_S, CHILD_S = 450, 15, 150
STEPS = 6  # two steps warm up and one is traced: three are left, as many as PyTorch's
NO_TORCH = {"llama_8b_fp8": "no comparison: PyTorch has no 8-bit linear of its own, and torchao is not used"}


def refuse(build, why):
    print("gpu-bench: not run: " + why, file=sys.stderr)
    with open(os.path.join(build, "gpu-bench.json"), "w") as f:
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
    """The first error of a document's diagnostics, else the line of standard error that is one."""
    try:
        errors = [d for d in json.loads(out)["diagnostics"] if d["severity"] == "error"]
        return "%s: %s" % (errors[0]["rule"], errors[0]["text"])
    except (KeyError, IndexError, TypeError, ValueError):
        lines = [line for line in err.strip().split("\n") if line.strip()]
        return next((line for line in lines if "rror" in line), lines[-1] if lines else "")


def document(deadline, *command):
    """Libraries may print before it: the document is the whole output, or its last line."""
    text, why = output(deadline, *command)
    for part in (text, (text or "").strip().split("\n")[-1]):
        try:
            found = json.loads(part)
            if isinstance(found, dict):
                return found, ""
        except (TypeError, ValueError):
            pass
    return None, why.split("\n")[0] if why else "it printed no JSON"


def find_gpu(build, tandem, deadline):
    if not os.path.exists(os.path.join(build, "tandem_cuda.so")):
        refuse(build, "there is no tandem_cuda.so: build where nvcc, cuBLAS and NCCL are installed")
    found, why = document(deadline, tandem, "doctor", "--json")
    rows = found["findings"] if found else []
    if not any(r["name"].startswith("gpu ") and r["state"] == "ok" for r in rows):
        told = [r["text"] for r in rows if r["name"] in ("gpu", "driver", "cuda") and r["state"] != "ok"]
        refuse(build, told[-1] if told else why or "no GPU")
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


def measure(row, path, tandem, db, ceilings, deadline):
    run, why = document(deadline, tandem, "run", path, "--backend", "cuda", "--db", db, "--steps", str(STEPS),
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
    sim, _ = document(deadline, tandem, "sim", path, "--db", db, "--json", "--quiet")
    if sim:
        row["predicted_total_bytes"] = sim["peak_bytes"] + sim["reserved_bytes"]
        row["predicted_outside_bytes"] = sim["peak_bytes"] + sim["reserved_bytes"] - run["arena_bytes"]
    if sim and sim.get("mfu"):  # of the model's arithmetic, which is the same however long a step takes
        row["mfu"] = sim["mfu"] * sim["step_ps"] / 1e12 / row["step_s"]


def bench(tandem, source, work, plan, ceilings, deadline):
    """Whatever a command of ours prints: a row, and the next plan."""
    path = os.path.join(source, "scripts/plans/one_gpu", plan + ".lua")
    row = {"plan": plan}
    try:
        measure(row, path, tandem, os.path.join(work, "gpu-bench.db"), ceilings, deadline)
        if ran(row) and plan in [base for _, base, _, _ in THROUGHPUT]:
            row["torch"] = torch_of(source, plan, batch_of(path), deadline)
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        row = {"plan": plan, "why": "what it printed is not as expected: %s: %s" % (type(error).__name__, error)}
    return row


def bench_others(source, rows, deadline):
    """PyTorch's side of the plans that no target names, while time is left."""
    for row in rows:
        if ran(row) and "torch" not in row:
            path = os.path.join(source, "scripts/plans/one_gpu", row["plan"] + ".lua")
            row["torch"] = torch_of(source, row["plan"], batch_of(path), deadline)
            print("%-14s %s" % (row["plan"], show_torch(row)), flush=True)


def show_torch(row):
    torch = row.get("torch")
    if torch is None:
        return ""
    if not torch["run"]:
        return "torch   (%s)" % torch["why"]
    return "torch %9.0f  x %.2f" % (torch["tokens_per_s"], row["tokens_per_s"] / torch["tokens_per_s"])


def show(row):
    if "why" in row:
        return "%-14s %s" % (row["plan"], row["why"])
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


def main():
    build = os.path.realpath(sys.argv[1])
    source = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
    tandem = os.path.join(build, "tandem")
    deadline = Deadline(LIMIT_S, time.monotonic)
    gpu = find_gpu(build, tandem, deadline)
    ceilings, why = document(deadline, os.path.join(build, "tests", "gpu_ceilings"))
    print(gpu)
    if ceilings:
        show_ceilings(ceilings)
    else:
        ceilings = {}
        print("gpu-bench: no ceilings: " + why, file=sys.stderr)
    for old in (".db", ".db-wal", ".db-shm"):
        if os.path.exists(os.path.join(build, "gpu-bench" + old)):
            os.remove(os.path.join(build, "gpu-bench" + old))
    rows = []
    for plan in sys.argv[2:] or PLANS:
        if deadline.left() < LEAST_S:
            rows.append({"plan": plan, "why": "left out: the time is up"})
        else:
            rows.append(bench(tandem, source, build, plan, ceilings, deadline))
        print(show(rows[-1]), flush=True)
        if rows[-1].get("fractions"):
            print("               " + ", ".join(
                "%s %.0f %%" % (k, 100 * v) for k, v in rows[-1]["fractions"].items()), "of the ceiling")
    bench_others(source, rows, deadline)
    targets = judge(rows)
    show_targets(targets)
    seconds = LIMIT_S - deadline.left()
    result = {"schema": "tandem.gpu-bench/1", "run": True, "gpu": gpu, "ceilings": ceilings, "plans": rows,
              "targets": targets, "seconds": seconds}
    with open(os.path.join(build, "gpu-bench.json"), "w") as f:
        json.dump(finite(result), f, indent=1, allow_nan=False)
    print("gpu-bench: %d of %d plans run, %.0f s, %s" % (
        sum(ran(r) for r in rows), len(rows), seconds, os.path.join(build, "gpu-bench.json")))
    sys.exit(exit_code(rows))


if __name__ == "__main__":
    main()
