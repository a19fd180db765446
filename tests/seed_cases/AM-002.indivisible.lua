-- expect: error[divides-experts] n_routed_experts 6 must be divisible by expert_parallel_degree 4 | ep_size may be 1, 2
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", experts = 6, capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 4 },
}
