"""Tests the tool of `make mutants` on a small program: a fault that the program's test detects is killed, a fault that
no test can detect survives, and nothing but code is changed."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import again  # noqa: E402
import coverage  # noqa: E402
import faults  # noqa: E402
from draw import Site, changed, in_function, order, shown, sites  # noqa: E402
from mutants import (KILLED, LATE, LIVES, REFUSED, SAME, UNREACHED, Trial, attack, attack_by_faults, drawn,  # noqa: E402
                     report, sources)
from reach import Reach  # noqa: E402
from tree import Test, Tree  # noqa: E402

SMALL = r"""#include <assert.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* a + b is no code */
int small_sum(int a, int b)
{
    assert(a + b > 0); const char *text = "a + b"; (void)text;
    return a + b;
}
int small_clamp(int x)
{
    if (x > 99) return 0;
    return x < 9 ? x : 9;
}
int small_steps(int n)
{
    int steps = 0;
    while (n > 0) n -= 1, steps++;
    return steps;
}
int small_probe(int pid)
{
    return kill(pid, 0);
}
int small_leave(int n)
{
    int left = 0;
    if (n > 99)
        while (fork() >= 0 && left < 9) left++, setsid(), sleep(1);
    return left;
}
int small_child(void)
{
    int ends[2];
    char told = 0;
    if (pipe(ends) != 0) return 0;
    const int pid = fork();
    if (pid == 0) {
        if (write(ends[1], &told, 1) != 1) _exit(1);
        nanosleep(&(struct timespec){0, 100000000}, 0);
        told = 1;
        _exit(told);
    }
    if (read(ends[0], &told, 1) == 1) kill(pid, SIGKILL);
    return waitpid(pid, 0, 0) == pid;
}
int small_unused(int x)
{
    return x + 1;
}
"""
PROGRAM = r"""#include <unistd.h>
int small_sum(int a, int b), small_clamp(int x), small_steps(int n), small_probe(int pid), small_leave(int n), small_child(void);
int main(void)
{
    for (int x = 0; x < 20; x++)
        if (small_clamp(x) != (x < 9 ? x : 9)) return 1;
    return small_sum(2, 3) != 5 || small_steps(4) != 4 || small_probe(getpid()) != 0 || small_leave(7) != 0 || !small_child();
}
"""


class SmallTree(Tree):
    """A tree with one file of code, one program, and that program as its only test."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(os.path.join(folder, "code"))
        with open(os.path.join(folder, "code/small.c"), "w") as f:
            f.write(SMALL)
        for name in ["program.c", "code/tool.c"]:
            with open(os.path.join(folder, name), "w") as f:
                f.write(PROGRAM)

        def cc(*words):
            subprocess.run(["cc", *words], cwd=folder, check=True)
        flags = ["-D_POSIX_C_SOURCE=200809L", "-fPIC"]
        cc(*flags, "-shared", "code/small.c", "-o", "liball.so")
        with open(os.path.join(folder, "compile_commands.json"), "w") as f:
            json.dump([{"directory": folder, "file": f"{folder}/code/{name}.c", "output": f"code/{name}.o",
                        "command": f"cc {' '.join(flags)} -o code/{name}.o -c {folder}/code/{name}.c"}
                       for name in ["small", "tool"]], f)
        super().__init__(folder, folder, ["unit"])
        self.link([], folder)
        cc("program.c", "-o", "program", "-Wl,--no-as-needed,--enable-new-dtags,-rpath," + folder,
           "libtandem_mutant.so", "liball.so")

    def all_tests(self):
        return [Test("unit/program", [os.path.join(self.folder, "program")], {})]


