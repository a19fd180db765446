#!/bin/sh
# module_symbols.sh COMMAND MODULE: checks every symbol that the CUDA module leaves undefined. The command
# must define it, or a library with a version (symbol@VERSION), or its name must begin like CUDA's and
# NCCL's calls. So the check finds a kernel that is missing or whose name C++ has mangled. No symbol may
# be defined in both, because the module's callers would get the command's.
command=${1:?the path of the command} module=${2:?the path of the module}
nm -D "$module" | grep -q ' D tandem_cuda_module$' || { echo "$module: no tandem_cuda_module"; exit 1; }
{
    nm -D --defined-only "$command"
    echo ==
    nm -D "$module"
} | awk '$1 == "==" { in_module = 1; next }
    !in_module { has[$NF] = 1; next }
    $1 == "w" { next }
    $1 != "U" && $NF in has { print $NF " is in both"; bad = 1 }
    $1 == "U" && $2 !~ /@/ && $2 !~ /^(nccl|cublasLt|cuda)[A-Z]/ && !($2 in has) {
        print "nobody has " $2
        bad = 1
    }
    END { exit bad }'
