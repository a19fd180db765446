-- expect: ok mesh pp=2 dp_replicate=2 dp_shard=2 tp=2 | data 0/4 0/4 1/4 1/4 2/4 2/4 3/4 3/4 0/4 0/4 1/4 1/4 2/4 2/4 3/4 3/4 | equal
return require "dialects.automodel" {
  world_size = 16, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 4 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, tp_size = 2, dp_replicate_size = 2, sequence_parallel = true, pipeline = {} },
  step_scheduler = { local_batch_size = 4 },
  clip_grad_norm = { max_norm = 0.01 },
}
