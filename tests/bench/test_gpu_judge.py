"""gpu-bench's judging and its deadline, on made-up results and programs that hang."""
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import gpu_bench  # noqa: E402
from gpu_judge import Deadline, exit_code, fractions, judge  # noqa: E402


def row(plan, tokens=1000.0, torch=None, **more):
    made = {"plan": plan, "step_s": 1.0, "predicted_s": 1.04, "tokens_per_s": tokens, "first_loss": 10.0,
            "last_loss": 8.0, "arena_bytes": 1000, "touched_bytes": 1000, "total_bytes": 1500,
            "predicted_total_bytes": 1510, "torch": {"run": False, "why": "PyTorch is not installed"}}
    if torch:
        made["torch"] = {"run": True, "tokens_per_s": torch}
    made.update(more)
    return made


def verdicts(rows):
    return {t["target"]: t["verdict"] for t in judge(rows)}


ALL = [row("gpt2_124m", 1110, 1000), row("gpt2_1_5b", 1060, 1000), row("llama_8b", 1000, 1000),
       row("llama_8b_bf16", 1150, 1190), row("llama_8b_fp8", 1250)]
A124, A15 = "124M against PyTorch", "1.5B against PyTorch"
SAME, BEST = "8B against PyTorch, same plan", "8B, best plan, against PyTorch's 8B"
STEP, ARENA = "predicted step within 5 %", "arena touched as planned, exactly"
MEMORY, LOSS = "device memory within 3 % of arena + outside", "losses are finite and fall"


class Judging(unittest.TestCase):
    def test_all_met(self):
        self.assertEqual(set(verdicts(ALL).values()), {"met"})
        self.assertEqual(len(judge(ALL)), 8)
        self.assertEqual(exit_code(ALL), 0)

    def test_each_missed_alone(self):
        worse = [(A124, 0, "tokens_per_s", 1099), (A15, 1, "tokens_per_s", 1049), (SAME, 2, "tokens_per_s", 999),
                 (BEST, 4, "tokens_per_s", 1199), (STEP, 1, "predicted_s", 0.94), (STEP, 1, "predicted_s", 1.06),
                 (ARENA, 3, "touched_bytes", 999), (ARENA, 3, "touched_bytes", 1001),
                 (MEMORY, 2, "total_bytes", 1570), (LOSS, 0, "last_loss", 10.0), (LOSS, 0, "last_loss", float("nan")),
                 (LOSS, 0, "last_loss", None)]
        for target, i, key, value in worse:
            rows = [dict(r) for r in ALL]
            rows[i][key] = value
            got = verdicts(rows)
            self.assertEqual(got.pop(target), "missed", (target, key, value))
            self.assertEqual(set(got.values()), {"met"}, (target, key, value))
            self.assertEqual(exit_code(rows), 1 if target == LOSS else 0)

    def test_without_pytorch(self):
        rows = [dict(r, torch={"run": False, "why": "PyTorch is not installed"}) for r in ALL]
        got = judge(rows)
        self.assertEqual([t["verdict"] for t in got[:4]], ["not measured"] * 4)
        self.assertIn("not installed", got[0]["why"])
        self.assertEqual({t["verdict"] for t in got[4:]}, {"met"})

    def test_plans_that_do_not_run(self):
        dead = {"plan": "llama_8b_fp8", "why": "left out: the time is up"}
        rows = ALL[:4] + [dead]
        self.assertEqual(verdicts(rows)[BEST], "not measured")  # 1.15 as it is: who knows
        self.assertEqual(verdicts([dict(ALL[2], tokens_per_s=1300), dead])[BEST], "met")
        self.assertEqual(exit_code(rows), 1)
        self.assertEqual(exit_code([]), 1)
        none = [{"plan": r["plan"], "why": "no memory"} for r in ALL]
        self.assertEqual(set(verdicts(none).values()), {"not measured"})
        self.assertEqual(exit_code(none), 1)


class Ceilings(unittest.TestCase):
    def test_8_bits_have_their_own(self):
        ops = [{"op": "linear_tensorwise_d0", "measured_ps": 10**12, "flops": 100.0, "bytes": 1},
               {"op": "linear_q_rowwise", "measured_ps": 10**12, "flops": 100.0, "bytes": 1},
               {"op": "linear_d1", "measured_ps": 10**12, "flops": 40.0, "bytes": 1},
               {"op": "adamw", "measured_ps": 2 * 10**12, "flops": 1.0, "bytes": 10}]
        got = fractions(ops, {"flops": 50.0, "flops_fp8": 200.0, "bytes": 10.0})
        self.assertEqual(got, {"GEMM in 8 bits": 0.5, "GEMM": 0.8, "AdamW": 0.5})
        self.assertNotIn("GEMM in 8 bits", fractions(ops, {"flops": 50.0, "bytes": 10.0}))


    def test_the_gradient_of_attention_is_told_apart(self):
        ops = [{"op": "attention", "measured_ps": 10**12, "flops": 40.0, "bytes": 1},
               {"op": "attention_grad", "measured_ps": 2 * 10**12, "flops": 50.0, "bytes": 1}]
        self.assertEqual(fractions(ops, {"flops": 50.0}), {"attention": 0.8, "attention's gradient": 0.5})


class Time(unittest.TestCase):
    def test_deadline(self):
        now = [100.0]
        d = Deadline(10, lambda: now[0])
        self.assertEqual(d.allow(4), 4)
        now[0] = 108.0
        self.assertEqual(d.allow(4), 2)
        now[0] = 200.0
        self.assertEqual((d.left(), d.allow(4)), (0, 0))

    def test_a_child_and_its_children_are_ended(self):
        start = time.monotonic()
        out, why = gpu_bench.output(Deadline(1.5, time.monotonic), "sh", "-c", "sleep 60; sleep 60")
        self.assertIsNone(out)
        self.assertIn("ended after", why)
        self.assertLess(time.monotonic() - start, 20)
        out, why = gpu_bench.output(Deadline(0, time.monotonic), "true")
        self.assertEqual((out, why), (None, "left out: the time is up"))

    def test_whole_run_with_commands_that_are_not_there(self):
        """All plans fail: code 1, and each says why, in JSON too."""
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "tests"))
            open(os.path.join(build, "tandem_cuda.so"), "w").close()
            programs = {"tandem": 'case $1 in doctor) echo \'{"findings":[{"name":"gpu 0","state":"ok","text":"H"}]}\';;'
                                  ' *) echo "no memory" >&2; exit 3;; esac',
                        "tests/gpu_ceilings": "echo none >&2; exit 6"}
            for name, text in programs.items():
                with open(os.path.join(build, name), "w") as f:
                    f.write("#!/bin/sh\n" + text + "\n")
                os.chmod(os.path.join(build, name), 0o755)
            argv, sys.argv = sys.argv, ["gpu_bench.py", build]
            try:
                with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
                    with self.assertRaises(SystemExit) as ended:
                        gpu_bench.main()
            finally:
                sys.argv = argv
            self.assertEqual(ended.exception.code, 1)
            self.assertIn("0 of 6 plans run", said.getvalue())
            with open(os.path.join(build, "gpu-bench.json")) as f:
                result = json.load(f)
            self.assertEqual([p["why"] for p in result["plans"]], ["no memory"] * 6)
            self.assertEqual({t["verdict"] for t in result["targets"]}, {"not measured"})


unittest.main()
