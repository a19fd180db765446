# Short commands for the CMake presets. `make demo` and `make test` install what is missing
# themselves.
TANDEM = build/release/tandem
PLAN_8B = scripts/plans/llama3_8b.lua
PLAN_TINY = scripts/plans/tiny_text.lua
DEMO_DB = build/demo.db

.PHONY: build demo test docs lint format bench peers gpu-check gpu-bench gpu-pack accuracy fit error-bar mutants coverage plan-mutants fuzz arm asan deps install clean

build: deps
	@cmake --preset release --log-level=NOTICE
	@cmake --build --preset release --target product

demo: build
	@rm -f $(DEMO_DB) $(DEMO_DB)-wal $(DEMO_DB)-shm
	$(TANDEM) check $(PLAN_8B) --db $(DEMO_DB)
	$(TANDEM) sim $(PLAN_8B) --db $(DEMO_DB)
	$(TANDEM) run $(PLAN_TINY) -n 4 --db $(DEMO_DB)
	$(TANDEM) compare --db $(DEMO_DB)

# Every test, in the release build and again under the sanitizers; the last line counts both. Fails
# where nvcc is missing, unless TANDEM_NO_CUDA=1.
test:
	@sh cmake/test.sh release asan

# Writes docs/reference and docs/tandem.svg from the tables that the code uses.
docs: build
	@sh cmake/deps.sh test
	@cmake --preset release --log-level=NOTICE
	@cmake --build --preset release --target docs_generate
	@build/release/tests/docs_generate

asan:
	@sh cmake/test.sh asan

lint: build
	@sh cmake/deps.sh test
	@ctest --preset release -L lint

format:
	@sh tests/lint/files.sh '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

bench: build
	@sh cmake/deps.sh bench
	@cmake --build --preset release
	@sh tests/bench/run.sh build/release

# Runs other simulators on the same cases. CALCULON and SIMUMAX name clones of their repositories.
peers: build
	@python3 tests/bench/peers/peers.py build/release $(if $(CALCULON),--calculon $(CALCULON)) \
	  $(if $(SIMUMAX),--simumax $(SIMUMAX))

# Compares predictions with published measurements. RUNS=..., KERNELS=... and, for collectives,
# COMM=... name other tables with the same columns. (No table of collectives is among the samples.)
RUNS = tests/data/published_runs.csv
KERNELS = tests/data/published_kernels.csv
accuracy: build
	$(TANDEM) accuracy --runs $(RUNS) --kernels $(KERNELS) $(if $(COMM),--comm $(COMM)) --plot build/accuracy.svg

# Fits the constants of step times to the rows of two tables, RUNS=... and MORE=..., whose split is
# dev-cal. Then repeats the fit without each source and without each GPU, and writes the errors on the
# rows left out to docs/reference/fit.md. ONLY="Blackwell megatron_core" fits only these constants.
fit: build
	tests/bench/fit_runs.py $(TANDEM) $(RUNS) $(MORE) $(if $(ONLY),--only $(ONLY))
	$(if $(ONLY),,tests/bench/leave_out.py $(TANDEM) $(RUNS) $(MORE))
	tests/bench/constants.py

# Writes the error bars of predictions, and the rows with which test_error_bar compares them. Run it
# after every change of predictions, with the whole tables: RUNS=..., MORE=... (a second table),
# COMM=.... It fails if a bar covers fewer rows than it states. CHECK=TABLE only checks the present
# bars against that table.
error-bar: build
ifdef CHECK
	$(TANDEM) accuracy --runs $(CHECK) --json >build/error_bar.json
	tests/bench/error_bar.py --check build/error_bar.json
else
	$(TANDEM) accuracy --runs $(RUNS) $(if $(COMM),--comm $(COMM)) --json >build/error_bar.json
	$(if $(MORE),$(TANDEM) accuracy --runs $(MORE) --json >build/error_bar_more.json)
	$(if $(COMM),tests/bench/leave_out_net.py $(TANDEM) $(COMM) build/error_bar_net.json)
	tests/bench/error_bar.py build/error_bar.json $(if $(MORE),build/error_bar_more.json) $(if $(COMM),build/error_bar_net.json)
endif

# gpu-check checks correctness on a GPU; gpu-bench compares the speed with PyTorch. Each takes less
# than 8 minutes on one H200. Neither installs anything, because a machine with a GPU may have no
# network and no package manager.
gpu-check gpu-bench:
	@cmake --preset release --log-level=NOTICE
	@cmake --build --preset release --target product gpu_programs
	@if [ $@ = gpu-check ]; then sh tests/gpu/check.sh build/release; \
	else python3 tests/bench/gpu_bench.py build/release; fi

# Packs an archive for a machine that has a GPU, but no network and no compiler.
gpu-pack:
	@cmake --preset release --log-level=NOTICE
	@cmake --build --preset release --target product gpu_programs
	@sh tests/gpu/pack.sh build/release

# Tries mutants of the C code, drawn by seed: runs the tests that reach the changed line, and prints
# the mutants that survive. FILES="sim/net planner/passes/cp/cp.c:213 ..." draws only from these; N=0
# tries every mutant. SLOW=20 leaves out tests that take longer than 20 s. AGAIN=1 tries the survivors
# of the last draw again.
SEED = 1
N = 100
JOBS = 2
mutants:
	@sh cmake/deps.sh test
	@cmake --preset mutants --log-level=NOTICE
	@cmake --build --preset mutants --target mutant_tests
	$(if $(AGAIN),,tests/mutants/mutants.py --faults)
	tests/mutants/mutants.py $(if $(AGAIN),--again,--seed $(SEED) --n $(N)) --jobs $(JOBS) \
	  $(if $(SLOW),--slow $(SLOW)) $(FILES)

# Counts, by folder, the lines and branches of planner, sim and exec that the tests run. LINES=1
# lists the lines that no test runs and the branches that none takes; FOLDERS="planner/front sim"
# prints only these folders, TESTS=REGEX runs only these tests. It shares a build and measurements
# with `make mutants`.
coverage:
	@sh cmake/deps.sh test
	@cmake --preset mutants --log-level=NOTICE
	@cmake --build --preset mutants --target mutant_tests
	tests/mutants/coverage.py $(if $(JOBS),--jobs $(JOBS)) $(if $(LINES),--lines) \
	  $(if $(TESTS),--tests '$(TESTS)') $(FOLDERS)

# Tries every mutant of the plans in the corpus and of the CUDA kernels. The tests try only a sample
# of these mutants, drawn by a seed.
plan-mutants: build
	@sh cmake/deps.sh test
	@cmake --preset release --log-level=NOTICE && cmake --build --preset release
	TANDEM_MUTANTS=all build/release/tests/exec_test_mutants
	cd build/release/tests/run/cuda_test_mutants && TANDEM_MUTANTS=all ../../cuda_test_mutants

# Runs each fuzz target for SECONDS; needs clang. The tests replay the corpora.
SECONDS = 60
fuzz:
	@sh cmake/deps.sh test
	@cmake --preset fuzz --log-level=NOTICE
	@cmake --build --preset fuzz --target fuzz_targets
	@sh tests/fuzz/run.sh build/fuzz $(SECONDS)

# Builds for 64-bit Arm and runs it by qemu-user: six plans must give the numbers of this machine's
# build, and the golden tests must pass. Takes minutes, and installs an emulator and arm64
# libraries.
arm: build
	@sh cmake/deps.sh arm
	@sh cmake/test.sh arm

deps:
	@sh cmake/deps.sh build

install: build
	@cmake --install build/release

clean:
	@rm -rf build
