-- expect: ok stages 2,2 | parallel pp(gpipe), fsdp2(keep for the step)
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 4, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, pipeline = { pp_schedule = "GPipe" } },
  step_scheduler = { local_batch_size = 8 },
}
