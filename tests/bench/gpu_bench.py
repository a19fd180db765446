"""gpu_bench.py BUILD [PLAN...]: training steps of scripts/plans/one_gpu on this machine's GPU, predicted
against measured, with PyTorch's on the same GPU in the same run where PyTorch is there, and how near the
kernels come to ceilings that are measured first. A short table, and BUILD/gpu-bench.json. Exit code 6: there
is no GPU here. In all less than 8 minutes on one H200; a plan that would begin later is left out and told."""
import json
import os
import re
import subprocess
import sys
import time

PLANS = ["gpt2_124m", "gpt2_1_5b", "llama_1b", "llama_8b", "llama_8b_bf16", "llama_8b_fp8"]
LIMIT_S = 460
FAMILIES = {  # kind: pattern of ops, what bounds it
    "GEMM": (r"linear", "flops"),
    "attention": (r"attention", "flops"),
    "norm": (r"(rms|layer)norm", "bytes"),
    "AdamW": (r"adamw", "bytes"),
    "cross-entropy": (r"xent", "bytes"),
}


def refuse(build, why):
    print("gpu-bench: not run: " + why, file=sys.stderr)
    with open(os.path.join(build, "gpu-bench.json"), "w") as f:
        json.dump({"schema": "tandem.gpu-bench/1", "run": False, "why": why}, f)
    sys.exit(6)


def output(*command, timeout=240):
    try:
        p = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, "it took longer than %d s" % timeout
    return (p.stdout if p.returncode == 0 else None), p.stderr.strip()


def document(*command, timeout=240):
    text, why = output(*command, timeout=timeout)
    try:
        return json.loads(text), ""
    except (TypeError, ValueError):
        return None, why.split("\n")[0] if why else "it printed no JSON"


def find_gpu(build, tandem):
    if not os.path.exists(os.path.join(build, "tandem_cuda.so")):
        refuse(build, "there is no tandem_cuda.so: build where nvcc, cuBLAS and NCCL are installed")
    found, why = document(tandem, "doctor", "--json")
    rows = found["findings"] if found else []
    if not any(r["name"].startswith("gpu ") and r["state"] == "ok" for r in rows):
        told = [r["text"] for r in rows if r["name"] in ("gpu", "driver", "cuda") and r["state"] != "ok"]
        refuse(build, told[-1] if told else why or "no GPU")
    return next(r["text"] for r in rows if r["name"].startswith("gpu "))


def fractions(compared, ceilings):
    """Achieved share of the ceiling of each family of kernels, from the rows of the traced step."""
    result = {}
    for family, (pattern, bound) in FAMILIES.items():
        rows = [o for o in compared["ops"] if re.search(pattern, o["op"])]
        seconds = sum(o["measured_ps"] for o in rows) / 1e12
        amount = sum(o[bound] for o in rows)
        if seconds > 0 and ceilings.get(bound):
            result[family] = amount / seconds / ceilings[bound]
    return result


def bench(tandem, source, work, plan, ceilings):
    path = os.path.join(source, "scripts/plans/one_gpu", plan + ".lua")
    db = os.path.join(work, "gpu-bench.db")
    row = {"plan": plan}
    run, why = document(tandem, "run", path, "--backend", "cuda", "--db", db, "--json", "--quiet")
    if run is None:
        row["why"] = why
        return row
    text = open(path).read()
    batch = {k: int(v) for k, v in re.findall(r"(global|micro|seq) = (\d+)", text)}
    row["step_s"] = run["step_ps"] / 1e12
    row["predicted_s"] = run["predicted_step_ps"] / 1e12
    row["tokens_per_s"] = batch["global"] * batch["seq"] / row["step_s"]
    row["arena_bytes"], row["touched_bytes"] = run["arena_bytes"], run["highest_byte_touched"]
    row["total_bytes"] = run["arena_bytes"] + run["outside_bytes"]
    sim, _ = document(tandem, "sim", path, "--db", db, "--json", "--quiet")
    if sim and sim.get("mfu"):
        row["mfu"] = sim["mfu"] * row["predicted_s"] / row["step_s"]
    compared, _ = document(tandem, "compare", "--db", db, "--json")
    if compared:
        row["fractions"] = fractions(compared, ceilings)
    torch, why = document(
        sys.executable, os.path.join(source, "tests/bench/gpu_torch.py"), plan, "--micro", str(batch["micro"]),
        "--seq", str(batch["seq"]), "--microbatches", str(batch["global"] // batch["micro"]), "--steps", "4")
    row["torch"] = torch or {"run": False, "why": why}
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


def main():
    build = os.path.realpath(sys.argv[1])
    source = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
    tandem = os.path.join(build, "tandem")
    gpu = find_gpu(build, tandem)
    start = time.time()
    ceilings, why = document(os.path.join(build, "tests", "gpu_ceilings"))
    if ceilings is None:
        ceilings = {}
        print("gpu-bench: no ceilings: " + why, file=sys.stderr)
    print(gpu)
    if ceilings:
        print("ceilings       copies %.0f GB/s, bf16 products %.0f TFLOP/s" % (
            ceilings["bytes"] / 1e9, ceilings["flops"] / 1e12))
    rows = []
    for plan in sys.argv[2:] or PLANS:
        if time.time() - start > LIMIT_S * 0.75:
            rows.append({"plan": plan, "why": "left out: the time is up"})
        else:
            rows.append(bench(tandem, source, build, plan, ceilings))
        print(show(rows[-1]), flush=True)
        if rows[-1].get("fractions"):
            print("               " + ", ".join(
                "%s %.0f %%" % (k, 100 * v) for k, v in rows[-1]["fractions"].items()), "of the ceiling")
    result = {"schema": "tandem.gpu-bench/1", "run": True, "gpu": gpu, "ceilings": ceilings, "plans": rows,
              "seconds": time.time() - start}
    with open(os.path.join(build, "gpu-bench.json"), "w") as f:
        json.dump(result, f, indent=1)
    print("gpu-bench: %.0f s, %s" % (result["seconds"], os.path.join(build, "gpu-bench.json")))


main()
