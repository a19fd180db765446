-- expect: warning[pp-bubble] (2) is less than the total number of stages (4)
-- expect: ok micro-batches 4
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 4, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, pipeline = { pp_schedule = "interleaved1f1b", layers_per_stage = 1 } },
  step_scheduler = { local_batch_size = 2, global_batch_size = 4 },
}
