-- expect: ok parallel tp only by 9 patterns, fsdp2(reshard but the last, offload) | equal
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, offload_policy = { pin_memory = true }, mp_policy = { param_dtype = "bfloat16",
    reduce_dtype = "float32", output_dtype = "float32", cast_forward_inputs = true } },
}
