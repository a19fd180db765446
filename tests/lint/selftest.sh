#!/bin/sh
# Tests the lint checks: each must name the file with the fault in a small tree with one fault, and
# report nothing in a tree without fault.
lint=$(dirname "$(realpath "$0")")
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
failures=0

write() { # FILE TEXT: the tree's only file beside a sound one
    rm -rf "$tree"
    mkdir -p "$tree/planner/base" "$tree/$(dirname "$1")"
    printf 'int sound(void);\n' >"$tree/planner/base/sound.h"
    printf "$2" >"$tree/$1"
    [ -z "$3" ] && return
    mkdir -p "$tree/$(dirname "$3")"
    printf "$4" >"$tree/$3"
}

rejects() { # CHECK FILE TEXT [OTHER_FILE ITS_TEXT]
    write "$2" "$3" "$4" "$5"
    if output=$(sh "$lint/$1.sh" "$tree" 2>&1) || ! echo "$output" | grep -q "$2"; then
        echo "$1 accepts $2: $3"
        failures=$((failures + 1))
    fi
}

accepts() {
    write "$2" "$3"
    if ! output=$(sh "$lint/$1.sh" "$tree" 2>&1); then
        echo "$1 rejects $2: $3: $output"
        failures=$((failures + 1))
    fi
}

# Compiles FOLDER/a.c and FOLDER/b.c, which call each other, or of which only a.c calls b.c.
knot() { # FOLDER_OF_A FOLDER_OF_B CODE_OF_B
    rm -rf "$tree/t.dir"
    mkdir -p "$tree/t.dir/$1" "$tree/t.dir/$2"
    echo 'void b(void); void a(void); void a(void) { b(); }' | cc -xc -c -o "$tree/t.dir/$1/a.c.o" -
    echo "void a(void); void b(void); void b(void) { $3 }" | cc -xc -c -o "$tree/t.dir/$2/b.c.o" -
    sh "$lint/cycles.sh" "$tree/t.dir/$1/a.c.o" "$tree/t.dir/$2/b.c.o" >/dev/null
}
fault() {
    echo "$1"
    failures=$((failures + 1))
}
if knot sim exec 'a();'; then fault 'cycles accepts a knot over two folders'; fi
if ! knot sim sim 'a();'; then fault 'cycles rejects a knot of two files of one folder'; fi
if ! knot sim exec ''; then fault 'cycles rejects a call in one direction'; fi

