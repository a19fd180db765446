-- expect: error[scan-heads] cp_size (6) must be divisible by n_groups (4) when n_groups < cp_size
return require "dialects.automodel" {
  world_size = 6, seq_length = 64,
  model = require "models.nemotron_h" { size = "tiny", scan_heads = 12, groups = 4 },
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { cp_size = 6 },
}
