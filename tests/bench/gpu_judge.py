"""Judges the numbers of gpu-bench: the time that is left, shares of ceilings, targets met or missed.
This file starts no program and needs no GPU: test_gpu_judge.py runs it on made-up results."""
import math
import re

FAMILIES = {  # kind: pattern of ops, its limit
    "GEMM in 8 bits": (r"linear\w*_(tensor|row)wise", "flops_fp8"),
    "GEMM": (r"linear", "flops"),
    "attention's gradient": (r"attention_grad", "flops"),
    "attention": (r"attention", "flops"),
    "norm": (r"(rms|layer)norm", "bytes"),
    "AdamW": (r"adamw", "bytes"),
    "cross-entropy": (r"xent", "bytes"),
}
THROUGHPUT = [  # target, PyTorch's plan, our plans, least ratio of our tokens/s to PyTorch's
    ("124M against PyTorch", "gpt2_124m", ["gpt2_124m"], 1.10),
    ("1.5B against PyTorch", "gpt2_1_5b", ["gpt2_1_5b"], 1.05),
    ("1B against PyTorch", "llama_1b", ["llama_1b"], 1.05),
    ("8B against PyTorch, same plan", "llama_8b", ["llama_8b"], 1.00),
    ("8B in bf16 against PyTorch, same plan", "llama_8b_bf16", ["llama_8b_bf16"], 1.20),
    ("8B, best plan, against PyTorch's 8B", "llama_8b", ["llama_8b", "llama_8b_bf16", "llama_8b_fp8"], 1.20),
]
STEP_ERROR, MEMORY_ERROR = 0.05, 0.03
CONTEXT_MOST = 2 << 30  # bytes of a device that only holds a context
MET, MISSED, UNKNOWN = "met", "missed", "not measured"


class Deadline:
    """The time that is left. `clock` returns seconds. No command may take longer than the time that is left."""

    def __init__(self, limit_s, clock):
        self.clock, self.end_s = clock, clock() + limit_s

    def left(self):
        return max(0.0, self.end_s - self.clock())

    def allow(self, most_s):
        return min(most_s, self.left())


def family(op):
    """Returns the first family that matches. Products of 8-bit numbers belong only to the first family."""
    return next((name for name, (pattern, _) in FAMILIES.items() if re.search(pattern, op)), None)


def fractions(ops, ceilings):
    """Returns the part of its ceiling that each family of kernels reaches, from the rows of the traced step."""
    sums = {}
    for o in ops:
        name = family(o["op"])
        if name is None or o["measured_ps"] == 0:  # a part of another op's kernel moves no bytes of its own
            continue
        bound = FAMILIES[name][1]
        s = sums.setdefault(name, [0.0, 0.0])
        s[0] += o["measured_ps"] / 1e12  # a row of `compare` is the sum of its n instructions
        s[1] += o["flops" if bound.startswith("flops") else "bytes"]
    result = {}
    for name, (seconds, amount) in sums.items():
        ceiling = ceilings.get(FAMILIES[name][1])
        if seconds > 0 and ceiling:
            result[name] = amount / seconds / ceiling
    return result


def verdict(name, value, ok, why=""):
    row = {"target": name, "verdict": UNKNOWN if value is None else MET if ok else MISSED}
    if value is not None:
        row["value"] = value
    elif why:
        row["why"] = why
    return row


def ran(row):
    return "step_s" in row


def learns(row):
    a, b = row.get("first_loss"), row.get("last_loss")
    return a is not None and b is not None and math.isfinite(a) and math.isfinite(b) and b < a


def throughput(rows, name, base, ours, least):
    torch = rows.get(base, {}).get("torch", {})
    if not torch.get("run"):
        return verdict(name, None, False, "PyTorch: " + torch.get("why", "was not run for " + base))
    mine = [rows[plan]["tokens_per_s"] for plan in ours if plan in rows and ran(rows[plan])]
    if not mine:
        return verdict(name, None, False, "no run of " + ", ".join(ours))
    value = max(mine) / torch["tokens_per_s"]
    out = [plan for plan in ours if plan not in rows or not ran(rows[plan])]
    if value < least and out:  # a plan that did not run might have met it
        return verdict(name, None, False, "%.2f without %s" % (value, ", ".join(out)))
    row = dict(verdict(name, value, value >= least), least=least)
    beside = [rows[plan]["torch"]["tokens_per_s"] for plan in ours
              if plan in rows and rows[plan].get("torch", {}).get("run")]
    if len(ours) > 1 and beside:  # if PyTorch's own plans were measured, also against the fastest of them
        row["against_best"] = max(mine) / max(beside)
    return row


