"""gpu_bench.py BUILD [PLAN...]: training steps of scripts/plans/one_gpu on this machine's GPU, predicted
against measured, with PyTorch's on the same GPU in the same run where PyTorch is there, how near the
kernels come to ceilings that are measured first, and what that means for each target: met, missed or not
measured. A short table, and BUILD/gpu-bench.json. Exit code 1: a plan did not run, or its loss did not fall;
6: there is no GPU here. In all less than 8 minutes: every program that it starts is killed at LIMIT_S at the
latest, and a plan that would begin later is left out and told."""
import json
import os
import re
import signal
import subprocess
import sys
import time

from gpu_judge import Deadline, exit_code, fractions, judge, ran

PLANS = ["gpt2_124m", "gpt2_1_5b", "llama_8b", "llama_8b_bf16", "llama_8b_fp8", "llama_1b"]  # targets' first
LIMIT_S, LEAST_S, CHILD_S = 450, 15, 120
NO_TORCH = {"llama_8b_fp8": "no comparison: PyTorch has no 8-bit linear of its own, and torchao is not used"}


def refuse(build, why):
    print("gpu-bench: not run: " + why, file=sys.stderr)
    with open(os.path.join(build, "gpu-bench.json"), "w") as f:
        json.dump({"schema": "tandem.gpu-bench/1", "run": False, "why": why}, f)
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
    return (out if process.returncode == 0 else None), err.strip()


def document(deadline, *command):
    text, why = output(deadline, *command)
    try:
        return json.loads(text), ""
    except (TypeError, ValueError):
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
        "--steps", "4")
    return torch or {"run": False, "why": why}


def bench(tandem, source, work, plan, ceilings, deadline):
    path = os.path.join(source, "scripts/plans/one_gpu", plan + ".lua")
    db = os.path.join(work, "gpu-bench.db")
    row = {"plan": plan}
    run, why = document(deadline, tandem, "run", path, "--backend", "cuda", "--db", db, "--json", "--quiet")
    if run is None:
        row["why"] = why
        return row
    with open(path) as f:
        batch = {k: int(v) for k, v in re.findall(r"(global|micro|seq) = (\d+)", f.read())}
    row["step_s"] = run["step_ps"] / 1e12
    row["predicted_s"] = run["predicted_step_ps"] / 1e12
    row["first_loss"], row["last_loss"] = run["first_loss"], run["last_loss"]
    row["tokens_per_s"] = batch["global"] * batch["seq"] / row["step_s"]
    row["arena_bytes"], row["touched_bytes"] = run["arena_bytes"], run["highest_byte_touched"]
    row["total_bytes"] = run["arena_bytes"] + run["outside_bytes"]
    compared, _ = document(deadline, tandem, "compare", "--db", db, "--json")
    if compared:
        row["fractions"] = fractions(compared["ops"], ceilings)
    sim, _ = document(deadline, tandem, "sim", path, "--db", db, "--json", "--quiet")
    if sim:
        row["predicted_total_bytes"] = sim["peak_bytes"] + sim["reserved_bytes"]
    if sim and sim.get("mfu"):  # of the model's arithmetic, which is the same however long a step takes
        row["mfu"] = sim["mfu"] * sim["step_ps"] / 1e12 / row["step_s"]
    row["torch"] = torch_of(source, plan, batch, deadline)
    return row


def show(row):
    if "why" in row:
        return "%-14s %s" % (row["plan"], row["why"])
    torch = row["torch"]
    beside = "%9.0f  x %.2f" % (torch["tokens_per_s"], row["tokens_per_s"] / torch["tokens_per_s"]) if torch["run"] \
        else "  (%s)" % torch["why"]
    return "%-14s %9.0f tok/s  MFU %4.1f %%  step %6.3f s, predicted %6.3f (%+.1f %%)  %5.1f GiB  torch %s" % (
        row["plan"], row["tokens_per_s"], 100 * row.get("mfu", 0), row["step_s"], row["predicted_s"],
        100 * (row["predicted_s"] / row["step_s"] - 1), row["total_bytes"] / 2**30, beside)


def show_ceilings(ceilings):
    eight = ", 8-bit %.0f" % (ceilings["flops_fp8"] / 1e12) if ceilings.get("flops_fp8") else ""
    print("ceilings       copies %.0f GB/s, products in TFLOP/s: bf16 %.0f%s" % (
        ceilings["bytes"] / 1e9, ceilings["flops"] / 1e12, eight))


def show_targets(targets):
    for t in targets:
        value = "%.4f" % t["value"] if "value" in t else t.get("why", "")
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
    targets = judge(rows)
    show_targets(targets)
    seconds = LIMIT_S - deadline.left()
    result = {"schema": "tandem.gpu-bench/1", "run": True, "gpu": gpu, "ceilings": ceilings, "plans": rows,
              "targets": targets, "seconds": seconds}
    with open(os.path.join(build, "gpu-bench.json"), "w") as f:
        json.dump(result, f, indent=1)
    print("gpu-bench: %d of %d plans run, %.0f s, %s" % (
        sum(ran(r) for r in rows), len(rows), seconds, os.path.join(build, "gpu-bench.json")))
    sys.exit(exit_code(rows))


if __name__ == "__main__":
    main()
