-- expect: ok ranks 2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.deepseek" { size = "tiny", capacity_factor = "all" },
  hf = { class = "DeepseekV3ForCausalLM", torch_dtype = "float32" },
  distributed = { ep_size = 2 },
}
