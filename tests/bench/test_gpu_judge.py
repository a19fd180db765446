"""Tests the verdicts and the deadline of gpu-bench, with made-up results and programs that hang."""
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
from gpu_judge import Deadline, busy, exit_code, finite, fractions, judge, torch_exit_code  # noqa: E402


def row(plan, tokens=1000.0, torch=None, **more):
    made = {"plan": plan, "step_s": 1.0, "predicted_s": 1.04, "tokens_per_s": tokens, "first_loss": 10.0,
            "last_loss": 8.0, "arena_bytes": 1000, "written_bytes": 990, "touched_bytes": 995,
            "outside_bytes": 500, "total_bytes": 1500, "predicted_total_bytes": 1510, "torch": {"run": False, "why": "PyTorch is not installed"}}
    if torch:
        made["torch"] = {"run": True, "tokens_per_s": torch}
    made.update(more)
    return made


def verdicts(rows):
    return {t["target"]: t["verdict"] for t in judge(rows)}


ALL = [row("gpt2_124m", 1110, 1000), row("gpt2_1_5b", 1060, 1000), row("llama_8b", 1000, 1000),
       row("llama_8b_bf16", 1150, 950), row("llama_8b_fp8", 1250), row("llama_1b", 1060, 1000)]
A124, A15, A1 = "124M against PyTorch", "1.5B against PyTorch", "1B against PyTorch"
SAME, BEST = "8B against PyTorch, same plan", "8B, best plan, against PyTorch's 8B"
SAME_BF16 = "8B in bf16 against PyTorch, same plan"
STEP, ARENA = "predicted step within 5 %", "arena touched as planned"
MEMORY, LOSS = "device memory within 3 % of arena + outside", "losses are finite and fall"


