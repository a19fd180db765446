-- expect: error[out-of-range] mode='fsdp+domain_parallel' | domain_parallel_size > 1
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { mode = "fsdp+domain_parallel" },
}
