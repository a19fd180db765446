-- expect: ok mesh tp=2 | parallel tp(sequence) only by 12 patterns, fsdp2(reshard but the last)
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, sequence_parallel = true },
}
