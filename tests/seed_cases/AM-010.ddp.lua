-- expect: error[replicate-strategy] dp_replicate_size = 2 | ddp
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "ddp", dp_replicate_size = 2 },
}