class Judging(unittest.TestCase):
    def test_all_targets_can_be_met(self):
        self.assertEqual(set(verdicts(ALL).values()), {"met"})
        self.assertEqual(len(judge(ALL)), 10)
        self.assertEqual(exit_code(ALL), 0)

    def test_each_target_can_be_missed_alone(self):
        worse = [(A124, 0, "tokens_per_s", 1099), (A15, 1, "tokens_per_s", 1049), (SAME, 2, "tokens_per_s", 999),
                 (A1, 5, "tokens_per_s", 1049), (SAME_BF16, 3, "tokens_per_s", 1139),
                 (BEST, 4, "tokens_per_s", 1199), (STEP, 1, "predicted_s", 0.94), (STEP, 1, "predicted_s", 1.06),
                 (ARENA, 3, "touched_bytes", 989), (ARENA, 3, "touched_bytes", 1001),
                 (MEMORY, 2, "total_bytes", 1570), (LOSS, 0, "last_loss", 10.0), (LOSS, 0, "last_loss", float("nan")),
                 (LOSS, 0, "last_loss", None)]
        for target, i, key, value in worse:
            rows = [dict(r) for r in ALL]
            rows[i][key] = value
            got = verdicts(rows)
            self.assertEqual(got.pop(target), "missed", (target, key, value))
            self.assertEqual(set(got.values()), {"met"}, (target, key, value))
            self.assertEqual(exit_code(rows), 1 if target == LOSS else 0)

    def test_targets_without_pytorch_are_not_measured(self):
        rows = [dict(r, torch={"run": False, "why": "PyTorch is not installed"}) for r in ALL]
        got = judge(rows)
        self.assertEqual([t["verdict"] for t in got[:6]], ["not measured"] * 6)
        self.assertIn("not installed", got[0]["why"])
        self.assertEqual({t["verdict"] for t in got[6:]}, {"met"})

    def test_plans_that_do_not_run_leave_targets_open(self):
        dead = {"plan": "llama_8b_fp8", "why": "left out: the time is up"}
        rows = ALL[:4] + [dead]
        self.assertEqual(verdicts(rows)[BEST], "not measured")  # with 1.15 the verdict is open
        self.assertEqual(verdicts([dict(ALL[2], tokens_per_s=1300), dead])[BEST], "met")
        self.assertEqual(exit_code(rows), 1)
        got = verdicts(rows)
        for target in (STEP, ARENA, MEMORY, LOSS):  # nor does it know that plan's step, memory and loss
            self.assertEqual(got[target], "not measured", target)
        self.assertEqual(verdicts([dict(ALL[0], predicted_s=1.2), dead])[STEP], "missed")
        self.assertEqual(verdicts([dict(ALL[0], last_loss=11.0), dead])[LOSS], "missed")
        self.assertEqual(exit_code([]), 1)
        none = [{"plan": r["plan"], "why": "no memory"} for r in ALL]
        self.assertEqual(set(verdicts(none).values()), {"not measured"})
        self.assertEqual(exit_code(none), 1)


    def test_a_plan_that_the_device_cannot_hold_is_no_failure(self):
        large = {"plan": "llama_8b", "skipped": "needs 120.0 GiB, and the device has 79.6"}
        self.assertEqual(exit_code(ALL[:2] + [large]), 0)
        self.assertEqual(exit_code([large]), 1)  # nothing was measured
        self.assertEqual(verdicts(ALL[:2] + [large])[SAME], "not measured")
        self.assertEqual(verdicts(ALL[:2] + [large])[STEP], "not measured")

    def test_pytorch_alone_can_be_measured(self):
        rows = [{"plan": "gpt2_124m", "torch": {"run": True, "tokens_per_s": 1.0}}, {"plan": "llama_8b_fp8"},
                {"plan": "llama_8b", "skipped": "too large"}]
        self.assertEqual(torch_exit_code(rows, gpu_bench.NO_TORCH), 0)
        self.assertEqual(torch_exit_code(rows + [{"plan": "llama_1b", "torch": {"run": False, "why": ""}}],
                                         gpu_bench.NO_TORCH), 1)

    def test_memory_that_others_hold_is_not_ours(self):
        self.assertIsNone(busy(500 << 20))
        self.assertIsNone(busy(None))
        rows = [dict(r, why_no_memory=busy(5 << 30), total_bytes=9000) for r in ALL]
        got = [t for t in judge(rows) if t["target"] == MEMORY]
        self.assertEqual(got[0]["verdict"], "not measured")
        self.assertIn("5.0 GiB", got[0]["why"])

    def test_a_missing_prediction_meets_no_target(self):
        rows = [dict(r) for r in ALL]
        del rows[1]["predicted_total_bytes"]
        self.assertEqual(verdicts(rows)[MEMORY], "not measured")
        rows[2]["predicted_s"] = float("nan")
        self.assertEqual(verdicts(rows)[STEP], "not measured")

    def test_pytorchs_fastest_is_reported_beside_the_target(self):
        rows = ALL[:3] + [row("llama_8b_bf16", 1150, 1190)] + ALL[4:]
        best = [t for t in judge(rows) if t["target"] == BEST][0]
        self.assertEqual(best["value"], 1.25)
        self.assertAlmostEqual(best["against_best"], 1250 / 1190)

    def test_json_has_no_nan(self):
        self.assertEqual(finite({"a": [float("nan"), 1.5, {"b": float("inf")}], "c": "x", "d": True}),
                         {"a": [None, 1.5, {"b": None}], "c": "x", "d": True})


