-- expect: error[pp-layers] Number of stages (9) | layers (8)
return require "dialects.automodel" {
  world_size = 9, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 8, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 9, pipeline = { pp_schedule = "1f1b" } },
  step_scheduler = { local_batch_size = 18 },
}