rejects layers planner/ir/a.c '#include "planner/passes/passes.h"\n'
rejects layers sim/a.c '#include "exec/runtime.h"\n'
rejects layers exec/a.c '#include "sim/engine.h"\n'
rejects layers sim/a.c '#include "engine.h"\n'
rejects layers cli/a.c '#include <lua.h>\n'
rejects layers store/store.c '  #  include <sqlite3.h>\n'
rejects layers exec/a.c '#include <mpi.h>\n'
rejects layers kernels/cpu/a.c '#include <cublasLt.h>\n'
rejects layers planner/front/a.c 'void f(void)\n{\n    exit(1);\n}\n'
rejects layers sim/a.c 'void f(void)\n{\n    _exit(1);\n}\n'
rejects layers other/a.c 'int a;\n'
accepts layers exec/a.c '#include "planner/ir/plan.h"\n/* exit(1) */\n'
accepts layers cli/a.c '#include "sim/engine.h"\nvoid f(void)\n{\n    exit(1);\n}\n'
accepts layers exec/launch/launch.c '#include "exec/a.h"\nvoid f(void)\n{\n    exit(1);\n}\n'
accepts layers planner/front/sandbox.c '#include <lua.h>\nvoid f(void)\n{\n    _exit(1);\n}\n'
rejects format planner/base/a.c 'int  a ;\n'
accepts format planner/base/a.c 'int a;\n'
rejects sizes planner/base/a.c "$(yes 'int a;' | head -n 501)\n"
write planner/base/a.c 'int a;\n'
i=0
while [ $i -lt 23 ]; do : >"$tree/planner/base/$((i += 1)).c"; done
if ! sh "$lint/sizes.sh" "$tree"; then fault 'sizes rejects a folder of 25 files'; fi
: >"$tree/planner/base/24.c"
if sh "$lint/sizes.sh" "$tree" >/dev/null; then fault 'sizes accepts a folder of 26 files'; fi
rejects sizes tests/unit/a.c "$(yes 'int a;' | head -n 701)\n"
rejects sizes planner/base/a.c "void f(void)\n{\n$(yes '    f();' | head -n 69)\n}\n"
accepts sizes planner/base/a.c "void f(void)\n{\n$(yes '    f();' | head -n 68)\n}\n"
rejects banned planner/base/a.c 'void f(char *a)\n{\n    strcpy(a, "b");\n}\n'
rejects banned planner/base/a.c '/* TO''DO */\n'
accepts banned planner/base/a.c '/* strcpy(a) */ const char *a = "system(1)"; int my_rand(int);\n'
rejects paths planner/base/a.c '/* see /home/me/x */\n'
rejects paths script.lua 'return 1\n'
rejects paths counts.txt '1 2\n'
accepts paths planner/base/a.c '/* see ../mnt/x and build/mnt/x */\n'
rejects words planner/base/a.h '/* What a rank holds. */\n'
rejects words planner/base/a.h '/* A rank.\n * What it holds. */\n'
rejects words planner/base/a.h 'int a; /* whole. Whoever reads it */\n'
rejects words planner/base/a.h '/* what is left of it */\n'
accepts words planner/base/a.h '/* Says what a rank holds. */ const char *a = "What of it";\n'
accepts words planner/base/a.c '/* What a rank holds. */\n'
rejects comments planner/base/a.h '/* Files.\n * a.c  one\n * b.c */\n'
rejects comments planner/base/a.h '/* Files.\n *   a.c  one  } first,\n *   b.c  two  } then */\n'
rejects comments planner/base/a.h '/* What a plan holds.\n * It is data. / */\n'
accepts comments planner/base/a.h 'int a = 4 /* of 8 */ / 2; /* of 2 / 3 */\n'
accepts comments planner/base/a.h '/* Files, as in pp { csv = 1 } here.\n *   a.c  one\n *   b.c  two */\n'
rejects names sim/a.c 'int a = AXIS_tp;\n'
rejects names planner/passes/a.c 'bool is = n->split[a] == \047s\047;\n'
rejects names planner/passes/a.c 'n->split[a] = \047g\047;\n'
rejects names sim/a.c 'double n = size[\047b\047];\n'
rejects names cli/a.c 'bool is = strcmp(axis_name_text(a), "tp") == 0;\n'
rejects names planner/verify/a.c 'int64_t n = t->dim[2];\n'
rejects names planner/passes/a.c 'bool is = n->op == OP_embed;\n'
rejects names planner/verify/a.c 'if (a != OP_none && b != OP_xent_loss) return;\n'
rejects names sim/a.c 'bool is = strcmp(op_info(op)->name, "embed_grad") == 0;\n'
accepts names planner/lower/a.c 'Node n = {.op = OP_tokens}; bool is = op == OP_none;\n'
accepts names sim/a.c 'int64_t size[\047z\047 + 1]; int b = AXIS_NAMES | AXIS_STAGES;\n'
accepts names kernels/cpu/a.c 'int64_t n = a->size[\047s\047];\n'
rejects types planner/base/a.h 'typedef struct Fit {\n    int a;\n} Fit;\n' sim/b.c 'typedef enum Fit { FIT_a } Fit;\n'
accepts types planner/base/a.h 'typedef struct Fit {\n    int a;\n} Fit;\n'
rejects headers planner/base/a.h 'size_t a(void);\n'
accepts headers planner/base/a.h '#include <stddef.h>\nsize_t a(void);\n'
rejects docs README.md "$(yes '#' | head -n 201)\n"
rejects docs docs/a.md 'See [b](b.md).\n'
rejects docs docs/a.md '# A\n\nSee [b](#b).\n'
rejects docs docs/a.md "$(yes 'a line' | head -n 7)\n"
rejects docs docs/a.md "$(yes word | head -n 30 | tr '\n' ' ')\n"
accepts docs docs/a.md "# A \`b\`, c\n\nSee [a](a.md#a-b-c).\n\n- $(yes 'a line' | head -n 6)\n- a line\n\n| $(yes word | head -n 30 | tr '\n' ' ')\n"

if sh "$lint/symbols.sh" "$(command -v mpirun.openmpi || command -v mpirun)" >/dev/null 2>&1; then
    echo "symbols accepts a program that links Open MPI"
    failures=$((failures + 1))
fi
sh "$lint/symbols.sh" "$(command -v sh)" || failures=$((failures + 1))
[ "$failures" -eq 0 ]
