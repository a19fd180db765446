-- expect: error[model-class] DiffusionGemmaForBlockDiffusion | removes noise
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "DiffusionGemmaForBlockDiffusion", torch_dtype = "float32" },
}