def worst(rows, name, error, most):
    """Returns the largest error of all plans. A plan that did not run, or has no value, might have a larger one."""
    values, out = [], []
    for row in rows:
        value = error(row) if ran(row) else None
        if value is None or not math.isfinite(value):
            out.append(row["plan"])
        else:
            values.append((value, row["plan"]))
    if not values:
        return verdict(name, None, False, next((r["why_no_memory"] for r in rows if "why_no_memory" in r),
                                               "no plan was run") if error is memory_error else "no plan was run")
    value, plan = max(values)
    if value <= most and out:
        return verdict(name, None, False, "at most %.4f without %s" % (value, ", ".join(out)))
    return dict(verdict(name, value, value <= most), plan=plan, most=most)


def step_error(row):
    return abs(row["predicted_s"] / row["step_s"] - 1)


def arena_error(row):
    """Checks the highest byte that was written. It must be inside the arena, and not below the bytes that every step
    writes. Scratch memory above these may stay unwritten."""
    if row["touched_bytes"] > row["arena_bytes"]:
        return row["touched_bytes"] / row["arena_bytes"] - 1
    return max(0.0, 1 - row["touched_bytes"] / row["written_bytes"])


def memory_error(row):
    if row.get("predicted_total_bytes") is None or "why_no_memory" in row:
        return None
    return abs(row["predicted_total_bytes"] / row["total_bytes"] - 1)


def judge(rows):
    by = {row["plan"]: row for row in rows}
    result = [throughput(by, *t) for t in THROUGHPUT]
    result.append(worst(rows, "predicted step within 5 %", step_error, STEP_ERROR))
    result.append(worst(rows, "arena touched as planned", arena_error, 0))
    result.append(worst(rows, "device memory within 3 % of arena + outside", memory_error, MEMORY_ERROR))
    dull = [row["plan"] for row in rows if ran(row) and not learns(row)]
    some = [row for row in rows if ran(row)]
    out = [row["plan"] for row in rows if not ran(row)]
    sure = dull or (some and not out)
    result.append(verdict("losses are finite and fall", len(dull) if sure else None, not dull,
                          "without " + ", ".join(out) if some else "no plan was run"))
    if dull:
        result[-1]["plan"] = ", ".join(dull)
    return result


def too_large_for(device_bytes, sim):
    """Returns why, by its prediction, the device cannot hold a plan; None: it can, or its size is not known."""
    needed = sim["peak_bytes"] + sim["reserved_bytes"]
    if not device_bytes or needed <= device_bytes:
        return None
    return "needs %.1f GiB, and the device has %.1f" % (needed / 2**30, device_bytes / 2**30)


def exit_code(rows):
    """Returns 1 if a plan did not run (also for lack of time) or its loss does not fall. A plan that the device cannot
    hold is a failure only if no plan ran. A missed target is reported, but is not a failure of the program."""
    due = [row for row in rows if "skipped" not in row]
    return 1 if not due or any(not ran(row) or not learns(row) for row in due) else 0


def torch_exit_code(rows, without):
    """Returns 1 if PyTorch did not run a plan that it can run."""
    due = [row for row in rows if "skipped" not in row and row["plan"] not in without]
    return 1 if any(not row.get("torch", {}).get("run") for row in due) else 0


def busy(held_bytes):
    """Returns why the memory in use on the device says nothing about a run; None: no other program uses the device."""
    if held_bytes is None or held_bytes <= CONTEXT_MOST:
        return None
    return "%.1f GiB of the device were in use before: another process?" % (held_bytes / 2**30)


def finite(x):
    """Replaces NaN, which JSON does not have."""
    if isinstance(x, dict):
        return {k: finite(v) for k, v in x.items()}
    if isinstance(x, list):
        return [finite(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
