-- expect: note[reshard-under-pp] every micro-batch
-- expect: ok original automodel | parallel pp(1f1b), fsdp2(reshard but the last)
return require "dialects.automodel" {
  world_size = 2, seq_length = 32, as = "original",
  model = require "models.llama" { size = "tiny", layers = 4, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, pipeline = { pp_schedule = "1f1b" } },
  step_scheduler = { local_batch_size = 8 },
}
