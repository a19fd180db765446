-- torchtitan of 2024: what compiles the blocks leaves the loss eager.
return require "runtimes.eager" { name = "torchtitan2024", fitted = "torchtitan", expandable = true, keeps_outputs = true,
  reports_rank = "last" }
