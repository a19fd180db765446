-- expect: ok holder layers.0.attention.wq.weight 0 | holder layers.3.attention.wq.weight 3 | holder layers.4.attention.wq.weight 0 | holder layers.7.attention.wq.weight 3
-- expect: ok holder layers.1.attention.wq.weight 1 | holder layers.2.attention.wq.weight 2 | holder layers.5.attention.wq.weight 1
-- expect: ok holder layers.6.attention.wq.weight 2
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 8, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 4, pipeline = { pp_schedule = "Interleaved1F1B" } },
  step_scheduler = { local_batch_size = 8 },
}
