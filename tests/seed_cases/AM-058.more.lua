-- expect: error[scan-heads] n_groups (8) must be divisible by cp_size (6)
return require "dialects.automodel" {
  world_size = 6, seq_length = 64,
  model = require "models.nemotron_h" { size = "tiny", scan_heads = 24, groups = 8 },
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { cp_size = 6 },
}