class Ceilings(unittest.TestCase):
    def test_8_bit_products_have_their_own_ceiling(self):
        ops = [{"op": "linear_tensorwise_d0", "n": 1, "measured_ps": 10**12, "flops": 100.0, "bytes": 1},
               {"op": "linear_q_rowwise", "n": 1, "measured_ps": 10**12, "flops": 100.0, "bytes": 1},
               {"op": "linear_d1", "n": 2, "measured_ps": 10**12, "flops": 40.0, "bytes": 1},
               {"op": "adamw", "n": 3, "measured_ps": 2 * 10**12, "flops": 1.0, "bytes": 10}]
        got = fractions(ops, {"flops": 50.0, "flops_fp8": 200.0, "bytes": 10.0})
        self.assertEqual(got, {"GEMM in 8 bits": 0.5, "GEMM": 0.8, "AdamW": 0.5})
        # A row is the sum over its n instructions, as in `compare`, so n must not multiply it
        # again.
        ops[2:3] = [dict(ops[2], n=9), dict(ops[2], op="linear_t", measured_ps=10**13)]
        self.assertAlmostEqual(fractions(ops, {"flops": 50.0})["GEMM"], 2 * 40 / 11 / 50)
        self.assertNotIn("GEMM in 8 bits", fractions(ops, {"flops": 50.0, "bytes": 10.0}))


    def test_parts_of_a_kernel_read_nothing_of_their_own(self):
        ops = [{"op": "xent_max", "n": 1, "measured_ps": 2 * 10**12, "flops": 1.0, "bytes": 10},
               {"op": "xent_sumexp", "n": 1, "measured_ps": 0, "flops": 1.0, "bytes": 10}]
        self.assertEqual(fractions(ops, {"bytes": 10.0}), {"cross-entropy": 0.5})

    def test_a_prediction_is_made_for_the_gpu_that_is_there(self):
        self.assertEqual(gpu_bench.settings_of("NVIDIA H100 80GB HBM3, 79.1 GiB"), ["--set", "gpu=H100"])
        self.assertEqual(gpu_bench.settings_of("NVIDIA H200, 139.8 GiB"), ["--set", "gpu=H200"])
        for other in ("NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090"):
            self.assertEqual(gpu_bench.settings_of(other), [])

    def test_attention_and_its_gradient_are_separate(self):
        ops = [{"op": "attention", "n": 1, "measured_ps": 10**12, "flops": 40.0, "bytes": 1},
               {"op": "attention_grad", "n": 1, "measured_ps": 2 * 10**12, "flops": 50.0, "bytes": 1}]
        self.assertEqual(fractions(ops, {"flops": 50.0}), {"attention": 0.8, "attention's gradient": 0.5})


class Time(unittest.TestCase):
    def test_no_command_outlives_the_deadline(self):
        now = [100.0]
        d = Deadline(10, lambda: now[0])
        self.assertEqual(d.allow(4), 4)
        now[0] = 108.0
        self.assertEqual(d.allow(4), 2)
        now[0] = 200.0
        self.assertEqual((d.left(), d.allow(4)), (0, 0))

    def test_a_child_and_its_children_are_ended(self):
        start = time.monotonic()
        out, why = gpu_bench.output(Deadline(1.5, time.monotonic), "sh", "-c", "sleep 600; sleep 600")
        self.assertIsNone(out)
        self.assertIn("ended after", why)
        self.assertLess(time.monotonic() - start, 200)
        out, why = gpu_bench.output(Deadline(0, time.monotonic), "true")
        self.assertEqual((out, why), (None, "left out: the time is up"))



GPU = 'echo \'{"findings":[{"name":"gpu 0","state":"ok","text":"H"}]}\''
RUN = {"steps": 5, "first_loss": 10.0, "last_loss": 9.0, "step_ps": 10**12, "predicted_step_ps": 102 * 10**10,
       "arena_bytes": 2 << 30, "written_bytes": 2 << 30, "highest_byte_touched": 2 << 30, "outside_bytes": 500 << 20,
       "diagnostics": [{"severity": "warning", "rule": "not-calibrated", "text": ""}]}
COMPARE = {"ops": [{"op": "linear", "n": 2, "measured_ps": 10**12, "flops": 1e12, "bytes": 1}]}
SIM = {"peak_bytes": 2 << 30, "reserved_bytes": 520 << 20, "mfu": 0.4, "step_ps": 10**12}


def printed(document):
    return "echo '" + json.dumps(document) + "'"


