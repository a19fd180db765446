-- expect: ok weights 16 | parallel tp only by 9 patterns, fsdp2(reshard but the last) | count tp all_reduce 19 | equal
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", class = "MistralForCausalLM" },
  distributed = { tp_size = 2 },
}
