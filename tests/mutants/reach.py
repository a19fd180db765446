"""Finds the tests that reach a line, and the time of each test. Each test runs once with a special library instead
of the library of a mutant: all files in it are compiled with gcc's --coverage."""
import glob
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tree import HERE, Tree

# The slowest test takes 170 s of one free core, several times as long with counts, and other programs may run.
LIMIT_S = 3600


def gcov(folder, files):
    """Returns the report of gcov for each source file to which these files of counts or notes belong."""
    if not files:
        return
    said = subprocess.run(["gcov", "-b", "--json-format", "--stdout", *files], cwd=folder, capture_output=True)
    for line in said.stdout.splitlines():
        yield from json.loads(line)["files"]


def branches(file, ran):
    """Returns the ways out of conditions, as [line, way]. With `ran`, returns only the ways that were taken."""
    return sorted({(x["line_number"], k) for x in file["lines"] for k, b in enumerate(x["branches"])
                   if b["count"] or not ran})


def covered(folder):
    """Returns {file: (lines, functions, branches)} that ran, from the counts in a folder. Functions are spans of lines."""
    found = {}
    for file in gcov(folder, glob.glob(os.path.join(folder, "*.gcda"))):
        lines = sorted({x["line_number"] for x in file["lines"] if x["count"]})
        spans = sorted([f["start_line"], f["end_line"]] for f in file["functions"] if f["execution_count"])
        if spans:
            found[file["file"]] = [lines, spans, branches(file, True)]
    return found


def last_words(folder):
    """Returns the end of the text that a test printed."""
    with open(os.path.join(folder, "output.txt"), errors="replace") as f:
        return " | ".join(f.read().splitlines()[-8:])[-1000:]


class Reach:
    """Keeps its results in build/reach. A test runs again only if its program or a source changed."""

    def __init__(self, tree: Tree, names, jobs):
        self.tree, self.jobs = tree, jobs
        self.folder = os.path.join(tree.build, "reach")
        self.objects = os.path.join(self.folder, "objects")
        self.names = sorted(names)
        os.makedirs(self.objects, exist_ok=True)
        self.tests = {}   # name: {"seconds": s, "passed": bool, "why": text, "files": {file: [lines, spans]}}

    def measure(self, say):
        stamp = max(self.newest_header(), *(os.path.getmtime(os.path.join(self.tree.source, n)) for n in self.names))
        self._build(say)
        todo = []
        for test in self.tree.tests:
            kept = self._kept(test)
            if os.path.exists(kept) and os.path.getmtime(kept) > max(stamp, os.path.getmtime(test.command[0])):
                with open(kept) as f:
                    self.tests[test.name] = json.load(f)
            else:
                todo.append(test)
        if todo:
            say(f"running {len(todo)} tests once, to see which lines each reaches")
        todo.sort(key=lambda t: -t.cost)  # a long test that begins last would run alone
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self._one, todo))
        failed = {n: t["why"] for n, t in sorted(self.tests.items()) if not t["passed"]}
        if failed:
            say("left out, because they fail without a mutant:")
        for name, why in failed.items():
            say(f"  {name}: {why}")

    def headers(self):
        return [os.path.join(folder, f) for top in {n.split("/")[0] for n in self.names}
                for folder, _, files in os.walk(os.path.join(self.tree.source, top))
                for f in files if f.endswith((".h", ".def"))]

    def newest_header(self):
        return max(map(os.path.getmtime, self.headers()), default=0)

    def _kept(self, test):
        return os.path.join(self.folder, test.name.replace("/", "-") + ".json")

    def _object(self, name):
        return os.path.join(self.objects, name.replace("/", "-")[:-2] + ".o")

    def _build(self, say):
        headers = self.newest_header()

        def one(name):
            path = os.path.join(self.tree.source, name)
            out = self._object(name)
            if os.path.exists(out) and os.path.getmtime(out) > max(os.path.getmtime(path), headers):
                return False
            with open(path) as f:
                if not self.tree.compile(name, f.read(), out, ["-O1", "--coverage"]):
                    raise SystemExit(f"{name} does not compile")
            return True
        with ThreadPoolExecutor(self.jobs) as pool:
            new = sum(pool.map(one, self.names))
        if new or not os.path.exists(os.path.join(self.folder, "libtandem_mutant.so")):
            say(f"compiled {new} files with their counts")
            flush = os.path.join(self.folder, "flush.o")
            subprocess.run(["cc", "-O1", "-fPIC", "-D_POSIX_C_SOURCE=200809L", "-c", os.path.join(HERE, "flush.c"),
                            "-o", flush], check=True)
            self.tree.link([self._object(n) for n in self.names] + [flush], self.folder,
                           ["--coverage", "-Wl,--wrap=_exit", "-Wl,--wrap=kill"])

    def _one(self, test):
        work = os.path.join(self.folder, "work-" + test.name.replace("/", "-"))
        counts = work + "-counts"
        shutil.rmtree(counts, ignore_errors=True)
        strip = len([p for p in self.objects.split("/") if p])
        passed, in_time, seconds = self.tree.run(test, self.folder, work, LIMIT_S,
                                                 {"GCOV_PREFIX": counts, "GCOV_PREFIX_STRIP": str(strip)})
        for gcda in glob.glob(os.path.join(counts, "*.gcda")):
            note = os.path.join(self.objects, os.path.basename(gcda)[:-4] + "gcno")
            if os.path.exists(note):
                os.link(note, gcda[:-4] + "gcno")
        files = {self.short(f): v for f, v in covered(counts).items()}
        why = "" if passed else f"took more than {LIMIT_S} s" if not in_time else last_words(work)
        found = {"seconds": seconds, "passed": passed, "why": why, "files": files}
        with open(self._kept(test), "w") as f:
            json.dump(found, f)
        self.tests[test.name] = found
        shutil.rmtree(counts, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)

    def short(self, file):
        root = self.tree.source + "/"
        return file[len(root):] if file.startswith(root) else file

    def there_is(self):
        """Returns {file: (lines, branches)}: all lines and branches that a test could reach."""
        found = {}
        for file in gcov(self.objects, sorted(glob.glob(os.path.join(self.objects, "*.gcno")))):
            name = self.short(file["file"])
            lines, ways = found.setdefault(name, (set(), set()))
            lines.update(x["line_number"] for x in file["lines"])
            ways.update(branches(file, False))
        return found

    def of(self, name, line, in_function):
        """Returns the tests that reach a line, quickest first: [(seconds, name)]. For a line without a count, it returns the
        tests of the function; for a table outside functions, the tests of the file."""
        passed = [(t["seconds"], n, t["files"].get(name)) for n, t in sorted(self.tests.items()) if t["passed"]]
        passed = [(s, n, f) for s, n, f in passed if f]
        exact = [(s, n) for s, n, f in passed if line in f[0]]
        whole = [(s, n) for s, n, f in passed if any(a <= line <= b for a, b in f[1])]
        return sorted(exact or whole or ([] if in_function else [(s, n) for s, n, _ in passed]))
