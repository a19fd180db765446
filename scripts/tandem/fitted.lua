-- Written by tests/bench/fit_runs.py from rows marked dev-cal alone; docs/fit.md is its report.
return {
  -- part of the peak of short measurements that lasts in a run, by architecture
  sustained = { Ampere = 0.93, Hopper = 0.78 },
  -- sustained goes with (limit of power / the chip's usual limit) to this
  power = 0.408,
  -- host times in seconds, by profile
  fsdp1 = { kernel_s = 8e-06, collective_s = 0.00015, unit_s = 0.001, step_s = 0.08 },
  torchtitan = { kernel_s = 6e-06, compiled_s = 4e-06, tensor_s = 6e-05, unit_s = 0.0003, step_s = 0.01 },
  megatron = { kernel_s = 5e-6, collective_s = 30e-6, step_s = 10e-3 },
  megatron2022 = { kernel_s = 18e-6, collective_s = 40e-6, step_s = 10e-3 },
}
