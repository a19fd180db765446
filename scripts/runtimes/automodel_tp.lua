-- NeMo Automodel under tensor or context parallelism: Liger's kernels are off, so Hugging Face's
-- eager norms, rope and SwiGLU run. No published run was compared with this profile.

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "automodel_tp", fitted = "torchtitan", casts_gradients = true }