def planted(old, new):
    start = SMALL.rindex(old)
    return Site("planted", start, start + len(old), new, SMALL.count("\n", 0, start) + 1)


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tandem-mutants-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.tree = SmallTree(self.folder)

    def fate(self, site, tests=(("0.01", "unit/program"),), limit_s=60):
        """limit_s: short only where the program never ends, because a busy machine delays the others."""
        trial = Trial(self.tree, 0, os.path.join(self.folder, "work"))
        trial.least_limit_s = limit_s
        return trial.fate("code/small.c", SMALL, site, [(float(s), n) for s, n in tests])[0]

    def test_each_fate_is_recognised(self):
        self.assertEqual(self.fate(planted("a + b", "a - b")), KILLED)
        self.assertEqual(self.fate(planted("n -= 1", "n += 0"), limit_s=1), LATE)
        self.assertEqual(self.fate(planted("x > 99", "x > 98")), LIVES)  # the program has no such x
        self.assertEqual(self.fate(planted("x + 1", "x + 2"), ()), UNREACHED)
        self.assertEqual(self.fate(planted("a + b", "b + a")), SAME)
        self.assertEqual(self.fate(planted("a + b", 'a + "b"')), REFUSED)

    def test_faults_of_a_table_are_tried(self):
        known = [faults.Fault("code/small.c", ["unit/program"], old, new, "why")
                 for old, new in (("return a + b;", "return a - b;"), ("n -= 1", "n += 0"), ("x > 99", "x > 98"))]
        start = time.monotonic()
        fates = attack_by_faults(self.tree, known, 2, lambda text: None)
        self.assertEqual([f[0] for f in fates], [KILLED, LATE, LIVES])
        self.assertTrue(time.monotonic() - start < 100)  # the endless test was stopped

    def test_a_failing_test_detects_no_fault(self):
        known = [faults.Fault("code/small.c", ["unit/program"], "return a + b;", "return a - b;", "why")]
        self.tree.tests = [Test("unit/program", ["/bin/false"], {})]
        with self.assertRaises(SystemExit):
            attack_by_faults(self.tree, known, 1, lambda text: None)

    def test_programs_are_left_out(self):
        self.assertEqual(list(sources(self.tree, ["code"])), ["code/small.c"])

    def test_processes_of_others_are_safe(self):
        self.assertEqual(self.fate(planted("kill(pid, 0)", "kill(1, 0)")), KILLED)

    def test_no_process_is_left(self):
        self.assertEqual(self.fate(planted("n > 99", "n < 99"), limit_s=1), LATE)
        said = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout.decode()
        self.assertEqual([x for x in said.splitlines() if os.path.join(self.folder, "program") in x], [])

    @unittest.skipUnless(shutil.which("gcov"), "needs gcov")
    def test_reached_lines_decide_the_report(self):
        reach = Reach(self.tree, ["code/small.c"], 1)
        reach.measure(lambda text: None)
        line = SMALL[:SMALL.index("return a + b")].count("\n") + 1
        self.assertEqual([n for _, n in reach.of("code/small.c", line, True)], ["unit/program"])
        unused = planted("x + 1", "").line
        self.assertEqual(reach.of("code/small.c", unused, True), [])
        texts = {"code/small.c": (SMALL, {line, unused})}
        kept = os.path.join(self.tree.build, "survivors.json")
        fates = attack(self.tree, reach, texts, drawn(texts, 1), 0, 2, 0, lambda text: None, kept)
        with open(kept) as f:
            self.assertEqual([x["line"] for x in json.load(f)["survivors"]],
                             [s.line for fate, _, s, _ in fates if fate in (LIVES, UNREACHED)])
        passed = again.passed(kept, {"unit/program": self.tree.tests[0].command[0]}, [])
        self.assertEqual(passed, {"unit/program"})
        # a test that is known to pass does not run, so it kills nothing
        self.assertTrue(any(fate == KILLED for fate, *_ in fates))
        spared = attack(self.tree, reach, texts, drawn(texts, 1), 0, 2, 0, lambda text: None, passed=passed)
        self.assertFalse(any(fate == KILLED for fate, *_ in spared))
        said = []
        share = report(fates, texts, said.append)
        self.assertTrue(0 < share < 100)
        self.assertIn(f"code/small.c:{unused}:", "\n".join(said))
        self.assertNotIn(f"code/small.c:{line}:", "\n".join(said))

    @unittest.skipUnless(shutil.which("gcov"), "needs gcov")
    def test_coverage_lists_what_no_test_runs(self):
        reach = Reach(self.tree, ["code/small.c"], 1)
        reach.measure(lambda text: None)
        texts = {"code/small.c": (SMALL, None)}
        found = coverage.measure(reach, texts)
        said = []
        coverage.report(found, texts, True, said.append)
        lines, ran, ways, taken = found["code/small.c"]
        self.assertIn(f"{len(lines)}", said[1].split())
        self.assertTrue(len(ran) < len(lines) and len(taken) < len(ways))
        never = [planted(t, "").line for t in ("while (fork()", "int small_unused", "return x + 1")]
        self.assertIn(f"  lines that no test runs: {', '.join(map(str, never))}", said)
        self.assertEqual(said[-1].split(), ["other", "lines", str(len(never))])
        killed = planted("told = 1", "").line   # runs in a process that its parent kills
        self.assertIn(killed, ran)
        # The program has no such x or n, and pipes do not fail.
        one_way = [planted(t, "").line for t in ("x > 99", "n > 99", "pipe(ends)", "write(", "read(")]
        expected = ", ".join(f"{line} (1 of 2)" for line in one_way)
        self.assertIn(f"  branches that no test takes, by line: {expected}", said)


