-- expect: ok mesh pp=2 dp_shard=4 | stages 1,1
return require "dialects.automodel" {
  world_size = 8, seq_length = 32, api = true,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, pipeline = { pp_schedule = "1f1b" } },
  step_scheduler = { local_batch_size = 2 },
}
