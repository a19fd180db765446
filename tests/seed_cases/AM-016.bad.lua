-- expect: error[missing-key] pp_size=2 (> 1) | no distributed.pipeline block
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2 },
}
