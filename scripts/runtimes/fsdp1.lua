-- FSDP1 of composer and llm-foundry: flat units, attention by Triton's kernels (MPT's default of that time),
-- layer norms of one kernel.
return require "runtimes.eager" { name = "fsdp1", attention = "triton" }
