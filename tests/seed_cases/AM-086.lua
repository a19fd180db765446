-- expect: ok mesh dp_replicate=2 dp_shard=2 ep=2 | experts 2 | replicas alike | start equal | equal
-- expect: note[dialect-differs] experts are sharded over the 2 ranks of each replica | 4 of all replicas
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { dp_replicate_size = 2, ep_size = 2 },
}
