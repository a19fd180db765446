"""A build tree in which every program loads all code under test from one shared library, and before it the library of
one mutant. This file compiles a file of the tree, lists the tests, and runs a test."""
import json
import os
import resource
import shlex
import shutil
import subprocess
import threading
from collections import namedtuple

HERE = os.path.dirname(os.path.realpath(__file__))
LIBRARY = "libtandem_mutant.so"
MEMORY_BYTES = 8 << 30
FILE_BYTES = 1 << 30
SKIPPED = 77

# cost: seconds that the build states of long tests; 0: not stated
Test = namedtuple("Test", "name command environment cost", defaults=(0,))

# Every compiler detects a mutant whose types do not fit, so it does not count.
STRICT = ["-g0", "-O2", "-Werror=incompatible-pointer-types", "-Werror=int-conversion",
          "-Werror=discarded-qualifiers", "-Werror=format", "-Werror=implicit-function-declaration", "-Werror=div-by-zero"]


# Maps the memory of several GPUs. The maps and their files are larger than the limits, but nearly empty.
MAPS_GPUS = "cuda/test_backend_command"


def limit(test):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if test.name != MAPS_GPUS:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


class Tree:
    def __init__(self, source, build, kinds):
        self.source, self.build, self.lock = source, build, threading.Lock()
        with open(os.path.join(build, "compile_commands.json")) as f:
            entries = json.load(f)
        self.commands = {os.path.relpath(e["file"], source): e for e in entries
                         if not e.get("output", "").startswith("tests/")}
        self.tests = [t for t in self.all_tests() if t.name.split("/")[0] in kinds or t.name in kinds]

    def all_tests(self):
        said = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.build, capture_output=True, check=True)
        for test in json.loads(said.stdout)["tests"]:
            if "command" not in test or not os.path.exists(test["command"][0]):
                continue
            known = {p["name"]: p["value"] for p in test["properties"]}
            environment = dict(v.split("=", 1) for v in known.get("ENVIRONMENT", []))
            yield Test(test["name"], test["command"], environment, known.get("COST", 0))

    def compile(self, name, text, out, extra=()):
        """Compiles `text` in place of the file `name`, to the object `out`. Returns false if the compiler refuses it."""
        entry = self.commands[name]
        words = shlex.split(entry["command"])
        words = [w for w in words if os.path.basename(w) != "ccache"]
        at = words.index("-o")
        words = [w for w in words[:at] + words[at + 2:] if w != "-c" and not w.startswith("-W") and not w.endswith(name)]
        path = os.path.join(self.source, name)
        run = subprocess.run(words + STRICT + list(extra) + ["-x", "c", "-c", "-", "-o", out], cwd=entry["directory"],
                             input=f'# 1 "{path}"\n{text}'.encode(), capture_output=True)
        return run.returncode == 0

    def link(self, objects, folder, extra=()):
        """Links the library of a mutant in `folder`. Symbols that its objects do not define come from the library of all code."""
        os.makedirs(folder, exist_ok=True)
        guard = os.path.join(self.build, "guard.o")
        if not os.path.exists(guard):
            subprocess.run(["cc", "-O2", "-fPIC", "-D_POSIX_C_SOURCE=200809L", "-c", os.path.join(HERE, "guard.c"),
                            "-o", guard], check=True)
        subprocess.run(["cc", "-shared", *objects, guard, *extra, "-o", os.path.join(folder, LIBRARY)], check=True)

    def run(self, test, folder, work, limit_s, more=None):
        """Runs a test with the library in `folder`. Returns (passed, ended in time, processor seconds)."""
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        environment = {**os.environ, **test.environment, "LD_LIBRARY_PATH": folder, "CMOCKA_TEST_ABORT": "1",
                       "TMPDIR": work, **(more or {})}
        # The output goes to a file, because a process that outlives the test would hold a pipe open.
        with open(os.path.join(work, "output.txt"), "wb") as output:
            process = subprocess.run([self.nest(), str(limit_s), *test.command], cwd=work, env=environment,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output,
                                     start_new_session=True, preexec_fn=lambda: limit(test))
        word, seconds = process.stdout.decode().split()
        return word == "ended" and process.returncode in (0, SKIPPED), word == "ended", float(seconds)

    def nest(self):
        """Returns the program that runs a test and ends every process that the test leaves."""
        made, text = os.path.join(self.build, "nest"), os.path.join(HERE, "nest.c")
        with self.lock:
            if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(text):
                subprocess.run(["cc", "-O2", "-D_POSIX_C_SOURCE=200809L", text, "-o", made], check=True)
        return made
