-- expect: error[model-class] hf.class = 'T5ForConditionalGeneration'
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "T5ForConditionalGeneration", torch_dtype = "float32" },
}
