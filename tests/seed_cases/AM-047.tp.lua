-- expect: error[sequence-with-experts] sequence_parallel is not supported
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, sequence_parallel = true },
}
