-- expect: error[model-class] LlamaBidirectionalModel | an encoder
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "LlamaBidirectionalModel", torch_dtype = "float32" },
}
