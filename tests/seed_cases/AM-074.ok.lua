-- expect: ok stages 8,8,8,8 | parallel pp(1f1b), fsdp2(keep for the step)
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 32, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 4, pipeline = { pp_schedule = "1f1b", layers_per_stage = 8 } },
  step_scheduler = { local_batch_size = 8 },
}
