-- expect: ok mesh ep=4 | experts 1 | data 0/4 1/4 2/4 3/4 | equal
-- ep_shard is 1: experts are whole on their rank, the rest is sharded over all.
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 4 },
}
