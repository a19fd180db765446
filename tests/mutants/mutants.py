#!/usr/bin/env python3
"""Draws mutants of the C code by seed, runs the tests that reach the changed line, and prints the survivors.

    mutants.py [--seed N] [--n N] [--jobs N] [--slow SECONDS] [--least PERCENT] [PATH ...]

    mutants.py --again       tries the survivors of the last draw again, with all tests
    mutants.py --faults      tries the faults of faults.txt instead, each with the tests that it names

PATH is a folder, a file, or FILE:LINE; --n 0 tries every mutant there. A mutant that the compiler refuses, or whose
object is the same as the original's, does not count. Fails if fewer than --least percent are killed."""
import argparse
import os
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import again  # noqa: E402
import faults  # noqa: E402
from draw import changed, in_function, order, shown  # noqa: E402
from reach import Reach  # noqa: E402
from tree import HERE, Tree  # noqa: E402

# Folders without faults: they start and end processes, and need libraries that are not linked here.
FOLDERS = ["planner", "sim", "exec/data", "exec/loopback", "exec/module", "exec/verify", "exec/*.c"]
KINDS = ["unit", "sim", "golden", "exec", "docs", "cuda/test_backend_command"]
LEAST_LIMIT_S = 20  # for a mutant's test; 10 times the seconds without a mutant are added
KILLED, LATE, LIVES, UNREACHED, SAME, REFUSED = "killed", "killed by time-out", "LIVES", "NOT REACHED", "same", "refused"


class Trial:
    """Tries mutants one by one, in a folder of its own."""

    def __init__(self, tree, slow_s, work):
        self.tree, self.slow_s, self.work = tree, slow_s, work
        self.tests = {t.name: t for t in tree.tests}
        self.least_limit_s = LEAST_LIMIT_S
        self.originals = {}
        os.makedirs(work, exist_ok=True)

    def object_of(self, name, text, out):
        """Returns the bytes of the optimised object, or None."""
        if not self.tree.compile(name, text, out):
            return None
        with open(out, "rb") as f:
            return f.read()

    def original_of(self, name, text):
        """Returns the bytes of the object without a mutant; compiles each file once."""
        if name not in self.originals:
            self.originals[name] = self.object_of(name, text, os.path.join(self.work, "original.o"))
        return self.originals[name]

    def fate(self, name, text, site, tests, passed=()):
        """Returns (fate, the test that decided it, the number of tests that ran). tests: [(seconds, name)]. passed: the
        names of tests that need not run."""
        out = os.path.join(self.work, "mutant.o")
        mutant = self.object_of(name, changed(text, site), out)
        if mutant is None:
            return REFUSED, "", 0
        if mutant == self.original_of(name, text):
            return SAME, "", 0
        if not tests:
            return UNREACHED, "", 0
        self.tree.link([out], self.work)
        n = 0
        for seconds, test in tests:
            if self.slow_s and seconds > self.slow_s and n:  # the quickest test runs in any case
                continue
            n += 1
            if test in passed:
                continue
            fine, in_time, _ = self.tree.run(self.tests[test], self.work, os.path.join(self.work, "run"),
                                             self.least_limit_s + 10 * seconds)
            if not fine:
                return (KILLED if in_time else LATE), test, n
        return LIVES, "", n


def sources(tree, paths):
    """Returns {file: (text, lines or None)} for the paths of the command line. Leaves out programs of the build, which
    are in no library."""
    found = {}
    for path in paths:
        path, _, line = path.partition(":")
        one_level = path.endswith("/*.c")
        folder = path[:-4] if one_level else path
        for name in sorted(tree.commands):
            inside = os.path.dirname(name) == folder if one_level else name == path or name.startswith(path + "/")
            if inside:
                with open(os.path.join(tree.source, name)) as f:
                    text = f.read()
                if "\nint main(" in text:
                    continue
                lines = found.get(name, (0, set()))[1] or set()
                found[name] = (text, lines | {int(line)} if line else None)
    return found


def drawn(texts, seed):
    for name, site in order({n: t for n, (t, _) in texts.items()}, seed):
        lines = texts[name][1]
        if not lines or site.line in lines:
            yield name, site


def attack(tree, reach, texts, mutants, n, jobs, slow_s, say, kept_in=None, passed=()):
    """Tries mutants [(file, site)] until n of them count. Returns [(fate, file, site, test)] in the order in which they were drawn.
    After each mutant, it writes the survivors so far to the file `kept_in`, so that a draw can be stopped. passed: tests
    that all of these mutants are known to pass."""
    todo, done, lock = enumerate(mutants), {}, threading.Lock()
    quick = [t for t, found in reach.tests.items() if not slow_s or found["seconds"] <= slow_s]

    def worker(number):
        trial = Trial(tree, slow_s, os.path.join(tree.build, "work", str(number)))
        while True:
            with lock:
                counted = sum(f[0] not in (SAME, REFUSED) for f in done.values())
                i, (name, site) = next(todo, (0, (None, None)))
                if name is None or (n and counted >= n):
                    return
                done[i] = ("running", name, site, "")  # counts as one, until it is known
            text = texts[name][0]
            start = time.time()
            fate, test, n_tests = trial.fate(name, text, site, reach.of(name, site.line, in_function(text, site.line)), passed)
            with lock:
                done[i] = (fate, name, site, test)
                if kept_in:
                    again.keep(kept_in, [done[k] for k in sorted(done)], texts, quick)
            if fate not in (SAME, REFUSED):
                say(f"{fate:18} {name}:{site.line}: {shown(text, site)}"
                    + (f"  [{test}]" if test else f"  [{n_tests} tests]") + f"  {time.time() - start:.0f} s")
    threads = [threading.Thread(target=worker, args=(k,)) for k in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [done[i] for i in sorted(done)]


def seconds_without_fault(trial, names, jobs):
    """Returns {test: seconds that it takes now without a fault}. Every test must pass."""
    empty, found = os.path.join(trial.work, "empty"), {}
    trial.tree.link([], empty)

    def one(name):
        start = time.time()
        if not trial.tree.run(trial.tests[name], empty, os.path.join(empty, name.replace("/", "-")), 600)[0]:
            raise SystemExit(f"{name} fails without a fault")
        found[name] = time.time() - start
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, names))
    return found


