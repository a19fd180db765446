-- expect: error[strategy-axes] ddp does not support pipeline parallelism | pp_size = 2
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "ddp", pp_size = 2, pipeline = {} },
}
