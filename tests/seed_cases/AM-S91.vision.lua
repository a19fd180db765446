-- expect: ok ranks 2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.qwen2_vl" "tiny",
  hf = { class = "Qwen2VLForConditionalGeneration", torch_dtype = "float32" },
}
