-- If a model takes no scaling, a scaling is refused.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.gpt2" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = "linear", factor = 2.0 } },
}
