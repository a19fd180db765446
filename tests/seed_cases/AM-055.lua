-- expect: note[scan-heads] 4 of 8 heads, in 1 of 1 groups | 2 ranks have each group
return require "dialects.automodel" {
  world_size = 2, seq_length = 64,
  model = require "models.nemotron_h" { size = "tiny", scan_heads = 8, groups = 1 },
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { cp_size = 2 },
}
