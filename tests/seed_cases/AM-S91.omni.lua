-- expect: error[model-class] Qwen2_5OmniModel | images, sound and text
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "Qwen2_5OmniModel", torch_dtype = "float32" },
}
