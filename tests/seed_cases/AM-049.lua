-- expect: error[async-sequence] needs sequence_parallel
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, enable_async_tensor_parallel = true },
}
