-- expect: ok mesh pp=2 dp_shard=2 ep=2 | experts 2 | equal
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, ep_size = 2, pipeline = { pp_schedule = "1f1b" } },
  step_scheduler = { local_batch_size = 2 },
}
