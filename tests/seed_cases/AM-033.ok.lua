-- expect: ok parallel zero(optim, eager) | equal
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "megatron_fsdp", data_parallel_sharding_strategy = "optim" },
}