class WholeRuns(unittest.TestCase):
    """Runs gpu_bench.main with commands that print the output of ours, or something else."""

    def bench(self, tandem, ceilings="echo none >&2; exit 6", torch=None, plans=(), before=None):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "tests"))
            open(os.path.join(build, "tandem_cuda.so"), "w").close()
            open(os.path.join(build, "gpu-bench.db"), "w").close()
            for name, text in {"tandem": tandem, "tests/gpu_ceilings": ceilings}.items():
                with open(os.path.join(build, name), "w") as f:
                    f.write("#!/bin/sh\n" + text + "\n")
                os.chmod(os.path.join(build, name), 0o755)
            if before is not None:
                with open(os.path.join(build, "gpu-bench.json"), "w") as f:
                    json.dump(before, f)
            os.makedirs(os.path.join(build, "torch", "torch"))
            with open(os.path.join(build, "torch", "torch", "__init__.py"), "w") as f:
                f.write(torch or "raise ModuleNotFoundError(name='torch')\n")
            argv, sys.argv = sys.argv, ["gpu_bench.py", build, *plans]
            path, os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH"), os.path.join(build, "torch")
            try:
                with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
                    with self.assertRaises(SystemExit) as ended:
                        gpu_bench.main()
            finally:
                sys.argv = argv
                os.environ.pop("PYTHONPATH")
                if path is not None:
                    os.environ["PYTHONPATH"] = path
            if "--torch" not in plans:
                self.assertFalse(os.path.exists(os.path.join(build, "gpu-bench.db")))  # left from another day
            with open(os.path.join(build, "gpu-bench.json")) as f:
                return ended.exception.code, said.getvalue(), json.load(f, parse_constant=self.fail)

    def case(self, run, compare=None, sim=None):
        return "case $1 in doctor) %s;; run) %s;; compare) %s;; sim) %s;; esac" % (
            GPU, run, compare or printed(COMPARE), sim or printed(SIM))

    def test_plans_that_do_not_run_say_why(self):
        """Each says why, in JSON too: as standard error has it, or the document."""
        code, said, result = self.bench(self.case('echo "no memory" >&2; exit 3'))
        self.assertEqual(code, 1)
        self.assertIn("0 of 6 plans run", said)
        self.assertEqual([p["why"] for p in result["plans"]], ["no memory"] * 6)
        self.assertEqual({t["verdict"] for t in result["targets"]}, {"not measured"})
        failed = dict(RUN, diagnostics=RUN["diagnostics"] + [{"severity": "error", "rule": "cuda", "text": "lost"}])
        _, _, result = self.bench(self.case("echo a warning >&2; %s; exit 6" % printed(failed)), plans=["llama_1b"])
        self.assertEqual(result["plans"][0]["why"], "cuda: lost")

    def test_all_plans_can_run(self):
        code, said, result = self.bench(self.case("echo loading; " + printed(RUN)),
                                        printed({"held_bytes": 1 << 29, "bytes": 4e12, "flops": 7e14}))
        self.assertEqual(code, 0, said)
        self.assertIn("6 of 6 plans run", said)
        for row in result["plans"]:
            for key in ("step_s", "predicted_s", "calibrated", "tokens_per_s", "first_loss", "last_loss", "arena_bytes",
                        "written_bytes", "touched_bytes", "outside_bytes", "total_bytes", "predicted_total_bytes",
                        "predicted_outside_bytes", "fractions", "mfu", "torch", "steps"):
                self.assertIn(key, row)
            self.assertFalse(row["calibrated"])
            self.assertIn(row["torch"]["why"], ["PyTorch is not installed", gpu_bench.NO_TORCH["llama_8b_fp8"]])
        got = {t["target"]: t["verdict"] for t in result["targets"]}
        self.assertEqual([got[t] for t in (STEP, ARENA, MEMORY, LOSS)], ["met"] * 4)
        self.assertEqual([got[t] for t in (A124, A15, SAME, BEST)], ["not measured"] * 4)

    def test_ours_come_first_and_pytorch_may_come_in_another_call(self):
        code, said, both = self.bench(self.case(printed(RUN)), plans=["gpt2_124m", "llama_1b"])
        self.assertEqual(code, 0, said)
        self.assertLess(said.rindex("tok/s"), said.index("PyTorch"))  # the last of ours, the first of PyTorch's
        code, said, ours = self.bench(self.case(printed(RUN)), plans=["--ours", "gpt2_124m", "llama_1b"])
        self.assertEqual(code, 0, said)
        self.assertTrue(all("torch" not in row for row in ours["plans"]))
        ours["plans"][0]["tokens_per_s"] = 4321.0
        code, said, after = self.bench(self.case("exit 9"), plans=["--torch", "gpt2_124m", "llama_1b"], before=ours)
        self.assertEqual(code, 1, said)  # it is not installed
        self.assertEqual([row["torch"]["why"] for row in after["plans"]], ["PyTorch is not installed"] * 2)
        self.assertEqual(after["plans"][0]["tokens_per_s"], 4321.0)
        code, said, alone = self.bench(self.case("exit 9"), plans=["--torch", "gpt2_124m"])
        self.assertEqual(alone["plans"][0]["why"], "only PyTorch was measured")

    def test_a_plan_that_does_not_fit_is_skipped(self):
        small = printed({"device_bytes": 2 << 30, "held_bytes": 1 << 29, "bytes": 4e12, "flops": 7e14})
        code, said, result = self.bench(self.case("exit 9"), small, plans=["gpt2_124m"])
        self.assertEqual(code, 1, said)  # nothing was measured
        self.assertEqual(result["plans"][0]["skipped"], "needs 2.5 GiB, and the device has 2.0")
        self.assertIn("skipped: needs 2.5 GiB", said)
        self.assertNotIn("torch", result["plans"][0])

    def test_any_output_is_survived(self):
        for run in ("echo []", "echo no", printed(dict(RUN, step_ps=0)), printed({"steps": 5}),
                    printed(dict(RUN, diagnostics=None))):
            code, _, result = self.bench(self.case(run), plans=["gpt2_124m"])
            self.assertEqual(code, 1, run)
            self.assertTrue(result["plans"][0]["why"], run)
        code, _, result = self.bench(self.case(printed(dict(RUN, last_loss=None)), "exit 1", "exit 1"),
                                     plans=["gpt2_124m"])
        self.assertEqual(code, 1)
        self.assertNotIn("fractions", result["plans"][0])
        self.assertEqual({t["target"]: t["verdict"] for t in result["targets"]}[MEMORY], "not measured")
        self.assertEqual({t["target"]: t["verdict"] for t in result["targets"]}[LOSS], "missed")

    def test_pytorch_that_is_old_or_broken_says_why(self):
        for torch, why in (("raise OSError('libcudnn.so.9: cannot open')\n", "libcudnn.so.9"),
                           ("import nothing_like_it\n", "nothing_like_it"),
                           (FAKE_TORCH % "2.4.1+cu121", "2.5 or newer is needed"),
                           (FAKE_TORCH % "2.9.0", "PyTorch 2.9.0: MemoryFull: CUDA out of memory")):
            code, said, result = self.bench(self.case(printed(RUN)), torch=torch, plans=["gpt2_124m"])
            self.assertEqual(code, 0, said)
            self.assertIn(why, result["plans"][0]["torch"]["why"])
            self.assertFalse(result["plans"][0]["torch"]["run"])


# A fake PyTorch. It has only what is used before the first allocation, which fails.
FAKE_TORCH = """
import sys, types
__version__ = "%s"
for name in ("nn", "nn.functional", "utils", "utils.checkpoint", "_dynamo"):
    m = types.ModuleType("torch." + name)
    m.__path__ = []
    sys.modules["torch." + name] = m
sys.modules["torch.nn"].Module = object
sys.modules["torch.nn"].functional = sys.modules["torch.nn.functional"]
sys.modules["torch.utils.checkpoint"].checkpoint = None
nn = sys.modules["torch.nn"]
class MemoryFull(RuntimeError): pass
class cuda:
    is_available = staticmethod(lambda: True)
print("a line that a library prints")
def manual_seed(n): raise MemoryFull("CUDA out of memory. Tried to allocate\\nmore")
"""

unittest.main()
