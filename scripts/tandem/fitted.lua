-- Written by tests/bench/fit_runs.py, only from rows marked dev-cal; docs/reference/fit.md is its report.
return {
  -- kind: fitted; dev-cal rows by framework and GPU, as docs/reference/fit.md lists them
  -- the fraction of their rate in short measurements that large products keep in a long run; by architecture, or for one GPU
  sustained = { Ampere = 0.9, H100_at_500_W = 0.68, Hopper = 0.75 },
  -- the power that a GPU's cores draw in other kernels, as a fraction of their power in large products (sim/compute/power.c)
  light = { Ampere = 1, H100_at_500_W = 1, Hopper = 0.3 },
  -- a CPU's time to issue an op, relative to the Xeon 8480C of a DGX H100. epyc_7742 is the CPU of a DGX A100
  hosts = { epyc_7742 = 1.4, grace = 1.32 },
  -- the host times of each profile in seconds (docs/reference/plan.md, runtime, explains the keys)
  fsdp1 = { kernel_s = 8e-06, collective_s = 4e-05, unit_s = 0.0006, step_s = 0.08 },
  torchtitan = { kernel_s = 6e-06, compiled_s = 4e-06, tensor_s = 6e-05, unit_s = 0.0003, step_s = 0.01 },
  megatron = { kernel_s = 5e-06, collective_s = 3e-05, step_s = 0.01 },
  megatron2022 = { kernel_s = 3.3e-05, collective_s = 0.00015, step_s = 0.02 },
  megatron_core = { kernel_s = 6.3e-05, call_s = 6e-06, collective_s = 1.5e-05, tensor_s = 3e-05, message_s = 0.0009, pass_s = 0.00036, step_s = 0.018 },
  megatron_core_single = { message_s = 0.0006 },
}
