-- expect: error[strategy-option] average_in_collective
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "megatron_fsdp", average_in_collective = true },
}
