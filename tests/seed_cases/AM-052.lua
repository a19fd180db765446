-- expect: note[scan-heads] 4 of 8 heads, in 4 of 8 groups | no group is repeated
return require "dialects.automodel" {
  world_size = 2, seq_length = 64,
  model = require "models.nemotron_h" { size = "tiny", scan_heads = 8, groups = 8 },
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { cp_size = 2 },
}