class Draw(unittest.TestCase):
    def test_tables_are_in_no_function(self):
        text = "static const int a[] = {\n    1,\n};\nint f(int x)\n{\n    return x;\n}\n"
        self.assertEqual([in_function(text, line) for line in (2, 6)], [False, True])

    def test_code_alone_is_changed(self):
        made = [changed(SMALL, s) for s in sites(SMALL)]
        self.assertTrue(len(made) > 15)
        for text in made:
            self.assertNotEqual(text, SMALL)
            self.assertEqual(text.count("\n"), SMALL.count("\n"))
            for kept in ("/* a + b is no code */", '"a + b"', "assert(a + b > 0)", "#include <signal.h>"):
                self.assertIn(kept, text)

    def test_every_kind_is_drawn(self):
        text = ("void f(int n)\n{\n    if (n && g(n, 7)) {\n        h(n - 1, 2.5);\n        n += 1;\n    }\n"
                '    diag_error(d, "%d", n + 1);\n    int x[4] = {0}, *p = &x[1];\n    break;\n}\n')
        said = [shown(text, s) for s in sites(text)]
        for wanted in ("if (n || g(n, 7))", "if (!(n && g(n, 7)))", "g(7, n)", "g(n, 8)", "h(n + 1, 2.5)",
                       "h(n - 1, (2 * 2.5))", "n -= 1", "n += 2", "dropped `h(n - 1, 2.5)`", "dropped `n += 1`",
                       "dropped `diag_error(d", "dropped `break`", "{1}", "&x[2]"):
            self.assertTrue(any(wanted in x for x in said), wanted)
        for unwanted in ("n + 2", "n - 1)`", "x[5]", "int x[3]"):
            self.assertFalse(any(unwanted + ";" in x for x in said), unwanted)

    def test_arguments_that_commute_are_not_exchanged(self):
        said = [shown(t, s) for t in ["void f(void)\n{\n    x = arena_array(a, n, 8), y = fmax(p, q), z = g(r, s);\n}\n"]
                for s in sites(t) if s.kind == "arguments"]
        self.assertEqual([x.split(" -> ")[1] for x in said],
                         ["`x = arena_array(n, a, 8), y = fmax(p, q), z = g(r, s);`",
                          "`x = arena_array(a, n, 8), y = fmax(p, q), z = g(s, r);`"])

    def test_survivors_are_found_again(self):
        folder = tempfile.mkdtemp(prefix="tandem-mutants-")
        self.addCleanup(shutil.rmtree, folder)
        path, texts = os.path.join(folder, "survivors.json"), {"small.c": (SMALL, None)}
        all_sites = sites(SMALL)
        one, two = (next(s for s in all_sites if s.line == planted(t, "").line) for t in ("x > 99", "n -= 1"))
        again.keep(path, [(LIVES, "small.c", one, ""), (KILLED, "small.c", all_sites[0], "t"),
                          (UNREACHED, "small.c", two, "")], texts)
        said = []
        self.assertEqual(list(again.kept(path, texts, said.append)), [("small.c", one), ("small.c", two)])
        program = os.path.join(folder, "program")
        again.keep(path, [(LIVES, "small.c", one, ""), (UNREACHED, "small.c", two, "")], texts, ["t", "gone"])
        shutil.copy(path, program)
        os.utime(program, (0, 0))
        self.assertEqual(again.passed(path, {"t": program, "new": program}, []), {"t"})
        self.assertEqual(again.passed(path, {"t": program}, [program]), {"t"})
        later = os.path.getmtime(path) + 9
        os.utime(program, (later, later))
        self.assertEqual(again.passed(path, {"t": program}, []), set())  # the test is newer than the draw
        self.assertEqual(again.passed(path, {"t": path}, [program]), set())  # the code is newer
        moved = {"small.c": ("\n" + SMALL.replace("n -= 1", "n -= 3"), None)}
        self.assertEqual([s.line for _, s in again.kept(path, moved, said.append)], [one.line + 1])
        self.assertEqual([x.split()[:2] for x in said], [["GONE", f"small.c:{two.line}:"]])

    def test_a_seed_gives_one_order(self):
        texts = {"a.c": SMALL, "b.c": SMALL}
        first, again, other = (list(order(texts, seed)) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(sorted(first), sorted(other))


class Faults(unittest.TestCase):
    def test_each_stands_in_its_file(self):
        root = os.path.dirname(os.path.dirname(HERE))
        known = faults.read()
        self.assertTrue(len(known) >= 10)
        for fault in known:
            with open(os.path.join(root, fault.file)) as f:
                text = f.read()
            self.assertNotEqual(changed(text, faults.site(fault, text)), text)
            self.assertTrue(fault.tests and fault.why)
            for test in fault.tests:
                kind, _, name = test.partition("/")
                found = [x for _, _, files in os.walk(os.path.join(root, "tests", kind)) for x in files]
                self.assertIn(name + ".c", found)


if __name__ == "__main__":
    unittest.main()
