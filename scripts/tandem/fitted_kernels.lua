-- Written by tests/bench/fit_kernels.sh, only from rows marked dev-cal; docs/reference/fit_kernels.md is its report.
return {
  -- kind: fitted; dev-cal rows of published products (docs/reference/fit_kernels.md)
  Ampere = { gemm_efficiency = 0.783 },
  Hopper = { gemm_efficiency = 0.765 },
}