def attack_by_faults(tree, known, jobs, say):
    """Tries each fault with the tests that it names. A test that takes much longer than without the fault is stopped, and
    has detected the fault. Returns [(fate, file, site, test)]."""
    work = os.path.join(tree.build, "work", "faults")
    seconds = seconds_without_fault(Trial(tree, 0, work), sorted({t for f in known for t in f.tests}), jobs)
    trials = queue.SimpleQueue()
    for k in range(jobs):
        trials.put(Trial(tree, 0, os.path.join(work, str(k))))

    def one(fault):
        with open(os.path.join(tree.source, fault.file)) as f:
            text = f.read()
        site, trial = faults.site(fault, text), trials.get()
        fate, test, _ = trial.fate(fault.file, text, site, sorted((seconds[t], t) for t in fault.tests))
        trials.put(trial)
        say(f"{fate:18} {fault.file}:{site.line}: {fault.why}" + (f"  [{test}]" if test else ""))
        return fate, fault.file, site, test
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, known))


def report(fates, texts, say):
    """Prints the numbers. Returns the percentage of mutants that were killed."""
    count = {f: sum(x[0] == f for x in fates) for f in (KILLED, LATE, LIVES, UNREACHED, SAME, REFUSED)}
    lives = [x for x in fates if x[0] in (LIVES, UNREACHED)]
    if lives:
        say("\nsurvivors:")
    for fate, name, site, _ in sorted(lives, key=lambda x: (x[1], x[2].line)):
        say(f"  {name}:{site.line}: {shown(texts[name][0], site)}" + (" (no test reaches it)" if fate == UNREACHED else ""))
    n = len(fates) - count[SAME] - count[REFUSED]
    killed = count[KILLED] + count[LATE]
    share = 100.0 * killed / n if n else 100.0
    say(f"\n{n} mutants drawn, {killed} killed ({share:.1f} %), {count[LATE]} of them by time-out, {len(lives)} survived, "
        f"{count[UNREACHED]} of them reached by no test; not counted: {count[SAME]} with the same object, "
        f"{count[REFUSED]} refused by the compiler")
    return share


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build/mutants")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--n", type=int, default=100)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--slow", type=float, default=0.0, help="leave out tests that take longer; 0: none")
    p.add_argument("--least", type=float, default=0.0)
    p.add_argument("--again", action="store_true")
    p.add_argument("--faults", action="store_true")
    p.add_argument("paths", nargs="*")
    options = p.parse_args()
    os.nice(10)
    lock = threading.Lock()

    def say(text):
        with lock:
            print(text, flush=True)
    source = os.path.dirname(os.path.dirname(HERE))
    tree = Tree(source, os.path.join(source, options.build), KINDS)
    if options.faults:
        fates = attack_by_faults(tree, faults.read(), options.jobs, say)
        bad, late = (sum(f[0] in words for f in fates) for words in ((LIVES, UNREACHED, SAME, REFUSED), (LATE,)))
        say(f"{len(fates)} faults, {len(fates) - bad} seen, {late} of them by time-out")
        return 1 if bad else 0
    if options.slow:
        tree.tests = [t for t in tree.tests if t.cost <= options.slow]
    known = sources(tree, FOLDERS)
    reach = Reach(tree, known, options.jobs)
    reach.measure(say)
    texts = sources(tree, options.paths or FOLDERS)
    if not texts:
        raise SystemExit("no such file among those that are drawn from")
    survivors = os.path.join(tree.build, "survivors.json")
    if options.again:
        passed = again.passed(survivors, {t.name: t.command[0] for t in tree.tests},
                              [os.path.join(source, name) for name in known] + reach.headers())
        say(f"survivors of the last draw, {len(reach.tests)} tests; the draw has tried {len(passed)} of them already")
        fates = attack(tree, reach, texts, again.kept(survivors, texts, say), 0, options.jobs, options.slow, say,
                       passed=passed)
    else:
        say(f"seed {options.seed}, {len(texts)} files, {len(reach.tests)} tests")
        fates = attack(tree, reach, texts, drawn(texts, options.seed), options.n, options.jobs, options.slow, say,
                       survivors)
    return 0 if report(fates, texts, say) >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
