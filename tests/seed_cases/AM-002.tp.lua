-- expect: error[dialect-unsupported] folded over dp x cp x tp = 4 x 1 x 2 | ep is carved out of dp alone
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, ep_size = 2 },
}
