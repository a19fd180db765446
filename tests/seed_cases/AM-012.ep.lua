-- expect: error[strategy-axes] ddp does not support expert parallelism | ep_size = 2
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.mixtral" { size = "tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "ddp", ep_size = 2 },
}
