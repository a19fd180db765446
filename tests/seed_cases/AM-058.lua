-- expect: error[scan-heads] num_heads (7) must be divisible by cp_size (4)
return require "dialects.automodel" {
  world_size = 4, seq_length = 64,
  model = require "models.nemotron_h" { size = "tiny", scan_heads = 7, groups = 1 },
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { cp_size = 4 },
}
