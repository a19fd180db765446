-- NeMo Automodel under tensor or context parallelism: Liger's kernels are switched off, and Hugging Face's eager
-- norms, rope and SwiGLU are what runs. No published run was compared with it.
return require "runtimes.eager" { name = "automodel_tp", fitted = "torchtitan", casts_gradients = true }
