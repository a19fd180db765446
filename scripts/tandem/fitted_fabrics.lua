-- Written by tests/bench/fit_comm.sh, only from rows marked dev-cal; docs/reference/fit_network.md is its report.
return {
  -- kind: fitted; dev-cal rows of published collectives (docs/reference/fit_network.md)
  efa1 = { message_s = 23.5e-6, achieved = 0.849, ramp_s = 504e-6, ramp_bytes = 11.4 * 1048576, spread_s = 68.4e-6 },
  efa2 = { message_s = 12.8e-6, achieved = 0.96, ramp_s = 319e-6, ramp_bytes = 51.5 * 1048576, spread_s = 18.6e-6 },
  efa4 = { message_s = 42.3e-6, achieved = 0.985, ramp_s = 92.5e-6, ramp_bytes = 6.5 * 1048576, spread_s = 20.4e-6 },
}
