-- NeMo Automodel under tensor or context parallelism: it switches Liger's kernels off, so Hugging
-- Face's eager norms, rope and SwiGLU run. No published run was compared with it.

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "automodel_tp", fitted = "torchtitan", casts_gradients = true }
