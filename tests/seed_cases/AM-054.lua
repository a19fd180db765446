-- expect: note[scan-heads] 4 of 16 heads, in 2 of 8 groups | no group is repeated
return require "dialects.automodel" {
  world_size = 4, seq_length = 64,
  model = require "models.nemotron_h" { size = "tiny", scan_heads = 16, groups = 8 },
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { cp_size = 4 },
}
