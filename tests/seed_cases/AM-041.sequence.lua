-- expect: ok weights 16 | parallel tp(sequence) only by 12 patterns, fsdp2(reshard but the last) | count tp all_gather 10 | count tp reduce_scatter 10 | equal
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", class = "MistralForCausalLM" },
  distributed = { tp_size = 2, sequence_parallel = true },
}
