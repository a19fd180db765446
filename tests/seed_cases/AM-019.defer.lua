-- expect: ok mesh dp_shard=8 | micro-batches 3 | count dp_shard reduce_scatter 3
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { defer_fsdp_grad_sync = true },
  step_scheduler = { local_batch_size = 1, global_batch_size = 24 },
}
