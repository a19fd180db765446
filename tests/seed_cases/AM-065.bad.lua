-- expect: error[virtual-stages] v schedules assume 2 stages a rank
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 12, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 4, pipeline = { pp_schedule = "ZBVZeroBubble", layers_per_stage = 1 } },
  step_scheduler = { local_batch_size = 8 },
}
