-- expect: note[dialect-differs] capacity_factor = all | room for every token
-- expect: ok ranks 4
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.gpt_oss" { size = "tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 4 },
}
