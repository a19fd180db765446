-- expect: note[model-class] tp_size = 2 | the model's own
-- expect: ok ranks 2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.qwen2_vl" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2 },
}
